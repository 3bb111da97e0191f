//! Real processes that are killed, stand still, or are cut off, while requests run: every answer is the one of the
//! undisturbed run, or, where nobody is left to give it, a clear error in time. Only in builds with the feature
//! `failpoints`.

mod chats;
mod fleet;
mod hosts;
mod lanes;
mod load;
mod moving;
mod network;
mod relay;
mod routers;
mod tiers;
mod workers;
