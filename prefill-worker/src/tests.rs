//! Which submits a prefill worker takes.

use crate::Prefill;
use domain::session::{Assignment, Failure, Submit};
use domain::{Choice, Epoch, RequestId, SamplingParams, WorkerId};
use std::sync::Arc;
use std::time::Duration;
use worker::{Refusal, Role};

fn submit(assignment: Assignment) -> Submit {
    Submit {
        request: RequestId(1),
        epoch: Epoch(1),
        assignment,
        choices: vec![(Choice(0), [].into())],
        prompt: [1, 2, 3].into(),
        params: Arc::new(SamplingParams::default()),
        seed: 0,
        deadline: Duration::from_secs(1),
        lease: Duration::from_secs(1),
        tenant: String::new(),
        adapter: None,
        holder: None,
        trace: None,
        timed: false,
    }
}

#[test]
fn prompts_that_are_handed_off_are_taken_and_nothing_else_is() {
    let peer = WorkerId(2);
    assert_eq!(Prefill.judge(&submit(Assignment::Prefill { decode: peer })), Ok(()));
    for assignment in [Assignment::Decode { prefill: peer }, Assignment::TakeOver { from: peer }, Assignment::Whole] {
        let refusal = Prefill.judge(&submit(assignment)).expect_err("it does not decode");
        assert_eq!(refusal, Refusal::OtherRole("a prefill worker does not decode"));
        assert_eq!(refusal.failure(), Failure::QueueFull, "the router asks another worker");
    }
}
