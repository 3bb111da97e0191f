//! Answers to those that speak plain HTTP to a port of TLS, and the end of connections that are refused.

use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::time::timeout;

/// What they are told.
pub(super) const TEXT: &str = "this port speaks TLS: begin the URL with https://";
/// Time for the other end to read why it is refused.
const LINGER: Duration = Duration::from_secs(1);
/// Bytes of it that are thrown away meanwhile.
const LINGER_BYTES_MAX: u64 = 64 << 10;

/// A frame of HTTP/2 without settings.
const SETTINGS: &[u8] = b"\0\0\0\x04\0\0\0\0\0";
/// The type of the frame that ends a connection of HTTP/2.
const GOAWAY: u8 = 7;
/// The error of HTTP/2 that fits.
const INADEQUATE_SECURITY: u32 = 12;

/// Tells a client that begins with these two bytes to use TLS, if it speaks HTTP, and closes the connection.
pub(super) async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, begin: [u8; 2]) {
    let answer = match begin {
        [b'P', b'R'] => http2(),
        [b'A'..=b'Z', _] => http1(),
        _ => Vec::new(),
    };
    // Where it is gone, nobody wants to know.
    let _ = timeout(LINGER, stream.write_all(&answer)).await;
    linger(stream).await;
}

/// Closes a connection so that the other end can read what it was told: what a system throws away of unread bytes, it
/// answers with a reset.
pub(super) async fn linger(mut stream: impl AsyncRead + AsyncWrite + Unpin) {
    let closed = async {
        stream.shutdown().await?;
        tokio::io::copy(&mut stream.take(LINGER_BYTES_MAX), &mut tokio::io::sink()).await
    };
    let _ = timeout(LINGER, closed).await;
}

fn http1() -> Vec<u8> {
    let length = TEXT.len() + 1;
    let head = "HTTP/1.1 400 Bad Request\r\nContent-Type: text/plain; charset=utf-8\r\nConnection: close\r\n";
    format!("{head}Content-Length: {length}\r\n\r\n{TEXT}\n").into_bytes()
}

fn http2() -> Vec<u8> {
    let length = (8 + TEXT.len()) as u32;
    let head = [&length.to_be_bytes()[1..], &[GOAWAY, 0, 0, 0, 0, 0]].concat();
    // The last stream that was looked at is none.
    [SETTINGS, &head, &[0; 4], &INADEQUATE_SECURITY.to_be_bytes(), TEXT.as_bytes()].concat()
}
