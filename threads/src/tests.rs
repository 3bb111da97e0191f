use crate::{Doing, Listed, State, Thread, does, during, list, spawn};
use std::sync::mpsc::channel;
use std::time::Duration;

fn find<'a>(listed: &'a Listed, name: &str) -> Option<&'a Thread> {
    listed.threads.iter().find(|thread| thread.name == name)
}

#[test]
fn a_thread_says_what_it_does_and_is_forgotten_with_its_end() {
    const NAME: &str = "a-name-of-more-than-15-bytes";
    let (go, gone) = channel::<()>();
    let (at, reached) = channel();
    let thread = spawn(NAME.to_owned(), move || {
        during(Doing::WaitsForMoves, || {
            at.send(()).expect("the test listens");
            gone.recv().expect("the test goes on");
        });
        at.send(()).expect("the test listens");
        gone.recv().expect("the test goes on");
        does(Doing::Computes);
        at.send(()).expect("the test listens");
        gone.recv().expect("the test goes on");
    });
    for expect in [Doing::WaitsForMoves, Doing::Works, Doing::Computes] {
        reached.recv().expect("it goes on");
        let listed = list();
        let found = find(&listed, NAME).expect("it is listed by its whole name");
        let (doing, time) = found.doing.expect("it is registered");
        assert_eq!(doing, expect);
        assert!(time < Duration::from_secs(60), "{time:?}");
        assert!(found.state.is_some(), "the kernel knows it");
        go.send(()).expect("it waits");
    }
    thread.expect("it starts").join().expect("it ends well");
    assert!(find(&list(), NAME).is_none());
}

#[test]
fn time_goes_on_while_a_thread_waits() {
    let (go, gone) = channel::<()>();
    let thread = spawn("waits".to_owned(), move || during(Doing::WaitsForFiles, || gone.recv()));
    let waited = || {
        let listed = list();
        let thread = find(&listed, "waits")?;
        let (doing, time) = thread.doing?;
        (doing == Doing::WaitsForFiles && time > Duration::from_millis(50)).then_some((thread.state, time))
    };
    let (state, _) = std::iter::repeat_with(|| {
        std::thread::sleep(Duration::from_millis(5));
        waited()
    })
    .take(4000)
    .flatten()
    .next()
    .expect("it waits for longer and longer");
    assert_eq!(state, Some(State::Sleeping));
    drop(go);
    assert!(thread.expect("it starts").join().expect("it ends well").is_err());
}

#[test]
fn what_a_thread_did_is_said_again_after_a_panic() {
    let thread = spawn("panics".to_owned(), || {
        does(Doing::Computes);
        let panic = std::panic::catch_unwind(|| during(Doing::WaitsForHelpers, || panic!("as it should")));
        let own = |thread: &Thread| thread.name == "panics";
        let doing = list().threads.into_iter().find(own).and_then(|thread| thread.doing);
        (panic.is_err(), doing.map(|(doing, _)| doing))
    });
    assert_eq!(thread.expect("it starts").join().expect("it was caught"), (true, Some(Doing::Computes)));
}

#[test]
fn threads_that_are_not_registered_are_listed_behind_the_others() {
    let (go, gone) = channel::<()>();
    let (begin, begun) = channel();
    let other = std::thread::Builder::new().name("other".to_owned()).spawn(move || {
        // A thread names itself as it begins.
        let _ = begin.send(());
        // It says nothing, and nothing breaks.
        during(Doing::Works, || gone.recv())
    });
    begun.recv().expect("it begins");
    let registered = spawn("registered".to_owned(), || {
        let listed = list();
        let at = |name: &str| listed.threads.iter().position(|thread| thread.name == name);
        (at("registered"), at("other"), find(&listed, "other").map(|thread| thread.doing.is_none()))
    });
    let (registered, other_at, says_nothing) = registered.expect("it starts").join().expect("it ends well");
    assert!(registered.is_some() && registered < other_at, "{registered:?} {other_at:?}");
    assert_eq!(says_nothing, Some(true));
    drop(go);
    let _ = other.expect("it starts").join();
}

#[test]
fn each_doing_has_a_number_of_its_own_and_words() {
    for number in 0..=u8::MAX {
        let doing = Doing::of_number(number);
        assert!(doing == Doing::Works || doing as u8 == number);
        assert!(!doing.words().is_empty() && !doing.words().ends_with('.'));
    }
}
