"""The annotations ``evenkeel.dev/decision`` (the last publication) and ``evenkeel.dev/adopted-bounds``.

Evenkeel writes the decision in the same patch as the bounds, so both always match. The next check reads the decision to
find groups that have grown to the published max. People see the decision with `kubectl get -o yaml`.
"""

import json
from datetime import datetime
from typing import Any

from evenkeel.domain.model.groups import Bounds, PublishedBounds, State
from evenkeel.domain.model.values import BadValueError, read_count

_DETAILS = ("min", "max", "requested", "before", "target", "why")  # the numbers and the reasons of a decision
_UNTIL_ENDED = ("unfinished", "suspends", "since", "why")  # of a decision whose write has not ended


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
    """Return True if the decision belongs to a write of several requests that has begun and not ended.

    Only Auto Scaling groups need several requests for one write.
    """
    return _object(text).get("unfinished") is True


def may_be_suspended(text: str | None) -> bool:
    """Return True if the decision belongs to an unfinished write that suspends a process of the group."""
    return is_unfinished(text) and _object(text).get("suspends") is not False


def suspends_since(text: str | None) -> datetime | None:
    """Return when the unfinished writes of a group have begun; None: the decision does not show it.

    The last of them stores this time, because each of them may have suspended the process.
    """
    published, value = read_published(text), _object(text)
    return (_time(value.get("since")) or published.at) if published is not None and may_be_suspended(text) else None


def ended_at(text: str | None) -> datetime | None:
    """Return when the write of several requests has ended; None: it has not, or the decision does not show it."""
    return _time(_object(text).get("ended"))


def _time(value: object) -> datetime | None:
    try:
        at = datetime.fromisoformat(str(value))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


def writer_of(text: str | None) -> str:
    """Return the stack and the cluster that wrote the annotation of an Auto Scaling group; empty: it names none.

    Two clusters or stacks may select one group. The annotation of one would look to the other like its own.
    """
    writer = _object(text).get("by")
    return writer if isinstance(writer, str) else ""


def _object(text: str | None) -> dict[str, Any]:
    try:
        value = json.loads(text) if text else None
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def begun(text: str, bounds: Bounds, *, writer: str, suspends: bool, since: datetime | None = None) -> str:
    """Return the decision of a write of several requests, as it is stored before the first request.

    It says nothing about replicas, because they have not changed yet. ``bounds``: those before the write. ``writer``:
    the stack and the cluster. ``suspends``: True if the write suspends a process of the group. ``since``: the
    ``suspends_since`` of an earlier write that has not ended.
    """
    value = _without_details(text)
    value |= {"min": bounds.min, "max": bounds.max, "unfinished": True, **({} if suspends else {"suspends": False})}
    value |= {"since": _moment(since)} if since is not None else {}
    return _text(value, writer)


def ended(text: str, bounds: Bounds, *, writer: str, at: datetime | None, now: datetime) -> str:
    """Return the decision of a write of several requests, as it is stored after the last request.

    It has no reasons, because each check reads the decisions about all groups. ``bounds``: those after the write.
    ``writer``: the stack and the cluster. ``at``: the time of the decision; None: the time of the text. ``now``: when
    the write has ended.
    """
    value = {name: each for name, each in json.loads(text).items() if name not in _UNTIL_ENDED}
    value |= {"min": bounds.min, "max": bounds.max, "ended": now.isoformat()}
    return _text(value | ({"at": _moment(at)} if at is not None else {}), writer)


def for_tag(text: str, *, writer: str) -> str:
    """Return the decision for a tag: without numbers and reasons, because not every write changes the tag."""
    return _text(_without_details(text), writer)


def _without_details(text: str) -> dict[str, Any]:
    return {name: each for name, each in json.loads(text).items() if name not in _DETAILS}


def _text(value: dict[str, Any], writer: str) -> str:
    return json.dumps(value | ({"by": writer} if writer else {}), ensure_ascii=False, separators=(",", ":"))
