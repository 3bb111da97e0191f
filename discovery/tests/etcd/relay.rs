//! A way to etcd that can be cut.

use std::net::SocketAddr;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;

/// Passes on what comes to its address, while it is open.
pub(crate) struct Relay {
    address: SocketAddr,
    open: watch::Sender<bool>,
}

impl Relay {
    pub(crate) async fn start(to: SocketAddr) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port is free");
        let address = listener.local_addr().expect("it is bound");
        let (open, is_open) = watch::channel(true);
        tokio::spawn(async move {
            while let Ok((mut near, _)) = listener.accept().await {
                let mut is_open = is_open.clone();
                tokio::spawn(async move {
                    let pass = async {
                        let mut far = TcpStream::connect(to).await.ok()?;
                        copy_bidirectional(&mut near, &mut far).await.ok()
                    };
                    // A connection that comes while it is cut ends at once.
                    tokio::select! {
                        _ = is_open.wait_for(|open| !open) => {}
                        _ = pass => {}
                    }
                });
            }
        });
        Self { address, open }
    }

    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// Breaks all connections, and new ones until [`Self::join`].
    pub(crate) fn cut(&self) {
        self.open.send_replace(false);
    }

    pub(crate) fn join(&self) {
        self.open.send_replace(true);
    }
}
