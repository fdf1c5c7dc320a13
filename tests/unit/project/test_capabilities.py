"""A capability is in its own folders: few files of the layer outside them name it."""

import io
import re
import tokenize
from collections.abc import Collection
from pathlib import Path

import pytest

LAYER = Path(__file__).parents[3] / "layers" / "evenkeel" / "evenkeel"
# Names of a capability -> its own folders and files.
OWN = {
    "surviv": ("domain/survival",),
    "minimum_?at": ("domain/minimum_at", "capabilities/minimum_at.py"),
    "reliev|relief": ("domain/relief", "adapters/kubernetes/garden.py", "capabilities/relief.py"),
    "fallback": ("domain/rebalancing/membership/fallbacks.py", "domain/convergence/returns.py"),
    "release": ("domain/rebalancing/replicas/release.py",),
    "converge": ("domain/convergence", "application/convergence", "domain/model/convergence.py"),
    "demand": ("domain/demand", "application/demand", "domain/model/demand.py"),
    "^leave$|leave_(zone|stops|finds)|leaves_zone|zone_left": (
        "domain/leave",
        "application/leave",
        "application/actions/leave_zone.py",
    ),
}
# The list of capabilities, their stored parts and settings, and the names of reasons and problems in JSON.
ALLOWED = {"capabilities/__init__.py", "domain/plan.py", "domain/model/reasons.py", "domain/model/problems.py"}


def naming(words: str, own: Collection[str]) -> set[str]:
    """Return the files outside the folders whose code, without comments and texts, has a name with one of the words."""
    found = set()
    for path in LAYER.rglob("*.py"):
        file = path.relative_to(LAYER).as_posix()
        if not file.startswith(tuple(own)):
            tokens = tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
            if any(token.type == tokenize.NAME and re.search(words, token.string, re.IGNORECASE) for token in tokens):
                found.add(file)
    return found


def test_deleting_survival_changes_four_files_outside_its_folders() -> None:
    assert naming("surviv", OWN["surviv"]) == ALLOWED


def test_deleting_the_minimum_by_the_clock_changes_three_files_outside_its_folders() -> None:
    assert naming("minimum_?at", OWN["minimum_?at"]) == ALLOWED - {"domain/model/problems.py"}


def test_deleting_relief_changes_four_files_outside_its_folders() -> None:
    opens_gardens = {"adapters/kubernetes/access/clusters.py"}
    assert naming("reliev|relief", OWN["reliev|relief"]) == (ALLOWED - {"domain/model/problems.py"}) | opens_gardens


@pytest.mark.parametrize(
    ("words", "most"),
    [
        ("fallback", 8),
        ("release", 25),
        ("converge", 27),
        ("demand", 58),
        ("^leave$|leave_(zone|stops|finds)|leaves_zone|zone_left", 4),
    ],
)
def test_no_more_files_than_today_name_a_capability_that_is_not_separate(words: str, most: int) -> None:
    assert len(naming(words, OWN[words])) <= most
