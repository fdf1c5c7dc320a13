"""Reads YAML and JSON of untrusted origin. A text is read completely or refused, and no error quotes the text.

The YAML parser is imported only when it is needed, because a check of an EKS cluster reads no YAML.
"""

import json
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

# The largest number of nesting levels, far more than any kubeconfig, record or Kubernetes object has. The C loader
# crashes on very deep texts.
_DEEPEST = 200
# The largest number of values that aliases may add. A few lines of nested aliases can exceed the memory. Real documents
# need far fewer values.
_MOST_REPEATED = 10_000
# A whole number with too many digits for Python to write it, in a notation of YAML.
_LONG_NUMBER = re.compile(r"[-+]?(?:0x[0-9a-fA-F_]{1000,}|0b[01_]{1000,}|(?=.{1000})[0-9_:]+)", re.ASCII)
_TWICE = "a name occurs twice in one object, and only one of the two would count: keep one"


class UnreadableError(ValueError):
    """A text is neither YAML nor JSON, or is refused. The error names the problem and its place, not the text."""


def read_document(text: str, *, once: bool = False) -> Any:
    """Return the only document of a text; None if the text is empty. Raises UnreadableError.

    ``once`` True: a text that repeats a name within an object is refused. False: the name's last occurrence is used, as
    in most YAML readers.
    """
    documents = read_documents(text, once=once)
    if len(documents) > 1:
        raise UnreadableError("it holds several documents: one is expected")
    return documents[0] if documents else None


def read_documents(text: str, *, once: bool = False) -> list[Any]:
    """Return every document of a text. Raises UnreadableError."""
    if text.lstrip().startswith(("{", "[")):
        try:  # kubectl prints JSON, and a JSON parser is ten times as fast as a YAML parser
            return list(_json_documents(text.strip(), once=once))
        except UnreadableError:
            raise
        except (ValueError, RecursionError):
            pass  # the text may be YAML in flow style, or several documents
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    fault = _fault(text, loader, once=once)
    if fault is None:
        try:
            return list(yaml.load_all(text, Loader=loader))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            fault = _place(error)
    # This error is raised outside the except block. Otherwise its context would be the library's error, which quotes
    # the text.
    raise UnreadableError(fault)


def _json_documents(text: str, *, once: bool) -> Iterator[Any]:
    """Yield each JSON document of a text. Commands in a loop print one after the other."""
    decoder = json.JSONDecoder(object_pairs_hook=_with_names_once if once else None)
    while text:
        document, end = decoder.raw_decode(text)
        yield document
        text = text[end:].lstrip()


@dataclass
class _Collection:
    """An object or list whose end is not parsed yet. ``values``: how many it has so far. ``names``: None for a list."""

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

    sizes: dict[str | None, int] = {}  # the number of values in the collection or scalar of each anchor
    open_ = [_Collection(values=0)]  # the outermost collection is first
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
            sizes.pop(anchor, None)  # so that an alias to a collection around the alias is a fault
            open_.append(_Collection(anchor, names=set() if isinstance(event, yaml.MappingStartEvent) else None))
            continue
        elif isinstance(event, yaml.CollectionEndEvent):
            closed = open_.pop()
            anchor, size = closed.anchor, closed.values
        elif isinstance(event, yaml.ScalarEvent):
            # A text in quotes, which has no tag, is no number.
            if (event.implicit[0] or event.tag is not None) and _LONG_NUMBER.fullmatch(event.value):
                return f"a number has more than 1000 digits{_at(event.start_mark)}"
        else:
            sizes.clear()  # a document begins or ends; its anchors do not apply to other documents
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
