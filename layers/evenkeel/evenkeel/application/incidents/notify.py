"""A cluster's verdict: remembered with what is to be told of it, told, and then struck out.

Whoever comes after a run that was killed in between tells it again; it has the same key. What the bus does not take
stays in the outbox, and is news until it has been told. So whatever was told to begin is told to end.
"""

from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime
from typing import Any

from evenkeel.application.errors import AccessError, AccessRefusedError, EvenkeelError, TooLargeError
from evenkeel.application.plan_documents import problem_json
from evenkeel.application.ports import NAMELESS, DetailType, RunPorts, Versions
from evenkeel.domain.incidents.health import with_news
from evenkeel.domain.model.incidents import News, Trouble, TroubleKind, TroubleNews, Verdict
from evenkeel.texts.english import (
    command_line,
    problem_words,
    rfc3339,
    runbook,
    todo,
    trouble_headline,
    trouble_words,
)

# Why a run is asked for that finds no record any more.
UNREGISTERED = "unregistered"
# Why a run is asked for that only sends what a paused cluster has in its outbox.
PAUSED = "paused"
# More than an outbox holds.
_MOST_AT_ONCE = 1000
_DETAIL_TYPES: Mapping[News, DetailType] = {
    News.OPENED: DetailType.TROUBLE_OPENED,
    News.CHANGED: DetailType.TROUBLE_CHANGED,
    News.CLOSED: DetailType.TROUBLE_CLOSED,
}


def kind_of(error: EvenkeelError) -> TroubleKind:
    """What keeps us from reading a cluster."""
    if isinstance(error, TooLargeError):
        return TroubleKind.TOO_LARGE
    return TroubleKind.ACCESS if isinstance(error, AccessError | AccessRefusedError) else TroubleKind.UNREACHABLE


def keep_verdict(ports: RunPorts, cluster: str, before: Verdict, verdict: Verdict, versions: Versions) -> Verdict:
    """Remember the verdict and tell what is new in it. What is remembered and told already is neither again.

    Returns the verdict as it is remembered then.

    Raises StateConflictError: somebody else has judged meanwhile.
    """
    now = ports.clock.now()
    verdict = _stamped(with_news(verdict), now)
    if verdict != before:
        ports.store.save_verdict(cluster, verdict, versions)
    kept: tuple[TroubleNews, ...] = ()
    for news in verdict.outbox:
        # A beginning that is told after its own end would stay open for good.
        waits = any(each.key == news.key for each in kept)
        event = _event(cluster, news, now, ports.stack)
        if waits or not ports.bus.publish(_DETAIL_TYPES[news.news].value, event):
            kept = (*kept, news)
    if kept != verdict.outbox:
        verdict = replace(verdict, outbox=kept)
        ports.store.save_verdict(cluster, verdict, versions)
    return verdict


def _stamped(verdict: Verdict, now: datetime) -> Verdict:
    """With the moment at which each news was found, which stays however often it is told.

    Two rounds of a run may find news within one second: the order goes on from one to the other.
    """
    order = now.microsecond * _MOST_AT_ONCE
    outbox = tuple(
        replace(news, at=now, order=order + place) if news.at is None else news
        for place, news in enumerate(verdict.outbox)
    )
    return replace(verdict, outbox=outbox)


def _event(cluster: str, news: TroubleNews, now: datetime, stack: str) -> dict[str, Any]:
    """What is published. ``key``: the same for all that is told of one trouble, whoever tells it, however often.

    ``order``: which is the later of two that were found in the same second.
    """
    return {
        "key": f"{cluster}/{news.key}",
        "news": news.news.value,
        "cluster": cluster,
        "at": rfc3339(news.at or now),
        "order": news.order,
        **trouble_json(news.trouble, cluster, now, stack),
    }


def trouble_json(trouble: Trouble, cluster: str, now: datetime, stack: str = NAMELESS) -> dict[str, Any]:
    """A trouble for programs, and beside it the words for people."""
    return {
        "kind": trouble.kind.value,
        "pool": trouble.pool or None,
        "since": rfc3339(trouble.since),
        "seconds": max(0, int((now - trouble.since).total_seconds())),
        "zones": list(trouble.zones),
        "groups": list(trouble.groups),
        "missing": trouble.missing,
        "requested": trouble.requested,
        "running": trouble.running,
        "outage": trouble.is_outage,
        "rollout": trouble.is_rollout,
        "class": trouble.failure_class.value if trouble.failure_class else None,
        "said": trouble.said or None,
        "problems": [problem_json(problem) for problem in trouble.problems],
        "says": [problem_words(problem) for problem in trouble.problems],
        "headline": trouble_headline(trouble, now),
        "message": trouble_words(trouble, now),
        "todo": todo(trouble),
        "command": command_line(trouble, cluster, stack),
        "runbook": runbook(trouble),
    }
