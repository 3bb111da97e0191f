//! A way to etcd that can be cut, or fall silent.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes on what comes to its address, while it is open.
pub(crate) struct Relay {
    address: SocketAddr,
    open: watch::Sender<bool>,
    /// Times that it fell silent.
    silences: watch::Sender<u32>,
    /// Connections that came.
    taken: Arc<AtomicUsize>,
}

impl Relay {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (open, is_open) = watch::channel(true);
        let (silences, silenced) = watch::channel(0);
        let taken = Arc::<AtomicUsize>::default();
        let counted = taken.clone();
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                counted.fetch_add(1, Ordering::Relaxed);
                let mut is_open = is_open.clone();
                let mut silenced = silenced.clone();
                silenced.mark_unchanged();
                tokio::spawn(async move {
                    let pass = async {
                        let mut far = TcpStream::connect(to).await.ok()?;
                        copy_bidirectional(&mut near, &mut far).await.ok()
                    };
                    // A connection that comes while it is cut ends at once.
                    let cut = async { is_open.wait_for(|open| !open).await.map(drop) };
                    tokio::select! {
                        _ = cut => {}
                        _ = pass => {}
                        // It stays open, and nothing comes of it any more.
                        Ok(()) = silenced.changed() => std::future::pending().await,
                    }
                });
            }
        });
        Self { address, open, silences, taken }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Passes nothing on any more over the connections that there are. New ones are as before.
    pub(crate) fn fall_silent(&self) {
        self.silences.send_modify(|times| *times += 1);
    }

    /// Waits until one more connection comes.
    pub(crate) async fn another(&self) {
        let before = self.taken.load(Ordering::Relaxed);
        let comes = async {
            while self.taken.load(Ordering::Relaxed) == before {
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        };
        tokio::time::timeout(super::PATIENCE, comes).await.expect("a connection comes");
    }

    /// Breaks all connections, and new ones until [`Self::join`].
    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn join(&self) {
        self.open.send_replace(true);
    }
}
