//! Two hosts as network namespaces, with a cable between them that can be cut, and one from each to the test.
//! Needs root and the program `ip`.

use super::fleet::{Role, Seat};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};

/// The hosts; gone when dropped.
pub(super) struct Network {
    hosts: [String; 2],
    /// The third byte of all its addresses.
    third: u8,
}

/// Addresses on the cable that each host has.
const PER_HOST: u8 = 4;
/// A hardware address that nobody has: what is sent there arrives nowhere, and nobody is told.
const NOBODY: &str = "02:00:00:00:00:99";

impl Network {
    /// Two hosts. Errors: why there can be none here.
    pub(super) fn new() -> Result<Self, String> {
        let id = std::process::id();
        let hosts = ["a", "b"].map(|host| format!("baton-{host}-{id}"));
        if let Err(error) = ip(&["netns", "add", &hosts[0]]) {
            return Err(format!("no network namespace can be made, which takes root and iproute2: {error}"));
        }
        let network = Self { hosts, third: id.to_le_bytes()[0] };
        network.build().expect("whoever makes namespaces may make their cables");
        Ok(network)
    }

    fn build(&self) -> Result<(), String> {
        let [a, b] = &self.hosts;
        ip(&["netns", "add", b])?;
        ip(&["-n", a, "link", "add", "cable", "type", "veth", "peer", "name", "cable", "netns", b])?;
        for (at, host) in self.hosts.iter().enumerate() {
            for number in 0..PER_HOST {
                ip(&["-n", host, "address", "add", &format!("{}/24", self.address(at, number)), "dev", "cable"])?;
            }
            // The end of the test's cable here is named after the host's process, and is gone with the host.
            let near = format!("bt{at}-{}", std::process::id());
            ip(&["link", "add", &near, "type", "veth", "peer", "name", "test", "netns", host])?;
            let [mut ours, theirs] = [1, 2].map(|last| Ipv4Addr::new(10, 201 + at as u8, self.third, last).to_string());
            ours += "/30";
            ip(&["address", "add", &ours, "dev", &near])?;
            ip(&["link", "set", &near, "up"])?;
            ip(&["-n", host, "address", "add", &format!("{theirs}/30"), "dev", "test"])?;
            for device in ["lo", "test", "cable"] {
                ip(&["-n", host, "link", "set", device, "up"])?;
            }
        }
        Ok(())
    }

    fn address(&self, host: usize, number: u8) -> Ipv4Addr {
        Ipv4Addr::new(10, 203, self.third, 1 + host as u8 * 100 + number)
    }

    /// The `number`th process of a host, of at most [`PER_HOST`].
    pub(super) fn seat(&self, host: usize, number: u8, role: Role, name: &str, settings: &[String]) -> Seat {
        let seen = Ipv4Addr::new(10, 201 + host as u8, self.third, 2);
        Seat {
            address: self.address(host, number),
            http: SocketAddr::from((seen, 8000 + u16::from(number))),
            host: Some(self.hosts[host].clone()),
            ..Seat::new(role, name, settings)
        }
    }

    /// Nothing passes any more, either way.
    pub(super) fn cut(&self) {
        ip(&["-n", &self.hosts[0], "link", "set", "cable", "down"]).expect("cables can be cut");
    }

    /// What `from` sends to the other host arrives nowhere; the other way nothing changes.
    pub(super) fn cut_from(&self, from: usize) {
        for number in 0..PER_HOST {
            let to = self.address(1 - from, number).to_string();
            let nobody = ["neighbour", "replace", &to, "lladdr", NOBODY, "nud", "permanent", "dev", "cable"];
            ip(&[&["-n", &self.hosts[from]], &nobody[..]].concat()).expect("cables can be cut");
        }
    }

    /// Everything passes again.
    pub(super) fn mend(&self) {
        for (at, host) in self.hosts.iter().enumerate() {
            ip(&["-n", host, "link", "set", "cable", "up"]).expect("cables can be mended");
            for number in 0..PER_HOST {
                // There may be none.
                let _ =
                    ip(&["-n", host, "neighbour", "del", &self.address(1 - at, number).to_string(), "dev", "cable"]);
            }
        }
    }

    /// At most so many bits a second pass, each way.
    pub(super) fn slow(&self, rate: &str) {
        for host in &self.hosts {
            let limit = ["-n", host, "qdisc", "replace", "dev", "cable", "root", "tbf"];
            let limit = [&limit[..], &["rate", rate, "burst", "16kb", "latency", "200ms"]].concat();
            run("tc", &limit).expect("cables can be slow");
        }
    }
}

impl Drop for Network {
    fn drop(&mut self) {
        for host in &self.hosts {
            // One that could not be made is not there.
            let _ = ip(&["netns", "del", host]);
        }
    }
}

fn ip(arguments: &[&str]) -> Result<(), String> {
    run("ip", arguments)
}

fn run(program: &str, arguments: &[&str]) -> Result<(), String> {
    let output = Command::new(program).args(arguments).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    let said = || format!("{program} {}: {}", arguments.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    if output.status.success() { Ok(()) } else { Err(said()) }
}
