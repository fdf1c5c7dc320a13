"""The annotation ``evenkeel.dev/decision``: what was published last, for whom, and why.

It is written in the same patch as the bounds, so that the two can never disagree, and read back at the next look:
a group that has grown to the max it was offered is *at its bound*. `kubectl get -o yaml` shows it to people.
"""

import json
from datetime import datetime

from evenkeel.domain.model.groups import Bounds, PublishedBounds, State
from evenkeel.domain.model.values import BadValueError, read_count


def write_published(published: PublishedBounds, target: int, why: str) -> str:
    """The annotation's text: one JSON object.

    Args:
        published: What stands on the object after the same patch.
        target: What the group should request.
        why: The plan's reasons, for people.
    """
    bounds = published.bounds
    return json.dumps(
        {
            **({} if bounds is None else {"min": bounds.min}),
            **({} if published.requested is None else {"requested": published.requested}),
            **({} if published.before is None else {"before": published.before}),
            "at": published.at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "state": published.state.value,
            **({"pinned": True} if published.pinned else {}),
            "target": target,
            **({} if bounds is None else {"max": bounds.max}),
            "why": why[:1024],
        },
        ensure_ascii=False,
    )


def write_adopted(bounds: Bounds | None) -> str:
    """The text of annotation ``evenkeel.dev/adopted-bounds``: ``"<min>,<max>"``, or ``"none"``."""
    return "none" if bounds is None else f"{bounds.min},{bounds.max}"


def read_adopted(text: str) -> Bounds | None:
    """The bounds that a group had before us; None where it had none.

    Raises:
        BadValueError: somebody has edited it beyond reading. Then ``restore`` could not put the bounds back.
    """
    if text == "none":
        return None
    parts = text.split(",")
    if len(parts) != 2:
        raise BadValueError('neither "none" nor "<min>,<max>"')
    minimum, maximum = read_count(parts[0]), read_count(parts[1])
    if minimum > maximum:
        raise BadValueError("min is larger than max")
    return Bounds(minimum, maximum)


def read_published(text: str | None) -> PublishedBounds | None:
    """What we published and when; None where there is no such annotation, or somebody has edited it beyond reading.

    An unreadable one is not an error: without it, the group is as if we had never written it.
    """
    if not text:
        return None
    try:
        found = json.loads(text)
        at = datetime.fromisoformat(found["at"])
        bounds = Bounds(read_count(found["min"]), read_count(found["max"])) if "min" in found else None
        requested, before = (read_count(found[name]) if name in found else None for name in ("requested", "before"))
        state = State(found["state"])
    except (ValueError, TypeError, KeyError, RecursionError, BadValueError):
        return None
    if at.tzinfo is None or not 2000 < at.year < 2199:
        return None  # no moment that we wrote, nor one that a record could hold
    pinned = found.get("pinned") is True
    return PublishedBounds(at=at, bounds=bounds, state=state, requested=requested, before=before, pinned=pinned)
