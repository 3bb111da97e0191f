//! A device on a card of NVIDIA.
//!
//! A plan becomes lists in one slab (`inputs`), which goes to the card as one copy; a model's definition becomes
//! launches (`step`), or, where a step is all decoding, one launch of a graph that was recorded at start (`graphs`).
//! One thread queues steps, and another waits for their ends (`leader`), so the card never waits for the host between
//! two.
//!
//! What is deliberately absent: what each kernel does, and how the driver is called. That is the crate `cuda`.

mod card;
mod copier;
mod copy_plan;
mod device;
mod error;
mod fast;
mod inputs;
mod kernels;
mod leader;
mod machine;
mod memory;
mod model;
mod pins;
mod pool;
mod progress;
mod slab;
mod step;
mod store;
mod upload;
mod weights;

pub use card::{CAPABILITY_MIN, Card, cards};
pub use device::CudaDevice;
pub use error::CudaError;
pub use fast::KernelSet;
pub use model::CudaModel;
pub use pool::CudaPool;
pub use weights::Shares;
