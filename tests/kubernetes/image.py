"""Checks deploy/compose.yaml and deploy/Containerfile against the binary and the chart."""

import re
from pathlib import Path

import yaml
from binary import Binary
from manifests import USER, container, name, workloads

# What the shell would put in for variables that must be set.
SET = re.compile(r"\$\{(\w+):\?[^}]*\}")
DEFAULT = re.compile(r"\$\{\w+:-([^}]*)\}")


def check(root: Path, baton: Binary, objects: list[dict]) -> list[str]:
    return compose(root, baton) + containerfile(root, objects)


def compose(root: Path, baton: Binary) -> list[str]:
    text = (root / "deploy/compose.yaml").read_text()
    text = DEFAULT.sub(r"\1", SET.sub("0123456789abcdef0123456789abcdef", text))
    services = yaml.safe_load(text)["services"]
    findings = []
    for service, spec in services.items():
        found = baton.arguments(spec["command"]) + baton.arguments(spec["healthcheck"]["test"][2:])
        environment = {key: value or "" for key, value in spec["environment"].items()}
        found += baton.variables(environment)
        if found:
            findings += [f"compose, {service}: {what}" for what in found]
            continue
        settings = baton.settings(environment=baton.environment | environment)
        role = "router" if service == "router" else "worker"
        ops = settings[f"{role}.ops_listen"][0].strip('"').rsplit(":", 1)[-1]
        if not spec["healthcheck"]["test"][-1].endswith(f":{ops}"):
            found.append(f"the health check does not ask port {ops}")
        if int(spec["stop_grace_period"].rstrip("s")) < int(settings[f"{role}.drain_s"][0]) + 5:
            found.append("stop_grace_period is shorter than the drain")
        if not spec["read_only"] or spec["cap_drop"] != ["ALL"]:
            found.append("it may do more than it needs")
        findings += [f"compose, {service}: {what}" for what in found]
    if findings:
        return findings
    workers = services["router"]["environment"]["BATON_CLUSTER__WORKERS"]
    listens = [f"{service}:{services[service]['environment']['BATON_WORKER__LISTEN'].rsplit(':', 1)[1]}"
               for service in services if service != "router"]
    if workers.split(",") != listens:
        findings.append(f"compose: the router knows {workers}, and there are {listens}")
    return findings


def containerfile(root: Path, objects: list[dict]) -> list[str]:
    text = (root / "deploy/Containerfile").read_text()
    ports = {str(port["containerPort"]) for work in workloads(objects) for port in container(work)["ports"]}
    channel = re.search(r'channel = "([\d.]+)"', (root / "rust-toolchain.toml").read_text())[1]
    wanted = {
        f"USER {USER}:{USER}\n": "the user of the chart",
        f"RUSTUP_TOOLCHAIN={channel}\n": "the compiler of rust-toolchain.toml",
        f"rust:{channel.rsplit('.', 1)[0]}-": "an image with that compiler",
        'ENTRYPOINT ["/usr/bin/baton"]': "the binary",
    }
    findings = [f"Containerfile: {each.strip()!r} is missing: {why}" for each, why in wanted.items() if each not in text]
    exposed = set(re.search(r"^EXPOSE (.*)$", text, re.MULTILINE)[1].split())
    if exposed != ports:
        findings.append(f"Containerfile: it exposes {sorted(exposed)}, and pods have {sorted(ports)}")
    tags = {container(work)["image"] for work in workloads(objects)}
    findings += [f"{name(objects[0])} and compose name other images than {tag}" for tag in tags
                 if f"image: {tag}\n" not in (root / "deploy/compose.yaml").read_text()]
    return findings
