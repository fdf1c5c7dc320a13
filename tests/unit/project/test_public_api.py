"""Outside tests, the code uses only the public API of other packages and of the standard library.

`ruff` refuses access to private attributes (SLF001). Here are the other three ways: a private import, a replaced
attribute, and an overridden underscore method.
"""

import ast
import importlib
from collections.abc import Iterator
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType

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


def is_ours(path: str) -> bool:
    return path.partition(".")[0] in OURS


def is_private(name: str) -> bool:
    """True for `_name`. Names such as `__init__` and Enum's `_missing_` are documented."""
    return name.startswith("_") and not name.endswith("_")


def imported(tree: ast.AST) -> Iterator[tuple[str, str, int]]:
    """Each imported name in the module, what it is, and its line."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.asname or alias.name.partition(".")[0], alias.name, node.lineno
        elif isinstance(node, ast.ImportFrom) and not node.level:
            for alias in node.names:
                yield alias.asname or alias.name, f"{node.module}.{alias.name}", node.lineno


def private_imports(tree: ast.AST, package: str) -> Iterator[str]:
    """Private names and modules that are imported from other packages."""
    for _, path, line in imported(tree):
        if path.partition(".")[0] != package and any(map(is_private, path.split("."))):
            yield f"line {line}: imports {path}"


def replaced_attributes(tree: ast.AST) -> Iterator[str]:
    """Attributes of what other packages have that are assigned, deleted or patched."""
    foreign = {name for name, path, _ in imported(tree) if not is_ours(path)}
    for node in ast.walk(tree):
        targets: list[ast.expr] = []
        if isinstance(node, ast.Attribute) and not isinstance(node.ctx, ast.Load):
            targets = [node.value]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("setattr", "delattr", "patch.object"):
            targets = node.args[:1]
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in ("patch", "mock.patch"):
            targets = [node.func]
        for target in targets:
            if ast.unparse(target).partition(".")[0] in foreign:
                yield f"line {target.lineno}: replaces an attribute of {ast.unparse(target)}"


def underscore_names(node: ast.ClassDef) -> set[str]:
    """The private names that the body of a class defines."""
    names = {one.name for one in node.body if isinstance(one, ast.FunctionDef | ast.AsyncFunctionDef)}
    targets = [target for one in node.body if isinstance(one, ast.Assign) for target in one.targets]
    names |= {target.id for target in targets if isinstance(target, ast.Name)}
    return {name for name in names if is_private(name)}


def overridden_methods(tree: ast.Module, file: Path) -> Iterator[str]:
    """Private names of classes of other packages that a subclass defines anew."""
    for node in tree.body:
        names = underscore_names(node) if isinstance(node, ast.ClassDef) and node.bases else set()
        bases = getattr(module_of(file), node.name).__mro__[1:] if names else ()
        theirs = {name for base in bases if not is_ours(base.__module__) for name in vars(base)}
        for name in sorted(names & theirs):
            yield f"line {node.lineno}: {node.name} overrides {name} of another package"


def uses_of_private_names(file: Path) -> list[str]:
    tree, package = ast.parse(file.read_text("utf-8")), name_of(file).partition(".")[0]
    return [*private_imports(tree, package), *replaced_attributes(tree), *overridden_methods(tree, file)]


def test_only_the_public_api_of_other_packages_is_used() -> None:
    assert [f"{file.relative_to(ROOT)}: {use}" for file in FILES for use in uses_of_private_names(file)] == []
