"""The texts of drills."""

from datetime import datetime

from evenkeel.domain.drill.drill import Drill
from evenkeel.texts.english import Facts, fill, rfc3339, texts


def drill_text(drill: Drill, now: datetime) -> str:
    """Return a drill in one line: its zone and time, who began it and why, and why it has ended."""
    drill, templates = drill.as_of(now), texts()["drill"]
    facts: Facts = {"zone": drill.zone, "by": drill.by, "reason": drill.reason}
    if (end := drill.ended) is None:
        return fill(templates["open"], {**facts, "until": rfc3339(drill.until)})
    why = {
        "incident": end.incident.value if end.incident is not None else "",
        "pool": end.pool.rpartition("/")[2],
        "other": end.zone,
        "ended_by": end.by,
        "end_reason": end.reason,
    }
    times = {"at": rfc3339(drill.at), "ended": rfc3339(end.at)}
    return fill(templates["ended"], {**facts, **times, "why": fill(templates[end.why.value], why)})
