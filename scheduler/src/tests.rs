//! Tests of the scheduler: printed schedules of small stories, and random runs against a toy memory.

mod ahead;
mod golden;
mod properties;
mod toy;
