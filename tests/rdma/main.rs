//! Two processes that read each other's memory over RDMA: real verbs, so it takes a device (`tests/rdma/run` boots
//! a virtual machine that has one). This program starts itself once more as the owner.
//!
//! What is deliberately absent: speed, of which that machine says nothing, and what all lanes have in common, which
//! `transport/tests/lanes` shows on every lane, this one included.

mod owner;
mod reader;
mod scenarios;

/// Where the system tells of RDMA devices.
const DEVICES: &str = "/sys/class/infiniband";

fn main() {
    let mut arguments = std::env::args().skip(1);
    match arguments.next().as_deref() {
        Some("owner") => owner::run(arguments),
        // Test runners ask for the names.
        Some("--list") => {}
        _ if std::fs::read_dir(DEVICES).into_iter().flatten().next().is_none() => {
            println!("skipped: it takes an RDMA device; see tests/rdma/run");
        }
        only => scenarios::run(only),
    }
}
