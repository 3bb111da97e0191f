//! The file of keys and the limits of a key.

use super::file::{KeyEntry, KeyFile, KeyFileError, KeyHash, new_key};
use super::meter::{Limit, Meter, Rate, Reached};
use super::ring::{KeyError, Keys, read_if_new};
use domain::Time;
use http::header::AUTHORIZATION;
use http::{HeaderMap, HeaderName, HeaderValue};
use std::path::Path;
use std::time::Duration;

fn entry(requests_per_minute: u32, tokens_per_minute: u32, concurrent: u32) -> KeyEntry {
    let plain = KeyEntry::new(KeyHash::of("baton-1"), "acme".to_owned());
    KeyEntry { requests_per_minute, tokens_per_minute, concurrent, ..plain }
}

fn at(seconds: u64) -> Time {
    Time::ZERO + Duration::from_secs(seconds)
}

fn headers(value: &str) -> HeaderMap {
    HeaderMap::from_iter([(AUTHORIZATION, HeaderValue::from_str(value).expect("ASCII"))])
}

#[test]
fn a_minute_takes_as_many_requests_as_its_limit_and_fills_evenly() {
    let mut meter = Meter::new(&entry(6, 0, 0), at(0));
    for _ in 0..6 {
        assert_eq!(meter.begin(at(0)), Ok(()));
    }
    let reached = Reached { limit: Limit::Requests, most: 6, wait: Duration::from_secs(10) };
    assert_eq!(meter.begin(at(0)), Err(reached));
    assert_eq!(meter.begin(at(10)), Ok(()), "a sixth of a minute brings one");
    assert_eq!(meter.begin(at(10)), Err(reached));
    let rate = Rate { most: 6, left: 3, full_in: Duration::from_secs(30) };
    assert_eq!(meter.rates(at(40)), [Some(rate), None]);
    assert_eq!(meter.rates(at(10_000))[0].map(|rate| rate.left), Some(6), "no more than a minute's is saved up");
}

#[test]
fn a_key_waits_while_its_tokens_are_overdrawn() {
    let mut meter = Meter::new(&entry(0, 60, 0), at(0));
    assert_eq!(meter.begin(at(0)), Ok(()));
    meter.take(90);
    let wait = meter.begin(at(0)).expect_err("30 too many were taken").wait;
    assert!(wait >= Duration::from_secs(30) && wait < Duration::from_secs(31), "{wait:?}");
    assert_eq!(meter.rates(at(0))[1].map(|rate| rate.left), Some(0));
    assert_eq!(meter.begin(at(31)), Ok(()));
}

#[test]
fn requests_at_once_are_counted_until_they_end() {
    let mut meter = Meter::new(&entry(0, 0, 1), at(0));
    assert_eq!(meter.begin(at(0)), Ok(()));
    assert_eq!(meter.begin(at(0)).map_err(|reached| reached.limit), Err(Limit::Concurrent));
    meter.end();
    assert_eq!(meter.begin(at(0)), Ok(()));
}

#[test]
fn a_request_that_is_refused_takes_nothing() {
    let mut meter = Meter::new(&entry(2, 10, 0), at(0));
    assert_eq!(meter.begin(at(0)), Ok(()));
    meter.take(10);
    assert_eq!(meter.begin(at(0)).map_err(|reached| reached.limit), Err(Limit::Tokens));
    assert_eq!(meter.rates(at(0))[0].map(|rate| rate.left), Some(1));
}

#[test]
fn other_limits_keep_what_was_taken() {
    let mut meter = Meter::new(&entry(10, 0, 0), at(0));
    (0..8).for_each(|_| assert_eq!(meter.begin(at(0)), Ok(())));
    meter.limit(&entry(20, 0, 0), at(0));
    assert_eq!(meter.rates(at(0))[0].map(|rate| rate.left), Some(12));
    meter.limit(&entry(5, 0, 0), at(0));
    assert_eq!(meter.begin(at(0)).map_err(|reached| reached.limit), Err(Limit::Requests));
    meter.limit(&entry(0, 0, 0), at(0));
    assert_eq!(meter.begin(at(0)), Ok(()), "there is no limit any more");
}

#[test]
fn a_limit_that_is_lowered_is_owed_a_minute_at_most() {
    let minute = Duration::from_secs(60);
    let mut meter = Meter::new(&entry(1000, 100_000, 0), at(0));
    (0..800).for_each(|_| assert_eq!(meter.begin(at(0)), Ok(())));
    meter.take(90_000);
    for (requests, tokens) in [(10, 0), (1, 0), (0, 100), (0, 1)] {
        let mut meter = meter.clone();
        meter.limit(&entry(requests, tokens, 0), at(0));
        let wait = meter.begin(at(0)).expect_err("more was taken than that").wait;
        assert!(wait <= minute, "{requests} requests, {tokens} tokens: {wait:?}");
        assert_eq!(meter.begin(at(60)), Ok(()), "{requests} requests, {tokens} tokens");
    }
    // A file that says the same again forgives nothing.
    meter.take(200_000);
    meter.limit(&entry(1000, 100_000, 0), at(0));
    assert!(meter.begin(at(0)).expect_err("it is overdrawn").wait > minute);
}

#[test]
fn a_file_comes_back_as_it_was_written_and_holds_no_key() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let (key, hash) = new_key().expect("random numbers");
    let added = KeyEntry { hash, models: vec!["m".into()], admin: true, ..entry(1, 2, 3) };
    KeyFile::change(&path, |file| file.keys.push(added.clone())).expect("it is written");
    assert_eq!(KeyFile::read(&path).expect("it is read").keys, [added]);
    let text = std::fs::read_to_string(&path).expect("text");
    assert!(!text.contains(&key) && text.contains(&hash.to_string()), "{text}");
    assert_eq!(KeyHash::of(&key), hash);
    use std::os::unix::fs::PermissionsExt;
    assert_eq!(std::fs::metadata(&path).expect("it is there").permissions().mode() & 0o777, 0o600);
}

#[test]
fn a_file_that_is_changed_keeps_its_rights_and_its_place() {
    use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
    let folder = tempfile::tempdir().expect("a folder");
    let (real, link) = (folder.path().join("real/keys.json"), folder.path().join("keys.json"));
    std::fs::create_dir(folder.path().join("real")).expect("there is room");
    let add = |path: &Path| {
        let (_, hash) = new_key().expect("random numbers");
        KeyFile::change(path, |file| file.keys.push(KeyEntry { hash, ..entry(0, 0, 0) })).expect("it is written");
    };
    add(&real);
    std::fs::set_permissions(&real, std::fs::Permissions::from_mode(0o640)).expect("it is ours");
    // Only root may give a file away; of another user, the file stays its own.
    let owner = std::os::unix::fs::chown(&real, Some(12), Some(34)).map_or(None, |()| Some((12, 34)));
    symlink("real/keys.json", &link).expect("there is room");
    add(&link);
    assert!(link.is_symlink(), "the file is where it was");
    let about = std::fs::metadata(&real).expect("it is there");
    assert_eq!(about.mode() & 0o777, 0o640);
    assert!(owner.is_none_or(|owner| owner == (about.uid(), about.gid())), "{} {}", about.uid(), about.gid());
    assert_eq!(KeyFile::read(&real).expect("it is read").keys.len(), 2);
    let left: Vec<_> =
        std::fs::read_dir(folder.path()).expect("it is there").flatten().map(|it| it.file_name()).collect();
    assert_eq!(left.len(), 2, "nothing is made beside the link: {left:?}");
}

#[test]
fn a_change_within_a_file_is_noticed_whatever_its_time_says() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    KeyFile::change(&path, |file| file.keys.push(entry(1, 0, 0))).expect("it is written");
    let (seen, _) = read_if_new(&path, None).expect("it is new");
    assert!(read_if_new(&path, Some(seen)).is_none(), "nothing has changed");
    let before = std::fs::metadata(&path).expect("it is there").modified().expect("it has a time");
    let text = std::fs::read_to_string(&path).expect("text").replace(": 1", ": 2");
    // A clock that counts in coarse steps may not have moved on yet.
    let noticed = (0..3000).any(|_| {
        std::fs::write(&path, &text).expect("there is room");
        std::fs::File::options()
            .write(true)
            .open(&path)
            .and_then(|file| file.set_modified(before))
            .expect("it is ours");
        std::thread::sleep(Duration::from_millis(10));
        read_if_new(&path, Some(seen))
            .is_some_and(|(_, file)| file.expect("it is read").keys[0].requests_per_minute == 2)
    });
    assert!(noticed);
}

#[test]
fn files_that_are_none_are_refused_by_name() {
    let parse =
        |json: &str| KeyFile::parse(Path::new("keys.json"), json.as_bytes()).expect_err("it is none").to_string();
    assert!(parse("{}").contains("keys.json is no file of keys"), "{}", parse("{}"));
    assert!(parse(r#"{"keys": [{"hash": "12", "tenant": "a"}]}"#).contains("line 1"));
    assert!(parse(r#"{"keys": [], "key": 1}"#).contains("unknown field `key`"));
    let hash = KeyHash::of("a");
    let twice = format!(r#"{{"keys": [{{"hash": "{hash}", "tenant": "a"}}, {{"hash": "{hash}", "tenant": "b"}}]}}"#);
    assert!(parse(&twice).contains(&format!("the key {} is there twice", hash.id())));
    assert!(matches!(Keys::open(Path::new("/no/such/file")), Err(KeyFileError::Io { .. })));
}

#[test]
fn a_key_is_found_by_its_bearer_alone() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    KeyFile::change(&path, |file| file.keys.push(entry(0, 0, 0))).expect("it is written");
    let keys = Keys::open(&path).expect("it is read");
    for known in ["Bearer baton-1", "bearer baton-1", "Bearer  baton-1 "] {
        assert!(keys.find(&headers(known)).is_ok_and(|key| key.is_some()), "{known}");
    }
    for wrong in ["baton-1", "Basic baton-1", "Bearer ", "Bearer baton-2"] {
        assert!(keys.find(&headers(wrong)).is_err(), "{wrong}");
    }
    assert!(keys.find(&HeaderMap::new()).is_err());
    assert!(Keys::default().find(&HeaderMap::new()).is_ok_and(|key| key.is_none()), "without keys all may ask");
}

#[test]
fn a_key_is_found_in_either_header() {
    let keys = Keys::new(None, ["one", "two"]).expect("there is no file");
    let shown = |headers: &[(&'static str, &'static str)]| {
        let pair = |&(name, value)| (HeaderName::from_static(name), HeaderValue::from_static(value));
        keys.find(&headers.iter().map(pair).collect())
    };
    for known in [
        &[("authorization", "Bearer one")][..],
        &[("x-api-key", "two")],
        &[("x-api-key", " one ")],
        &[("authorization", "Bearer other"), ("x-api-key", "one")],
        &[("authorization", "Bearer one"), ("x-api-key", "other")],
    ] {
        assert!(shown(known).is_ok_and(|key| key.is_some()), "{known:?}");
    }
    for (wrong, error) in [
        (&[][..], KeyError::Missing),
        (&[("x-api-key", "")], KeyError::Missing),
        (&[("x-api-key", "other")], KeyError::Unknown),
        (&[("x-api-key", "Bearer one")], KeyError::Unknown),
        (&[("authorization", "Bearer other"), ("x-api-key", "three")], KeyError::Unknown),
    ] {
        assert_eq!(shown(wrong).err(), Some(error), "{wrong:?}");
    }
}

#[test]
fn fixed_keys_go_along_with_those_of_a_file() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("keys.json");
    let limited = KeyEntry { hash: KeyHash::of("limited"), ..entry(3, 0, 0) };
    KeyFile::change(&path, |file| file.keys.extend([entry(0, 0, 0), limited])).expect("it is written");
    let keys = Keys::new(Some(&path), ["fixed", "limited"]).expect("it is read");
    let tenant = |key: &str| {
        let found = keys.find(&headers(&format!("Bearer {key}"))).expect("it is known").expect("a key is needed");
        assert!(found.may_ask("any model") && !found.is_operator());
        found.tenant().to_owned()
    };
    assert_eq!((tenant("baton-1"), tenant("fixed")), ("acme".to_owned(), String::new()));
    assert_eq!(tenant("limited"), "acme", "the file says more of it");
    assert!(Keys::new(None, []).expect("there is no file").find(&HeaderMap::new()).is_ok_and(|key| key.is_none()));
}
