"""Checks what containers are told against the binary that they run."""

import json
import os
import re
import subprocess
import tempfile
import time
import tomllib
import urllib.request
from contextlib import ExitStack
from pathlib import Path

from manifests import container, name, pod, workloads

SECRET = "0123456789abcdef0123456789abcdef"
# Values for variables of the environment that are checked by more than their name.
SAMPLES = {"BATON_TRANSPORT__ADVERTISE": "10.0.0.1", "BATON_WORKER__NAME": "baton-decode-0", "BATON_CLUSTER__SECRET": SECRET,
           "BATON_WORKER__ADVERTISE": "10.0.0.1", "BATON_CLUSTER__ACCEPT_SECRET": SECRET[::-1], "AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b"}
# Settings that name a file of the pod.
FILES = {"router.keys_file", "admin.keys_file", "discovery.etcd.tls.ca", "discovery.etcd.tls.cert", "discovery.etcd.tls.key"}
# What begins the refusal of a device that the binary does not have.
NO_DEVICE = "engine.device: cuda"
# Seconds that ending takes after the drain, at most.
END_S = 5
# How long a process may take to start, or to answer.
PATIENCE_S = 60


class Binary:
    def __init__(self, path: str):
        self.path = path
        clean = {key: value for key, value in os.environ.items() if not key.startswith(("BATON_", "AWS_", "HF_"))}
        self.environment = {**clean, "BATON_CLUSTER__SECRET": SECRET, "KUBERNETES_SERVICE_HOST": "10.96.0.1"}
        self.content = Path(path).read_bytes()
        self.helps: dict[str, str] = {}

    def run(self, *arguments: str, environment: dict | None = None) -> subprocess.CompletedProcess:
        env = self.environment if environment is None else environment
        return subprocess.run([self.path, *arguments], env=env, capture_output=True, text=True, check=False)

    def help(self, command: str) -> str:
        if command not in self.helps:
            answer = self.run(command, "--help")
            self.helps[command] = answer.stdout if answer.returncode == 0 else ""
        return self.helps[command]

    def settings(self, *arguments: str, environment: dict | None = None) -> dict[str, tuple[str, str]]:
        """Returns the value and the origin of each setting."""
        answer = self.run("config", "show", *arguments, environment=environment)
        rows = [re.split(r"\s{2,}", line.strip(), maxsplit=2) for line in answer.stdout.splitlines()]
        return {row[0]: (row[1], row[2]) for row in rows if len(row) == 3}

    def check_version(self, root: Path) -> list[str]:
        chart = (root / "deploy/helm/Chart.yaml").read_text()
        version = self.run("--version").stdout.split()[1]
        wanted = [f"\nversion: {version}\n", f'\nappVersion: "{version}"\n']
        return [f"deploy/helm/Chart.yaml has no {each.strip()!r}" for each in wanted if each not in chart]

    def check(self, objects: list[dict]) -> list[str]:
        findings = []
        maps = {obj["metadata"]["name"]: obj["data"] for obj in objects if obj["kind"] == "ConfigMap"}
        for workload in workloads(objects):
            one = container(workload)
            (volume,) = [each for each in pod(workload)["volumes"] if "configMap" in each]
            found = self.arguments(one["args"])
            given = {each["name"]: SAMPLES.get(each["name"], "x") for each in one["env"]}
            found += self.variables(given)
            with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
                file.write(maps[volume["configMap"]["name"]]["baton.toml"])
                file.flush()
                found += self.configuration(file.name, workload, objects, {**self.environment, **given})
            findings += [f"{name(workload)}: {what}" for what in found]
        return findings

    def arguments(self, args: list[str]) -> list[str]:
        text = self.help(args[0])
        if not text:
            return [f"there is no command `{args[0]}`"]
        return [f"`{args[0]}` has no {flag}" for flag in args if flag.startswith("--") and f"{flag} <" not in text]

    def variables(self, given: dict[str, str]) -> list[str]:
        """Checks that each variable is one that the binary reads."""
        findings = []
        environment = {**self.environment, **given}
        answer = self.run("config", "show", environment=environment)
        if answer.returncode:
            return [answer.stderr.strip()]
        origins = {origin for _, origin in self.settings(environment=environment).values()}
        for variable in given:
            if variable.startswith(("BATON_", "AWS_")) and f"environment {variable}" not in origins:
                findings.append(f"the configuration does not read {variable}")
            if variable.encode() not in self.content and not variable.startswith("BATON_"):
                findings.append(f"the binary does not know {variable}")
        return findings

    def configuration(self, path: str, workload: dict, objects: list[dict], environment: dict[str, str]) -> list[str]:
        """Checks the file as a whole, and what of it must fit the pod: ports, folders, files, the time to drain."""
        answer = self.run("config", "check", "--config", path, environment=environment)
        if NO_DEVICE in answer.stderr:
            answer = self.run("config", "check", "--config", path, "--device", "cpu", environment=environment)
        if answer.returncode:
            return [answer.stderr.strip()]
        settings = {key: json.loads(value) for key, (value, _) in self.settings("--config", path, "--device", "cpu").items()
                    if re.fullmatch(r'".*"|\d+|true|false', value)}
        one, spec = container(workload), pod(workload)
        is_router = one["args"][0] == "router"
        role = "router" if is_router else "worker"
        keys = {"router": {"api": "router.listen", "ops": "router.ops_listen"},
                "worker": {"sessions": "worker.listen", "ops": "worker.ops_listen", "kv": "transport.listen"}}[role]
        ports = {port["name"]: port["containerPort"] for port in one["ports"]}
        listens = {port: int(settings[key].rsplit(":", 1)[1]) for port, key in keys.items()}
        findings = [] if ports == listens else [f"ports {ports}, and the configuration listens on {listens}"]
        pause = one.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
        if spec["terminationGracePeriodSeconds"] < pause + settings[f"{role}.drain_s"] + END_S:
            findings.append("terminationGracePeriodSeconds is shorter than preStop and drain")
        mounts = {mount["mountPath"] for mount in one["volumeMounts"]}
        folders = {folder for folder in settings["disk.folders"].split(",") if folder}
        folders |= {settings["host.folder"]} - {""}
        findings += [f"{folder} is no volume" for folder in sorted(folders - mounts)]
        files = {value for key, value in settings.items() if key in FILES and value}
        findings += [f"{file} is in no volume" for file in sorted(files) if str(Path(file).parent) not in mounts]
        if is_router and settings["discovery.kind"] == "static" and not settings["cluster.workers"]:
            findings.append("the router knows no workers")
        if is_router and settings["discovery.kind"] == "kubernetes":
            for work in workloads(objects):
                labels = work["spec"]["template"]["metadata"]["labels"]
                if selected_by(settings["discovery.kubernetes.selector"], labels) != (work is not workload):
                    findings.append(f"discovery.kubernetes.selector is wrong about the pods of {name(work)}")
        return findings


def selected_by(selector: str, labels: dict[str, str]) -> bool:
    """Returns whether a selector in the form `a=b,c in (d,e)` selects these labels."""
    def holds(rule: str) -> bool:
        key, values = re.fullmatch(r"(\S+?)(?:=| in )\(?([^()]+)\)?", rule).groups()
        return labels.get(key) in values.split(",")

    return all(holds(rule) for rule in re.split(r",(?![^(]*\))", selector))


def get(url: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(url, timeout=PATIENCE_S) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def start(stack: ExitStack, baton: Binary, file: Path, text: str, arguments: list[str]) -> tuple[subprocess.Popen, str]:
    """Starts a process with the arguments of its container, on free ports; returns what it says at its start."""
    out = file.with_suffix(".out")
    command = [baton.path, *(str(file) if each == "/etc/baton/baton.toml" else each for each in arguments)]
    file.write_text(text)
    with open(out, "w") as stdout, open(file.with_suffix(".log"), "w") as stderr:
        process = stack.enter_context(subprocess.Popen(command, env=baton.environment, stdout=stdout, stderr=stderr))
    stack.callback(process.kill)
    until = time.monotonic() + PATIENCE_S
    while "\nready" not in (said := out.read_text()):
        if process.poll() is not None or time.monotonic() > until:
            raise SystemExit(f"error: {' '.join(command)} does not start: {file.with_suffix('.log').read_text()}")
        time.sleep(0.05)
    return process, said


def of_pool(page: str) -> list[str]:
    """Says which metrics or labels of the model-server protocol of InferencePools are missing on a page."""
    labels = {metric: {"model_name"} for metric in ("num_requests_waiting", "num_requests_running", "kv_cache_usage_perc")}
    labels["cache_config_info"] = {"model_name", "block_size", "num_gpu_blocks"}
    findings = []
    for metric, wanted in labels.items():
        series = re.search(rf"^vllm:{metric}\{{(.*)\}} [0-9.e+-]+$", page, re.MULTILINE)
        if not series or set(re.findall(r'(\w+)="[^"]+"', series[1])) != wanted:
            findings.append(f"the API's port has no vllm:{metric} with the labels {sorted(wanted)}")
    return findings


def check_running(baton: Binary, objects: list[dict], test_arguments: list[str]) -> list[str]:
    """Starts a preset's processes with their own configuration, and asks every probe, what the test of the chart asks,
    and for the metrics that autoscalers and dashboards need at least."""
    maps = {obj["metadata"]["name"]: obj["data"] for obj in objects if obj["kind"] == "ConfigMap"}
    work = {obj["metadata"]["name"]: obj for obj in workloads(objects)}
    findings, pages, workers, running = [], "", [], []
    free = ["--set", "worker.listen=127.0.0.1:0", "--set", "worker.ops_listen=127.0.0.1:0", "--set", "transport.listen=127.0.0.1:0"]
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        for name_of in sorted(work, key=lambda each: each.endswith("router")):
            one = container(work[name_of])
            more = free
            if name_of.endswith("router"):
                more = ["--set", "router.listen=127.0.0.1:0", "--set", "router.ops_listen=127.0.0.1:0",
                        "--set", f"cluster.workers={','.join(workers)}"]
            process, said = start(stack, baton, folder / f"{name_of}.toml", maps[name_of]["baton.toml"], one["args"] + more)
            running.append((name_of, process, one))
            if sessions := re.search(r"for routers on (\S+)", said):
                workers.append(sessions[1])
            ops = re.search(r"ops +(http://[^/]+)/metrics", said)[1]
            for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
                path, until = one[probe]["httpGet"]["path"], time.monotonic() + PATIENCE_S
                # A router is ready when it has a session.
                while (status := get(ops + path)[0]) != 200 and time.monotonic() < until:
                    time.sleep(0.1)
                if status != 200:
                    findings.append(f"{name_of}: {probe} gets {status} at {path}")
            if baton.run("topo", ops).returncode:
                findings.append(f"{name_of}: `baton topo {ops}`, by which compose checks its health, fails")
            pages += get(f"{ops}/metrics")[1]
        # What `helm test` does.
        api = re.search(r"listening on (http://\S+)", said)[1]
        # A picker reads the port that it sends requests to.
        if any(obj["kind"] == "InferencePool" for obj in objects):
            findings += of_pool(get(f"{api}/metrics")[1])
        command = [api if each.startswith("http://") else each for each in test_arguments]
        if (answer := baton.run(*command)).returncode:
            findings.append(f"helm test: {' '.join(command)} fails: {answer.stdout}{answer.stderr}")
        for metric in ("baton_requests_open", "baton_waiting_sequences", "baton_running_sequences", "baton_build_info",
                       "baton_worker_up", "baton_kv_blocks"):
            if not re.search(rf"^{metric}\b", pages, re.MULTILINE):
                findings.append(f"no process serves {metric}")
        for name_of, process, _ in running:
            process.terminate()
        for name_of, process, one in running:
            grace = pod(work[name_of])["terminationGracePeriodSeconds"]
            if process.wait(timeout=grace):
                findings.append(f"{name_of} ends with {process.returncode} after SIGTERM")
    return findings
