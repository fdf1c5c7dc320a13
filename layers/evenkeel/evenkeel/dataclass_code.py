"""Spares a cold start the compilation of dataclasses.

``@dataclass`` writes the methods of a class as text and compiles it, which takes a quarter of a cold start. The layer's
build calls ``write``, which stores the texts of all classes in a module, to be compiled with all other modules. A
function calls ``use``. A text that the module lacks is compiled as usual, so each class has the methods of its text.
"""

import dataclasses
import hashlib
import importlib
import pkgutil
import sys
from contextlib import suppress
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

_FACTORY = "__create_fn__"  # the function that each text defines; it returns the methods


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


def use() -> None:
    """Take methods from the module that the layer's build has written. Outside a layer, this has no effect."""
    try:
        factories: dict[str, CodeType] = importlib.import_module("evenkeel.dataclass_methods").FACTORIES
    except ModuleNotFoundError:
        return

    def run(text: str, module: dict[str, Any], names: dict[str, Any]) -> None:
        if code := factories.get(_digest(text)):
            names[_FACTORY] = FunctionType(code, module)
        else:
            exec(text, module, names)

    dataclasses.exec = run  # type: ignore[attr-defined]  # hides the builtin from this one module


def write(path: Path) -> None:
    """Import all modules of Evenkeel, and write the methods of all dataclasses that this creates."""
    texts: dict[str, str] = {}

    def run(text: str, module: dict[str, Any], names: dict[str, Any]) -> None:
        texts[_digest(text)] = text
        exec(text, module, names)

    dataclasses.exec = run  # type: ignore[attr-defined]
    for module in pkgutil.walk_packages([str(path.parent)], "evenkeel."):
        with suppress(ImportError):  # a package that this machine lacks; the methods are compiled at the start instead
            importlib.import_module(module.name)
    parts = [f"{text}\nFACTORIES['{digest}'] = {_FACTORY}.__code__\n" for digest, text in sorted(texts.items())]
    path.write_text("FACTORIES = {}\n" + "".join(parts), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
