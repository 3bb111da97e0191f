//! Bodies of answers, whole or line by line, with bounds on silence and on size.

use super::error::KubernetesError;
use crate::causes::with_causes;
use bytes::Bytes;
use http_body::Body;
use hyper::body::Incoming;
use std::future::poll_fn;
use std::pin::Pin;
use std::time::Duration;
use tokio::time::timeout;

/// The body of an answer.
#[derive(Debug)]
pub(super) struct Lines {
    body: Incoming,
    server: String,
    /// How long nothing may come.
    silence_max: Duration,
    /// What came of the next line.
    begun: Vec<u8>,
    /// Bytes of `begun` that have no line break.
    searched: usize,
}

impl Lines {
    pub(super) fn new(body: Incoming, server: &str, silence_max: Duration) -> Self {
        Self { body, server: server.to_owned(), silence_max, begun: Vec::new(), searched: 0 }
    }

    /// Returns the next line without its break, or none at the end of the body. Nothing is lost if the future is
    /// dropped. Errors: it has more than `bytes_max` bytes, nothing came in time, or the body broke off.
    pub(super) async fn next(&mut self, bytes_max: usize) -> Result<Option<Vec<u8>>, KubernetesError> {
        loop {
            if let Some(at) = self.begun[self.searched..].iter().position(|&byte| byte == b'\n') {
                let rest = self.begun.split_off(self.searched + at + 1);
                let mut line = std::mem::replace(&mut self.begun, rest);
                self.searched = 0;
                line.pop();
                return Ok(Some(line));
            }
            self.searched = self.begun.len();
            match self.data().await? {
                // What has no break was cut off.
                None => return Ok(None),
                Some(data) => self.take(&data, bytes_max)?,
            }
        }
    }

    /// Returns all of the body. Errors: those of [`Self::next`].
    pub(super) async fn whole(mut self, bytes_max: usize) -> Result<Vec<u8>, KubernetesError> {
        while let Some(data) = self.data().await? {
            self.take(&data, bytes_max)?;
        }
        Ok(self.begun)
    }

    fn take(&mut self, data: &[u8], bytes_max: usize) -> Result<(), KubernetesError> {
        if self.begun.len() + data.len() > bytes_max {
            let reason = format!("more than {bytes_max} bytes at once");
            return Err(KubernetesError::Strange { server: self.server.clone(), reason });
        }
        self.begun.extend_from_slice(data);
        Ok(())
    }

    /// Returns the next bytes, or none at the end.
    async fn data(&mut self) -> Result<Option<Bytes>, KubernetesError> {
        loop {
            let frame = timeout(self.silence_max, poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx))).await;
            match frame.map_err(|_| KubernetesError::silent(&self.server, self.silence_max))? {
                None => return Ok(None),
                // What is no data are trailers.
                Some(Ok(frame)) => {
                    if let Ok(data) = frame.into_data() {
                        return Ok(Some(data));
                    }
                }
                Some(Err(error)) => {
                    let reason = with_causes(&error);
                    return Err(KubernetesError::Ended { server: self.server.clone(), reason });
                }
            }
        }
    }
}
