"""Mooncake's transfer engine between two processes over TCP: a peer for docs/performance/lab/lanes.md.

    bench/lab/peers/install
    target/peers/venv/bin/python bench/lab/peers/mooncake_transfer.py [--quick] [--json FILE]
"""

import os

import rotation

HOST = "127.0.0.1"


def engine_over(pool):
    from mooncake.engine import TransferEngine

    engine = TransferEngine()
    if engine.initialize(HOST, "P2PHANDSHAKE", "tcp", "") != 0:
        raise RuntimeError("the engine did not start")
    if engine.register_memory(pool.address, pool.bytes.size) != 0:
        raise RuntimeError("the memory was not registered")
    return engine


def own(pool):
    engine = engine_over(pool)
    rotation.answer(pool, {"name": f"{HOST}:{engine.get_rpc_port()}", "address": pool.address})


def main():
    options = rotation.options(__doc__, ["tcp"])
    # Otherwise every transfer opens a connection, and a run uses up the ports; its users switch this on too.
    os.environ["MC_TCP_ENABLE_CONNECTION_POOL"] = "1"
    pool = rotation.Pool(options.pool_bytes)
    if options.owner:
        return own(pool)
    engine = engine_over(pool)
    with rotation.Owner() as owner:
        name = owner.address["name"]

        def prepare(operation, size):
            start = engine.batch_transfer_async_read if operation == "read" else engine.batch_transfer_async_write
            transfers = [
                ([local], [remote], [size])
                for local, remote in zip(pool.blocks(size), pool.blocks(size, owner.address["address"]))
            ]
            return transfers, lambda transfer: start(name, *transfer), wait

        def wait(batch):
            if batch == 0:
                raise RuntimeError("a transfer was not accepted")
            state = 0
            while state == 0:
                # The engine's own threads move the bytes, and there may be no more cores than those.
                os.sched_yield()
                state = engine.transfer_check_status(batch)
            if state != 1:
                raise RuntimeError(f"a transfer ended with status {state}")

        rows = rotation.measure("Mooncake", options.lane, options, pool, owner, prepare)
    rotation.report(rows, options.json)


if __name__ == "__main__":
    main()
