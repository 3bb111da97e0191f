#![doc = include_str!("../README.md")]

pub mod check;
pub mod checkpoint;
mod clock;
pub mod cpu;
pub mod cuda;
pub mod device;
mod device_progress;
pub mod grammar;
mod layer_places;
mod locks;
mod masks;
pub mod models;
pub mod ops;
mod plan_thread;
mod pool;
pub mod quant;
pub mod random;
mod rope_angles;
pub mod sampling;
pub mod sim;
pub mod slots;
mod span_failure;
pub mod spec;
mod splitmix;
pub mod text;
pub mod timed;
