//! What is read and written without a peer: files of this host, and objects of a store.

pub(crate) mod files;
pub(crate) mod objects;
pub(crate) mod own_file;
