//! The engine: devices that execute a [`domain::plan::StepPlan`], the models they run, and what turns text into tokens
//! and back.
//!
//! What is deliberately absent: any decision about what to compute when (that is the plan's), and any knowledge of
//! requests, peers or tiers.

mod check;
pub mod checkpoint;
mod clock;
pub mod cpu;
pub mod device;
pub mod models;
pub mod ops;
mod plan_thread;
mod pool;
pub mod quant;
pub mod random;
pub mod sampling;
pub mod sim;
pub mod spec;
mod splitmix;
pub mod text;
pub mod timed;
