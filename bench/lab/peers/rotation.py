"""What the transfer scripts share: two processes with a pool each, the pattern by which blocks move, and the rows printed.

A pass moves the pool once, block by block in order, with a given number of blocks in flight. All blocks of a size are
moved before any is moved again, so that no cache holds the next one because it was the last one. After the passes of
a size every byte is compared. The memory asks for huge pages, which is the best case for every peer.
"""

import argparse
import collections
import json
import mmap
import statistics
import subprocess
import sys
import time

import numpy

POOL_BYTES = 256 << 20
QUICK_POOL_BYTES = 32 << 20
HUGE_PAGE_BYTES = 2 << 20
# Of this size the time of a single block is measured too.
SMALLEST_BYTES = 4 << 10
SIZES = [SMALLEST_BYTES, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20, 256 << 20]
QUICK_SIZES = [SMALLEST_BYTES, 64 << 10, 4 << 20]
IN_FLIGHT = [1, 8]
PASSES = 3
# What lies in the pool of the process that is the source.
SEEDS = {"read": 1, "write": 2}


class Pool:
    """The memory of one process: `bytes` as an array, aligned to huge pages, at `address`."""

    def __init__(self, size):
        self.mapping = mmap.mmap(-1, size + HUGE_PAGE_BYTES)
        self.mapping.madvise(mmap.MADV_HUGEPAGE)
        whole = numpy.frombuffer(self.mapping, dtype=numpy.uint8)
        begin = -whole.ctypes.data % HUGE_PAGE_BYTES
        self.bytes = whole[begin : begin + size]
        self.bytes.fill(0)
        self.address = self.bytes.ctypes.data
        self.contents = {
            operation: numpy.frombuffer(numpy.random.default_rng(seed).bytes(size), dtype=numpy.uint8)
            for operation, seed in SEEDS.items()
        }

    def blocks(self, size, address=None):
        """Where the blocks of `size` bytes begin, in this pool or in one at `address`."""
        begin = self.address if address is None else address
        return range(begin, begin + self.bytes.size, size)

    def fill(self, operation):
        self.bytes[:] = self.contents[operation]

    def clear(self):
        self.bytes.fill(0)

    def check(self, operation):
        return bool(numpy.array_equal(self.bytes, self.contents[operation]))


class Owner:
    """The other process, as the measuring one sees it: a request and its answer are a line of JSON each."""

    def __init__(self):
        command = [sys.executable, *sys.argv, "--owner"]
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self.address = self._answer()

    def _answer(self):
        # The peers' libraries log to the same stream; an answer is the line that is JSON.
        for line in self.process.stdout:
            if line.startswith("{"):
                return json.loads(line)
        raise RuntimeError("the owner process ended")

    def ask(self, what, operation=None):
        self.process.stdin.write(json.dumps({"what": what, "operation": operation}) + "\n")
        self.process.stdin.flush()
        return self._answer()["answer"]

    def __enter__(self):
        return self

    def __exit__(self, *_):
        # The end of its input ends it.
        self.process.stdin.close()
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()


def answer(pool, address):
    """The owner's life: says where it can be reached, then does what it is asked until its input ends."""
    print(json.dumps(address), flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        what = getattr(pool, request["what"])
        done = what(request["operation"]) if request["operation"] else what()
        print(json.dumps({"answer": done}), flush=True)


def run_pass(transfers, in_flight, post, wait):
    """Seconds that it takes to move each of `transfers` once. `post` starts one, `wait` returns when what it gave ended."""
    begin = time.perf_counter()
    if in_flight == 1:
        for transfer in transfers:
            wait(post(transfer))
    else:
        posted = collections.deque()
        for transfer in transfers:
            if len(posted) == in_flight:
                wait(posted.popleft())
            posted.append(post(transfer))
        while posted:
            wait(posted.popleft())
    return time.perf_counter() - begin


def middle_time(transfers, post, wait):
    """Seconds of one of `transfers`, from being posted to being seen to have ended: the median."""
    times = []
    for transfer in transfers:
        begin = time.perf_counter()
        wait(post(transfer))
        times.append(time.perf_counter() - begin)
    return statistics.median(times)


def measure(peer, lane, options, pool, owner, prepare):
    """The rows of one peer on one lane. `prepare(operation, size)` gives the transfers of a pass, and `post` and `wait`."""
    rows = []
    for size in QUICK_SIZES if options.quick else SIZES:
        for operation in SEEDS:
            if operation == "read":
                owner.ask("fill", operation)
                pool.clear()
            else:
                owner.ask("clear")
                pool.fill(operation)
            transfers, post, wait = prepare(operation, size)
            what = {"peer": peer, "lane": lane, "operation": operation, "bytes": size}
            for in_flight in IN_FLIGHT:
                if len(transfers) < in_flight:
                    continue
                # The first pass touches memory and makes connections.
                passes = 1 + (1 if options.quick else PASSES)
                seconds = [run_pass(transfers, in_flight, post, wait) for _ in range(passes)][1:]
                rows.append({**what, "in_flight": in_flight, "seconds": statistics.median(seconds) / len(transfers)})
            if size == SMALLEST_BYTES:
                seconds = middle_time(transfers, post, wait)
                rows.append({**what, "lane": f"{lane}, polled", "in_flight": 1, "seconds": seconds})
            arrived = pool.check(operation) if operation == "read" else owner.ask("check", operation)
            if not arrived:
                raise RuntimeError(f"{peer} {lane}: {operation}s of {size} bytes arrived wrong")
    return rows


def options(description, lanes):
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--lane", choices=lanes, default=lanes[0])
    parser.add_argument("--quick", action="store_true", help="three sizes, a small pool, one pass: to see that it works")
    parser.add_argument("--json", help="file for the rows")
    parser.add_argument("--owner", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    chosen.pool_bytes = QUICK_POOL_BYTES if chosen.quick else POOL_BYTES
    return chosen


def report(rows, path):
    """Prints the rows as a table, and writes them to the file `path` if there is one."""
    print(f"{'bytes':>10} {'in flight':>9} {'operation':>9} {'us a block':>11} {'GB/s':>7}  lane")
    for row in rows:
        us, rate = row["seconds"] * 1e6, row["bytes"] / row["seconds"] / 1e9
        print(f"{row['bytes']:>10} {row['in_flight']:>9} {row['operation']:>9} {us:>11.2f} {rate:>7.2f}  {row['lane']}")
    if path:
        with open(path, "w") as file:
            json.dump(rows, file, indent=1)
