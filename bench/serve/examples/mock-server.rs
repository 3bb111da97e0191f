//! A server that answers every completion at once, to find the limit of the load generator itself:
//! `cargo run --release -p bench-serve --example mock-server -- 8200`. Ends by itself after ten minutes.

#[path = "../tests/runs/mock.rs"]
mod mock;

use mock::Reply;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::TcpListener;

/// How long it lives.
const LIFE: Duration = Duration::from_secs(600);

fn main() -> std::io::Result<()> {
    let port = std::env::args().nth(1).and_then(|port| port.parse().ok()).unwrap_or(8200);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let listener = TcpListener::bind(("127.0.0.1", port)).await?;
        println!("listening on http://{}", listener.local_addr()?);
        let serve = mock::serve(listener, Arc::new(answer));
        // The end of its life is no failure.
        let _ = tokio::time::timeout(LIFE, serve).await;
        Ok(())
    })
}

fn answer(path: &str, body: &[u8]) -> Reply {
    if path == "/v1/models" {
        return Reply::models();
    }
    let body: serde_json::Value = serde_json::from_slice(body).unwrap_or_default();
    let input = body["prompt"].as_array().map_or(1, Vec::len);
    let output = body["max_tokens"].as_u64().unwrap_or(1) as usize;
    Reply::completion(input, output, Duration::ZERO)
}
