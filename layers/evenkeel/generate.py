"""Writes the generated modules of a layer, which spare its functions most of a cold start: ``generate.py FOLDER``.

The build runs it on the copied package, before it compiles all modules.
"""

import dataclasses
import pkgutil
import sys
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from typing import Any

from evenkeel.dataclass_code import FACTORY, digest_of


def main(package: Path) -> None:
    """Write the methods of all dataclasses, and the code of the page's templates."""
    write_methods(package)
    # A package that this machine lacks: the function compiles what depends on it, as it does outside a layer.
    with suppress(ImportError):
        write_templates(package / "adapters" / "page")


def write_methods(package: Path) -> None:
    """Import all modules, and write the methods of the dataclasses that this creates as a module."""
    texts: dict[str, str] = {}

    def run(text: str, module: dict[str, Any], names: dict[str, Any]) -> None:
        texts[digest_of(text)] = text
        exec(text, module, names)

    dataclasses.exec = run  # type: ignore[attr-defined]  # hides the builtin from this one module
    for module in pkgutil.walk_packages([str(package)], "evenkeel."):
        with suppress(ImportError):
            import_module(module.name)
    parts = [f"{text}\nFACTORIES['{digest}'] = {FACTORY}.__code__\n" for digest, text in sorted(texts.items())]
    (package / "dataclass_methods.py").write_text("FACTORIES = {}\n" + "".join(parts), encoding="utf-8")


def write_templates(page: Path) -> None:
    """Write the code of each template as the module in which the page's environment looks for it."""
    from jinja2 import ModuleLoader

    from evenkeel.adapters.page.render import COMPILED, environment, source_of

    (page / COMPILED).mkdir()
    for template in sorted((page / "templates").glob("*.html")):
        code = environment().compile(source_of(template.name), template.name, raw=True, defer_init=True)
        file = page / COMPILED / ModuleLoader.get_module_filename(template.name)
        file.write_text(code, encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
