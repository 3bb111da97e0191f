//! The JSON of fields whose type alone would give something else: names of states for their numbers, and decimal digits
//! for numbers that readers of JSON would round.

use super::generated::{CandidateKind, PhaseKind, PrefixOutcome, RequestState, Role, Subject, WorkerState};
use serde::de::Error;
use serde::{Deserialize, Deserializer, Serializer};

pub(super) fn read_role<'de, D: Deserializer<'de>>(from: D) -> Result<i32, D::Error> {
    let name = String::deserialize(from)?;
    named(&name, "ROLE_", Role::from_str_name).map(i32::from)
}

pub(super) fn read_subjects<'de, D: Deserializer<'de>>(from: D) -> Result<Vec<i32>, D::Error> {
    let names = Vec::<String>::deserialize(from)?;
    names.iter().map(|name| named(name, "SUBJECT_", Subject::from_str_name).map(i32::from)).collect()
}

/// Finds what has this name in JSON. Errors: nothing has.
fn named<T, E: Error>(name: &str, prefix: &str, find: impl Fn(&str) -> Option<T>) -> Result<T, E> {
    let full = format!("{prefix}{}", name.to_uppercase().replace('-', "_"));
    find(&full).ok_or_else(|| E::custom(format!("{name:?} is no {}", prefix.trim_end_matches('_').to_lowercase())))
}

pub(super) fn role<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&role_name(*value))
}

pub(super) fn worker_state<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&worker_state_name(*value))
}

pub(super) fn request_state<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&request_state_name(*value))
}

pub(super) fn candidate_kind<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&candidate_kind_name(*value))
}

pub(super) fn phase_kind<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&phase_kind_name(*value))
}

pub(super) fn prefix_outcome<S: Serializer>(value: &i32, to: S) -> Result<S::Ok, S::Error> {
    to.serialize_str(&prefix_outcome_name(*value))
}

pub(super) fn digits<S: Serializer>(value: &u64, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

/// Returns what people call a role: `prefill` or `decode`.
pub fn role_name(value: i32) -> String {
    short(Role::try_from(value).map(|role| role.as_str_name()), "ROLE_")
}

/// Returns what people call the state of a worker, such as `serving`.
pub fn worker_state_name(value: i32) -> String {
    short(WorkerState::try_from(value).map(|state| state.as_str_name()), "WORKER_STATE_")
}

/// Returns what people call the state of a request, such as `decoding`.
pub fn request_state_name(value: i32) -> String {
    short(RequestState::try_from(value).map(|state| state.as_str_name()), "REQUEST_STATE_")
}

/// Returns what people call a kind of candidate, such as `alone`.
pub fn candidate_kind_name(value: i32) -> String {
    short(CandidateKind::try_from(value).map(|kind| kind.as_str_name()), "CANDIDATE_KIND_")
}

/// Returns what people call a kind of phase, such as `first-token`.
pub fn phase_kind_name(value: i32) -> String {
    short(PhaseKind::try_from(value).map(|kind| kind.as_str_name()), "PHASE_KIND_")
}

/// Returns what people call what became of a prefix, such as `refused`.
pub fn prefix_outcome_name(value: i32) -> String {
    short(PrefixOutcome::try_from(value).map(|outcome| outcome.as_str_name()), "PREFIX_OUTCOME_")
}

/// Cuts off what all names of an enum begin with. A number that this version does not know keeps no name.
fn short<E>(name: Result<&'static str, E>, prefix: &str) -> String {
    name.map_or_else(|_| "unknown".to_owned(), |name| name.trim_start_matches(prefix).to_lowercase().replace('_', "-"))
}

#[cfg(test)]
mod tests {
    use super::super::{Request, Worker};
    use super::*;

    #[test]
    fn states_have_names_and_large_numbers_their_digits() {
        let worker = Worker { role: Role::Decode.into(), state: 3, incarnation: u64::MAX, ..Worker::default() };
        let json = serde_json::to_value(&worker).expect("it is JSON");
        assert_eq!((&json["role"], &json["state"]), (&"decode".into(), &"drained".into()));
        assert_eq!(json["incarnation"], "18446744073709551615");
        let request = Request { state: RequestState::HandingOff.into(), ..Request::default() };
        assert_eq!(serde_json::to_value(&request).expect("it is JSON")["state"], "handing-off");
        assert_eq!(worker_state_name(99), "unknown");
    }
}
