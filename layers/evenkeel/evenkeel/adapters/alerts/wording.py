"""The lines of a notification. A cause that several clusters share is shown once, with its remedy.

A message from a cloud or an API server may contain any text. So it is shortened to one line without control characters,
and its links and mentions are disabled.
"""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime

from evenkeel.application.incidents.alerting import Alert
from evenkeel.domain.incidents.causes import Cause, CauseKind, ClusterIncident, causes_of
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import Change, Incident, IncidentKind, Severity
from evenkeel.domain.model.values import printable
from evenkeel.texts.english import counted, some_names
from evenkeel.texts.incidents import cause_text, cause_title, zone_todo_of_alert

# The largest number of lines, and of characters, that a message about several incidents has below its title. They fit
# the limits of the services: Teams accepts 28 KB, and Slack shows 4,000 characters in full.
_LINES = 20
_LONGEST_LIST = 3_700
# The largest length of a line in a list, and of a line about a single alert, in characters.
LONGEST_LINE = 180
LONGEST_TEXT = 600
_TITLES = {Change.OPENED: "Incident", Change.CHANGED: "Changed", Change.CLOSED: "Over"}

# Matches the scheme of a URL, or text that browsers read as a scheme, together with the host. Browsers read a backslash
# as a slash. A host without a scheme, such as host.example/path, does not match, because machine types and versions
# look the same.
_ADDRESS = re.compile(
    r"((?<![^\W_])(?:www\.|(?:https?|ftp|mailto|tel):(?=\S)[/\\]*)|:?[/\\]{2,})([\w.@:+-]*)", re.IGNORECASE
)

_Key = tuple[str, str]
_Block = tuple[int, list[str]]  # the number of alerts that the lines tell, and the lines


def message(alerts: Sequence[Alert]) -> tuple[str, list[str]]:
    """Return a title and lines: all details of a single alert, or the causes and then one line for each other alert."""
    if len(alerts) == 1:
        return _titled(alerts[0]), about(alerts[0])
    lines: list[str] = []
    told = 0
    for number, block in _blocks(alerts):
        size = sum(len(line) + 1 for line in (*lines, *block))
        if len(lines) + len(block) > _LINES or size > _LONGEST_LIST:
            break
        told += number
        lines += block
    more = [f"and {len(alerts) - told} more: evenkeel status"] if told < len(alerts) else []
    return _title(alerts), [*lines, *more]


def subject(alert: Alert) -> str:
    """Return the cluster of an alert, and its message."""
    return plain(f"{alert.cluster}: {alert.message}" if alert.cluster else alert.message)


def about(alert: Alert) -> list[str]:
    """Return the lines below the title of one alert."""
    remedy = [] if alert.is_over else [plain(alert.todo), plain(alert.command), _runbook(alert)]
    return [one_line(line, LONGEST_TEXT) for line in (subject(alert), *remedy) if line]


def one_line(text: str, longest: int) -> str:
    """Return the text as one line of at most this many characters."""
    text = " ".join(printable(text).split())
    return text if len(text) <= longest else f"{text[: longest - 1]}…"


def plain(text: str) -> str:
    """Return the text with links and mentions disabled. Evenkeel's own links are never passed to this function."""
    text = _ADDRESS.sub(lambda match: f"{match[1].replace(':', '[:]')}{match[2]}".replace(".", "[.]"), printable(text))
    return text.translate(str.maketrans("<>[]", "‹›()"))


def _title(alerts: Sequence[Alert]) -> str:
    """Return the number of incidents by severity, of ended incidents, and of clusters."""
    severities = Counter(alert.severity for alert in alerts if not alert.is_over)
    by_severity = ", ".join(f"{severities[severity]} {severity}" for severity in Severity if severities[severity])
    open_ones = severities.total()
    counts = [f"{counted(open_ones, 'incident')} ({by_severity})"] if open_ones else []
    counts += [f"{len(alerts) - open_ones} over"] if open_ones < len(alerts) else []
    clusters = counted(len({alert.cluster for alert in alerts}), "cluster")
    return f"{', '.join(counts)} in {clusters}"


def _titled(alert: Alert) -> str:
    severity = "" if alert.is_over else f" ({alert.severity})"
    return one_line(f"{_TITLES[alert.change]}{severity}: {subject(alert)}", LONGEST_LINE)


def _runbook(alert: Alert) -> str:
    return f"Runbook: {alert.runbook}" if alert.runbook else ""


def _blocks(alerts: Sequence[Alert]) -> Iterator[_Block]:
    """Yield the causes of open alerts and then all other open alerts; at the end, the alerts that are over."""
    for is_over in (False, True):
        of_this = [alert for alert in alerts if alert.is_over is is_over]
        by_key = {_key(alert): alert for alert in of_this}
        causes = causes_of(incident for alert in of_this if (incident := _incident(alert)) is not None)
        shared: set[_Key] = set()
        for cause in causes:
            members = {(each.cluster, each.incident.key) for each in cause.incidents}
            shared |= members
            yield len(members), list(_of_cause(cause, by_key, is_over=is_over))
        yield from ((1, [_titled(alert)]) for alert in of_this if _key(alert) not in shared)


def _of_cause(cause: Cause, alerts: Mapping[_Key, Alert], *, is_over: bool) -> Iterator[str]:
    """Yield the lines of a cause: the cause with its time, the clusters, the remedy, and the runbook."""
    clusters = plain(some_names(cause.clusters))
    if is_over:
        yield one_line(f"Over: {plain(cause_title(cause))}: {clusters}", LONGEST_LINE)
        return
    worst = alerts[cause.clusters[0], cause.worst.key]
    now = datetime.fromisoformat(max(alert.at for alert in alerts.values()))
    yield one_line(f"{cause.worst.kind.severity}: {plain(cause_text(cause, now))}", LONGEST_LINE)
    yield one_line(clusters, LONGEST_LINE)
    is_zone = cause.kind is CauseKind.ZONE
    todo = f"{zone_todo_of_alert()}: evenkeel status" if is_zone else f"{worst.todo}: {worst.command}"
    yield one_line(f"What to do: {plain(todo)}", LONGEST_TEXT)
    if worst.runbook:
        yield one_line(_runbook(worst), LONGEST_TEXT)


def _key(alert: Alert) -> _Key:
    return alert.cluster, f"{alert.pool}/{alert.kind}" if alert.pool else alert.kind


def _incident(alert: Alert) -> ClusterIncident | None:
    """Return the incident of an alert; None if a later version of Evenkeel has sent the alert."""
    try:
        kind, since = IncidentKind(alert.kind), datetime.fromisoformat(alert.since)
        failure_class = FailureClass(alert.failure_class) if alert.failure_class else None
    except ValueError:
        return None
    incident = Incident(
        kind=kind,
        since=since,
        pool=alert.pool,
        zones=tuple(map(plain, alert.zones)),  # a title takes them apart at slashes, which would hide an address
        missing=alert.missing,
        is_outage=alert.is_outage,
        failure_class=failure_class,
    )
    return ClusterIncident(cluster=alert.cluster, incident=incident)
