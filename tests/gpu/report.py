"""The report of a run: as JSON, and as Markdown for people."""

import datetime
import json
import platform
import re

# What each figure is to reach: its name, whether it is a least or a most, and how much. docs/gpu-plan.md says why.
GOALS = [
    (r"(fast|exact): decode, batch 1 .*: share of reading", ">=", 0.85),
    (r"(fast|exact): decode, batch (32|128) .*: share of reading", ">=", 0.75),
    (r"fast: prompt of 8192: share of the matrix rate", ">=", 0.70),
    (r"exact: prompt of 8192: share of the matrix rate", ">=", 0.55),
    (r"(fast|exact): .*: outside kernels", "<=", 0.05),
    (r"nvlink: share of a copy on the card", ">=", 0.80),
    (r"copier: .*: share of one large copy", ">=", 0.85),
    (r"tiers: 16384 tokens: sooner than computed", ">=", 14),
    (r"tiers: 16384 tokens: times the link's time", "<=", 1.3),
    (r"ahead of transformers: .*", ">=", 1),
    (r"transformers: .*: farthest log probability", "<=", 0.5),
]
# The shape's multiplications and additions for a token of a prompt, without attention: two for each weight of the layers.
WEIGHTS_8B = 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096 + 3 * 4096 * 14336)


def flops_8b(tokens):
    """Returns the operations of a prompt of the shape of Llama 3.1 8B: the layers' weights, the head for one token, and
    attention over the tokens before."""
    attention = 32 * 4 * 4096 * tokens * (tokens + 1) / 2
    return 2 * WEIGHTS_8B * tokens + 2 * 4096 * 128_256 + attention


class Report:
    """What a run found so far. It is written after each step."""

    def __init__(self, out, host):
        self.out, self.tiny = out, host.tiny
        self.began = datetime.datetime.now(datetime.timezone.utc).isoformat(timespec="seconds")
        self.card, self.limits = None, None
        self.facts, self.steps, self.figures = {}, [], []

    def fact(self, name, text):
        self.facts[name] = text

    def figure(self, name, value, unit):
        """Adds a figure. Its goal, if it has one, is of the whole sizes alone."""
        figure = {"name": name, "value": value, "unit": unit}
        goal = next(((sense, goal) for pattern, sense, goal in GOALS if re.fullmatch(pattern, name)), None)
        if goal and not self.tiny:
            sense, least = goal
            figure["goal"] = f"{sense} {least:g}"
            figure["reached"] = value >= least if sense == ">=" else value <= least
        self.figures.append(figure)

    def value(self, name):
        """Returns the value of a figure. `None`: it was not taken."""
        return next((figure["value"] for figure in self.figures if figure["name"] == name), None)

    def tier(self, prompts):
        """Adds the figures of prompts of one length, as `baton bench tiers` reports them."""
        tokens = prompts["tokens"]
        rows = {row["place"]: row["first_token_s"]["median"] for row in prompts["rows"]}
        for place, seconds in rows.items():
            self.figure(f"tiers: {tokens} tokens: {place}", seconds * 1e3, "ms")
        if {"computed", "host"} <= rows.keys():
            self.figure(f"tiers: {tokens} tokens: sooner than computed", rows["computed"] / rows["host"], "times")
            if self.limits:
                link = prompts["bytes"] / (self.limits["to_card_gb_per_s"] * 1e9)
                self.figure(f"tiers: {tokens} tokens: times the link's time", rows["host"] / link, "times")

    def compare(self):
        """Adds what follows from figures of several steps."""
        known = {figure["name"] for figure in self.figures}
        rates = [rate for rate in (self.value("transformers: bf16 products"), (self.limits or {}).get("bf16_tflop_per_s")) if rate]
        for kernels in ("fast", "exact"):
            for tokens in (2048, 8192):
                own = self.value(f"{kernels}: prompt of {tokens}: rate")
                share = f"{kernels}: prompt of {tokens}: share of the matrix rate"
                if own and rates and share not in known and not self.tiny:
                    self.figure(share, flops_8b(tokens) * own / tokens / 1e12 / max(rates), "")
                self.ahead(f"{kernels}, prompt of {tokens}", own, f"transformers: prompt of {tokens}", known)
            for batch in (1, 8, 32, 128):
                own = self.value(f"{kernels}: decode, batch {batch} after 2048: rate")
                self.ahead(f"{kernels}, decode, batch {batch}", own, f"transformers: decode, batch {batch} after 2048", known)

    def ahead(self, what, own, other, known):
        other, name = self.value(other), f"ahead of transformers: {what}"
        if own and other and name not in known:
            self.figure(name, own / other, "times")

    def end(self, name, state, seconds, why):
        """Notes how a step ended, and writes the report."""
        self.steps.append({"name": name, "state": state, "seconds": round(seconds, 1), "why": why})
        self.write()

    def failed(self):
        return any(step["state"] == "failed" for step in self.steps)

    def write(self):
        self.compare()
        said = {
            "began": self.began, "host": platform.platform(), "card": self.card, "sizes": "tiny" if self.tiny else "whole",
            "facts": self.facts, "steps": self.steps, "figures": self.figures,
        }
        (self.out / "report.json").write_text(json.dumps(said, indent=1) + "\n")
        (self.out / "report.md").write_text(self.markdown())

    def markdown(self):
        lines = [f"# Baton on {self.card or 'a card that was not named'}", "", f"{self.began}, {platform.platform()}", ""]
        lines += [f"- {name}: {text}" for name, text in self.facts.items()]
        lines += ["", "| step | | seconds | why |", "| --- | --- | ---: | --- |"]
        cell = lambda text: text.replace("|", "/").replace("\n", " ")[:300]
        lines += [f"| {step['name']} | {step['state']} | {step['seconds']} | {cell(step['why'])} |" for step in self.steps]
        lines += ["", "| figure | value | goal | |", "| --- | ---: | --- | --- |"]
        for figure in self.figures:
            reached = {True: "reached", False: "**missed**", None: ""}[figure.get("reached")]
            value = f"{figure['value']:.4g} {figure['unit']}".strip()
            lines.append(f"| {cell(figure['name'])} | {value} | {figure.get('goal', '')} | {reached} |")
        return "\n".join(lines) + "\n"
