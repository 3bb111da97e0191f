//! Whether an agent may take the lane `rdma`.

use crate::agent::config::AgentConfig;
use crate::lanes::Lane;
use crate::lanes::rdma::Verbs;

/// What fixes it where devices may not pin memory.
const MEMLOCK_FIX: &str = "raise the limit of locked memory: ulimit -l unlimited, LimitMEMLOCK=infinity in a systemd unit, \
     or --ulimit memlock=-1 for a container";

/// Why an agent does not take the lane `rdma`.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RdmaError {
    /// The configuration leaves the lane out.
    #[error("forbidden by transport.lanes")]
    Forbidden,
    /// Only agents of the same process reach this one.
    #[error("this worker listens to no other process")]
    NotListening,
    /// A card cannot encrypt what it moves, and the configuration demands TLS.
    #[error("what it moves would not be encrypted, which transport.tls_certificate demands")]
    NotEncrypted,
    /// libibverbs or the devices are missing or fail, or refuse all memory.
    #[error("{0}")]
    Devices(String),
    /// The devices refuse some of the memory.
    #[error("{0}; {MEMLOCK_FIX}")]
    MemoryRefused(String),
}

/// Opens the RDMA devices, where peers of other processes may read over them. Errors: why not.
pub(super) fn open_verbs(config: &AgentConfig) -> Result<Verbs, RdmaError> {
    if !config.lanes.contains(&Lane::Rdma) {
        return Err(RdmaError::Forbidden);
    }
    if config.listen.is_none() {
        return Err(RdmaError::NotListening);
    }
    if config.tls.is_some() {
        return Err(RdmaError::NotEncrypted);
    }
    Verbs::new(&config.rdma, config.posted_max).map_err(|reason| {
        let reason = reason.to_string();
        tracing::debug!(worker = config.name, reason, "the lane rdma cannot be taken");
        RdmaError::Devices(reason)
    })
}

/// Checks that the lane `rdma` can be taken, where it is required. Errors: why not.
pub(super) fn check_required(config: &AgentConfig, verbs: &Result<Verbs, RdmaError>) -> Result<(), RdmaError> {
    if config.require != Some(Lane::Rdma) || config.listen.is_none() {
        return Ok(());
    }
    let refused = match verbs {
        Err(error) => Some(error.clone()),
        Ok(verbs) => verbs.refused().map(|reason| RdmaError::MemoryRefused(reason.to_string())),
    };
    refused.map_or(Ok(()), Err)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::agent::config::ListenConfig;
    use crate::agent::start_error::AgentStartError;
    use crate::regions::RegionId;
    use domain::{Incarnation, WorkerId};

    #[test]
    fn a_required_lane_that_may_not_pin_memory_is_an_error_with_what_fixes_it() {
        let config = |require| AgentConfig {
            require,
            listen: Some(ListenConfig { bind: String::new(), advertise: String::new() }),
            ..AgentConfig::in_process(WorkerId(0), Incarnation(1), "w0".to_owned(), 1)
        };
        let verbs = Ok(Verbs::without_devices());
        assert!(check_required(&config(Some(Lane::Rdma)), &verbs).is_ok());
        let refused = "rxe0 port 1: 4096 bytes cannot be registered".to_owned();
        verbs.as_ref().expect("it is there").refuse(RegionId(0), refused);
        let error = check_required(&config(Some(Lane::Rdma)), &verbs).expect_err("nothing can be read over it");
        let error = AgentStartError::RequiredLane(error).to_string();
        for part in ["transport.require is rdma", "rxe0 port 1: 4096 bytes", "ulimit -l unlimited", "LimitMEMLOCK"] {
            assert!(error.contains(part), "{error}");
        }
        for slower in [None, Some(Lane::Tcp)] {
            assert!(check_required(&config(slower), &verbs).is_ok(), "peers are reached over another lane");
        }
    }
}
