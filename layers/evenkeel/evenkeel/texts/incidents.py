"""The texts of incidents: the state, the remedy, the command and the runbook."""

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.incidents.causes import OWN_ACCOUNT, SHARED_BY, Cause, CauseKind
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.domain.model.problems import ProblemKind
from evenkeel.domain.model.reasons import Fact
from evenkeel.texts.english import counted, duration, fill, lasting, problem_text, texts

KIND_NAMES = {"stopped": "not checked"}  # kinds of incident that people know by another name
# The part of the texts of ``pods-wait`` that says what to do while pods cannot be read or evaluated.
_TODO_PARTS = {ProblemKind.PODS_UNREAD: "unread", ProblemKind.PODS_UNJUDGED: "unjudged"}
_MOST_OUT = 2  # pools that an outage names


def incident_text(incident: Incident, now: datetime) -> str:
    """Return an incident in one line: the pool, the state, since when, the zones and the cause."""
    texts_of_problems = [problem_text(problem, incident.flavour) for problem in incident.problems]
    problems = [text.removeprefix("over-committed: ") for text in texts_of_problems]
    facts = {
        "lasting": lasting(now - incident.since),
        "zones": _zones(incident.zones),
        "said": incident.message,
        "class": incident.failure_class.value if incident.failure_class else "",
        "missing": incident.missing,
        "total": counted(incident.requested),
        "nowhere": int(incident.missing > 0 and incident.is_outage),
        "outage": int(not incident.missing and incident.is_outage),
        "unproven": int(not incident.missing and not incident.is_outage),
        "not_reordered": incident.not_reordered,
        "unknown": int(_todo_part(incident) != "todo"),
        "problem": problems[0] if problems else "",
        "more": len(problems) - 1 if problems else 0,
    }
    text = fill(_text(incident, "text"), facts, incident.flavour)
    return f"{incident.pool.rpartition('/')[2]}: {text}" if incident.pool else text


def incident_headline(incident: Incident, now: datetime) -> str:
    """Return the line of ``incident_text``, but without the message of the cloud or of the API server."""
    return incident_text(incident if incident.kind is IncidentKind.CONTESTED else replace(incident, message=""), now)


def todo(incident: Incident) -> str:
    """Return what an operator can do. It has no full stop, because a command follows it."""
    dry = "In dry run Evenkeel writes nothing here" if incident.in_dry_run else ""
    return fill(_todo(incident), {"dry": dry}, incident.flavour)


def _todo(incident: Incident) -> str:
    if _waits_only_for_order(incident):
        return str(texts()["missing"]["not_reordered"])
    if incident.kind is IncidentKind.MISSING and incident.is_rollout:
        return str(texts()["missing"]["rollout"])
    if incident.kind is IncidentKind.MISSING and incident.failure_class is not None:
        return str(texts()["missing"][incident.failure_class.value])
    return _text(incident, _todo_part(incident))


def _todo_part(incident: Incident) -> str:
    return _TODO_PARTS.get(incident.problems[0].kind, "todo") if incident.problems else "todo"


def explains(incident: Incident) -> bool:
    """Return True if the incident's command is ``explain``, which only shows more details."""
    return _text(incident, "command").startswith("explain")


def command_line(incident: Incident, cluster: str, stack: str) -> str:
    """Return the command to run, quoted for a shell."""
    region = str(incident.problems[0].facts.get("region", "")) if incident.problems else ""
    facts = {"pool": incident.pool, "stack": stack, "region": region}
    action, *options = [fill(word, facts) for word in _text(incident, "command").split()]
    if action == "aws":
        return shlex.join([action, *options, *_lost_tags(incident)])
    return shlex.join(["evenkeel", action, "--stack", stack, "--cluster", cluster, *options])


def _lost_tags(incident: Incident) -> list[str]:
    """Return the tags that groups have lost, as arguments of a command. A tag without a known value gets "true"."""
    words = []
    for group in incident.problems:
        tags = group.facts.get("tags")
        for tag in tags if isinstance(tags, tuple) else ():
            key, _, value = str(tag).partition("=")
            name = f"ResourceType=auto-scaling-group,ResourceId={group.facts['group']}"
            words.append(f"{name},Key={key},Value={value or 'true'},PropagateAtLaunch=false")
    return words


def outage_text(pools: Sequence[str]) -> str:
    """Return the text for pools whose zones are all fenced or probing. It names two of them, as cluster/pool."""
    named, more = pools[:_MOST_OUT], len(pools) - _MOST_OUT
    others = f" and {counted(more, 'other pool')}" if more > 0 else ""
    return f"outage: no zone is known to deliver for {', '.join(named)}{others}"


def sharers(clusters: int, pools: int) -> str:
    """Return how many share a cause; of fewer than three clusters also the number of their pools."""
    text = counted(clusters, "cluster")
    return text if clusters >= SHARED_BY else f"{counted(pools, 'pool')} of {text}"


def cause_title(cause: Cause) -> str:
    """Return what the clusters share: the zone with its names, or the incident."""
    template = str(texts()["causes"][cause.kind.value]["title"])
    if cause.kind is CauseKind.OUTAGE:
        return template
    if cause.kind is CauseKind.INCIDENT:
        name = fill(_text(cause.worst, "name"), {"said": cause.worst.message})
        return fill(template, {"name": name, "class": ", ".join(cause.classes)})
    names = cause.zone_names
    account, _, name = cause.subject.rpartition("/")
    facts = {"place": f"{name} of {account}" if account not in ("", OWN_ACCOUNT) else name}
    facts["names"] = "" if name in names else ", ".join(names)
    return fill(template, facts)


def cause_text(cause: Cause, now: datetime) -> str:
    """Return a cause in one line: what the clusters share, their number, since when."""
    classes = ", ".join(cause.classes) if cause.is_of_zone else ""
    facts: dict[str, Fact] = {
        "title": cause_title(cause),
        "sharers": sharers(len(cause.clusters), cause.pools),
        "missing": cause.missing,
        "several": cause.missing_in_several,
        "lasting": lasting(now - cause.since),
        "since": cause.since,
        "classes": classes,
    }
    return fill(texts()["causes"]["text"], facts)


def cause_todo(cause: Cause, now: datetime) -> str:
    """Return what an operator can do about a cause, without a full stop."""
    dry = _dry_run_of(cause)
    if cause.kind is not CauseKind.ZONE:
        return fill(_todo(cause.worst), {"dry": dry}, cause.worst.flavour)
    until = cause.fenced_until
    left = duration((until - now).total_seconds()) if until is not None and now < until else ""
    scope = "this cluster" if len(cause.clusters) == 1 else "every cluster that has the zone"
    text = "dry" if cause.is_in_dry_run else "fenced" if left else "todo"
    return fill(texts()["causes"]["zone"][text], {"left": left, "scope": scope, "dry": dry})


def _dry_run_of(cause: Cause) -> str:
    """Return which pools of a cause are in dry run; empty if none is."""
    dry = cause.in_dry_run
    whose = f"{dry} of {len(cause.incidents)} pools {'is' if dry == 1 else 'are'}"
    if cause.is_in_dry_run:
        whose = "This cluster is" if len(cause.clusters) == 1 else "These clusters are"
    return f"{whose} in dry run: Evenkeel writes nothing there" if dry else ""


def zone_todo_of_alert() -> str:
    """Return what an operator can do about a zone, for alerts. They know its name, which two accounts may share."""
    return str(texts()["causes"]["zone"]["alert"])


def cause_command(cause: Cause, stack: str, selector: str = "") -> str:
    """Return the command to run: for the selected clusters or the only one; for the worst if no fence helps."""
    if cause.kind is not CauseKind.ZONE or cause.is_in_dry_run:
        return command_line(cause.worst, cause.clusters[0], stack)
    name = cause.subject.rpartition("/")[2]
    form = "name" if name in cause.zone_names else "id"
    action, *options = fill(texts()["causes"]["zone"][form], {"place": name}).split()
    scope = ["--selector", selector] if selector else ["--all"]
    scope = ["--cluster", cause.clusters[0]] if len(cause.clusters) == 1 else scope
    return shlex.join(["evenkeel", action, "--stack", stack, *options[:2], *scope, *options[2:]])


def runbook(incident: Incident, runbooks: str) -> str:
    """Return the place of the incident's section. ``runbooks``: the URL or file of the runbooks."""
    if incident.is_rollout and not _waits_only_for_order(incident):
        return f"{runbooks}#a-rollout-in-a-zone-that-is-out"
    is_missing = incident.kind is IncidentKind.MISSING and not _waits_only_for_order(incident)
    kind = incident.failure_class.value if is_missing and incident.failure_class else ""
    return f"{runbooks}#{kind or incident.kind.value}"


def _text(incident: Incident, part: str) -> str:
    return str(texts()["incidents"][incident.kind.value][part])


def _zones(zones: tuple[str, ...]) -> str:
    """Return the zones, with their common region only once, which leaves more space for the cloud's message."""
    region = zones[0][:-1] if zones else ""
    if region and all(zone[:-1] == region for zone in zones):
        zones = (zones[0], *(zone[-1] for zone in zones[1:]))
    return ", ".join(zones)


def _waits_only_for_order(incident: Incident) -> bool:
    """Return True if every missing node is a released replica that no autoscaler has ordered yet.

    If some of the missing nodes were ordered, the texts are about their machines.
    """
    return 0 < incident.not_reordered == incident.missing
