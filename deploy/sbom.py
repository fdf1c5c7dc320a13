"""The software bill of materials of a release: CycloneDX 1.6 in JSON, made from the locks.

It has no time and no random number, so that the same locks give the same bytes.
"""

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from uuid import NAMESPACE_URL, uuid5

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {"layer": ROOT / "layers" / "dependencies" / "requirements.txt", "cli": ROOT / "requirements" / "cli.txt"}
OURS = {"evenkeel-core", "evenkeel-cli"}
_PACKAGE = re.compile(r"^([a-z0-9][a-z0-9._-]*)==(\S+)(.*\n(?:[ #].*\n?)*)", re.M)
_HASH = re.compile(r"--hash=sha256:([0-9a-f]{64})")
_VIA = re.compile(r"^ +#(?: via)? +(?!via$)([a-z0-9][a-z0-9._-]*)(?: \(.*\))?$", re.M)


def sbom(version: str, locks: Mapping[str, Path] = LOCKS) -> dict[str, Any]:
    """Return the bill of a release. A component's property `evenkeel:part` names the lock: layer or cli."""
    root, parts, parents = "evenkeel", dict[str, set[str]](), dict[str, set[str]]()
    components: dict[str, dict[str, Any]] = {}
    for part, lock in locks.items():
        for name, pinned, more in _PACKAGE.findall(lock.read_text(encoding="utf-8")):
            components.setdefault(name, _component(name, pinned, sorted(_HASH.findall(more))))
            parts.setdefault(name, set()).add(part)
            parents.setdefault(name, set()).update(_VIA.findall(more))
    for name, component in components.items():
        component["properties"] = [{"name": "evenkeel:part", "value": part} for part in sorted(parts[name])]
    needs: dict[str, list[str]] = {ref: [] for ref in [root, *(one["bom-ref"] for one in components.values())]}
    for name, component in sorted(components.items()):
        known = [components[parent]["bom-ref"] for parent in sorted(parents[name]) if parent in components]
        direct = (
            bool(parents[name] & OURS) or not known
        )  # the layer's inputs, and parents that it leaves out, are not named
        for ref in [*known, *([root] if direct else [])]:
            needs[ref].append(component["bom-ref"])
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid5(NAMESPACE_URL, repr((version, sorted(components.items()))))}",
        "version": 1,
        "metadata": {
            "component": {"type": "application", "bom-ref": root, "name": "evenkeel", "version": version},
        },
        "components": [components[name] for name in sorted(components)],
        "dependencies": [{"ref": ref, "dependsOn": names} for ref, names in needs.items()],
    }


def _component(name: str, version: str, hashes: list[str]) -> dict[str, Any]:
    """Return a package, whose hashes are those of all its files on the index."""
    purl = f"pkg:pypi/{name}@{version}"
    files = {
        "type": "distribution",
        "url": f"https://pypi.org/project/{name}/{version}/#files",
        "hashes": [{"alg": "SHA-256", "content": one} for one in hashes],
    }
    return {
        "type": "library",
        "bom-ref": purl,
        "name": name,
        "version": version,
        "purl": purl,
        "externalReferences": [files],
    }
