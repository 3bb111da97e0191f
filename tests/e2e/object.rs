//! The object tier against a store that others wrote: workers share what they computed, over a store's death and
//! return, and bytes that somebody flipped there are never used. The text is always that of a server without
//! tiers.

use crate::asks::{Ask, check_all};
use crate::disk::{ASKS, BLOCK_TOKENS, SMALL, TOKENS, asks, expected, round};
use crate::models::Folder;
use crate::server::{Server, until};
use crate::store::{BUCKET, Store};
use serde_json::json;
use std::io::{Read, Write};
use std::net::TcpStream;

const FLAGS: [&str; 2] = ["--prefill", "0"];
const SOMEBODY: &str =
    "AWS4-HMAC-SHA256 Credential=test/20260101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0";
/// Full blocks of all prompts.
const BLOCKS: u32 = ASKS * (TOKENS / BLOCK_TOKENS);

fn start(store: &Store, more: &[(&str, &str)]) -> Server {
    started(store, &FLAGS, more)
}

fn started(store: &Store, flags: &[&str], more: &[(&str, &str)]) -> Server {
    let endpoint = format!("http://{}", store.address);
    let mut environment = vec![
        ("BATON_OBJECT__ENDPOINT", endpoint.as_str()),
        ("BATON_OBJECT__BUCKET", BUCKET),
        ("BATON_OBJECT__WRITE", "through"),
        ("BATON_OBJECT__LIST_S", "1"),
        ("AWS_ACCESS_KEY_ID", "key"),
        ("AWS_SECRET_ACCESS_KEY", "secret"),
    ];
    environment.extend_from_slice(more);
    Server::start_with(flags, &environment)
}

fn moved(server: &Server, result: &str) -> f64 {
    server.metrics().sum("baton_tier_moves_total", &[("tier", "object"), ("result", result)])
}

fn until_open(server: &Server, open: f64) {
    let what = if open > 0.0 { "the store to be there again" } else { "the store to be missed" };
    until(what, || (server.metrics().sum("baton_tier_open", &[("tier", "object")]) == open).then_some(()));
}

/// Waits until it knows of all blocks of the prompts in the store.
fn until_known(server: &Server) {
    let held = || server.metrics().sum("baton_tier_records", &[("tier", "object"), ("state", "held")]);
    until("all blocks to be in the store", || (held() >= f64::from(BLOCKS)).then_some(()));
}

/// The body of an answer to a request that nobody signed: this store wants a name, and does not look whether it is
/// right.
fn raw(store: &Store, method: &str, key: &str, body: &[u8]) -> Vec<u8> {
    let mut stream = TcpStream::connect(store.address).expect("it listens");
    let len = body.len();
    let head = format!(
        "{method} /{BUCKET}/{key} HTTP/1.0\r\nHost: {}\r\nAuthorization: {SOMEBODY}\r\nContent-Length: {len}\r\n\r\n",
        store.address
    );
    stream.write_all(&[head.as_bytes(), body].concat()).expect("it is asked");
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).expect("it answers");
    let end = answer.windows(4).position(|four| four == b"\r\n\r\n").expect("an answer has a head");
    assert!(answer[..end].windows(5).any(|five| five == b" 200 "), "{}", String::from_utf8_lossy(&answer[..end]));
    answer.split_off(end + 4)
}

/// What release 0.2.0 wrote stays as it is, and is told with its bytes and the command that removes it.
#[test]
fn records_of_an_earlier_version_are_left_alone_and_told() {
    let store = Store::start();
    let record = |number: u32| format!("kv/1/0123456789abcdef/0/{number:032x}");
    let keys = [record(15), record(31), "kv/README".to_owned()];
    keys.iter().for_each(|key| drop(raw(&store, "PUT", key, b"a record of that time")));
    let server = start(&store, &[("BATON_OBJECT__PREFIX", "kv")]);
    let left = || server.metrics().sum("baton_tier_leftover_bytes", &[("tier", "object")]);
    until("the records to be counted", || (left() > 0.0).then_some(()));
    assert_eq!(left(), 42.0);
    let log = server.log();
    let told = log.lines().find(|line| line.contains("records of an earlier version")).expect("it is told");
    assert!(told.contains(" version=1 objects=2 bytes=42 "), "{told}");
    let command = format!("aws s3 rm --recursive --endpoint-url 'http://{}' 's3://{BUCKET}/kv/1/'", store.address);
    assert_eq!(told.split_once(" command=").map(|(_, command)| command), Some(command.as_str()));
    for key in keys {
        assert_eq!(raw(&store, "GET", &key, b""), b"a record of that time", "{key}");
    }
}

#[test]
fn workers_share_a_store_that_may_die_and_return() {
    let (expected, mut store) = (expected(&FLAGS), Store::start());
    let first = start(&store, &[]);
    assert_eq!(round(&first, &expected), 0);
    until_known(&first);
    // What another worker computed is there for the first prompt of a new one.
    let second = start(&store, &[SMALL]);
    until_known(&second);
    let (said, cached) = asks()[0].whole(&second);
    assert_eq!(said, expected[0]);
    assert_eq!(cached, u64::from(TOKENS / BLOCK_TOKENS * BLOCK_TOKENS), "prompt tokens came from the store");
    until("reads from the store", || (moved(&second, "read") > 0.0).then_some(()));
    round(&second, &expected);
    second.settled();

    // Without the store it goes on; after a return it goes on with it, though that has lost everything.
    store.die();
    until_open(&second, 0.0);
    round(&second, &expected);
    let written = moved(&second, "written");
    let _store = Store::start_at(store.address.port());
    until_open(&second, 1.0);
    round(&second, &expected);
    let fresh: Vec<u32> = (0..TOKENS).map(|n| 300 + n * 7 % 1400).collect();
    let fresh = Ask::completion("tiny-rust", json!(fresh), json!({ "temperature": 0, "max_tokens": 12 }));
    assert_eq!(fresh.whole(&second).0, fresh.whole(&first).0);
    until("writes to the new store", || (moved(&second, "written") > written).then_some(()));
    second.settled();
}

/// Prompts of which the first blocks are on the device, and the next ones only in another worker's memory, only on
/// disk, and only in the store.
#[test]
fn one_prompt_comes_from_every_place_at_once() {
    const PROMPTS: u32 = 6;
    // How many of its blocks each place has, all from the first one on.
    const ON_DEVICE: u32 = 2;
    const IN_MEMORY: u32 = 4;
    const ON_DISK: u32 = 6;
    let first = |ask: &Ask, blocks: u32| {
        let mut body = ask.body.clone();
        body["prompt"].as_array_mut().expect("it is of tokens").truncate((blocks * BLOCK_TOKENS + 1) as usize);
        Ask { path: ask.path, body }
    };
    let prompts = || asks().into_iter().take(PROMPTS as usize);
    let expected = expected(&FLAGS);
    let (folder, memory, store) = (Folder::new("every-place"), Folder::in_memory("every-place"), Store::start());
    let (disks, slabs) = (folder.path("tier"), memory.path("slabs"));
    std::fs::create_dir(&disks).expect("a folder for the tier");
    let disk =
        [("BATON_DISK__FOLDERS", disks.as_str()), ("BATON_DISK__BYTES", "64MiB"), ("BATON_DISK__WRITE", "through")];
    let host = [("BATON_HOST__BYTES", "64MiB"), ("BATON_HOST__FOLDER", slabs.as_str())];
    let until_held = |server: &Server, tier: &str, blocks: u32| {
        let held = || server.metrics().sum("baton_tier_records", &[("tier", tier), ("state", "held")]);
        until("blocks in a tier", || (held() >= f64::from(PROMPTS * blocks)).then_some(()));
    };

    let server = start(&store, &[]);
    prompts().zip(&expected).for_each(|(ask, expected)| assert_eq!(&ask.whole(&server).0, expected));
    until_held(&server, "object", TOKENS / BLOCK_TOKENS);
    drop(server);
    for (tier, environment, blocks) in [("disk", &disk[..], ON_DISK), ("host", &host, IN_MEMORY)] {
        let server = Server::start_with(&FLAGS, environment);
        prompts().for_each(|ask| drop(first(&ask, blocks).whole(&server)));
        until_held(&server, tier, blocks);
    }

    let server = start(&store, &[&disk[..], &host].concat());
    until_held(&server, "neighbours", IN_MEMORY);
    until_held(&server, "object", TOKENS / BLOCK_TOKENS);
    let places = ["device", "neighbours", "disk", "object"];
    let came = || {
        let metrics = server.settled();
        places.map(|place| metrics.sum("baton_prompt_source_tokens_sum", &[("source", place)]))
    };
    // Where a place turns out to be slower than computing, later prompts compute what it has.
    let mut from_all = 0;
    for (ask, expected) in prompts().zip(&expected) {
        first(&ask, ON_DEVICE).whole(&server);
        let before = came();
        assert_eq!(&ask.whole(&server).0, expected, "{ask:?}");
        from_all += u32::from(came().iter().zip(before).all(|(now, before)| *now > before));
    }
    assert!(from_all > 0, "no prompt came from all of {places:?}: {:?} in all", came());
}

/// Objects that a worker remembers here: fewer than there are, and more than three prompts have.
const KNOWN_MAX: u32 = 70;

/// The store has more than a worker remembers: what a prompt needs is looked up beside its computation, and there
/// for the next one.
#[test]
fn what_a_store_has_beyond_what_is_remembered_is_found_by_who_needs_it() {
    let (expected, store) = (expected(&FLAGS), Store::start());
    let first = start(&store, &[]);
    round(&first, &expected);
    until_known(&first);
    drop(first);
    let known_max = KNOWN_MAX.to_string();
    // What is written is known to be there, too: nothing is before its second use.
    let more = [SMALL, ("BATON_OBJECT__KNOWN_MAX", &*known_max), ("BATON_OBJECT__WRITE", "second-use")];
    let second = start(&store, &more);
    let held = || second.metrics().sum("baton_tier_records", &[("tier", "object"), ("state", "held")]);
    until("as much to be known as is remembered", || (held() >= f64::from(KNOWN_MAX)).then_some(()));
    let blocks = f64::from(TOKENS / BLOCK_TOKENS);
    let lookups = |result| second.metrics().sum("baton_tier_lookups_total", &[("tier", "object"), ("result", result)]);
    let ask = |at: usize| assert_eq!(asks()[at].whole(&second).0, expected[at]);
    ask(0);
    let unknown = until("the blocks of the prompt to be counted", || {
        (lookups("hit") + lookups("miss") >= blocks).then(|| lookups("miss"))
    });
    assert!(unknown > 0.0, "all was known before: this shows nothing");
    until("what was not known to be found", || (moved(&second, "found") >= unknown).then_some(()));
    // Others take its room on the device, at least some of it.
    (1..4).for_each(ask);
    second.settled();
    let (hit, miss) = (lookups("hit"), lookups("miss"));
    ask(0);
    until("its blocks to be counted again", || (lookups("hit") > hit).then_some(()));
    assert_eq!(lookups("miss") - miss, 0.0, "blocks are not known though they were found");
    second.settled();
}

/// Computing takes so long that what was found is loaded for the prompt that looked for it, before that is computed.
#[test]
fn what_is_found_is_loaded_towards_its_prompt() {
    let store = Store::start();
    let slow = ["--device", "sim", "--set", "engine.chunk_tokens=32", "--set", "kv.device_bytes=64MiB"];
    let flags = |speed| [&FLAGS[..], &slow[..], &["--set", speed][..]].concat();
    // It lists what is there once, before there is anything.
    let more = [("BATON_OBJECT__LIST_S", "3600"), ("BATON_OBJECT__WRITE", "second-use")];
    let second = started(&store, &flags("sim.speed_percent=2"), &more);
    let prompt: Vec<u32> = (0..TOKENS).map(|n| 300 + n * 7 % 1400).collect();
    let ask = Ask::completion("tiny-rust", json!(prompt), json!({ "seed": 1, "max_tokens": 12 }));
    let first = started(&store, &flags("sim.speed_percent=0"), &[]);
    let said = ask.whole(&first).0;
    let blocks = f64::from(TOKENS / BLOCK_TOKENS);
    until("all blocks to be in the store", || (moved(&first, "written") >= blocks).then_some(()));
    let (again, cached) = ask.whole(&second);
    assert_eq!(again, said);
    assert!(cached > 0, "nothing of the prompt came from the store");
    assert!(moved(&second, "found") > 0.0);
    second.settled();
    first.settled();
}

/// Prompts that wait for room on the device find in memory what was in the store alone when they came.
#[test]
fn what_prompts_that_wait_will_need_is_lifted_from_the_store_to_memory() {
    let (expected, store) = (expected(&FLAGS), Store::start());
    let first = start(&store, &[]);
    assert_eq!(round(&first, &expected), 0);
    until_known(&first);
    drop(first);
    // No pool is ever fuller than that: whatever lies in memory was lifted.
    let more =
        [SMALL, ("BATON_HOST__BYTES", "64MiB"), ("BATON_HOST__WRITE", "back"), ("BATON_KV__HIGH_PERCENT", "100")];
    let second = start(&store, &more);
    until_known(&second);
    let asked: Vec<_> = asks().into_iter().zip(expected).collect();
    let in_memory = |result| second.metrics().sum("baton_tier_moves_total", &[("tier", "host"), ("result", result)]);
    // Whether prompts wait on the worker for long enough depends on how fast it is, so they are asked again.
    until("lifts", || {
        check_all(&second, &asked, asked.len(), false);
        (in_memory("lifted") > 0.0).then_some(())
    });
    let metrics = second.settled();
    assert!(
        metrics.sum("baton_prompt_source_tokens_sum", &[("source", "host")]) > 0.0,
        "what was lifted served nobody"
    );
    assert_eq!(in_memory("written") + in_memory("corrupt"), 0.0);
}

#[test]
fn an_object_with_a_flipped_byte_is_not_used_and_gives_way_to_a_good_one() {
    let (expected, store) = (expected(&FLAGS), Store::start());
    let first = start(&store, &[]);
    round(&first, &expected);
    until_known(&first);
    drop(first);
    let mut after = String::new();
    let mut objects = 0;
    loop {
        let listed = store.ask("GET", &format!("?list-type=2&start-after={after}"));
        let keys: Vec<_> = listed.split("<Key>").skip(1).filter_map(|rest| rest.split("</Key>").next()).collect();
        let Some(last) = keys.last() else { break };
        for key in &keys {
            let mut bytes = raw(&store, "GET", key, &[]);
            let at = objects * 37 % bytes.len();
            bytes[at] ^= 0x10;
            raw(&store, "PUT", key, &bytes);
            objects += 1;
        }
        after = (*last).to_owned();
    }
    assert!(objects >= BLOCKS as usize, "{objects} objects");

    let second = start(&store, &[]);
    until_known(&second);
    assert_eq!(round(&second, &expected), 0, "prompt tokens came from objects that are wrong");
    until("wrong objects", || (moved(&second, "corrupt") > 0.0).then_some(()));
    until("good ones in their place", || (moved(&second, "written") > 0.0).then_some(()));
    second.settled();
}
