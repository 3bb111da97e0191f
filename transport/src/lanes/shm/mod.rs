//! The lane `shm`: memory of another process of this host, mapped for reading. The agent's copy threads copy out
//! of it, as they do for the lane `local`.

pub(crate) mod progress_page;
