"""Checks of objects among themselves and against schemas: no cluster, no binary."""

import subprocess
from pathlib import Path

import jsonschema
import kubernetes_validate
import yaml
from cloudcoil.models.prometheus_operator import v1 as prometheus

# Versions of Kubernetes whose schemas are used: the oldest that the chart takes, and that of the kubectl that tests install.
KUBERNETES = ["1.30", "1.35"]
# Objects of the Prometheus operator.
OPERATOR = {"PodMonitor": prometheus.PodMonitor, "PrometheusRule": prometheus.PrometheusRule}
# Objects of the Gateway API and of its inference extension, by the files of their definitions.
DEFINITIONS = {"InferencePool": "inferencepools", "HTTPRoute": "httproutes"}
# Values of a cluster that finds its workers through etcd.
ETCD = "discovery.kind=etcd,settings.discovery.etcd.endpoints=https://etcd:2379,settings.discovery.etcd.prefix=/blue"
# Values of a cluster behind a gateway.
POOL = "inferencePool.enabled=true,settings.router.metrics_on_api=true"
# User of the image that is not root.
USER = 65532


def run(*command: str) -> subprocess.CompletedProcess:
    return subprocess.run(command, capture_output=True, text=True, check=False)


def check_chart(root: Path) -> list[str]:
    """Lints the chart with each preset, and shows that it refuses what it does not know."""
    chart = str(root / "deploy/helm")
    findings = []
    for values in sorted((root / "deploy/helm/presets").glob("*.yaml")):
        lint = run("helm", "lint", "--strict", "--quiet", chart, "--values", str(values))
        if lint.returncode:
            findings.append(f"helm lint with {values.name}: {lint.stdout}{lint.stderr}")
    refusals = {
        "prefil.replicas=2": "'prefil' not allowed",
        "settings.router.listen=x": "router.listen is set by the chart",
        "decode.settings.worker.drain_s=5": "worker.drain_s is set by the chart",
        "tls.secretName=certificate,settings.tls.cert=x": "tls.cert is set by the chart",
        "discovery.kind=dns": "discovery",
        "decode.autoscaling.metrics[0].metric=baton_requests_open,decode.autoscaling.metrics[0].whole=1": "autoscaling",
        "discovery.kind=etcd": "set settings.discovery.etcd.endpoints",
        "settings.discovery.kind=etcd": "discovery.kind is set by the chart",
        f"{ETCD},discovery.etcd.tlsSecret=x,settings.discovery.etcd.tls.ca=y": "discovery.etcd.tls.ca is set by the chart",
        "router.leaveSeconds=0": "leaveSeconds",
        "inferencePool.enabled=true": "set settings.router.metrics_on_api",
        f"{POOL},router.settings.metrics.vllm_aliases=false": "settings.metrics.vllm_aliases",
        f"{POOL},tls.secretName=certificate": "without a certificate",
        f"{POOL},inferencePool.endpointPicker.port=0": "endpointPicker",
    }
    for value, expect in refusals.items():
        answer = run("helm", "template", "x", chart, "--set", value)
        if answer.returncode == 0 or expect not in answer.stderr:
            findings.append(f"--set {value} is not refused with {expect!r}: {answer.stderr}")
    # What no preset uses is rendered, too.
    everything = {
        "objectStore.secret=store": "AWS_SECRET_ACCESS_KEY",
        "hub.secret=hub": "HF_TOKEN",
        "model.path=org/name": "port: 443",
        "decode.sharedMemory=16Gi": "folder = \"/dev/shm/baton\"",
        "prefill.runtimeClassName=nvidia": "runtimeClassName: nvidia",
        "monitoring.enabled=true,monitoring.docs=https://docs.example": "runbook_url: https://docs.example/operate/",
        ETCD: "prefix = \"/blue\"",
        f"{ETCD},discovery.etcd.secret=user": "{name: user, key: password}",
        f"{ETCD},discovery.etcd.tlsSecret=files": "secretName: files",
        "router.keysSecret=clients": "keys_file = \"/etc/baton-keys/keys.json\"",
        "admin.keysSecret=operators": "keys_file = \"/etc/baton-operators/keys.json\"",
        "decode.rdma.count=1,decode.rdma.root=true": "runAsUser: 0",
        "tls.secretName=certificate": "httpGet: {path: /ready, port: ops, scheme: HTTPS}",
        "tls.secretName=certificate,monitoring.enabled=true": "keySecret: {name: certificate, key: tls.key}",
        "tls.secretName=certificate,tls.serverName=here": "server_name = \"here\"",
        "decode.autoscaling.enabled=true,decode.autoscaling.max=3": "x-baton-decode-2.x-baton-decode:9001",
        "discovery.kind=kubernetes,discovery.apiPorts={8443}": "{port: 8443, protocol: TCP}",
        "discovery.kind=kubernetes,discovery.nodeLabels=true": "resources: [nodes], verbs: [get]",
        POOL: "name: x-baton-epp",
        f"{POOL},inferencePool.endpointPicker.name=other": "name: other",
        f"{POOL},inferencePool.route.gateways[0].name=g,inferencePool.route.hostnames={{a.example}}": "- a.example",
    }
    for value, expect in everything.items():
        answer = run("helm", "template", "x", chart, "--set", value)
        if expect not in answer.stdout:
            findings.append(f"--set {value} does not make {expect!r}: {answer.stderr}")
    return findings


def test_arguments(root: Path) -> list[str]:
    """Returns what the pod of `helm test` runs. Its fields must be of the schema, too."""
    answer = run("helm", "template", "baton", str(root / "deploy/helm"), "--show-only", "templates/test.yaml")
    pod_of_test = yaml.safe_load(answer.stdout)
    if found := schema(pod_of_test):
        raise SystemExit(f"error: templates/test.yaml: {found}")
    return pod_of_test["spec"]["containers"][0]["args"]


def presets(root: Path) -> dict[str, list[dict]]:
    """Reads each rendered preset as kubectl would apply it."""
    found = {}
    for folder in sorted((root / "deploy/kubernetes").iterdir()):
        answer = run("kubectl", "kustomize", str(folder))
        if answer.returncode:
            raise SystemExit(f"error: kubectl kustomize {folder}: {answer.stderr}")
        found[folder.name] = list(yaml.safe_load_all(answer.stdout))
    return found


def name(obj: dict) -> str:
    return f"{obj['kind']}/{obj['metadata']['name']}"


def check(objects: list[dict]) -> list[str]:
    findings = []
    for obj in objects:
        findings += [f"{name(obj)}: {what}" for what in schema(obj)]
    for workload in workloads(objects):
        findings += [f"{name(workload)}: {what}" for what in hardening(workload, accounts(objects))]
        findings += [f"{name(workload)}: {what}" for what in references(workload, objects)]
    findings += selectors(objects)
    return findings


def schema(obj: dict) -> list[str]:
    """Says what the schema of an object refuses, unknown fields included."""
    if obj["kind"] in OPERATOR:
        try:
            model = OPERATOR[obj["kind"]].model_validate(obj)
        except ValueError as error:
            return [str(error)]
        dumped = model.model_dump(mode="json", by_alias=True, exclude_unset=True)
        return [f"unknown fields: {path}" for path in missing(obj, dumped)]
    if obj["kind"] in DEFINITIONS:
        errors = jsonschema.Draft202012Validator(definition(obj["kind"])).iter_errors(obj)
        return [f"{error.json_path}: {error.message}" for error in errors]
    findings = []
    for version in KUBERNETES:
        try:
            kubernetes_validate.validate(obj, version, strict=True)
        except kubernetes_validate.ValidationError as error:
            findings.append(f"{version}: {error.message}")
    return findings


def definition(kind: str) -> dict:
    """Returns the schema that a cluster checks objects of this kind by; unknown fields are refused."""
    file = Path(__file__).parent / f"crds/{DEFINITIONS[kind]}.yaml"
    (version,) = yaml.safe_load(file.read_text())["spec"]["versions"]
    return closed(version["schema"]["openAPIV3Schema"])


def closed(schema):
    """Returns a schema in which objects have no properties but those that it lists."""
    if isinstance(schema, list):
        return [closed(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    inner = {key: closed(value) for key, value in schema.items()}
    return {"additionalProperties": False, **inner} if isinstance(schema.get("properties"), dict) else inner


def missing(wanted, known, path: str = "") -> list[str]:
    """Lists the paths of what is in `wanted` and not in `known`."""
    if isinstance(wanted, dict) and isinstance(known, dict):
        lost = [f"{path}.{key}" for key in wanted if key not in known]
        return lost + [each for key in wanted if key in known for each in missing(wanted[key], known[key], f"{path}.{key}")]
    if isinstance(wanted, list) and isinstance(known, list):
        return [each for at, (a, b) in enumerate(zip(wanted, known)) for each in missing(a, b, f"{path}[{at}]")]
    return []


def workloads(objects: list[dict]) -> list[dict]:
    return [obj for obj in objects if obj["kind"] in ("Deployment", "StatefulSet")]


def pod(workload: dict) -> dict:
    return workload["spec"]["template"]["spec"]


def container(workload: dict) -> dict:
    (only,) = pod(workload)["containers"]
    return only


def accounts(objects: list[dict]) -> set[str]:
    """Returns the service accounts that have rights. Each right must be one of a Role that is there."""
    names = {name(obj) for obj in objects}
    bindings = [obj for obj in objects if obj["kind"] in ("RoleBinding", "ClusterRoleBinding")]
    for obj in bindings:
        if f"{obj['roleRef']['kind']}/{obj['roleRef']['name']}" not in names:
            raise SystemExit(f"error: {name(obj)} binds what is not there")
    return {subject["name"] for obj in bindings for subject in obj["subjects"]}


def hardening(workload: dict, with_rights: set[str]) -> list[str]:
    spec, one = pod(workload), container(workload)
    of_pod, of_container = spec["securityContext"], one["securityContext"]
    limits = one["resources"].get("limits", {})
    has_rdma = any(key.startswith("rdma/") for key in limits)
    expect = {
        "runAsNonRoot": of_pod.get("runAsNonRoot") is True and of_pod.get("runAsUser") == USER,
        "seccompProfile": of_pod.get("seccompProfile") == {"type": "RuntimeDefault"},
        "allowPrivilegeEscalation": of_container.get("allowPrivilegeEscalation") is False,
        "readOnlyRootFilesystem": of_container.get("readOnlyRootFilesystem") is True,
        "drop": of_container["capabilities"]["drop"] == ["ALL"],
        "add": of_container["capabilities"].get("add", []) == (["IPC_LOCK"] if has_rdma else []),
        "automountServiceAccountToken": spec.get("automountServiceAccountToken") is (spec["serviceAccountName"] in with_rights),
        # Names of services would become variables that begin with BATON_.
        "enableServiceLinks": spec.get("enableServiceLinks") is False,
        "memory": "memory" in limits,
        "hostNetwork": not spec.get("hostNetwork"),
    }
    return [f"{what} is not as it must be" for what, holds in expect.items() if not holds]


def references(workload: dict, objects: list[dict]) -> list[str]:
    """Checks names that point at something else: volumes, ports of probes, maps, accounts."""
    spec, one = pod(workload), container(workload)
    findings = []
    volumes = {volume["name"] for volume in spec["volumes"]}
    volumes |= {claim["metadata"]["name"] for claim in workload["spec"].get("volumeClaimTemplates", [])}
    mounts = {mount["name"] for mount in one["volumeMounts"]}
    if volumes != mounts:
        findings.append(f"volumes {sorted(volumes)} and mounts {sorted(mounts)} differ")
    ports = {port["name"] for port in one["ports"]}
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if one[probe]["httpGet"]["port"] not in ports:
            findings.append(f"{probe} asks a port that the container does not have")
    names = {name(obj) for obj in objects}
    wanted = {f"ConfigMap/{volume['configMap']['name']}" for volume in spec["volumes"] if "configMap" in volume}
    wanted.add(f"ServiceAccount/{spec['serviceAccountName']}")
    if workload["kind"] == "StatefulSet":
        wanted.add(f"Service/{workload['spec']['serviceName']}")
    return findings + [f"there is no {each}" for each in sorted(wanted - names)]


def selects(labels: dict, selector: dict) -> bool:
    def holds(rule: dict) -> bool:
        return rule["operator"] == "In" and labels.get(rule["key"]) in rule["values"]

    equal = all(labels.get(key) == value for key, value in selector.get("matchLabels", {}).items())
    return equal and all(holds(rule) for rule in selector.get("matchExpressions", []))


def selectors(objects: list[dict]) -> list[str]:
    """Checks that what selects pods finds some, and that each port of a pod is open to exactly one rule."""
    findings = []
    pods = [(work["spec"]["template"]["metadata"]["labels"], container(work), name(work)) for work in workloads(objects)]
    for obj in objects:
        spec = obj.get("spec", {})
        selector = {
            "Service": lambda: {"matchLabels": spec["selector"]},
            "PodDisruptionBudget": lambda: spec["selector"],
            "NetworkPolicy": lambda: spec["podSelector"],
            "PodMonitor": lambda: spec["selector"],
            "InferencePool": lambda: spec["selector"],
        }.get(obj["kind"])
        if selector is None:
            continue
        found = [each for labels, each, _ in pods if selects(labels, selector())]
        if not found:
            findings.append(f"{name(obj)} selects no pod")
        wanted = [port.get("targetPort") for port in spec.get("ports", [])]
        wanted += [endpoint["port"] for endpoint in spec.get("podMetricsEndpoints", [])]
        for port in wanted:
            if not all(port in {each["name"] for each in one["ports"]} for one in found):
                findings.append(f"{name(obj)}: not every pod has the port {port}")
        numbers = {port["number"] for port in spec.get("targetPorts", [])}
        if not all(numbers <= {each["containerPort"] for each in one["ports"]} for one in found):
            findings.append(f"{name(obj)}: not every pod has the ports {sorted(numbers)}")
    names = {name(obj) for obj in objects}
    for obj in (obj for obj in objects if obj["kind"] == "HTTPRoute"):
        backends = [f"{each['kind']}/{each['name']}" for rule in obj["spec"]["rules"] for each in rule["backendRefs"]]
        findings += [f"{name(obj)}: there is no {each}" for each in backends if each not in names]
    for obj in (obj for obj in objects if obj["kind"] == "HorizontalPodAutoscaler"):
        target = obj["spec"]["scaleTargetRef"]
        work = [work for work in workloads(objects) if name(work) == f"{target['kind']}/{target['name']}"]
        if not work or "replicas" in work[0]["spec"]:
            findings.append(f"{name(obj)}: its target is missing, or has a number of replicas of its own")
    policies = [obj["spec"] for obj in objects if obj["kind"] == "NetworkPolicy"]
    for labels, one, of in pods:
        ingress = [rule for spec in policies if selects(labels, spec["podSelector"]) for rule in spec["ingress"]]
        opened = sorted(port["port"] for rule in ingress for port in rule["ports"])
        if opened != sorted(port["containerPort"] for port in one["ports"]):
            findings.append(f"{of}: network policies open {opened}, which are not the ports of its container")
    return findings
