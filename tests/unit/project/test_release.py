"""One version everywhere, and a valid manifest for krew."""

import re
import tomllib
from typing import Any

import yaml

from deploy.package import NAMESPACE, SBOM, SUMS
from evenkeel import __version__
from sandbox.template import ROOT, Template

MANIFEST = ROOT / "deploy" / "krew" / "evenkeel.yaml"


def test_every_version_is_the_same() -> None:
    template = Template().body
    changes = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    assert {
        "metadata": template["Metadata"]["AWS::ServerlessRepo::Application"]["SemanticVersion"],
        "output": template["Outputs"]["Release"]["Value"],
        "layer": template["Resources"]["EvenkeelLayer"]["Properties"]["Description"].rpartition(" ")[2],
        "plugin": yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))["spec"]["version"].removeprefix("v"),
        "changes": re.findall(r"^## (\S+)", changes, re.M)[0],
    } == dict.fromkeys(("metadata", "output", "layer", "plugin", "changes"), __version__)


def test_the_package_takes_its_version_from_the_code() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert "version" not in project["project"]
    assert project["tool"]["setuptools"]["dynamic"]["version"] == {"attr": "evenkeel.__version__"}
    command_line = tomllib.loads((ROOT / "cli" / "pyproject.toml").read_text(encoding="utf-8"))
    assert command_line["project"]["version"] == __version__
    assert f"{project['project']['name']}=={__version__}" in command_line["project"]["dependencies"]


def test_the_security_policy_is_short_and_names_the_files_of_a_release() -> None:
    text = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
    assert len(text.split()) <= 400
    assert {SUMS, f"{SUMS}.sig", SBOM} <= set(re.findall(r"`([\w.-]+)`", text))
    assert f"-n {NAMESPACE} " in text


def refused(manifest: dict[str, Any]) -> list[str]:
    """Return faults by krew's ValidatePlugin (internal/index/validation/validate.go) and fields that its types lack."""
    faults: list[str] = []

    def hold(holds: object, fault: str) -> None:
        if not holds:
            faults.append(fault)

    spec = manifest["spec"]
    hold(manifest["apiVersion"] == "krew.googlecontainertools.github.com/v1alpha2", "apiVersion")
    hold(manifest["kind"] == "Plugin", "kind")
    hold(re.fullmatch(r"[\w-]+", manifest["metadata"]["name"]), "name")
    hold(f"{manifest['metadata']['name']}.yaml" == MANIFEST.name, "a name other than the file's")
    hold(spec.keys() <= {"version", "shortDescription", "description", "caveats", "homepage", "platforms"}, "spec")
    hold(re.fullmatch(r"v\d+\.\d+\.\d+", spec["version"]), "version")
    hold(re.fullmatch(r"[^\r\n]+", spec.get("shortDescription", "")), "shortDescription")
    hold(spec["platforms"], "no platform")
    for platform in spec["platforms"]:
        hold(platform.keys() <= {"uri", "sha256", "selector", "files", "license", "bin"}, "platform")
        hold(str(platform["uri"]).startswith("https://"), "uri")
        hold(str(platform["uri"]).endswith((".tar.gz", ".zip")), "form of the archive")
        hold(re.fullmatch(r"[a-f0-9]{64}", str(platform["sha256"])), "sha256")
        hold(platform["bin"], "bin")
        hold(platform.get("files") != [], "files")
        (selector,) = platform["selector"].values()
        hold(selector, "selector")
        hold({one["key"] for one in selector} <= {"os", "arch"}, "key of a selector")
        hold({one["operator"] for one in selector} <= {"In", "NotIn", "Exists", "DoesNotExist"}, "operator")
    return faults


def test_the_manifest_is_valid_for_krew() -> None:
    manifest = yaml.safe_load(MANIFEST.read_text(encoding="utf-8"))
    assert refused(manifest) == []
    (platform,) = manifest["spec"]["platforms"]
    assert (MANIFEST.parent / platform["bin"]).stat().st_mode & 0o111
    assert refused({**manifest, "spec": {**manifest["spec"], "version": __version__}}) == ["version"]
