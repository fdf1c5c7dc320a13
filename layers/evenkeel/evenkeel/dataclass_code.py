"""Spares a cold start the compilation of dataclasses.

``@dataclass`` writes the methods of a class as text and compiles it, which takes a quarter of a cold start. The layer's
build (``generate.py``) stores the texts of all classes in a module, to be compiled with all other modules. A text that
the module lacks is compiled as usual, so each class has the methods of its text.
"""

import dataclasses
import hashlib
from importlib import import_module
from types import CodeType, FunctionType
from typing import Any

FACTORY = "__create_fn__"  # the function that each text defines; it returns the methods


def digest_of(text: str) -> str:
    """Return the key of a text in the generated module."""
    return hashlib.sha256(text.encode()).hexdigest()


def use() -> None:
    """Take methods from the module that the layer's build has written. Outside a layer, this has no effect."""
    try:
        factories: dict[str, CodeType] = import_module("evenkeel.dataclass_methods").FACTORIES
    except ModuleNotFoundError:
        return

    def run(text: str, module: dict[str, Any], names: dict[str, Any]) -> None:
        if code := factories.get(digest_of(text)):
            names[FACTORY] = FunctionType(code, module)
        else:
            exec(text, module, names)

    dataclasses.exec = run  # type: ignore[attr-defined]  # hides the builtin from this one module
