//! The configuration: one typed tree, read once. Defaults < TOML file < environment < flags; unknown keys are errors.
//!
//! The tree is declared in [`tree`], layers are merged in [`layers`], and values are judged together in [`check`]. No
//! other module of the project reads the environment. What is deliberately absent: any default that depends on the
//! machine (a 0 or an empty text means "find out", and whoever uses the value finds out).

mod changeable;
mod check;
mod flags;
mod hidden;
mod layers;
mod origin;
mod quantity;
mod tree;

pub(crate) use changeable::{CHANGEABLE, Part, changeable};
pub(crate) use check::{NAME_BYTES_MAX, SECRET_BYTES_MIN, origins};
pub(crate) use flags::Flags;
pub(crate) use hidden::Hidden;
pub(crate) use layers::{ConfigError, Difference, Loaded, load, operator_key};
pub(crate) use quantity::{Bytes, BytesOrAuto};
#[cfg(test)]
pub(crate) use tree::KEYS;
pub(crate) use tree::{
    Admin, Cluster, Config, Device, DiscoveryEtcd, DiscoveryKind, DiscoveryKubernetes, EncodeKv, Kernels, Pinning,
    Router, SECTIONS, TlsSettings, Wanted,
};

#[cfg(test)]
mod tests;
