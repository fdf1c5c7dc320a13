"""The bill of materials names every locked package with its hashes, in the form of CycloneDX 1.6."""

import json
import re
from pathlib import Path

import pytest

from deploy.sbom import LOCKS, sbom
from evenkeel import __version__

BILL = sbom(__version__)
COMPONENTS = {component["name"]: component for component in BILL["components"]}


def locked(lock: Path) -> dict[str, tuple[str, set[str]]]:
    """Return version and hashes of each package of a lock."""
    found: dict[str, tuple[str, set[str]]] = {}
    for line in lock.read_text(encoding="utf-8").splitlines():
        if match := re.match(r"([a-z0-9][a-z0-9._-]*)==([^\s;]+)", line):
            name = match[1]
            found[name] = (match[2], set())
        elif match := re.match(r"    --hash=sha256:([0-9a-f]{64})", line):
            found[name][1].add(match[1])
    return found


@pytest.mark.parametrize("part", LOCKS)
def test_it_has_every_package_of_a_lock_and_its_hashes(part: str) -> None:
    packages = locked(LOCKS[part])
    assert len(packages) > 10
    for name, (version, hashes) in packages.items():
        component = COMPONENTS[name]
        assert (component["version"], component["purl"]) == (version, f"pkg:pypi/{name}@{version}")
        (files,) = component["externalReferences"]
        assert {one["content"] for one in files["hashes"]} == hashes
        assert {"name": "evenkeel:part", "value": part} in component["properties"]
    assert {
        name for name, one in COMPONENTS.items() if {"name": "evenkeel:part", "value": part} in one["properties"]
    } == (packages.keys())


def test_it_has_the_fields_that_the_schema_requires_and_no_others() -> None:
    assert (BILL["bomFormat"], BILL["specVersion"], BILL["version"]) == ("CycloneDX", "1.6", 1)
    assert re.fullmatch(
        r"urn:uuid:[0-9a-f]{8}-[0-9a-f]{4}-[1-5][0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}", BILL["serialNumber"]
    )
    assert BILL.keys() == {
        *("$schema", "bomFormat", "specVersion", "serialNumber", "version", "metadata", "components", "dependencies")
    }
    for component in (BILL["metadata"]["component"], *BILL["components"]):
        assert component["type"] in ("application", "library")
        assert component["name"]
        assert component["version"]
        for reference in component.get("externalReferences", []):
            assert (reference["type"], reference["url"][:8]) == ("distribution", "https://")
            assert all(one["alg"] == "SHA-256" and len(one["content"]) == 64 for one in reference["hashes"])
        assert all(isinstance(one["value"], str) for one in component.get("properties", []))


def test_every_component_is_needed_by_another_or_by_evenkeel() -> None:
    references = ["evenkeel", *(component["bom-ref"] for component in BILL["components"])]
    assert len(set(references)) == len(references)
    needs = {entry["ref"]: entry["dependsOn"] for entry in BILL["dependencies"]}
    assert sorted(needs) == sorted(references)
    assert {name for names in needs.values() for name in names} == set(references) - {"evenkeel"}
    direct = {reference.partition("@")[0].rpartition("/")[2] for reference in needs["evenkeel"]}
    assert {"boto3", "jinja2", "kubernetes", "pydantic", "rich", "typer"} <= direct
    assert "botocore" not in direct


def test_the_same_locks_give_the_same_bill_and_others_another(tmp_path: Path) -> None:
    assert json.dumps(sbom(__version__)) == json.dumps(BILL)
    assert sbom("9.9.9")["serialNumber"] != BILL["serialNumber"]
    lock = tmp_path / "lock.txt"
    lock.write_text("typer==1.0 \\\n    --hash=sha256:" + "a" * 64 + "\n    # via evenkeel-cli (cli/pyproject.toml)\n")
    assert [component["name"] for component in sbom("1", {"cli": lock})["components"]] == ["typer"]
