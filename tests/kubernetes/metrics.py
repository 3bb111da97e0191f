"""Checks that queries use only metrics, labels and pages that exist."""

import json
import re
from pathlib import Path

# Labels that Prometheus adds to what it reads of a pod, and that of histograms.
OF_TARGETS = {"pod", "namespace", "le"}
NAME = re.compile(r"\bbaton_[a-z0-9_]+")
# `baton_x{a="b", c=~"d"}`
SELECTOR = re.compile(r"\b(baton_[a-z0-9_]+)\{([^}]*)\}")
GROUPED = re.compile(r"\bby \(([^)]*)\)")


def declared(root: Path) -> dict[str, set[str]]:
    """Returns the labels of each series, from the page that is generated from the declarations."""
    page = (root / "docs/reference/metrics.md").read_text()
    series = {}
    for row in re.findall(r"^\| `(baton_\w+)` \| (\w+) \| \w+ \| ([^|]*) \|", page, re.MULTILINE):
        metric, kind, labels = row[0], row[1], set(re.findall(r"`(\w+)`", row[2]))
        ends = ["_bucket", "_sum", "_count"] if kind == "histogram" else [""]
        series |= {metric + end: labels | OF_TARGETS for end in ends}
    return series


def queries(objects: list[dict]) -> list[tuple[str, str]]:
    """Lists every query in rules and dashboards, with where it stands."""
    found = []
    for obj in objects:
        if obj["kind"] == "PrometheusRule":
            rules = [rule for group in obj["spec"]["groups"] for rule in group["rules"]]
            found += [(rule["alert"], rule["expr"]) for rule in rules]
        for board in boards(obj):
            found += [(panel["title"], each["expr"]) for panel in board["panels"] for each in panel.get("targets", [])]
            found += [(each["name"], each["query"]) for each in board["templating"]["list"]]
    return found


def boards(obj: dict) -> list[dict]:
    """Returns the dashboards of a ConfigMap."""
    if obj["kind"] != "ConfigMap" or "grafana_dashboard" not in obj["metadata"].get("labels", {}):
        return []
    return [json.loads(text) for text in obj["data"].values()]


def layout(objects: list[dict]) -> list[str]:
    """Checks that panels have ids of their own and lie side by side, and that links lead to dashboards that exist."""
    all_boards = [board for obj in objects for board in boards(obj)]
    if {board["uid"] for board in all_boards} != {"baton", "baton-workers"}:
        return ["there are other dashboards than those of the fleet and of workers"]
    findings = []
    for board in all_boards:
        ids = [panel["id"] for panel in board["panels"]]
        cells = [(at["x"] + x, at["y"] + y) for at in (panel["gridPos"] for panel in board["panels"])
                 for x in range(at["w"]) for y in range(at["h"])]
        if len(set(ids)) < len(ids) or len(set(cells)) < len(cells) or max(x for x, _ in cells) >= 24:
            findings.append(f"{board['title']}: panels share an id or a place")
        for link in board["links"]:
            if not any(link["url"].startswith(f"/d/{other['uid']}?") for other in all_boards):
                findings.append(f"{board['title']}: {link['url']} leads to no dashboard")
    return findings


def check(root: Path, objects: list[dict]) -> list[str]:
    series = declared(root)
    findings = [] if len(series) > 80 else ["docs/reference/metrics.md lists hardly any metric"]
    asked = queries(objects)
    if len(asked) < 20:
        findings.append("there are hardly any queries to check")
    for place, query in asked:
        names = set(NAME.findall(query))
        findings += [f"{place}: there is no series {each}" for each in sorted(names - series.keys())]
        known = set.union(OF_TARGETS, *(series.get(each, set()) for each in names))
        used = {label.strip() for group in GROUPED.findall(query) for label in group.split(",")}
        for metric, inside in SELECTOR.findall(query):
            used |= set(re.findall(r"(\w+)\s*[=!]~?", inside)) - series.get(metric, set())
        findings += [f"{place}: no series of it has the label {each}" for each in sorted(used - known)]
    scalers = [obj for obj in objects if obj["kind"] == "HorizontalPodAutoscaler"]
    if len({obj["metadata"]["name"] for obj in scalers}) < 3:
        findings.append("there are fewer autoscalers than components")
    for metric in (metric for obj in scalers for metric in obj["spec"]["metrics"]):
        followed = metric[metric["type"].lower()]["metric"]
        labels = set(followed.get("selector", {}).get("matchLabels", {}))
        if followed["name"] not in series or not labels <= series[followed["name"]]:
            findings.append(f"an autoscaler follows {followed['name']} with the labels {sorted(labels)}, which there is not")
    return findings + layout(objects) + runbooks(root, objects)


def runbooks(root: Path, objects: list[dict]) -> list[str]:
    """Checks that each alert links to a heading that exists, and stands in the list of alerts."""
    findings = []
    listed = (root / "docs/operate/monitoring.md").read_text()
    for obj in (obj for obj in objects if obj["kind"] == "PrometheusRule"):
        for rule in (rule for group in obj["spec"]["groups"] for rule in group["rules"]):
            page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
            text = (root / page).read_text() if (root / page).is_file() else ""
            headings = re.findall(r"^#+ (.*)$", text, re.MULTILINE)
            anchors = {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}
            if anchor not in anchors:
                findings.append(f"{rule['alert']}: its runbook {page}#{anchor} is not there")
            if f"`{rule['alert']}`" not in listed:
                findings.append(f"{rule['alert']} is not in docs/operate/monitoring.md")
    return findings
