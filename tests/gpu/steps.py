"""The steps, in the order in which they run: what is cheap and tells most comes first."""

import json
import re
import shutil
import sys
from collections import namedtuple
from concurrent.futures import ThreadPoolExecutor

from host import Failed, Process, Service, Skipped, free_address

Step = namedtuple("Step", "name seconds what run")

# What the test runner of Rust prints at the end.
TESTED = re.compile(r"test result: \w+\. (\d+) passed; (\d+) failed; (\d+) ignored")
# Binaries of tests that have steps of their own.
OWN_STEPS = {"baton", "e2e", "device", "copier"}
# What the checker of memory runs of each binary of kernels: the longest ones would not end in time.
SANITIZED_S = 20
# Families of dense models.
FAMILIES = ["llama", "mistral", "qwen2", "qwen3", "gemma2", "gemma3_text", "phi3", "olmo2", "granite", "ministral3"]
BATCHES = [1, 8, 32, 128]
# Tokens before those that are decoded, and lengths of prompts.
CONTEXT = 2048
PROMPTS = [2048, 8192]
# Lengths of prompts that come back from the host tier.
LONG_PROMPTS = [2048, 8192, 16384, 65536, 131_008]
# Tokens of the prompts that are handed over, and how many of them.
HANDED_TOKENS = 16384
HANDED = 8


def facts(host, report):
    """Names the card, its driver and libraries."""
    for name, command in (("doctor", ["doctor", "--all"]), ("topo", ["topo"])):
        said, _ = host.baton(*command, check=False)
        lines = [line for line in said.splitlines() if re.search(r"gpu|cuda|nvrtc|cublas|compute capability", line, re.I)]
        report.fact(name, "; ".join(line.strip() for line in lines)[:1000] or "names no card")
    if shutil.which("nvidia-smi") is None:
        report.fact("nvidia-smi", "not there")
        return
    what = "name,driver_version,vbios_version,clocks.sm,clocks.max.sm,clocks.mem,power.limit,temperature.gpu,ecc.mode.current"
    said, _ = host.run(["nvidia-smi", f"--query-gpu={what},pcie.link.gen.current,pcie.link.width.current", "--format=csv"])
    report.fact("nvidia-smi", said.strip().replace("\n", " / "))


def limits(host, report):
    """Measures what the card does at best."""
    path = host.report_path("limits.json")
    sizes = ["--bytes", "4MiB", "--samples", "2"] if host.tiny else []
    host.baton("bench", "device", "--json", path, *sizes)
    found = json.loads(path.read_text())
    report.card = found["name"]
    report.limits = found
    units = {"_gb_per_s": "GB/s", "_tflop_per_s": "TFLOP/s", "_us": "us"}
    for name, value in found.items():
        end = next((end for end in units if name.endswith(end)), None)
        if end:
            report.figure(f"limit: {name.removesuffix(end).replace('_', ' ')}", value, units[end])
    for way in ("to_card", "from_card"):
        share = found[f"records_{way}_gb_per_s"] / found[f"{way}_gb_per_s"]
        report.figure(f"copier: {way.replace('_', ' ')}: share of one large copy", share, "")


def run_tests(host, binary, *arguments, seconds=None, through=()):
    """Runs a binary of tests; returns how many passed. Fails if one did not, with its name."""
    said, ended_well = host.run(
        [*through, host.binaries / binary, *arguments], seconds=seconds, check=False, more={"RUST_BACKTRACE": "0"}
    )
    if "\nskipped: " in said or said.startswith("skipped: "):
        raise Failed(f"{binary} found no card: {said[-500:].strip()}")
    passed = sum(int(found[1]) for found in TESTED.finditer(said))
    if not ended_well or not passed:
        names = re.findall(r"^test (\S+) \.\.\. FAILED", said, re.M)
        raise Failed(f"{binary}: {', '.join(names) or 'no test ended'}: {said[-1500:].strip()}")
    return passed


def kernels(host, report):
    """Runs every test of kernels: against float64, on random shapes."""
    binaries = sorted(path.name for path in host.binaries.iterdir() if path.name not in OWN_STEPS)
    if host.tiny:
        binaries = ["gated", "limits", "update_tables"]
    run_all(host, report, "kernels", binaries, lambda binary: run_tests(host, binary, "--test-threads", "1"))


def run_all(host, report, what, binaries, run):
    """Runs something for each binary, several at once, and reports how many tests passed. Fails with all failures."""
    failures, passed = [], 0
    # One process at a time: timings of others do not matter here, but each has memory of its own on the card.
    with ThreadPoolExecutor(1 if host.tiny else 4) as pool:
        for binary, future in [(binary, pool.submit(run, binary)) for binary in binaries]:
            try:
                passed += future.result()
            except Failed as failure:
                failures.append(str(failure))
    report.figure(f"{what}: tests that passed", passed, "")
    if failures:
        raise Failed(" | ".join(failures))


def sanitizer(host, report):
    """Runs tests of kernels once under the checker of memory of NVIDIA's toolkit."""
    checker = shutil.which("compute-sanitizer")
    if checker is None:
        raise Skipped("compute-sanitizer is not there")
    through = [checker, "--tool", "memcheck", "--error-exitcode", "9", "--launch-timeout", "60"]
    binaries = sorted(path.name for path in host.binaries.iterdir() if path.name not in OWN_STEPS)

    def run(binary):
        with_few = {"PROPTEST_CASES": "2"}
        command = [*through, host.binaries / binary, "--test-threads", "1"]
        said, ended_well = host.run(command, seconds=SANITIZED_S, more=with_few, check=False)
        errors = re.findall(r"ERROR SUMMARY: (\d+) error", said)
        if errors and int(errors[-1]):
            raise Failed(f"{binary}: {said[-1500:].strip()}")
        # One that did not end in its time has found nothing so far; it does not count as passed.
        return int(ended_well)

    run_all(host, report, "compute-sanitizer", binaries, run)


def random_model(host, family, shape):
    """Writes a model with random weights, unless it is there already; returns its folder."""
    folder = host.folder / f"{family}-{shape}"
    if not (folder / "config.json").exists():
        host.baton("model", "random", "--shape", shape, "--family", family, "--seed", "1", folder)
    return folder


def serve(host, name, *settings):
    """Starts `baton serve` on the card."""
    address = free_address()
    words = ["serve", "--listen", address, "--device", "cuda", "--set", "router.ops_listen=off"]
    for setting in settings:
        words += ["--set", setting]
    return Service(host, name, address, *words)


def families(host, report):
    """Compares log probabilities of every dense family with those of transformers on this card."""
    python_with(host, "transformers")
    for family in FAMILIES[:1] if host.tiny else FAMILIES:
        folder = random_model(host, family, "tiny-64-yarn" if family == "ministral3" else "tiny-64")
        asked = [{"prompt": [(i * i + salt * 71 + i) % 250 for i in range(tokens)]} for salt, tokens in ((1, 33), (2, 150))]
        with serve(host, f"family-{family}", f"model.path={folder}", "serve.prefill=0", "kv.device_bytes=64MiB") as service:
            service.until_ready()
            for ask in asked:
                body = {
                    "model": folder.name, "prompt": ask["prompt"], "max_tokens": 16, "ignore_eos": True,
                    "temperature": 0, "logprobs": 1, "return_token_ids": True,
                }
                choice = service.post("/v1/completions", body)[0]["choices"][0]
                ask["tokens"], ask["logprobs"] = choice["token_ids"], choice["logprobs"]["token_logprobs"]
        path = host.folder / f"{family}.json"
        path.write_text(json.dumps({"model": str(folder), "asked": asked}))
        said, _ = host.run([sys.executable, host.root / "tests/gpu/families.py", path], seconds=60)
        report.figure(f"transformers: {family}: farthest log probability", json.loads(said.splitlines()[-1])["farthest"], "")


def python_with(host, module):
    """Skips the step unless this Python has torch, a card for it, and the module."""
    check = f"import torch, {module}; assert torch.cuda.is_available(), 'torch sees no card'"
    said, there = host.run([sys.executable, "-c", check], seconds=60, check=False)
    if not there:
        raise Skipped(f"{module} with torch on a card is not there: {said.strip().splitlines()[-1][:200]}")


def texts(host, report):
    """Runs whole processes on the card: the same text on all paths, kills, lost cards."""
    wanted = ["cuda::families"] if host.tiny else ["cuda::"]
    report.figure("texts: tests that passed", run_tests(host, "e2e", *wanted, "--test-threads", "2"), "")


def graphs(host, report):
    """Runs the tests of the device: recorded steps, two in flight, against single ones."""
    wanted = ["steps_in_flight"] if host.tiny else []
    report.figure("graphs: tests that passed", run_tests(host, "device", *wanted, "--test-threads", "1"), "")


def copies(host, report):
    """Runs the tests of the copier and the pinned tier."""
    wanted = ["any_ranges_are_as_the_hosts"] if host.tiny else []
    report.figure("copies: tests that passed", run_tests(host, "copier", *wanted, "--test-threads", "1"), "")


def handoff(host, report):
    """Hands prompts from one process to another over `nvlink`, and reads how fast."""
    model = random_model(host, "llama", shape_name(host))
    tokens, rounds = (200, 2) if host.tiny else (HANDED_TOKENS, HANDED)
    secret = {"BATON_CLUSTER__SECRET": "a secret of the tests of a card"}
    pool = "16MiB" if host.tiny else "20GiB"
    common = ["--model", model, "--device", "cuda", "--set", f"kv.device_bytes={pool}", "--set", "transport.require=nvlink"]
    places = {role: free_address() for role in ("prefill", "decode")}
    seen = free_address()
    with (
        Process(host, "prefill", "prefill-worker", "--listen", places["prefill"], *common, more=secret) as prefill,
        Service(
            host, "decode", seen, "decode-worker", "--listen", places["decode"], "--set", f"worker.ops_listen={seen}",
            *common, more=secret,
        ) as decode,
    ):
        decode.until("it is ready", lambda: decode.get("/live"))
        address = free_address()
        router = ["router", "--listen", address, "--workers", ",".join(places.values()), "--model", model]
        with Service(host, "router", address, *router, "--set", "placement.handoff=always", more=secret) as service:
            workers = {"prefill": 1, "decode": 1}
            service.until("both workers are up", lambda: json.loads(service.get("/ready") or "{}").get("workers") == workers)
            for salt in range(rounds):
                prompt = [(i * 31 + salt * 7919) % 250 for i in range(tokens)]
                service.post("/v1/completions", {"model": model.name, "prompt": prompt, "max_tokens": 2, "ignore_eos": True})
            taken = decode.metric("baton_handoffs_total", lane="nvlink", result="taken")
            rate = decode.metric("baton_lane_bytes_per_second", lane="nvlink") / 1e9
            gigabytes = decode.metric("baton_transfer_bytes_total", lane="nvlink") / 1e9
    if taken < rounds:
        raise Failed(f"{taken:.0f} of {rounds} prompts were handed over by nvlink")
    report.figure("nvlink: handed over", gigabytes, "GB")
    report.figure("nvlink: rate", rate, "GB/s")
    if report.limits:
        # A copy counts its bytes twice: read and written.
        report.figure("nvlink: share of a copy on the card", rate / (report.limits["copy_gb_per_s"] / 2), "")


def shape_name(host):
    return "tiny-64" if host.tiny else "8b"


def shape(host, report):
    """Measures decoding, prompts and both at once, with both sets of kernels."""
    model = random_model(host, "llama", shape_name(host))
    for kernels in ("fast", "exact"):
        path = host.report_path(f"engine-{kernels}.json")
        host.baton("bench", "engine", "--device", "cuda", "--kernels", kernels, "--model", model, *sizes(host), "--json", path)
        found = json.loads(path.read_text())
        for work in found["works"]:
            name = f"{kernels}: {work['work']}"
            report.figure(f"{name}: rate", work["tokens_per_s"]["median"], "tokens/s")
            report.figure(f"{name}: outside kernels", work["outside_kernels"], "")
            if work["prompt"] is None:
                report.figure(f"{name}: share of reading", work["share_of_reading"], "")
            elif work["share_of_multiplying"] is not None:
                report.figure(f"{name}: share of multiplying", work["share_of_multiplying"], "")


def sizes(host):
    """Returns what `baton bench engine` measures."""
    if host.tiny:
        return "--chunk 64 --prompts 64 --batches 1,2 --contexts 32 --mixed 32 --decoded 2 --samples 1".split()
    prompts, batches = (",".join(map(str, numbers)) for numbers in (PROMPTS, BATCHES))
    words = f"--chunk 2048 --prompts {prompts} --batches {batches} --contexts {CONTEXT} --mixed {CONTEXT} --samples 3"
    return words.split()


def tiers(host, report):
    """Reads prompts back from the pinned host tier, beside computing them again."""
    model = random_model(host, "llama", shape_name(host))
    lengths = [512] if host.tiny else LONG_PROMPTS
    path = host.report_path("tiers.json")
    failures = []
    # The shortest come first, each with its own run: what was measured stays when time is over.
    for prompts in [lengths] if host.tiny else [lengths[:3], lengths[3:4], lengths[4:]]:
        named = ",".join(map(str, prompts))
        command = ["bench", "tiers", "--model", model, "--set", "engine.device=cuda", "--prompts", named]
        try:
            host.baton(*command, "--rounds", "1" if host.tiny else "2", "--tiers", "host", "--json", path)
        except Failed as failure:
            failures.append(str(failure))
            break
        for row in json.loads(path.read_text())["prompts"]:
            report.tier(row)
    if failures:
        raise Failed(" | ".join(failures))


def transformers(host, report):
    """Measures transformers with the same shape: a static cache, compiled."""
    python_with(host, "transformers")
    words = ["--tiny"] if host.tiny else []
    words += ["--batches", ",".join(map(str, BATCHES)), "--context", CONTEXT, "--prompts", ",".join(map(str, PROMPTS))]
    script = host.root / "tests/gpu/peer.py"
    said, ended_well = host.run([sys.executable, script, *words, "--seconds", int(host.step_left()) - 5], check=False)
    for line in said.splitlines():
        if line.startswith("{"):
            found = json.loads(line)
            report.figure(f"transformers: {found['name']}", found["value"], found["unit"])
    if not ended_well:
        raise Failed(said[-1500:].strip())


STEPS = [
    Step("facts", 20, "the card, its driver and libraries", facts),
    Step("limits", 40, "what the card does at best", limits),
    Step("kernels", 120, "every kernel against float64", kernels),
    Step("sanitizer", 60, "every kernel under compute-sanitizer", sanitizer),
    Step("families", 90, "every family against transformers", families),
    Step("texts", 90, "the same text on every path", texts),
    Step("graphs", 60, "recorded steps against single ones", graphs),
    Step("copies", 40, "the copier and the pinned tier", copies),
    Step("shape", 120, "the shape of Llama 3.1 8B: decoding, prompts, both", shape),
    Step("tiers", 100, "prompts from the host tier, and computed again", tiers),
    Step("handoff", 60, "prompts handed over by nvlink", handoff),
    Step("transformers", 100, "transformers beside it", transformers),
]
