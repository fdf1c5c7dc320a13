"""Every lock has the hashes of its packages, and every recipe requires them."""

import re
from pathlib import Path

import pytest

from sandbox.template import ROOT

LAYER = ROOT / "layers" / "dependencies" / "requirements.txt"
LOCKS = [*sorted((ROOT / "requirements").glob("*.txt")), LAYER]
RECIPES = [
    ROOT / "Makefile",
    *sorted((ROOT / "layers").glob("*/Makefile")),
    ROOT / "deploy" / "krew" / "kubectl-evenkeel",
]


def pinned(lock: Path) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9][a-z0-9._-]*)==(\S+)", lock.read_text(encoding="utf-8"), re.M))


def installing(recipe: Path) -> list[str]:
    """Return every command that installs, on one line."""
    text = recipe.read_text(encoding="utf-8").replace("\\\n", " ")
    return [line for line in text.splitlines() if re.search(r"\bpip install\b", line)]


@pytest.mark.parametrize("lock", LOCKS, ids=lambda lock: str(lock.relative_to(ROOT)))
def test_every_package_of_a_lock_is_pinned_with_hashes(lock: Path) -> None:
    text = lock.read_text(encoding="utf-8")
    packages = [block for block in re.split(r"^(?=[a-zA-Z0-9])", text, flags=re.M) if block[:1].isalnum()]
    assert len(packages) > 5
    for package in packages:
        assert re.match(r"[a-z0-9._-]+==\S+( ; [^\\]+)?\s*\\\n    --hash=sha256:[0-9a-f]{64}", package), package[:100]
    assert not re.search(r"https?://|--(extra-)?index-url|--find-links", text)


@pytest.mark.parametrize("recipe", RECIPES, ids=lambda recipe: str(recipe.relative_to(ROOT)))
def test_every_recipe_requires_hashes_and_resolves_nothing(recipe: Path) -> None:
    for line in installing(recipe):
        if " -e ." in line:  # Evenkeel's own code, which is here
            assert "--no-deps" in line
        else:
            assert " -r " in line
            assert {"--require-hashes", "--no-deps"} <= set(line.split()), line


def test_the_recipes_install_from_every_lock() -> None:
    lines = [line for recipe in RECIPES for line in installing(recipe)]
    named = {name for line in lines for name in re.findall(r" -r (?:requirements/)?(\S+\.txt)", line)}
    assert named == {lock.name for lock in LOCKS}


@pytest.mark.parametrize("lock", [ROOT / "requirements" / "runtime.txt", LAYER], ids=lambda lock: lock.parent.name)
def test_deployed_versions_are_the_tested_ones(lock: Path) -> None:
    tested = pinned(ROOT / "requirements" / "dev.txt")
    assert pinned(lock).items() <= tested.items()
