"""The places where CloudFormation supports intrinsic functions, and a template's functions in other places."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_PSEUDO = frozenset(
    f"AWS::{name}"
    for name in ("AccountId", "NotificationARNs", "Partition", "Region", "StackId", "StackName", "URLSuffix")
)
_VALUES = frozenset(
    f"Fn::{name}"
    for name in (
        *("Base64", "Cidr", "FindInMap", "GetAtt", "GetAZs", "If", "ImportValue", "Join", "Select", "Split", "Sub"),
        "Transform",
    )
) | {"Ref"}
_CONDITIONS = frozenset({"Fn::And", "Fn::Equals", "Fn::Not", "Fn::Or", "Fn::FindInMap", "Condition", "Ref"})
_RULES = frozenset(
    f"Fn::{name}"
    for name in (
        *("And", "Contains", "EachMemberEquals", "EachMemberIn", "Equals", "Not", "Or", "RefAll", "ValueOf"),
        "ValueOfAll",
    )
) | {"Ref"}
_NONE: frozenset[str] = frozenset()

# The functions that a part of a resource may have; a part that is not named is plain text.
_OF_RESOURCE = {"Properties": _VALUES, "Metadata": _VALUES, "UpdatePolicy": _VALUES}
# Arguments that must be literals: function -> positions.
_LITERAL = {"Fn::Join": (0,), "Fn::Split": (0,), "Fn::If": (0,), "Fn::Sub": (0,), "Fn::GetAtt": (0,), "Fn::Select": ()}
_CHOOSES_NOTHING = frozenset(
    {"Fn::RefAll", "Fn::ValueOf", "Fn::ValueOfAll"}
)  # rule functions, without functions inside
_REFERENCE = re.compile(r"\$\{([^!}][^}]*)\}")


def faults(template: Mapping[str, Any]) -> list[str]:
    """Return one line per function or reference in a place where CloudFormation does not support it.

    ``template`` has the long forms; `!Ref x` has become {"Ref": "x"}.
    """
    return list(_Walk(template).faults())


class _Walk:
    def __init__(self, template: Mapping[str, Any]) -> None:
        self._template = template
        self._parameters = frozenset(template.get("Parameters", {}))
        self._resources = frozenset(template.get("Resources", {}))
        self._conditions = frozenset(template.get("Conditions", {}))

    def faults(self) -> Iterator[str]:
        for section, body in self._template.items():
            match section:
                case "Rules":
                    yield from self._walk(body, section, _RULES, self._parameters | _PSEUDO)
                case "Conditions":
                    yield from self._walk(body, section, _CONDITIONS, self._parameters | _PSEUDO)
                case "Globals":  # SAM merges it into the properties of each function
                    yield from self._values(body, section)
                case "Resources":
                    for name, resource in body.items():
                        yield from self._resource(f"{section}.{name}", resource)
                case "Outputs":
                    for name, output in body.items():
                        yield from self._output(f"{section}.{name}", output)
                case _:  # Parameters, Mappings, Metadata, Description, Transform
                    yield from self._walk(body, section, _NONE, _NONE)

    def _values(self, value: Any, where: str) -> Iterator[str]:
        known = self._parameters | self._resources | _PSEUDO | {"AWS::NoValue"}
        yield from self._walk(value, where, _VALUES, known)

    def _resource(self, where: str, resource: Mapping[str, Any]) -> Iterator[str]:
        for part, value in resource.items():
            if part == "Condition":
                yield from self._condition(value, f"{where}.{part}")
            elif part in _OF_RESOURCE:
                yield from self._values(value, f"{where}.{part}")
            else:  # Type, DependsOn, DeletionPolicy, UpdateReplacePolicy, CreationPolicy
                yield from self._walk(value, f"{where}.{part}", _NONE, _NONE)
            if part == "DependsOn":
                for name in value if isinstance(value, list) else [value]:
                    if isinstance(name, str) and name not in self._resources:
                        yield f"{where}.{part}: {name} is no resource"

    def _output(self, where: str, output: Mapping[str, Any]) -> Iterator[str]:
        for part, value in output.items():
            match part:
                case "Value":
                    yield from self._values(value, f"{where}.{part}")
                case "Export":  # its name is fixed before any resource exists
                    yield from self._walk(
                        value, f"{where}.{part}", _VALUES - {"Fn::GetAtt"}, self._parameters | _PSEUDO
                    )
                case "Condition":
                    yield from self._condition(value, f"{where}.{part}")
                case _:
                    yield from self._walk(value, f"{where}.{part}", _NONE, _NONE)

    def _condition(self, name: Any, where: str) -> Iterator[str]:
        if not isinstance(name, str):
            yield f"{where}: a condition is called by its name, and by no function"
        elif name not in self._conditions:
            yield f"{where}: {name} is no condition"

    def _walk(self, value: Any, where: str, allowed: frozenset[str], known: frozenset[str]) -> Iterator[str]:
        if isinstance(value, list):
            for position, item in enumerate(value):
                yield from self._walk(item, f"{where}.{position}", allowed, known)
        elif isinstance(value, Mapping):
            call = _call(value)
            if call is not None:
                yield from self._function(call, value[call], where, allowed, known)
                return
            for key, item in value.items():
                yield from self._walk(item, f"{where}.{key}", allowed, known)

    def _function(
        self, name: str, argument: Any, where: str, allowed: frozenset[str], known: frozenset[str]
    ) -> Iterator[str]:
        here = f"{where}.{name}"
        if name not in allowed:
            yield f"{here}: CloudFormation does not support it there"
            return
        for target in _targets(name, argument):
            if target not in known:
                yield f"{here}: {target} is nothing that can be referred to there"
        if name == "Condition" or (name == "Fn::If" and isinstance(argument, list)):
            yield from self._condition(argument if name == "Condition" else argument[0], here)
        parts = argument if isinstance(argument, list) else [argument]
        for position in _LITERAL.get(name, ()):
            if not isinstance(parts[position], str):
                yield f"{here}.{position}: must be plain text, without a function"
        inner = _NONE if name in _CHOOSES_NOTHING else allowed
        if name not in ("Ref", "Condition"):
            yield from self._walk(argument, here, inner, known)


def _call(value: Mapping[str, Any]) -> str | None:
    """Return the function that an object means. An IAM statement's "Condition" is an object and no name."""
    if len(value) != 1:
        return None
    ((name, argument),) = value.items()
    is_function = name == "Ref" or name.startswith("Fn::") or (name == "Condition" and isinstance(argument, str))
    return name if is_function else None


def _targets(name: str, argument: Any) -> list[str]:
    """Return the parameters or resources that a function names."""
    match name, argument:
        case "Ref", str():
            return [argument]
        case "Fn::GetAtt", [str() as target, *_]:
            return [target]
        case "Fn::Sub", str() | [str(), _]:
            text, own = (argument, {}) if isinstance(argument, str) else argument
            return [found.partition(".")[0] for found in _REFERENCE.findall(text) if found not in own]
    return []
