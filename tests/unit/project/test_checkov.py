"""Each check that checkov leaves out has a reason in its file and exists. checkov itself is no dependency."""

import re

import pytest
import yaml

from sandbox.template import ROOT

TEXT = (ROOT / ".checkov.yaml").read_text(encoding="utf-8")
CONFIG = yaml.safe_load(TEXT)
SKIPS = [(name, entry) for name in ("skip-check", "skip-path") for entry in CONFIG[name]]


def reason_of(text: str, entry: str) -> str:
    """Return the comment above an entry of a list."""
    match = re.search(rf"((?:^  # .*\n)+)^  - {re.escape(entry)}$", text, re.M)
    return match[1] if match else ""


@pytest.mark.parametrize(("name", "entry"), SKIPS)
def test_a_suppression_has_a_reason(name: str, entry: str) -> None:
    assert len(reason_of(TEXT, entry).split()) > 4
    if name == "skip-check":
        assert re.fullmatch(r"CKV2?_[A-Z]+_\d+", entry)


def test_nothing_is_suppressed_beside_this_file() -> None:
    for path in (ROOT / "template.yaml", *(ROOT / "deploy").rglob("*.*"), *(ROOT / ".github").rglob("*.yml")):
        assert b"checkov:skip" not in path.read_bytes(), path
    assert CONFIG.keys() <= {"directory", "framework", "compact", "quiet", "skip-path", "skip-check"}
    assert {"cloudformation", "terraform"} <= set(CONFIG["framework"])
