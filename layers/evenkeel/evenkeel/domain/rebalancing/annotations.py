"""The annotations ``evenkeel.dev/decision`` (the last publication) and ``evenkeel.dev/adopted-bounds``.

Evenkeel writes the decision in the same patch as the bounds, so both always match. The next check reads the decision to
find groups that have grown to the published max. People see the decision with `kubectl get -o yaml`.
"""

import json
from datetime import datetime

from evenkeel.domain.model.groups import Bounds, PublishedBounds, State
from evenkeel.domain.model.values import BadValueError, read_count


def write_published(published: PublishedBounds, target: int, why: str) -> str:
    """Return the text of annotation ``evenkeel.dev/decision``: one JSON object.

    Args:
        published: The values on the object after the patch that writes this annotation.
        target: The planned replicas of the group.
        why: The plan's reasons, for people.
    """
    bounds = published.bounds
    return json.dumps(
        {
            **({} if bounds is None else {"min": bounds.min}),
            **({} if published.requested is None else {"requested": published.requested}),
            **({} if published.before is None else {"before": published.before}),
            "at": _moment(published.at),
            "state": published.state.value,
            **({"pinned": True} if published.pinned else {}),
            "target": target,
            **({} if bounds is None else {"max": bounds.max}),
            "why": why[:1024],
        },
        ensure_ascii=False,
    )


def _moment(at: datetime) -> str:
    return at.isoformat(timespec="seconds").replace("+00:00", "Z")


def write_adopted(bounds: Bounds | None) -> str:
    """Return the text of annotation ``evenkeel.dev/adopted-bounds``: ``"<min>,<max>"``, or ``"none"``."""
    return "none" if bounds is None else f"{bounds.min},{bounds.max}"


def read_adopted(text: str) -> Bounds | None:
    """Return the bounds that a group had before Evenkeel; None: the group had no bounds.

    Raises:
        BadValueError: The text is unreadable. Then ``restore`` cannot write the bounds back.
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
    """Return the last publication; None: there is no annotation, or it is unreadable.

    An unreadable annotation is no error. Evenkeel then treats the group as one that it has never written.
    """
    if not text:
        return None
    try:
        value = json.loads(text)
        at = datetime.fromisoformat(value["at"])
        bounds = Bounds(read_count(value["min"]), read_count(value["max"])) if "min" in value else None
        requested, before = (read_count(value[name]) if name in value else None for name in ("requested", "before"))
        state = State(value["state"])
    except (ValueError, TypeError, KeyError, RecursionError, BadValueError):
        return None
    if at.tzinfo is None or not 2000 < at.year < 2199:
        return None  # Evenkeel never writes such a time, and a stored item cannot contain it
    pinned = value.get("pinned") is True
    return PublishedBounds(at=at, bounds=bounds, state=state, requested=requested, before=before, pinned=pinned)


def is_unfinished(text: str | None) -> bool:
    """Return True if the annotation belongs to a write of several requests that has begun and not ended.

    Only Auto Scaling groups need several requests for one write.
    """
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return False
    return isinstance(value, dict) and value.get("unfinished") is True


def writer_of(text: str | None) -> str:
    """Return the stack and the cluster that wrote the annotation of an Auto Scaling group; empty: it names none.

    Two clusters or stacks may select one group. The annotation of one would look to the other like its own.
    """
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return ""
    writer = value.get("by") if isinstance(value, dict) else None
    return writer if isinstance(writer, str) else ""


def shortened(
    text: str, bounds: Bounds, length: int, *, writer: str, unfinished: bool, at: datetime | None = None
) -> str:
    """Return the annotation with these bounds, cut to a length that a tag can have. Only the reasons are cut.

    The text of an unfinished write says nothing about replicas, because they have not changed yet. ``at``: when the
    write has ended; None: the time of the text.
    """
    value = json.loads(text)
    reasons = str(value.pop("why", ""))
    for name in ("unfinished", *(("requested", "before") if unfinished else ())):
        value.pop(name, None)
    value |= {"min": bounds.min, "max": bounds.max, **({"unfinished": True} if unfinished else {})}
    value |= {"by": writer} if writer else {}
    value |= {"at": _moment(at)} if at is not None else {}
    while len(cut := json.dumps({**value, "why": reasons}, ensure_ascii=False, separators=(",", ":"))) > length:
        if not reasons:
            break
        reasons = reasons[: -(len(cut) - length)]
    return cut
