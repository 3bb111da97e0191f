//! A server that does what it is told, over plain sockets: what it sends, and when, byte by byte.

use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};

/// What a request is answered with: pieces of bytes, each after a pause.
pub(crate) struct Reply {
    pub(crate) pieces: Vec<(Duration, Vec<u8>)>,
    /// Whether the connection lives on.
    pub(crate) keep: bool,
}

/// Decides answers by path and body.
pub(crate) type Behaviour = dyn Fn(&str, &[u8]) -> Reply + Send + Sync;

/// Answers on `listener` until dropped.
pub(crate) async fn serve(listener: TcpListener, behaviour: Arc<Behaviour>) {
    loop {
        let (stream, _) = listener.accept().await.expect("a listener accepts");
        stream.set_nodelay(true).expect("a socket has the option");
        let behaviour = behaviour.clone();
        tokio::spawn(async move {
            // A client that leaves is no matter of the mock's.
            let _ = connection(stream, &*behaviour).await;
        });
    }
}

async fn connection(mut stream: TcpStream, behaviour: &Behaviour) -> std::io::Result<()> {
    let mut bytes = Vec::new();
    loop {
        let (head, length) = loop {
            if let Some(end) = bytes.windows(4).position(|window| window == b"\r\n\r\n") {
                let head = String::from_utf8_lossy(&bytes[..end]).into_owned();
                let length = head
                    .lines()
                    .find_map(|line| line.to_ascii_lowercase().strip_prefix("content-length:")?.trim().parse().ok());
                break (head, end + 4 + length.unwrap_or(0));
            }
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        };
        while bytes.len() < length {
            if stream.read_buf(&mut bytes).await? == 0 {
                return Ok(());
            }
        }
        let body = head.len() + 4;
        let reply = behaviour(head.split(' ').nth(1).unwrap_or_default(), &bytes[body..length]);
        bytes.drain(..length);
        for (pause, piece) in reply.pieces {
            if !pause.is_zero() {
                tokio::time::sleep(pause).await;
            }
            stream.write_all(&piece).await?;
        }
        if !reply.keep {
            return Ok(());
        }
    }
}

impl Reply {
    /// A whole answer with a length.
    pub(crate) fn plain(status: &str, body: &str) -> Self {
        let length = body.len();
        let text = format!(
            "HTTP/1.1 {status}\r\ncontent-type: application/json\r\nserver: mock\r\ncontent-length: {length}\r\n\r\n{body}"
        );
        Self { pieces: vec![(Duration::ZERO, text.into_bytes())], keep: true }
    }

    /// The list of one model.
    pub(crate) fn models() -> Self {
        Self::plain("200 OK", r#"{"object":"list","data":[{"id":"mock","object":"model"}]}"#)
    }

    /// A stream of events, each after a pause; the end of the body after the last.
    pub(crate) fn stream(events: impl IntoIterator<Item = (Duration, String)>) -> Self {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
        let mut pieces = vec![(Duration::ZERO, head.as_bytes().to_vec())];
        for (pause, event) in events {
            let chunk = format!("{:x}\r\ndata: {event}\n\n\r\n", event.len() + 8);
            match pieces.last_mut() {
                Some((_, piece)) if pause.is_zero() => piece.extend_from_slice(chunk.as_bytes()),
                _ => pieces.push((pause, chunk.into_bytes())),
            }
        }
        if let Some((_, piece)) = pieces.last_mut() {
            piece.extend_from_slice(b"0\r\n\r\n");
        }
        Self { pieces, keep: true }
    }

    /// A completion of so many tokens after a prompt of so many, each token after `pause`.
    pub(crate) fn completion(input: usize, output: usize, pause: Duration) -> Self {
        let usage = format!(
            r#"{{"choices":[],"usage":{{"prompt_tokens":{input},"completion_tokens":{output},"prompt_tokens_details":{{"cached_tokens":1}}}}}}"#
        );
        let tokens = (1..=output).map(|token| {
            let finish = if token == output { "\"length\"" } else { "null" };
            (pause, format!(r#"{{"id":"x","choices":[{{"index":0,"text":" a","finish_reason":{finish}}}]}}"#))
        });
        Self::stream(tokens.chain([(Duration::ZERO, usage), (Duration::ZERO, "[DONE]".to_owned())]))
    }
}
