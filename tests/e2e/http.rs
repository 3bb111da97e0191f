//! A small HTTP/1.1 client that shows every byte and every way in which a connection can end.
//!
//! Everything is an [`io::Result`]: for some tests a connection that ends early is the outcome they want.

use crate::server::PATIENCE;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use serde_json::Value;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::net::{Shutdown, SocketAddr, TcpStream};
use std::sync::Arc;

/// An open connection, plain or over TLS.
pub(crate) struct Connection {
    reader: BufReader<Box<dyn Stream>>,
    socket: TcpStream,
    /// Bytes of a chunked body that no event took yet.
    text: Vec<u8>,
}

trait Stream: Read + Write + Send {}

impl<S: Read + Write + Send> Stream for S {}

/// Status and headers of an answer.
#[derive(Clone, Debug)]
pub(crate) struct Head {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
}

/// A whole answer.
#[derive(Clone, Debug)]
pub(crate) struct Answer {
    pub(crate) head: Head,
    pub(crate) body: Vec<u8>,
}

/// The bytes of a request with this body.
pub(crate) fn request(method: &str, path: &str, kind: &str, body: &[u8]) -> Vec<u8> {
    let length = body.len();
    let head =
        format!("{method} {path} HTTP/1.1\r\nHost: test\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\n\r\n");
    [head.as_bytes(), body].concat()
}

/// The bytes of a POST of JSON.
pub(crate) fn post(path: &str, body: &Value) -> Vec<u8> {
    request("POST", path, "application/json", body.to_string().as_bytes())
}

impl Head {
    /// The value of a header; `name` in lower case.
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(it, _)| it == name).map(|(_, value)| value.as_str())
    }
}

impl Answer {
    /// The body as text.
    pub(crate) fn text(&self) -> &str {
        std::str::from_utf8(&self.body).expect("bodies are UTF-8")
    }

    /// The body as JSON, which the answer must say it is.
    pub(crate) fn json(&self) -> Value {
        assert_eq!(self.head.header("content-type"), Some("application/json"), "{}", self.text());
        serde_json::from_slice(&self.body).unwrap_or_else(|error| panic!("{error}: {}", self.text()))
    }
}

impl Connection {
    /// Connects. Errors: nobody listens there.
    pub(crate) fn open(address: SocketAddr) -> io::Result<Self> {
        let socket = Self::socket(address)?;
        Ok(Self { reader: BufReader::new(Box::new(socket.try_clone()?)), socket, text: Vec::new() })
    }

    /// Connects over TLS. Errors: those, and whatever is wrong with the other end's certificate.
    pub(crate) fn secure(address: SocketAddr, trusts: &Arc<ClientConfig>) -> io::Result<Self> {
        let socket = Self::socket(address)?;
        let session = ClientConnection::new(trusts.clone(), address.ip().into()).map_err(io::Error::other)?;
        let mut stream = StreamOwned::new(session, socket.try_clone()?);
        stream.conn.complete_io(&mut stream.sock)?;
        Ok(Self { reader: BufReader::new(Box::new(stream)), socket, text: Vec::new() })
    }

    fn socket(address: SocketAddr) -> io::Result<TcpStream> {
        let socket = TcpStream::connect(address)?;
        socket.set_nodelay(true)?;
        socket.set_read_timeout(Some(PATIENCE))?;
        socket.set_write_timeout(Some(PATIENCE))?;
        Ok(socket)
    }

    /// Sends bytes as they are.
    pub(crate) fn send(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.reader.get_mut().write_all(bytes)
    }

    /// Says that nothing more will be sent.
    pub(crate) fn finish_sending(&self) -> io::Result<()> {
        self.socket.shutdown(Shutdown::Write)
    }

    /// The head of the next answer. Errors: `UnexpectedEof` where the server closed the connection instead.
    pub(crate) fn head(&mut self) -> io::Result<Head> {
        let status = self.line()?;
        let status = status.split(' ').nth(1).and_then(|status| status.parse().ok());
        let mut head = Head { status: status.ok_or(ErrorKind::InvalidData)?, headers: Vec::new() };
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else { return Ok(head) };
            head.headers.push((name.to_ascii_lowercase(), value.to_owned()));
        }
    }

    /// The next answer. Errors: the connection ended before it was whole.
    pub(crate) fn answer(&mut self) -> io::Result<Answer> {
        let head = self.head()?;
        self.body(head)
    }

    /// The rest of an answer whose head was read. Errors: the connection ended before it was whole.
    pub(crate) fn body(&mut self, head: Head) -> io::Result<Answer> {
        let mut body = Vec::new();
        if head.header("transfer-encoding") == Some("chunked") {
            while let Some(chunk) = self.chunk()? {
                body.extend(chunk);
            }
        } else if let Some(length) = head.header("content-length").and_then(|length| length.parse().ok()) {
            body = vec![0; length];
            self.reader.read_exact(&mut body)?;
        }
        Ok(Answer { head, body })
    }

    /// The data of the next server-sent event; `None` at the end of the body.
    pub(crate) fn event(&mut self) -> io::Result<Option<String>> {
        loop {
            if let Some(at) = self.text.windows(2).position(|window| window == b"\n\n") {
                let event: Vec<u8> = self.text.drain(..at + 2).collect();
                let event = String::from_utf8(event).expect("events are UTF-8");
                if event.starts_with(':') {
                    // A comment, which a stream that has nothing to say sends now and then.
                    continue;
                }
                let data = event.strip_prefix("data: ").expect("an event is one line of data");
                return Ok(Some(data.trim_end().to_owned()));
            }
            let Some(chunk) = self.chunk()? else {
                assert!(self.text.is_empty(), "a body ends with half an event");
                return Ok(None);
            };
            self.text.extend(chunk);
        }
    }

    /// The next byte that the server sends; `None` where it closes the connection.
    pub(crate) fn byte(&mut self) -> io::Result<Option<u8>> {
        self.reader.by_ref().bytes().next().transpose()
    }

    /// Bytes as they come, however many there are. Errors: nothing comes.
    pub(crate) fn read_raw(&mut self, bytes: &mut [u8]) -> io::Result<usize> {
        self.reader.read(bytes)
    }

    fn line(&mut self) -> io::Result<String> {
        let mut line = String::new();
        self.reader.read_line(&mut line)?;
        line.strip_suffix("\r\n").map(str::to_owned).ok_or(ErrorKind::UnexpectedEof.into())
    }

    /// The next chunk of a body; `None` after the last.
    fn chunk(&mut self) -> io::Result<Option<Vec<u8>>> {
        let size = usize::from_str_radix(&self.line()?, 16).map_err(|_| ErrorKind::InvalidData)?;
        let mut chunk = vec![0; size + 2];
        self.reader.read_exact(&mut chunk)?;
        chunk.truncate(size);
        Ok((size > 0).then_some(chunk))
    }
}
