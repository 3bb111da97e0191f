//! A collector of traces, of the test's own: it takes OTLP over HTTP, and reads it without the code that wrote it.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::{Arc, Mutex};

/// A span, as the collector got it.
#[derive(Clone, Debug)]
pub(crate) struct Span {
    pub(crate) service: String,
    pub(crate) instance: String,
    pub(crate) name: String,
    pub(crate) trace: String,
    pub(crate) id: String,
    /// Empty: none.
    pub(crate) parent: String,
    pub(crate) begin_ns: u64,
    pub(crate) end_ns: u64,
    pub(crate) attributes: BTreeMap<String, String>,
    pub(crate) events: Vec<String>,
}

pub(crate) struct Collector {
    pub(crate) address: SocketAddr,
    spans: Arc<Mutex<Vec<Span>>>,
}

impl Collector {
    /// Takes what comes, until the test ends.
    pub(crate) fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let spans = Arc::new(Mutex::new(Vec::new()));
        let taken = spans.clone();
        std::thread::spawn(move || {
            for stream in listener.incoming().map_while(Result::ok) {
                let taken = taken.clone();
                std::thread::spawn(move || serve(stream, &taken));
            }
        });
        Self { address, spans }
    }

    /// What came so far.
    pub(crate) fn spans(&self) -> Vec<Span> {
        self.spans.lock().expect("nobody panics with it").clone()
    }
}

/// Answers the requests of a connection.
fn serve(stream: TcpStream, taken: &Mutex<Vec<Span>>) {
    let mut reader = BufReader::new(stream.try_clone().expect("a socket has a second handle"));
    loop {
        let (mut first, mut length, mut kind) = (String::new(), 0, String::new());
        if reader.read_line(&mut first).unwrap_or(0) == 0 {
            return;
        }
        loop {
            let mut line = String::new();
            reader.read_line(&mut line).expect("a head ends");
            let line = line.trim_end().to_ascii_lowercase();
            match line.split_once(": ") {
                Some(("content-length", value)) => length = value.parse().expect("a number"),
                Some(("content-type", value)) => kind = value.to_owned(),
                Some(_) => {}
                None => break,
            }
        }
        let mut body = vec![0; length];
        reader.read_exact(&mut body).expect("the body is whole");
        assert_eq!((first.trim_end(), kind.as_str()), ("POST /v1/traces HTTP/1.1", "application/x-protobuf"));
        taken.lock().expect("nobody panics with it").extend(spans(&body));
        let answer = "HTTP/1.1 200 OK\r\ncontent-type: application/x-protobuf\r\ncontent-length: 0\r\n\r\n";
        if (&stream).write_all(answer.as_bytes()).is_err() {
            return;
        }
    }
}

/// A field of a message in protobuf's encoding.
enum Field<'a> {
    Number(u64),
    Bytes(&'a [u8]),
}

/// Reads the fields of a message: their numbers, and their values.
fn fields(mut bytes: &[u8]) -> Vec<(u64, Field<'_>)> {
    let mut fields = Vec::new();
    while !bytes.is_empty() {
        let key = varint(&mut bytes);
        let field = match key & 7 {
            0 => Field::Number(varint(&mut bytes)),
            1 => Field::Number(u64::from_le_bytes(take(&mut bytes, 8).try_into().expect("eight bytes"))),
            2 => {
                let length = varint(&mut bytes) as usize;
                Field::Bytes(take(&mut bytes, length))
            }
            wire => panic!("no field of OTLP has the wire type {wire}"),
        };
        fields.push((key >> 3, field));
    }
    fields
}

fn varint(bytes: &mut &[u8]) -> u64 {
    let mut value = 0;
    for at in 0.. {
        let byte = take(bytes, 1)[0];
        value |= u64::from(byte & 0x7f) << (7 * at);
        if byte < 0x80 {
            break;
        }
    }
    value
}

fn take<'a>(bytes: &mut &'a [u8], count: usize) -> &'a [u8] {
    let (taken, rest) = bytes.split_at(count);
    *bytes = rest;
    taken
}

/// The messages in the fields with this number.
fn inside(bytes: &[u8], number: u64) -> Vec<&[u8]> {
    let of = |(at, field)| match field {
        Field::Bytes(bytes) if at == number => Some(bytes),
        _ => None,
    };
    fields(bytes).into_iter().filter_map(of).collect()
}

fn text(bytes: &[u8], number: u64) -> String {
    inside(bytes, number).first().map_or_else(String::new, |it| String::from_utf8(it.to_vec()).expect("text"))
}

fn hex(bytes: &[u8], number: u64) -> String {
    inside(bytes, number).first().map_or_else(String::new, |it| it.iter().map(|byte| format!("{byte:02x}")).collect())
}

fn number(bytes: &[u8], number: u64) -> u64 {
    let of = |(at, field)| match field {
        Field::Number(value) if at == number => Some(value),
        _ => None,
    };
    fields(bytes).into_iter().find_map(of).unwrap_or(0)
}

/// The attributes of a message whose field of them has this number.
fn attributes(bytes: &[u8], at: u64) -> BTreeMap<String, String> {
    let value = |value: &[u8]| match fields(value).first() {
        Some((1, Field::Bytes(text))) => String::from_utf8(text.to_vec()).expect("text"),
        Some((5, Field::Bytes(list))) => {
            inside(list, 1).into_iter().map(|it| text(it, 1)).collect::<Vec<_>>().join(",")
        }
        Some((3, Field::Number(number))) => number.to_string(),
        _ => panic!("an attribute of another type"),
    };
    let pair = |pair: &[u8]| (text(pair, 1), value(inside(pair, 2)[0]));
    inside(bytes, at).into_iter().map(pair).collect()
}

/// Reads an `ExportTraceServiceRequest`, with the numbers of opentelemetry-proto.
fn spans(body: &[u8]) -> Vec<Span> {
    let mut spans = Vec::new();
    for of_resource in inside(body, 1) {
        let resource = attributes(inside(of_resource, 1)[0], 1);
        for span in inside(of_resource, 2).into_iter().flat_map(|scope| inside(scope, 2)) {
            spans.push(Span {
                service: resource["service.name"].clone(),
                instance: resource.get("service.instance.id").cloned().unwrap_or_default(),
                name: text(span, 5),
                trace: hex(span, 1),
                id: hex(span, 2),
                parent: hex(span, 4),
                begin_ns: number(span, 7),
                end_ns: number(span, 8),
                attributes: attributes(span, 9),
                events: inside(span, 11).into_iter().map(|event| text(event, 2)).collect(),
            });
        }
    }
    spans
}
