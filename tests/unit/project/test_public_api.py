"""Outside tests, the code uses only the public API of other packages and of the standard library.

`ruff` refuses access to private attributes (SLF001). Here are the other three ways: a private import, a replaced
attribute, and an overridden underscore method.
"""

import ast
import importlib
import inspect
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("layers/evenkeel", "cli", "functions", "sandbox", "bench", "docs", "deploy")
FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
OURS = ("evenkeel", "evenkeel_cli", "sandbox", "bench", "docs", "deploy", "functions")


def name_of(file: Path) -> str:
    """The dotted name of a module: `evenkeel.bootstrap`, `sandbox.aws`, `docs.generate`."""
    path = file.relative_to(ROOT)
    parts = path.parts[2:] if path.parts[:2] == ("layers", "evenkeel") else path.parts
    parts = parts[1:] if parts[0] == "cli" else parts
    return ".".join(parts).removesuffix(".py").removesuffix(".__init__")


def module_of(file: Path) -> ModuleType:
    name = name_of(file)
    if name.partition(".")[0] in ("evenkeel", "evenkeel_cli", "sandbox", "bench"):
        return importlib.import_module(name)
    spec = spec_from_file_location(name.replace(".", "_"), file)
    assert spec
    assert spec.loader
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def is_private(name: str) -> bool:
    """True for `_name`. Names such as `__init__` and Enum's `_missing_` are documented."""
    return name.startswith("_") and not name.endswith("_")


def private_imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Private names and modules that are imported from other packages."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            paths = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and not node.level:
            paths = [f"{node.module}.{alias.name}" for alias in node.names]
        else:
            continue
        for path in paths:
            if path.partition(".")[0] != package and any(map(is_private, path.split("."))):
                yield f"line {node.lineno}: imports {path}"


def imported(tree: ast.AST) -> dict[str, str]:
    """What each imported name is, by the name in the module."""
    found = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                name = alias.asname or alias.name.partition(".")[0]
                found[name] = alias.name if alias.asname else name
        elif isinstance(node, ast.ImportFrom) and not node.level:
            found |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}
    return found


def dotted(node: ast.expr) -> list[str]:
    """The names of `a.b.c`; none for another expression."""
    if isinstance(node, ast.Name):
        return [node.id]
    before = dotted(node.value) if isinstance(node, ast.Attribute) else []
    return [*before, node.attr] if before and isinstance(node, ast.Attribute) else []


def object_at(path: str) -> Any:
    """The module, class or object with a dotted name."""
    parts = path.split(".")
    found: Any = importlib.import_module(parts[0])
    for index, part in enumerate(parts[1:], start=2):
        if not hasattr(found, part):
            importlib.import_module(".".join(parts[:index]))
        found = getattr(found, part)
    return found


def is_foreign_module_or_class(node: ast.expr, names: dict[str, str]) -> bool:
    first, *rest = dotted(node) or [""]
    path = ".".join([names.get(first, ""), *rest])
    if first not in names or path.partition(".")[0] in OURS:
        return False
    found = object_at(path)
    return inspect.ismodule(found) or inspect.isclass(found)


def written(node: ast.AST) -> list[ast.expr]:
    """The objects whose attributes a statement or call writes."""
    targets: list[ast.expr] = []
    if isinstance(node, ast.Assign | ast.Delete):
        targets = node.targets
    elif isinstance(node, ast.AugAssign | ast.AnnAssign | ast.For | ast.NamedExpr):
        targets = [node.target]
    elif isinstance(node, ast.withitem) and node.optional_vars:
        targets = [node.optional_vars]
    elif isinstance(node, ast.Call) and ".".join(dotted(node.func)) in ("setattr", "delattr", "patch.object"):
        return node.args[:1]
    flat = [one for target in targets for one in ast.walk(target)]
    return [one.value for one in flat if isinstance(one, ast.Attribute) and not isinstance(one.ctx, ast.Load)]


def replaced_attributes(tree: ast.AST) -> Iterator[str]:
    """Attributes of modules and classes of other packages that are assigned or deleted."""
    names = imported(tree)
    for node in ast.walk(tree):
        for target in written(node):
            if is_foreign_module_or_class(target, names):
                yield f"line {target.lineno}: replaces an attribute of {'.'.join(dotted(target))}"
        if isinstance(node, ast.Call) and names.get(".".join(dotted(node.func))) == "unittest.mock.patch":
            yield f"line {node.lineno}: replaces an attribute by name"


def underscore_names(node: ast.ClassDef) -> set[str]:
    """The private names that the body of a class defines."""
    names = {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    targets = [target for one in node.body if isinstance(one, ast.Assign) for target in one.targets]
    names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if is_private(name)}


def overridden_methods(tree: ast.AST, module: Callable[[], Any]) -> Iterator[str]:
    """Private names of classes of other packages that a subclass defines anew. ``module`` imports the tree's module."""
    for node in ast.walk(tree):
        names = underscore_names(node) if isinstance(node, ast.ClassDef) else set()
        for base in node.bases if isinstance(node, ast.ClassDef) and names else ():
            found: Any = module()
            for part in dotted(base.value if isinstance(base, ast.Subscript) else base):
                found = getattr(found, part)
            foreign = [one for one in found.__mro__ if one.__module__.partition(".")[0] not in OURS]
            for name in sorted(names):
                if any(name in vars(one) for one in foreign):
                    yield f"line {node.lineno}: {node.name} overrides {found.__name__}.{name}"


def uses_of_private_names(code: str, package: str, module: Callable[[], Any]) -> list[str]:
    tree = ast.parse(code)
    return [*private_imports(tree, package), *replaced_attributes(tree), *overridden_methods(tree, module)]


def test_only_the_public_api_of_other_packages_is_used() -> None:
    assert [
        f"{file.relative_to(ROOT)}: {use}"
        for file in FILES
        for use in uses_of_private_names(
            file.read_text("utf-8"), name_of(file).partition(".")[0], partial(module_of, file)
        )
    ] == []


def executed(code: str) -> SimpleNamespace:
    module = SimpleNamespace(__name__="sandbox.example")
    exec(code, vars(module))
    return module


@pytest.mark.parametrize(
    "code",
    [
        "import _signal",
        "import os._exit",
        "from typer import _completion_classes",
        "from urllib3._version import version",
        "from evenkeel.settings import _TEXTS",
        "import typing\ntyping.compile = print",
        "import os.path\nos.path.sep += 'x'",
        "import json as j\ndel j.loads",
        "from http.client import HTTPConnection as C\nC.debuglevel, x = 1, 2",
        "import json\nsetattr(json, 'loads', print)",
        "import json\nfrom unittest.mock import patch\nwith patch.object(json, 'loads'): pass",
        "from unittest.mock import patch\nwith patch('json.loads'): pass",
        "import argparse\nclass A(argparse.Action):\n    def _get_kwargs(self): pass",
        "from argparse import Action\nclass A(Action):\n    _get_args = None",
    ],
)
def test_each_use_of_what_is_private_is_found(code: str) -> None:
    assert len(uses_of_private_names(code, "sandbox", lambda: executed(code))) == 1


@pytest.mark.parametrize(
    "code",
    [
        "from sandbox.aws import _KEY",
        "import os\nos.environ['A'] = 'b'",
        "from evenkeel import bootstrap\nbootstrap.clock = None",
        "import enum\nclass A(enum.Enum):\n    def _missing_(self): pass",
        "class A:\n    def _a(self): pass\nclass B(A):\n    def _a(self): pass",
    ],
)
def test_public_api_and_own_names_are_allowed(code: str) -> None:
    assert uses_of_private_names(code, "sandbox", lambda: executed(code)) == []
