"""NIXL's transfers between two processes, over UCX with CMA or with TCP alone: a peer for docs/performance/lab/lanes.md.

    bench/lab/peers/install
    target/peers/venv/bin/python bench/lab/peers/nixl_transfer.py --lane cma|tcp [--quick] [--json FILE]

The measuring process polls without a progress thread of its own, since a third thread that polls takes a core from
the owner's where there are two. The owner needs its progress thread: over TCP it is what answers.
"""

import base64
import os
import sys

import rotation

# What UCX may use. TCP stays on the loopback device, as for the other peers.
UCX = {
    "cma": {"UCX_TLS": "cma,tcp,self", "UCX_NET_DEVICES": "lo"},
    "tcp": {"UCX_TLS": "tcp,self", "UCX_NET_DEVICES": "lo"},
}


def agent_of(name, progress):
    from nixl_cu12._api import nixl_agent, nixl_agent_config

    return nixl_agent(name, nixl_agent_config(enable_prog_thread=progress, backends=["UCX"]))


def own(pool):
    agent = agent_of("owner", True)
    agent.register_memory([(pool.address, pool.bytes.size, 0, "")], "DRAM")
    metadata = base64.b64encode(agent.get_agent_metadata()).decode()
    rotation.answer(pool, {"metadata": metadata, "address": pool.address})


def main():
    options = rotation.options(__doc__, list(UCX))
    os.environ.update(UCX[options.lane])
    pool = rotation.Pool(options.pool_bytes)
    if options.owner:
        return own(pool)
    agent = agent_of("reader", False)
    agent.register_memory([(pool.address, pool.bytes.size, 0, "")], "DRAM")
    with rotation.Owner() as owner:
        peer = agent.add_remote_agent(base64.b64decode(owner.address["metadata"]))
        agent.make_connection(peer)

        def prepare(operation, size):
            def described(name, addresses):
                return agent.prep_xfer_dlist(name, [(address, size, 0) for address in addresses], "DRAM")

            local = described("NIXL_INIT_AGENT", pool.blocks(size))
            remote = described(peer, pool.blocks(size, owner.address["address"]))
            blocks = len(pool.blocks(size))
            transfers = [
                agent.make_prepped_xfer(operation.upper(), local, [block], remote, [block]) for block in range(blocks)
            ]
            return transfers, post, wait

        def post(transfer):
            state = agent.transfer(transfer)
            return state, transfer

        def wait(posted):
            state, transfer = posted
            while state == "PROC":
                state = agent.check_xfer_state(transfer)
            if state != "DONE":
                raise RuntimeError(f"a transfer ended as {state}")

        rows = rotation.measure("NIXL", options.lane, options, pool, owner, prepare)
    rotation.report(rows, options.json)


if __name__ == "__main__":
    main()
    # Where there is no CUDA, the library crashes in a regular exit.
    sys.stdout.flush()
    os._exit(0)
