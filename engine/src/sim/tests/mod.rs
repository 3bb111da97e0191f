//! Tests of the simulated device, one file per part.

mod cost;
mod device;
mod model;
mod rig;
