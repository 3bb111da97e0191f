//! Random-weight checkpoints of named shapes.
