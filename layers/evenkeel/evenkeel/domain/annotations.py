"""The annotation ``evenkeel.dev/decision``: what was published last, for whom, and why.

It is written in the same patch as the bounds, so that the two can never disagree, and read back at the next look:
a group that has grown to the max it was offered is *at its bound*. `kubectl get -o yaml` shows it to people.
"""

import json
from datetime import datetime

from evenkeel.domain.model.groups import Bounds, Offer, Publication, State
from evenkeel.domain.model.values import BadValueError, read_count


def write_decision(
    offer: Offer,
    at: datetime,
    why: str,
    bounds: Bounds | None = None,
    *,
    requested: int | None = None,
    before: int | None = None,
) -> str:
    """The annotation's text: one JSON object.

    Args:
        offer: What is published.
        at: When.
        why: The plan's reasons, for people.
        bounds: Those that stand on the object after the same patch.
        requested: The replicas that stand there then; None: they are not said.
        before: The replicas before, where they have been changed.
    """
    return json.dumps(
        {
            **({} if bounds is None else {"min": bounds.min}),
            **({} if requested is None else {"requested": requested}),
            **({} if before is None else {"before": before}),
            "at": at.isoformat(timespec="seconds").replace("+00:00", "Z"),
            "state": offer.state.value,
            "target": offer.target,
            "max": offer.max if bounds is None else bounds.max,
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


def read_publication(text: str | None) -> Publication | None:
    """What we published and when, from the same annotation; None where it does not say."""
    try:
        found = json.loads(text or "")
        at = datetime.fromisoformat(found["at"])
        bounds = Bounds(read_count(found["min"]), read_count(found["max"]))
        requested, before = (read_count(found[name]) if name in found else None for name in ("requested", "before"))
    except (ValueError, TypeError, KeyError, RecursionError, BadValueError):
        return None
    if at.tzinfo is None or not 2000 < at.year < 2199:
        return None  # no moment that we wrote, nor one that a record could hold
    return Publication(at=at, bounds=bounds, requested=requested, before=before)


def read_offer(text: str | None) -> Offer | None:
    """The offer in an annotation, or None where there is none or somebody has edited it beyond reading.

    An unreadable one is not an error: without it, the group's own bounds stand in for what was published.
    """
    if text is None:
        return None
    try:
        found = json.loads(text)
        return Offer(max=read_count(found["max"]), target=read_count(found["target"]), state=State(found["state"]))
    except (ValueError, TypeError, KeyError, RecursionError, BadValueError):
        return None
