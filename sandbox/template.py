"""Reads template.yaml, so that sandbox and tests need no second list of tables, queues, variables and triggers.

It supports the parts that the template uses: Ref, GetAtt, Sub, If, Join, Split, Equals, Not, Or, parameter defaults,
conditions and Globals.Function. Any other part is an error, never a guess.
"""

from __future__ import annotations

import pickle
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

import yaml

ROOT = Path(__file__).resolve().parent.parent
TEMPLATE = ROOT / "template.yaml"

_NO_VALUE = object()

# Returns a value of a resource, by the resource's logical id and an attribute; attribute None: the value of Ref.
Lookup = Callable[[str, str | None], Any]


class _Loader(yaml.SafeLoader):
    """A YAML loader that expands CloudFormation's short forms: `!Ref X` becomes {"Ref": "X"}."""


def _short_form(loader: _Loader, suffix: str, node: yaml.Node) -> dict[str, Any]:
    value: Any
    if isinstance(node, yaml.ScalarNode):
        value = loader.construct_scalar(node)
    elif isinstance(node, yaml.SequenceNode):
        value = loader.construct_sequence(node, deep=True)
    else:
        value = loader.construct_mapping(node, deep=True)  # type: ignore[arg-type]
    if suffix == "GetAtt" and isinstance(value, str):
        value = value.split(".", 1)
    return {suffix if suffix in ("Ref", "Condition") else f"Fn::{suffix}": value}


_Loader.add_multi_constructor("!", _short_form)


@cache
def _parsed(text: str) -> bytes:
    """Return the document as a pickle, which loads a hundred times faster than YAML."""
    return pickle.dumps(yaml.load(text, Loader=_Loader))


@dataclass(frozen=True)
class Function:
    """A Lambda function of the template, with the values of Globals. References are not resolved."""

    logical_id: str
    code: Path
    handler: str
    timeout: int
    memory: int
    variables: Mapping[str, Any]
    events: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    invoke_config: Mapping[str, Any] = field(default_factory=dict)


class Template:
    """The template with the values of its parameters, which are the caller's or defaults."""

    def __init__(self, path: Path = TEMPLATE, *, parameters: Mapping[str, str] | None = None) -> None:
        self.path = path
        self.body: dict[str, Any] = pickle.loads(_parsed(path.read_text(encoding="utf-8")))
        declared = self.body.get("Parameters", {})
        values = dict(parameters or {})
        if unknown := values.keys() - declared.keys():
            raise ValueError(f"{path.name} has no parameter {', '.join(sorted(unknown))}")
        self.parameters: dict[str, Any] = {}
        for name, spec in declared.items():
            value = values.get(name, spec.get("Default"))
            is_list = spec["Type"] == "CommaDelimitedList" or spec["Type"].startswith("List<")
            self.parameters[name] = value.split(",") if is_list and isinstance(value, str) else value
        self.resources: dict[str, dict[str, Any]] = self.body["Resources"]

    def of_type(self, resource_type: str) -> dict[str, dict[str, Any]]:
        """Return the unresolved properties of every resource of a type by logical id."""
        return {
            name: resource.get("Properties", {})
            for name, resource in self.resources.items()
            if resource["Type"] == resource_type
        }

    def functions(self) -> dict[str, Function]:
        """Return every function that exists with these parameters, by logical id."""
        common = self.body.get("Globals", {}).get("Function", {})
        functions = {}
        for name, own in self.of_type("AWS::Serverless::Function").items():
            if not self._condition(self.resources[name].get("Condition"), self._parameters_only):
                continue
            merged = {**common, **own}
            environments = (source.get("Environment", {}).get("Variables", {}) for source in (common, own))
            functions[name] = Function(
                logical_id=name,
                code=self.path.parent / merged["CodeUri"],
                handler=merged["Handler"],
                timeout=merged["Timeout"],
                memory=merged["MemorySize"],
                variables={key: value for variables in environments for key, value in variables.items()},
                events=own.get("Events", {}),
                invoke_config=own.get("EventInvokeConfig", {}),
            )
        return functions

    def resolve(self, value: Any, lookup: Lookup) -> Any:
        """Return the value with intrinsic functions evaluated; `lookup` resolves every name that is no parameter."""
        result = self._resolve(value, lookup)
        return None if result is _NO_VALUE else result

    def _resolve(self, value: Any, lookup: Lookup) -> Any:
        if isinstance(value, list):
            return [item for item in (self._resolve(v, lookup) for v in value) if item is not _NO_VALUE]
        if not isinstance(value, dict):
            return value
        if len(value) == 1:
            ((key, argument),) = value.items()
            if key == "Ref":
                return self._reference(argument, None, lookup)
            if key == "Condition" and isinstance(argument, str):
                return self._condition(argument, lookup)
            if key.startswith("Fn::"):
                return self._call(key, argument, lookup)
        resolved = {k: self._resolve(v, lookup) for k, v in value.items()}
        return {k: v for k, v in resolved.items() if v is not _NO_VALUE}

    def _reference(self, name: str, attribute: str | None, lookup: Lookup) -> Any:
        if name == "AWS::NoValue":
            return _NO_VALUE
        if attribute is None and name in self.parameters:
            return self.parameters[name]
        return lookup(name, attribute)

    def _call(self, name: str, argument: Any, lookup: Lookup) -> Any:
        match name:
            case "Fn::GetAtt":
                return self._reference(argument[0], argument[1], lookup)
            case "Fn::Sub":
                own: dict[str, Any] = {}
                if isinstance(argument, list):
                    argument, own = argument[0], self._resolve(argument[1], lookup)

                def replaced(match: re.Match[str]) -> str:
                    reference = match.group(1)
                    if reference in own:
                        return str(own[reference])
                    base, _, attribute = reference.partition(".")
                    return str(self._reference(base, attribute or None, lookup))

                return re.sub(r"\$\{([A-Za-z0-9:.]+)\}", replaced, argument)
            case "Fn::If":
                condition, then, otherwise = argument
                return self._resolve(then if self._condition(condition, lookup) else otherwise, lookup)
            case "Fn::Join":
                return argument[0].join(str(part) for part in self._resolve(argument[1], lookup))
            case "Fn::Split":
                return str(self._resolve(argument[1], lookup)).split(argument[0])
            case "Fn::Equals":
                left, right = self._resolve(argument, lookup)
                return str(left) == str(right)
            case "Fn::Not":
                return not self._resolve(argument[0], lookup)
            case "Fn::Or":
                return any(self._resolve(condition, lookup) for condition in argument)
        raise ValueError(f"{self.path.name}: the sandbox does not know {name}; add it to sandbox/template.py")

    def _parameters_only(self, name: str, attribute: str | None) -> Any:
        raise ValueError(f"{self.path.name}: a condition reads {name}.{attribute}, which is no parameter")

    def _condition(self, name: str | None, lookup: Lookup) -> bool:
        return name is None or bool(self._resolve(self.body["Conditions"][name], lookup))
