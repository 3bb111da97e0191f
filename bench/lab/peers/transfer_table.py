"""The Markdown table of a run of bench/lab/peers/transfer: figures by size, ratios, and the goals with what was reached."""

import statistics

# (who, lane, operation), as the rows of a run name them.
SHM, TCP, TCP_CHECKED = ("baton", "shm", "read"), ("baton", "tcp", "read"), ("baton", "tcp, checksums", "read")
MEMCPY, STREAM = ("memcpy", "this process", "read"), ("stream", "loopback", "read")
NIXL_CMA_READ, NIXL_CMA_WRITE = ("NIXL", "cma", "read"), ("NIXL", "cma", "write")
NIXL_READ, NIXL_WRITE = ("NIXL", "tcp", "read"), ("NIXL", "tcp", "write")
MOONCAKE_READ, MOONCAKE_WRITE = ("Mooncake", "tcp", "read"), ("Mooncake", "tcp", "write")
# Limits of the machine, which know no blocks in flight.
LIMITS = (MEMCPY, STREAM)

POLLED, AWAITED = ("baton", "shm, polled", "read"), ("baton", "shm, awaited", "read")
PING_PONG = ("eventfd", "to a thread and back", "read")
# What the table of latencies shows, in this order.
LATENCIES = (
    POLLED,
    ("NIXL", "cma, polled", "read"),
    AWAITED,
    PING_PONG,
    ("baton", "tcp, polled", "read"),
    ("baton", "tcp, awaited", "read"),
    ("NIXL", "tcp, polled", "read"),
    ("Mooncake", "tcp, polled", "read"),
)
LATENCY_BYTES = 4 << 10
# Goals for bandwidth begin at this size.
BANDWIDTH_BYTES_MIN = 64 << 10


class Figures:
    """Medians over the rounds of a run, in seconds a block; those of ratios are of the ratios within each round."""

    def __init__(self, rows):
        self.rounds = {}
        for row in rows:
            key = (row["peer"], row["lane"], row["operation"]), row["bytes"], row["in_flight"]
            self.rounds.setdefault(key, {})[row["round"]] = row["seconds"]
        self.seconds = {key: statistics.median(rounds.values()) for key, rounds in self.rounds.items()}
        self.sizes = sorted({size for _, size, _ in self.seconds})

    def rate(self, who, size, in_flight):
        """GB/s, or nothing where it was not measured."""
        seconds = self.seconds.get(self.key(who, size, in_flight))
        return seconds and size / seconds / 1e9

    @staticmethod
    def key(who, size, in_flight):
        return who, size, 1 if who in LIMITS else in_flight

    def latency(self, who):
        return self.seconds.get((who, LATENCY_BYTES, 1))

    def ratio(self, who, other, size, in_flight):
        """What the machine does meanwhile disturbs those who take turns in a round alike, so it drops out of their ratio."""
        one, two = (self.rounds.get(self.key(it, size, in_flight), {}) for it in (who, other))
        ratios = [two[number] / one[number] for number in one.keys() & two.keys()]
        return statistics.median(ratios) if ratios else None


def bytes_text(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def cell(value, digits=2):
    return "" if value is None else f"{value:.{digits}f}"


def table(head, rows):
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def bandwidth(figures, in_flight, columns, ratios):
    """GB/s of `columns` by size, then the `ratios` (of one to another)."""
    head = ["size", *(name for name, _ in columns), *(name for name, _, _ in ratios)]
    rows = []
    for size in figures.sizes:
        cells = [cell(figures.rate(who, size, in_flight)) for _, who in columns]
        cells += [cell(figures.ratio(one, other, size, in_flight)) for _, one, other in ratios]
        if any(cells):
            rows.append([bytes_text(size), *cells])
    return table(head, rows)


def at_least(text, figures, who, others, in_flight, wanted):
    """A goal for bandwidth: `who` moves at least `wanted` times what each of `others` does, at every size."""
    ratios = [
        (ratio, size)
        for size in figures.sizes
        for other in others
        if size >= BANDWIDTH_BYTES_MIN and (ratio := figures.ratio(who, other, size, in_flight)) is not None
    ]
    if not ratios:
        return f"- not measured: {text}"
    ratio, size = min(ratios)
    verdict = "reached" if ratio >= wanted else "**missed**"
    return f"- {verdict}: {text}: {ratio:.2f} of {wanted:g} wanted, least at {bytes_text(size)}"


def at_most(text, seconds, wanted):
    """A goal for latency."""
    if seconds is None or wanted is None:
        return f"- not measured: {text}"
    verdict = "reached" if seconds <= wanted else "**missed**"
    return f"- {verdict}: {text}: {seconds * 1e6:.2f} us, at most {wanted * 1e6:.2f} wanted"


def goals(figures):
    bell = figures.latency(PING_PONG)
    return "\n".join([
        at_least("tcp beside the reads of NIXL and Mooncake, 1 in flight", figures, TCP, [NIXL_READ, MOONCAKE_READ], 1, 1),
        at_least("tcp beside NIXL's writes, 1 in flight", figures, TCP, [NIXL_WRITE], 1, 1),
        at_least("shm beside NIXL over CMA, 8 in flight", figures, SHM, [NIXL_CMA_READ, NIXL_CMA_WRITE], 8, 2),
        at_least("shm beside memcpy of the same pattern, 8 in flight", figures, SHM, [MEMCPY], 8, 0.9),
        at_most("4 KiB over shm, polled", figures.latency(POLLED), 2e-6),
        at_most("4 KiB over shm, awaited, beside 1.5 eventfd ping-pongs", figures.latency(AWAITED), bell and 1.5 * bell),
    ])


def render(rows):
    figures = Figures(rows)
    latencies = [
        [f"{who[0]}, {who[1]}", cell(seconds * 1e6)]
        for who in LATENCIES
        if (seconds := figures.latency(who)) is not None
    ]
    parts = ["Reads of 4 KiB, one in flight, microseconds:\n", table(["", "microseconds"], latencies)]
    for in_flight in sorted({in_flight for _, _, in_flight in figures.seconds}):
        parts += [
            f"Between processes of one host, {in_flight} in flight, GB/s:\n",
            bandwidth(
                figures,
                in_flight,
                [("shm", SHM), ("memcpy", MEMCPY), ("NIXL read", NIXL_CMA_READ), ("NIXL write", NIXL_CMA_WRITE)],
                [("of memcpy", SHM, MEMCPY), ("of NIXL's read", SHM, NIXL_CMA_READ)],
            ),
            f"TCP over loopback, {in_flight} in flight, GB/s:\n",
            bandwidth(
                figures,
                in_flight,
                [
                    ("tcp", TCP),
                    ("with checksums", TCP_CHECKED),
                    ("plain stream", STREAM),
                    ("NIXL read", NIXL_READ),
                    ("NIXL write", NIXL_WRITE),
                    ("Mooncake read", MOONCAKE_READ),
                    ("Mooncake write", MOONCAKE_WRITE),
                ],
                [
                    ("of NIXL's read", TCP, NIXL_READ),
                    ("of NIXL's write", TCP, NIXL_WRITE),
                    ("of Mooncake's read", TCP, MOONCAKE_READ),
                ],
            ),
        ]
    return "\n".join([*parts, "Goals:\n", goals(figures)])
