//! Traffic in the form in which Kubernetes 1.35 writes it, for pods of the Helm chart: a list in two pages, and a watch
//! over the start of a third pod and the replacement of a second one.
//!
//! The files in `recorded` were composed after the API's documentation. They were not captured from a cluster.

use super::*;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex, mpsc};
use std::thread::spawn;
use std::vec;

const PAGES: [&str; 2] = [include_str!("recorded/page-1.json"), include_str!("recorded/page-2.json")];
const WATCH: &str = include_str!("recorded/watch.jsonl");
const HEAD: &str = "HTTP/1.1 200 OK\r\nAudit-Id: 5f1c\r\nCache-Control: no-cache, private\r\nContent-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
/// Bytes of a chunk of an answer: lines are cut anywhere.
const CHUNK: usize = 1000;

/// Answers one request after the other, and passes on what was asked. After the last one it is silent.
fn replay(place: SocketAddr, answers: Vec<String>) -> mpsc::Receiver<String> {
    let listener = TcpListener::bind(place).expect("the address is free");
    let (told, asked) = mpsc::channel();
    let answers = Arc::new(Mutex::new(answers.into_iter()));
    spawn(move || {
        for stream in listener.incoming().map_while(Result::ok) {
            let (told, answers) = (told.clone(), answers.clone());
            spawn(move || serve(stream, &told, &answers));
        }
    });
    asked
}

/// Answers the requests of one connection.
fn serve(mut stream: TcpStream, told: &mpsc::Sender<String>, answers: &Mutex<vec::IntoIter<String>>) {
    let mut lines = BufReader::new(stream.try_clone().expect("it has another handle")).lines();
    while let Some(Ok(line)) = lines.next() {
        let _ = told.send(line);
        lines.by_ref().map_while(Result::ok).find(String::is_empty);
        let next = answers.lock().expect("no thread panics with it").next();
        let Some(answer) = next else {
            std::thread::park();
            return;
        };
        let chunks = answer.as_bytes().chunks(CHUNK);
        let chunks = chunks.flat_map(|chunk| [format!("{:x}\r\n", chunk.len()).as_bytes(), chunk, b"\r\n"].concat());
        let bytes: Vec<u8> = HEAD.bytes().chain(chunks).chain(*b"0\r\n\r\n").collect();
        let _ = stream.write_all(&bytes);
    }
}

#[tokio::test]
async fn recorded_traffic_is_followed() {
    let place = own_place();
    let pages = || PAGES.map(str::to_owned);
    // Once when it is opened, once to be followed, and once more after the watch has ended with 410.
    let answers = [pages().as_slice(), &pages(), &[WATCH.to_owned()], &pages()].concat();
    let asked = replay(place, answers);
    let kubernetes = Kubernetes::open(config(place)).await.expect("it is not refused");
    let mut watcher = kubernetes.watch();
    let mut changes = Vec::new();
    for _ in 0..6 {
        let change = timeout_at(Instant::now() + PATIENCE, watcher.next()).await.expect("there are more");
        changes.push(match change {
            Change::Joined(Member { key, address, about: About::Pod { role: Some(role), topology } }) => {
                format!("+{key} {address} {role:?} {topology}")
            }
            Change::Left(key) => format!("-{key}"),
            change => panic!("{change:?}"),
        });
    }
    assert_eq!(
        changes,
        [
            "+baton-decode-0 10.244.2.4:9001 Decode host=node-2 zone=zone-2",
            "+baton-prefill-0 10.244.1.7:9001 Prefill host=node-1 zone=zone-1",
            "+baton-decode-1 10.244.1.9:9001 Decode host=node-1 zone=zone-1",
            "-baton-decode-0",
            "+baton-decode-0 10.244.3.2:9001 Decode host=node-3 zone=zone-3",
            // The list after 410 is the one from before.
            "-baton-decode-1",
        ]
    );
    let asked: Vec<_> = asked.try_iter().collect();
    assert!(asked[1].contains("&continue=eyJ2IjoibWV0YS5rOHMuaW8vdjEi"), "{}", asked[1]);
    assert!(asked[4].ends_with("&resourceVersion=41911 HTTP/1.1"), "{}", asked[4]);
}
