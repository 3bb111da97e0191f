#![doc = include_str!("../README.md")]

pub mod cluster;
pub mod rig;
