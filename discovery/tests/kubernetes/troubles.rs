//! Watches that end and break, versions that are forgotten, and a server that is away.

use super::*;

/// What a list of pods has in its query, and no watch.
const LIST: &str = "limit=";

#[tokio::test]
async fn a_watch_that_ends_or_breaks_goes_on_where_it_was() {
    let server = ApiServer::start(own_place());
    server.put(worker("a", 1));
    let mut reader = Reader::open(config(server.address())).await;
    reader.until(&[("a", 1)]).await;
    until("the watch", || server.count("watch=true") == 1).await;
    let lists = server.count(LIST);
    let words = json!({ "type": "ADDED", "object": worker("b", 2) }).to_string();
    // The last one has an event but for its line break, which is not all of it.
    for (round, (last_words, is_clean)) in
        [("", true), ("", false), (&words[..words.len() / 2], false), (&words, false)].into_iter().enumerate()
    {
        server.end_watches(last_words, is_clean);
        server.put(worker("b", 2));
        reader.until(&[("a", 1), ("b", 2)]).await;
        server.delete("b");
        reader.until(&[("a", 1)]).await;
        assert!(server.count("watch=true") >= round + 2);
    }
    assert_eq!((server.count(LIST), reader.counts), (lists, [5, 0, 4]));
    let asked = server.state().asked.last().cloned().expect("it was asked");
    for part in ["/api/v1/namespaces/baton/pods?", "&allowWatchBookmarks=true", "&timeoutSeconds=120"] {
        assert!(asked.contains(part), "{asked}");
    }
    assert!(asked.contains("labelSelector=app%2Ekubernetes%2Eio%2Fname%3Dbaton%2Cllm"), "{asked}");
}

#[tokio::test]
async fn a_bookmark_keeps_a_quiet_watch_from_being_forgotten() {
    let server = ApiServer::start(own_place());
    server.put(worker("a", 1));
    let mut reader = Reader::open(config(server.address())).await;
    reader.until(&[("a", 1)]).await;
    until("the watch", || server.count("watch=true") == 1).await;
    let lists = server.count(LIST);
    server.bookmark();
    until("the bookmark", || server.state().told == 2).await;
    server.state().forgotten = 2;
    server.end_watches("", true);
    server.put(worker("b", 2));
    reader.until(&[("a", 1), ("b", 2)]).await;
    assert_eq!(server.count(LIST), lists);
    assert!(server.state().asked.last().is_some_and(|asked| asked.ends_with("&resourceVersion=2")));
}

#[tokio::test]
async fn pods_are_listed_again_when_their_version_is_forgotten() {
    let server = ApiServer::start(own_place());
    server.put(worker("a", 1));
    server.put(worker("b", 2));
    let mut reader = Reader::open(config(server.address())).await;
    reader.until(&[("a", 1), ("b", 2)]).await;
    until("the watch", || server.count("watch=true") == 1).await;
    let lists = server.count(LIST);
    // As the status of an answer.
    server.at_once(|state| {
        state.delete("a");
        state.put(worker("c", 3));
        state.forgotten = state.version;
        state.end_watches("", false);
    });
    reader.until(&[("b", 2), ("c", 3)]).await;
    assert_eq!(server.count(LIST), lists + 1);
    // As the last event of a watch.
    server.put(worker("d", 4));
    reader.until(&[("b", 2), ("c", 3), ("d", 4)]).await;
    let gone = json!({ "type": "ERROR", "object": status(410, "too old resource version") });
    server.at_once(|state| {
        state.delete("b");
        state.end_watches(&format!("{gone}\n"), true);
    });
    reader.until(&[("c", 3), ("d", 4)]).await;
    assert_eq!((server.count(LIST), reader.counts), (lists + 2, [4, 0, 2]));
}

#[tokio::test]
async fn a_list_whose_rest_is_forgotten_begins_again() {
    let server = ApiServer::start(own_place());
    for at in 0..250 {
        server.put(worker(&format!("p-{at:03}"), at as u8));
    }
    // The second page.
    server.state().refused.push(("continue=p%2D100", 410));
    let mut reader = Reader::open(config(server.address())).await;
    until("two lists", || server.count("continue=p%2D100") > 2).await;
    server.state().refused.clear();
    let wanted: Vec<_> = (0..250).map(|at| (format!("p-{at:03}"), at as u8)).collect();
    let wanted: Vec<_> = wanted.iter().map(|(name, host)| (name.as_str(), *host)).collect();
    reader.until(&wanted).await;
    assert_eq!((reader.counts, server.count("continue=p%2D200")), ([250, 0, 0], 1));
}

#[tokio::test]
async fn what_is_listed_stays_while_the_server_is_away() {
    let server = ApiServer::start(own_place());
    server.put(worker("a", 1));
    server.put(worker("b", 2));
    let mut reader = Reader::open(config(server.address())).await;
    reader.until(&[("a", 1), ("b", 2)]).await;
    for host in [3, 4] {
        server.go_away();
        server.delete("b");
        server.put(worker("b", host));
        let before = server.state().turned_away;
        until("several attempts", || server.state().turned_away > before + 3).await;
        server.return_again();
        reader.until(&[("a", 1), ("b", host)]).await;
    }
    assert_eq!(reader.counts, [2, 2, 0]);
    // Its store was restored: versions begin again, and are not resumed from.
    server.go_away();
    let before = server.state().turned_away;
    until("an attempt", || server.state().turned_away > before).await;
    server.state().wipe();
    for version in 0..5 {
        server.put(worker("c", version));
    }
    server.return_again();
    reader.until(&[("c", 4)]).await;
    server.put(worker("d", 5));
    reader.until(&[("c", 4), ("d", 5)]).await;
    assert_eq!(reader.counts, [4, 2, 2]);
}

#[tokio::test]
async fn pods_are_listed_again_after_many_watches() {
    let server = ApiServer::start(own_place());
    server.put(worker("a", 1));
    let mut reader = Reader::open(config(server.address())).await;
    reader.until(&[("a", 1)]).await;
    let lists = server.count(LIST);
    for watch in 1..=30 {
        until("the next watch", || server.count("watch=true") == watch).await;
        assert_eq!(server.count(LIST), lists, "at watch {watch}");
        server.put(worker("b", watch as u8));
        until("the pod to be told", || server.state().told == watch as u64 + 1).await;
        server.end_watches("", watch % 2 == 0);
    }
    until("a list", || server.count(LIST) > lists).await;
    reader.until(&[("a", 1), ("b", 30)]).await;
    assert_eq!(reader.counts, [2, 29, 0]);
}

#[tokio::test]
async fn a_server_that_comes_later_is_used() {
    let place = own_place();
    let mut reader = Reader::open(config(place)).await;
    let server = ApiServer::start(place);
    server.put(worker("a", 1));
    reader.until(&[("a", 1)]).await;
    assert_eq!(reader.counts, [1, 0, 0]);
}

#[tokio::test]
async fn what_cannot_be_read_ends_no_reader() {
    let server = ApiServer::start(own_place());
    server.put(worker("a", 1));
    let mut reader = Reader::open(config(server.address())).await;
    reader.until(&[("a", 1)]).await;
    for (at, words) in
        ["no JSON\n", "{\"type\":\"NEW\",\"object\":{}}\n", "{\"type\":\"ADDED\",\"object\":7}\n"].iter().enumerate()
    {
        let host = at as u8 + 2;
        until("another watch", || server.count("watch=true") > at).await;
        server.end_watches(words, true);
        server.put(worker("b", host));
        reader.until(&[("a", 1), ("b", host)]).await;
    }
    assert_eq!(reader.counts, [2, 2, 0]);
}
