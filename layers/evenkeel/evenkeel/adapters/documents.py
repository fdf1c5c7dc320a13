"""YAML and JSON as other people write it: read whole or refused, quickly, and never quoted.

YAML's own parser is imported when there is some: a look at an EKS cluster reads none.
"""

import json
from dataclasses import dataclass, field
from typing import Any

# No kubeconfig, record or Kubernetes object comes near it; the C loader would crash, not raise.
_DEEPEST = 200
# A few lines of aliases can stand for more than any memory holds. Who writes by hand repeats a dozen lines.
_MOST_REPEATED = 10_000
_TWICE = "a name stands twice in one object, and only one of the two would count: keep one"


class UnreadableError(ValueError):
    """A text that is neither YAML nor JSON, or is refused. Says what is wrong and where; never quotes the text."""


def read_document(text: str, *, once: bool = False) -> Any:
    """The only document of a text; None where it is empty. Raises UnreadableError.

    ``once``: no name may stand twice in one object. Else the last one counts, as most readers of YAML have it.
    """
    documents = read_documents(text, once=once)
    if len(documents) > 1:
        raise UnreadableError("it holds several documents: one is expected")
    return documents[0] if documents else None


def read_documents(text: str, *, once: bool = False) -> list[Any]:
    """Every document of a text. Raises UnreadableError."""
    if text.lstrip().startswith("{"):
        try:  # what kubectl prints, read ten times as fast
            return [json.loads(text, object_pairs_hook=_with_names_once if once else None)]
        except UnreadableError:
            raise
        except (ValueError, RecursionError):
            pass  # YAML's flow style, or several documents
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    fault = _fault(text, loader, once=once)
    if fault is None:
        try:
            return list(yaml.load_all(text, Loader=loader))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            fault = _place(error)
    # Raised out here, where no other error hangs on it: those of the libraries carry the text along.
    raise UnreadableError(fault)


def _fault(text: str, loader: Any, *, once: bool) -> str | None:
    """What is wrong with a text before any of its values is made; None where nothing is."""
    import yaml

    weights: dict[str | None, int] = {}  # what an anchor stands for
    open_: list[tuple[str | None, int]] = [(None, 0)]  # collections, the outermost first, each with what is in it
    names: list[_Names | None] = [None]  # of the open objects
    repeated = 0
    try:
        for event in yaml.parse(text, Loader=loader):
            if once and _stands_twice(event, names):
                return f"{_TWICE}{_at(event.start_mark)}"
            anchor, weight = getattr(event, "anchor", None), 1
            if isinstance(event, yaml.AliasEvent):
                if anchor not in weights:
                    return f"an alias leads nowhere or to what it stands in{_at(event.start_mark)}"
                weight = weights[anchor]
                repeated += weight
                if repeated > _MOST_REPEATED:
                    return f"its aliases stand for more than {_MOST_REPEATED} values: write them out"
            elif isinstance(event, yaml.CollectionStartEvent):
                if len(open_) > _DEEPEST:
                    return f"not YAML or JSON: nested more than {_DEEPEST} levels deep"
                weights.pop(anchor, None)  # until it is whole, it stands for itself
                open_.append((anchor, 1))
                continue
            elif isinstance(event, yaml.CollectionEndEvent):
                anchor, weight = open_.pop()
            elif not isinstance(event, yaml.ScalarEvent):
                weights.clear()  # a document begins or ends
                continue
            open_[-1] = (open_[-1][0], open_[-1][1] + weight)
            if anchor is not None:
                weights[anchor] = weight
    except (yaml.YAMLError, ValueError) as error:
        return _place(error)
    return None


def _with_names_once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        raise UnreadableError(_TWICE)
    return found


@dataclass
class _Names:
    """Of an object that is being read."""

    seen: set[str] = field(default_factory=set)
    is_name_next: bool = True


def _stands_twice(event: Any, open_: list[_Names | None]) -> bool:
    """Whether the event is a name that its object has already. ``open_``: of lists None; kept up to date here."""
    import yaml

    if isinstance(event, yaml.CollectionEndEvent):
        open_.pop()
        return False
    if not isinstance(event, yaml.NodeEvent):
        return False
    names, is_again = open_[-1], False
    if names is not None:
        if names.is_name_next and isinstance(event, yaml.ScalarEvent) and event.value != "<<":
            is_again = event.value in names.seen
            names.seen.add(event.value)
        names.is_name_next = not names.is_name_next
    if isinstance(event, yaml.CollectionStartEvent):
        open_.append(_Names() if isinstance(event, yaml.MappingStartEvent) else None)
    return is_again


def _place(error: Exception) -> str:
    return f"not YAML or JSON{_at(getattr(error, 'problem_mark', None))}"


def _at(mark: Any) -> str:
    return "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
