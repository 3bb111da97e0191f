//! What sessions between processes cost: the tokens they carry, and having many that have nothing to say.

mod idle;
mod tokens;

use std::error::Error;

/// Measures and prints.
pub(crate) fn run() -> Result<(), Box<dyn Error>> {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build()?;
    runtime.block_on(async {
        tokens::run().await?;
        idle::run().await
    })
}
