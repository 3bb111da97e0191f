//! CUDA as the host sees it: the driver, the compiler of kernels, and the kernels themselves.
//!
//! All libraries are loaded at run time. A machine without them runs the same binary, and [`Driver::load`] says what
//! it lacks. Nothing here knows models, plans or tiers: `engine` makes a device of it, and `transport` a lane.

mod blas;
pub mod compiler;
mod driver;
pub mod kernels;

pub use blas::{BLAS_WORKSPACE_BYTES, Blas, BlasArgs, BlasError, BlasShape, blas_version};
pub use driver::{
    Access, Args, Attribute, Capture, Context, DeviceBytes, Driver, DriverError, Event, Function, Graph, Grid,
    Identity, Missing, Module, Pinned, Registered, Reservation, Shared, Stream, StreamPriority,
};
