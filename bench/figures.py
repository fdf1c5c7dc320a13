"""What the benches have measured, for those that reckon with it: a JSON file in ``build``."""

from __future__ import annotations

import json
from typing import Any

from sandbox.template import ROOT

FILE = ROOT / "build" / "figures.json"


def keep(*name: object, **values: float) -> None:
    """Under this name, over what was there."""
    figures = read()
    figures.setdefault(" ".join(str(part) for part in name), {}).update(values)
    FILE.parent.mkdir(exist_ok=True)
    FILE.write_text(json.dumps(figures, indent=1, sort_keys=True) + "\n")


def read() -> dict[str, Any]:
    """Everything that is kept."""
    figures: dict[str, Any] = json.loads(FILE.read_text()) if FILE.exists() else {}
    return figures
