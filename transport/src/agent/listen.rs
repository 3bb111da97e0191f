//! Opens the sockets by which agents of other processes reach this one.

use crate::agent::config::{AgentConfig, ListenConfig};
use crate::agent::start_error::AgentStartError;
use crate::lanes::Lane;
use crate::lanes::local::Hub;
use crate::net::control::{LISTENERS_MAX, Listeners};
use domain::session::PeerAddress;

/// Opens the sockets that the configuration asks for, and returns them with the address that peers are told.
pub(super) fn listen(hub: &Hub, config: &AgentConfig) -> Result<(Listeners, PeerAddress), AgentStartError> {
    let mut address = PeerAddress { process: hub.process(), ..PeerAddress::default() };
    let mut listeners = Listeners::default();
    let Some(listen) = &config.listen else { return Ok((listeners, address)) };
    let has_any = |lanes: [Lane; 2]| lanes.iter().any(|lane| config.lanes.contains(lane));
    if has_any([Lane::Shm, Lane::Nvlink]) {
        // The name is unique: the process drew its number at random, and a life of a worker has one agent.
        let name = format!("baton-{:016x}-{}-{}", hub.process(), config.id, config.incarnation);
        match listeners.listen_unix(&name) {
            Ok(()) => address.unix = name,
            Err(source) => return Err(AgentStartError::UnixSocket { name, source }),
        }
    }
    // Both lanes are agreed on over TCP.
    if has_any([Lane::Tcp, Lane::Rdma]) && !listen.bind.is_empty() {
        address.tcp = listen_tcp(&mut listeners, config, listen)?;
    }
    Ok((listeners, address))
}

/// Listens on each network of the configuration, and returns the addresses that peers are told.
fn listen_tcp(
    listeners: &mut Listeners,
    config: &AgentConfig,
    ListenConfig { bind, advertise }: &ListenConfig,
) -> Result<String, AgentStartError> {
    let parts = |text: &str| text.split(',').map(|part| part.trim().to_owned()).collect::<Vec<_>>();
    let (binds, hosts) = (parts(bind), parts(advertise));
    if !advertise.is_empty() && hosts.len() != binds.len() {
        return Err(AgentStartError::Hosts { hosts: hosts.len(), addresses: binds.len() });
    }
    if binds.len() > LISTENERS_MAX {
        return Err(AgentStartError::TooManyAddresses(LISTENERS_MAX));
    }
    let is_open = config.secrets.is_empty() && config.tls.is_none();
    if is_open && !config.insecure {
        return Err(AgentStartError::Unprotected { address: bind.clone() });
    }
    let mut told = Vec::new();
    let mut is_loopback = true;
    for (at, address) in binds.into_iter().enumerate() {
        let bound = listeners.listen_tcp(&address).map_err(|source| AgentStartError::Listen { address, source })?;
        let host = if advertise.is_empty() { bound.ip().to_string() } else { hosts[at].clone() };
        let host = if host.contains(':') { format!("[{host}]") } else { host };
        told.push(format!("{host}:{}", bound.port()));
        is_loopback &= bound.ip().is_loopback();
    }
    let told = told.join(",");
    if is_open && !is_loopback {
        tracing::warn!(
            worker = config.name,
            address = told,
            "neither a cluster secret nor TLS is set: whoever reaches this address may read the KV cache"
        );
    }
    Ok(told)
}
