"""Checks the Helm chart and its rendered presets against helm, kubectl, the schemas, and the binary.

    check.py BATON      helm and kubectl are on the PATH

Prints every finding, and fails if there is one.
"""

import sys
from pathlib import Path

import binary
import image
import manifests
import metrics

ROOT = Path(__file__).resolve().parents[2]


def main() -> int:
    baton = binary.Binary(sys.argv[1])
    findings = manifests.check_chart(ROOT)
    presets = manifests.presets(ROOT)
    for preset, objects in presets.items():
        found = manifests.check(objects) + baton.check(objects)
        findings += [f"{preset}: {what}" for what in found]
    findings += binary.check_running(baton, presets["gateway"], manifests.test_arguments(ROOT))
    findings += metrics.check(ROOT, [each for objects in presets.values() for each in objects])
    findings += image.check(ROOT, baton, presets["cpu-demo"])
    findings += baton.check_version(ROOT)
    for what in findings:
        print(f"error: {what}")
    objects = sum(len(objects) for objects in presets.values())
    print(f"{len(presets)} presets with {objects} objects: {objects} passed, {len(findings)} failed")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main())
