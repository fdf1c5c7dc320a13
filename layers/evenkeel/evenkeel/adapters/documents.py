"""YAML and JSON as other people write it: read whole or refused, quickly, and never quoted.

YAML's own parser is imported when there is some: a look at an EKS cluster reads none.
"""

import json
from typing import Any

# No kubeconfig, record or Kubernetes object comes near it; the C loader would crash, not raise.
_DEEPEST = 200
# A few lines of aliases can stand for more than any memory holds. Who writes by hand repeats a dozen lines.
_MOST_REPEATED = 10_000


class UnreadableError(ValueError):
    """A text that is neither YAML nor JSON, or is refused. Says what is wrong and where; never quotes the text."""


def read_document(text: str) -> Any:
    """The only document of a text; None where it is empty. Raises UnreadableError."""
    documents = read_documents(text)
    if len(documents) > 1:
        raise UnreadableError("it holds several documents: one is expected")
    return documents[0] if documents else None


def read_documents(text: str) -> list[Any]:
    """Every document of a text. Raises UnreadableError."""
    if text.lstrip().startswith("{"):
        try:
            return [json.loads(text)]  # what kubectl prints, read ten times as fast
        except (ValueError, RecursionError):
            pass  # YAML's flow style, or several documents
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    fault = _fault(text, loader)
    if fault is None:
        try:
            return list(yaml.load_all(text, Loader=loader))
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            fault = _place(error)
    # Raised out here, where no other error hangs on it: those of the libraries carry the text along.
    raise UnreadableError(fault)


def _fault(text: str, loader: Any) -> str | None:
    """What is wrong with a text before any of its values is made; None where nothing is."""
    import yaml

    weights: dict[str | None, int] = {}  # what an anchor stands for
    open_: list[tuple[str | None, int]] = [(None, 0)]  # collections, the outermost first, each with what is in it
    repeated = 0
    try:
        for event in yaml.parse(text, Loader=loader):
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


def _place(error: Exception) -> str:
    return f"not YAML or JSON{_at(getattr(error, 'problem_mark', None))}"


def _at(mark: Any) -> str:
    return "" if mark is None else f" (line {mark.line + 1}, column {mark.column + 1})"
