//! What is looked at, in the order of the report.

mod cuda;
mod memory;
mod network;
mod pcie;
mod processor;
mod rdma;
mod storage;

use super::finding::Check;

/// All checks.
pub(super) static CHECKS: &[Check] = &[
    Check { name: "rdma devices", run: rdma::devices },
    Check { name: "rdma ports", run: rdma::ports },
    Check { name: "rdma gids", run: rdma::gids },
    Check { name: "rdma counters", run: rdma::counters },
    Check { name: "rdma congestion", run: rdma::congestion },
    Check { name: "gpu memory over rdma", run: rdma::peer_memory },
    Check { name: "locked memory", run: memory::locked },
    Check { name: "huge pages", run: memory::huge_pages },
    Check { name: "/dev/shm", run: memory::shared },
    Check { name: "numa", run: memory::numa },
    Check { name: "mtu", run: network::mtu },
    Check { name: "socket buffers", run: network::buffers },
    Check { name: "congestion control", run: network::congestion_control },
    Check { name: "port range", run: network::port_range },
    Check { name: "links", run: network::links },
    Check { name: "interrupts", run: network::interrupts },
    Check { name: "io_uring", run: storage::io_uring },
    Check { name: "direct io", run: storage::direct_io },
    Check { name: "block scheduler", run: storage::scheduler },
    Check { name: "processor governor", run: processor::governor },
    Check { name: "processor instructions", run: processor::instructions },
    Check { name: "clock", run: processor::clock },
    Check { name: "iommu", run: pcie::iommu },
    Check { name: "pcie links", run: pcie::links },
    Check { name: "pcie access control", run: pcie::access_control },
    Check { name: "gpu driver", run: cuda::driver },
    Check { name: "gpu cards", run: cuda::cards },
    Check { name: "nvrtc", run: cuda::compiler },
    Check { name: "cublaslt", run: cuda::cublas_lt },
    Check { name: "nccl", run: pcie::nccl },
];
