"""Read YAML and JSON of untrusted origin. A text is read completely or refused, and never quoted.

The YAML parser is imported when it is needed: a check of an EKS cluster reads no YAML.
"""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

# The most levels of nesting, far more than any kubeconfig, record or Kubernetes object has. The C loader crashes on
# very deep texts.
_DEEPEST = 200
# The most values that aliases may add. A few lines of nested aliases can exceed the memory; people need far fewer.
_MOST_REPEATED = 10_000
_TWICE = "a name occurs twice in one object, and only one of the two would count: keep one"


class UnreadableError(ValueError):
    """A text is neither YAML nor JSON, or is refused. The error has the problem and the place, never the text."""


def read_document(text: str, *, once: bool = False) -> Any:
    """Return the only document of a text; None if it is empty. Raises UnreadableError.

    ``once``: a name may occur only once in an object. Otherwise the last occurrence is used, as in most YAML readers.
    """
    documents = read_documents(text, once=once)
    if len(documents) > 1:
        raise UnreadableError("it holds several documents: one is expected")
    return documents[0] if documents else None


def read_documents(text: str, *, once: bool = False) -> list[Any]:
    """Return every document of a text. Raises UnreadableError."""
    if text.lstrip().startswith("{"):
        try:  # kubectl prints JSON, which is read ten times as fast as YAML
            return [json.loads(text, object_pairs_hook=_with_names_once if once else None)]
        except UnreadableError:
            raise
        except (ValueError, RecursionError):
            pass  # the text is YAML in flow style, or several documents
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    fault = _fault(text, loader, once=once)
    if fault is None:
        try:
            return list(yaml.load_all(text, Loader=loader))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            fault = _place(error)
    # Raised outside the except block, so that the library's error, which quotes the text, is not its context.
    raise UnreadableError(fault)


@dataclass
class _Collection:
    """An object or list whose end is not parsed yet: its anchor, its number of values, and an object's names."""

    anchor: str | None = None
    values: int = 1
    names: set[str] | None = None
    is_name_next: bool = True

    def repeats(self, event: Any) -> bool:
        """Return True if the event repeats a name of this object."""
        if self.names is None:
            return False
        is_name, self.is_name_next = self.is_name_next, not self.is_name_next
        name = getattr(event, "value", None) if is_name else None
        if name is None or name == "<<":
            return False
        is_again = name in self.names
        self.names.add(name)
        return is_again


def _fault(text: str, loader: Any, *, once: bool) -> str | None:
    """Return the problem of a text before any of its values is built; None if there is none."""
    import yaml

    try:
        return _fault_of(yaml.parse(text, Loader=loader), once=once)
    except (yaml.YAMLError, ValueError) as error:
        return _place(error)


def _fault_of(events: Iterable[Any], *, once: bool) -> str | None:
    import yaml

    sizes: dict[str | None, int] = {}  # the number of values behind an anchor
    open_ = [_Collection(values=0)]  # the outermost first
    repeated = 0
    for event in events:
        anchor, size = getattr(event, "anchor", None), 1
        if isinstance(event, yaml.NodeEvent) and once and open_[-1].repeats(event):
            return f"{_TWICE}{_at(event.start_mark)}"
        if isinstance(event, yaml.AliasEvent):
            if anchor not in sizes:
                return f"an alias leads nowhere or to an object around it{_at(event.start_mark)}"
            size = sizes[anchor]
            repeated += size
            if repeated > _MOST_REPEATED:
                return f"its aliases expand to more than {_MOST_REPEATED} values: write them out"
        elif isinstance(event, yaml.CollectionStartEvent):
            if len(open_) > _DEEPEST:
                return f"not YAML or JSON: nested more than {_DEEPEST} levels deep"
            sizes.pop(anchor, None)  # so that an alias inside its own anchor is a fault
            open_.append(_Collection(anchor, names=set() if isinstance(event, yaml.MappingStartEvent) else None))
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = open_.pop()
            anchor, size = closed.anchor, closed.values
        elif not isinstance(event, yaml.ScalarEvent):
            sizes.clear()  # a document begins or ends
            continue
        open_[-1].values += size
        if anchor is not None:
            sizes[anchor] = size
    return None


def _with_names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    named = dict(pairs)
    if len(named) < len(pairs):
        raise UnreadableError(_TWICE)
    return named


def _place(error: Exception) -> str:
    return f"not YAML or JSON{_at(getattr(error, 'problem_mark', None))}"


def _at(mark: Any) -> str:
    return "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
