//! Tests of the placement: choices by cost, the index, reports, journeys message by message, and random clusters.

mod costs;
mod drain;
mod index;
mod journeys;
mod overload;
mod properties;
mod reports;
mod retry;
mod support;
