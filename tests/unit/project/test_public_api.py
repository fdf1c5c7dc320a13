"""Outside tests, the code uses only the public API of other packages and of the standard library.

`ruff` refuses access to private attributes (SLF001). These tests find the other ways: private imports and private names
in texts, replaced attributes, overridden underscore methods, and undocumented events of botocore.
"""

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from pkgutil import resolve_name
from types import resolve_bases

import pytest

ROOT = Path(__file__).resolve().parents[3]
FOLDERS = ("layers/evenkeel", "cli", "functions", "sandbox", "bench", "docs", "deploy")
FILES = sorted(file for folder in FOLDERS for file in (ROOT / folder).rglob("*.py"))
OURS = ("evenkeel", "evenkeel_cli", "sandbox", "bench", "docs", "deploy", "functions")
SETTERS = ("setattr", "delattr", "__setattr__", "__delattr__", "patch.object")
HOOKS = ("events.register", "events.register_first", "events.register_last")
CHANGES = ("update", "setdefault", "pop", "clear", "__setitem__", "__delitem__")


def package_of(file: Path) -> str:
    """Return the package of a module: `evenkeel`, `sandbox`, `docs`."""
    parts = file.relative_to(ROOT).parts
    return {"layers": "evenkeel", "cli": "evenkeel_cli"}.get(parts[0], parts[0])


def is_private(name: str) -> bool:
    """Return True for `_name`. Names such as `__init__` and Enum's `_missing_` are documented."""
    return name.startswith("_") and not name.endswith("_")


def root_of(path: str) -> str:
    return path.partition(".")[0]


def text_of(node: ast.expr) -> str:
    """Return the value of a literal text; empty for everything else."""
    return node.value if isinstance(node, ast.Constant) and isinstance(node.value, str) else ""


def imported(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Yield each imported name in the module, its full name, and its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or root_of(alias.name), alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}", node.lineno


def private_names(tree: ast.AST, package: str) -> Iterator[str]:
    """Yield private names and modules of other packages that are imported, or named in a text."""
    others = {name for name, path, _ in imported(tree) if root_of(path) != package}
    paths = [(path, line) for _, path, line in imported(tree)]
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        function = ast.unparse(node.func).rpartition(".")[2]
        if function in ("import_module", "__import__"):
            paths += [(text_of(argument), node.lineno) for argument in node.args]
        if function == "getattr" and owner_of(node.args[0]) in others and is_private(text_of(node.args[1])):
            yield f"line {node.lineno}: reads {ast.unparse(node)}"
    for path, line in paths:
        if root_of(path) != package and any(map(is_private, path.split("."))):
            yield f"line {line}: imports {path}"


def owner_of(node: ast.expr) -> str:
    """Return the first name of an expression: `json` of `json.decoder.x` and of `vars(json)`."""
    return re.split(r"\W", ast.unparse(node).removeprefix("vars("))[0]


def is_namespace(node: ast.expr) -> bool:
    """Return True for `vars(x)`, `x.__dict__` and `sys.modules`."""
    text = ast.unparse(node)
    return text.startswith("vars(") or text.endswith(".__dict__") or text in ("sys.modules", "modules")


def replaced_attributes(tree: ast.AST) -> Iterator[str]:
    """Yield attributes of other packages' objects that are assigned, deleted or patched."""
    foreign = {name for name, path, _ in imported(tree) if root_of(path) not in OURS}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Attribute | ast.Subscript) and not isinstance(node.ctx, ast.Load):
            targets = [node.value] if isinstance(node, ast.Attribute) or is_namespace(node.value) else []
        elif isinstance(node, ast.Call):
            function = ast.unparse(node.func)
            if function.endswith(SETTERS):
                targets = node.args[:1]
            elif function in ("patch", "mock.patch"):
                targets = [node.func]
            elif isinstance(node.func, ast.Attribute) and node.func.attr in CHANGES and is_namespace(node.func.value):
                targets = [node.func.value]
        for target in targets:
            if owner_of(target) in foreign:
                yield f"line {target.lineno}: replaces an attribute of {ast.unparse(target)}"


def defined(node: ast.AST) -> Iterator[str]:
    """Yield the names that a class defines itself, also under `if`, without those in its methods and nested classes."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            yield child.name
        elif isinstance(child, ast.Name) and isinstance(child.ctx, ast.Store):
            yield child.id
        else:
            yield from defined(child)


def overridden_names(tree: ast.AST) -> Iterator[str]:
    """Yield private names of other packages' classes that a subclass overrides, wherever the subclass is."""
    every = [node for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    classes = {node.name: node for node in every}
    paths = {name: name if path.startswith(f"{name}.") else path for name, path, _ in imported(tree)}

    def inherited(node: ast.ClassDef) -> Iterator[str]:
        for base in node.bases:
            name, _, rest = ast.unparse(base.value if isinstance(base, ast.Subscript) else base).partition(".")
            if classes.get(name, node) is not node:
                yield from inherited(classes[name])
            elif name in paths:
                found = resolve_name(f"{paths[name]}.{rest}".rstrip("."))
                theirs = [one for each in resolve_bases((found,)) for one in each.__mro__]
                yield from (key for one in theirs if root_of(one.__module__) not in OURS for key in vars(one))

    for node in every:
        for name in sorted(set(filter(is_private, defined(node))).intersection(inherited(node))):
            yield f"line {node.lineno}: {node.name} overrides {name} of another package"


def undocumented_events(tree: ast.AST) -> Iterator[str]:
    """Yield handlers of botocore's events other than `before-send`, which gets the documented AWSPreparedRequest."""
    for node in ast.walk(tree):
        is_hook = isinstance(node, ast.Call) and ast.unparse(node.func).endswith(HOOKS)
        if is_hook and not any(text_of(event).startswith("before-send") for event in node.args[:1]):
            yield f"line {node.lineno}: handles an event of botocore"


def uses_of_private_names(code: str, package: str) -> list[str]:
    tree = ast.parse(code)
    uses = (private_names(tree, package), replaced_attributes(tree), overridden_names(tree), undocumented_events(tree))
    return [use for each in uses for use in each]


def test_only_the_public_api_of_other_packages_is_used() -> None:
    assert [
        f"{file.relative_to(ROOT)}: {use}"
        for file in FILES
        for use in uses_of_private_names(file.read_text("utf-8"), package_of(file))
    ] == []


@pytest.mark.parametrize(
    ("code", "uses"),
    [
        ("import _signal", 1),
        ("from evenkeel.settings import _TEXTS", 1),
        ("from importlib import import_module\nimport_module('urllib3._version')", 1),
        ("__import__('_signal')", 1),
        ("import json\ngetattr(json, '_default_decoder')", 1),
        ("import os.path\nos.path.sep += 'x'", 1),
        ("import json\njson.loads: object = print", 1),
        ("import json as j\ndel j.loads", 1),
        ("from http.client import HTTPConnection as C\nC.debuglevel, x = 1, 2", 1),
        ("import json\nvars(json)['loads'] = print", 1),
        ("import json\njson.decoder.__dict__['loads'] = print", 1),
        ("import json\nvars(json).update(loads=print)", 1),
        ("import sys\nsys.modules['json'] = None", 1),
        ("import json\nsetattr(json, 'loads', print)", 1),
        ("import builtins, json\nbuiltins.setattr(json, 'loads', print)", 1),
        ("import json\nobject.__setattr__(json, 'loads', print)", 1),
        ("import json\nfrom unittest.mock import patch\nwith patch.object(json, 'loads'): pass", 1),
        ("from unittest.mock import patch\nwith patch('json.loads'): pass", 1),
        ("import argparse\nclass A(argparse.Action):\n    def _get_kwargs(self): pass", 1),
        ("from argparse import Action\nclass A(Action):\n    _get_args: object = None", 1),
        ("from argparse import Action\nclass A(Action):\n    if True:\n        def _get_args(self): pass", 1),
        ("from argparse import Action\nif True:\n    class A(Action):\n        def _get_args(self): pass", 1),
        ("from argparse import Action\nclass A:\n    class B(Action):\n        def _get_args(self): pass", 1),
        ("client.meta.events.register('before-parse.auto-scaling', print)", 1),
        ("from sandbox.aws import _KEY", 0),
        ("import json\ngetattr(json, 'loads')", 0),
        ("class A:\n    def a(self): return getattr(self, '_a')", 0),
        ("import os\nos.environ['A'] = 'b'", 0),
        ("from evenkeel import bootstrap\nbootstrap.clock = None", 0),
        ("class A:\n    def __init__(self): object.__setattr__(self, 'a', vars(self))", 0),
        ("import enum\nclass A(enum.Enum):\n    def _missing_(self): pass", 0),
        ("class A:\n    def _a(self): pass\nclass B(A):\n    def _a(self): pass", 0),
        ("client.meta.events.register('before-send.dynamodb', print)", 0),
    ],
)
def test_each_use_of_what_is_private_is_found_and_nothing_else(code: str, uses: int) -> None:
    assert len(uses_of_private_names(code, "sandbox")) == uses
