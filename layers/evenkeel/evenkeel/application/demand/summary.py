"""What demand says of a pool and of a cluster: for programs, and in sentences for people."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime

from evenkeel.application.plan_documents import (
    ClusterDemandDocument,
    DemandDocument,
    NodeDocument,
    UnfitDocument,
    WaitingDocument,
)
from evenkeel.domain.model.demand import Advice, NodeAdvice, NotCounted, PendingPods, PoolAdvice, Unfit
from evenkeel.domain.model.reasons import Reason
from evenkeel.domain.model.values import quote
from evenkeel.texts.english import counted, rfc3339, sentence
from evenkeel.texts.pool_numbers import MOST_NAMED


def pool_demand(advice: PoolAdvice | None) -> DemandDocument | None:
    """None: nobody has asked."""
    if advice is None:
        return None
    return DemandDocument(
        pending=tuple(
            WaitingDocument(pods=_first(each.pods), count=len(each.pods), since=each.since, zones=each.zones)
            for each in advice.asked.pending
        ),
        nodes={str(group): nodes for group, nodes in advice.asked.nodes.items()},
        unfit=(*map(_unfit, advice.asked.unfit), *_not_counted(advice.not_counted)),
        unneeded=tuple(_node(node) for node in advice.nodes if node.needed is None),
        needed=tuple(_node(node) for node in advice.nodes if node.needed is not None),
        says=tuple(_of_pool(advice)),
    )


def cluster_demand(advice: Advice | None) -> ClusterDemandDocument | None:
    """None: nobody has asked."""
    if advice is None:
        return None
    return ClusterDemandDocument(
        unread=None if advice.unread is None else sentence(advice.unread),
        unmet=tuple(map(_unfit, advice.unmet)),
        not_counted=tuple(_not_counted(advice.not_counted)),
        fit_already=advice.fit_already,
        look_again=advice.look_again,
        says=tuple(_of_cluster(advice)),
    )


def unknown_in_order(name: str) -> str:
    """Return the problem of a name in the record's order that no pool has."""
    return f"expander_order names {quote(name)}, and the cluster has no such pool: correct the name or remove it"


def _unfit(unfit: Unfit) -> UnfitDocument:
    return UnfitDocument(
        pods=_first(unfit.pods),
        count=len(unfit.pods),
        since=unfit.since,
        reason=sentence(unfit.reason),
        rule=unfit.reason.rule.value,
        groups={str(group): sentence(reason) for group, reason in sorted(unfit.by_group.items())},
    )


def _not_counted(pods: Iterable[NotCounted]) -> Iterator[UnfitDocument]:
    """Those with one reason together."""
    for (words, rule), names in _by_reason((each.pod, each.reason) for each in pods).items():
        yield UnfitDocument(pods=_first(names), count=len(names), reason=words, rule=rule)


def _by_reason(entries: Iterable[tuple[str, Reason]]) -> Mapping[tuple[str, str], list[str]]:
    """Names by what is said of them, and by which rule; in the order in which they come."""
    found: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, reason in entries:
        found[sentence(reason), reason.rule.value].append(name)
    return found


def _node(node: NodeAdvice) -> NodeDocument:
    """Why it is needed, or where nobody needs it, why it does not go just now."""
    why = node.needed or node.waits
    return NodeDocument(
        node=node.node,
        group=str(node.group),
        reason=None if why is None else sentence(why),
        rule=None if why is None else why.rule.value,
        since=node.since,
        goes_at=_goes_at(node),
    )


def _goes_at(node: NodeAdvice) -> datetime | None:
    """When it may go; None: nobody can say yet."""
    until = None if node.waits is None else node.waits.facts.get("until")
    return until if isinstance(until, datetime) else None


# ---------------------------------------------------------------- sentences


def _of_pool(advice: PoolAdvice) -> Iterator[str]:
    asked = advice.asked
    for each in asked.pending:
        zones = f" in zone {' or '.join(each.zones)}" if each.zones else ""
        yield f"{_waiting(each)}, for a node of this pool{zones}."
    if asked.nodes:
        shares = ", ".join(f"{nodes} for {group.name}" for group, nodes in asked.nodes.items())
        verb = "is" if advice.is_ordered else "would be"
        yield f"It {verb} asked for {counted(sum(asked.nodes.values()))}: {shares}."
    for unfit in asked.unfit:
        yield f"No node of it for {_named(unfit.pods)}: {_by_group(unfit)}."
    idle = [node.node for node in advice.nodes if node.needed is None]
    if idle:
        yield f"Of its {counted(len(advice.nodes))}, nobody needs {_some(idle)}."
    for words, nodes in _together((node.node, node.waits) for node in advice.nodes):
        yield f"{_some(nodes)} {'stays' if len(nodes) == 1 else 'stay'} for now: {words}."
    if going := [node.node for node in advice.nodes if node.goes]:
        yield f"{_some(going)} {'goes' if len(going) == 1 else 'go'} now."
    for node in advice.nodes:
        if (hangs := node.hangs) is not None:
            held = f", held by {_named(hangs.pods)}" if hangs.pods else ""
            yield f"{node.node} is being drained since {rfc3339(hangs.since)}{held}."
    for words, nodes in _together((node.node, node.needed) for node in advice.nodes):
        yield f"Needed {'is' if len(nodes) == 1 else 'are'} {_some(nodes)}: {words}."


def _together(nodes: Iterable[tuple[str, Reason | None]]) -> Iterator[tuple[str, list[str]]]:
    """Those with one reason together; those without one are left out."""
    for (words, _), names in _by_reason((name, reason) for name, reason in nodes if reason is not None).items():
        yield words, names


def _of_cluster(advice: Advice) -> Iterator[str]:
    if advice.unread is not None:
        words = sentence(advice.unread)
        yield f"{words[:1].upper()}{words[1:]}."
    for name in advice.unknown_order:
        yield f"{unknown_in_order(name)}."
    if advice.look_again is not None:
        yield f"Pods that wait are too new to be judged before {rfc3339(advice.look_again)}."
    if advice.fit_already:
        waiting = "1 pod that waits has" if advice.fit_already == 1 else f"{advice.fit_already} pods that wait have"
        yield f"{waiting} room on nodes that are there or on their way."
    for unfit in advice.unmet:
        yield f"{_waiting(unfit)}, and no node is asked for: {_all_pools(unfit)}."
    for (words, _), names in _by_reason((each.pod, each.reason) for each in advice.not_counted).items():
        yield f"Not counted {'is' if len(names) == 1 else 'are'} {_named(names)}: {words}."


def _all_pools(unfit: Unfit) -> str:
    why = unfit.reason.facts.get("why")
    pools = [sentence(reason) for reason in why if isinstance(reason, Reason)] if isinstance(why, tuple) else []
    return "; ".join(pools) or sentence(unfit.reason)


def _by_group(unfit: Unfit) -> str:
    """Once where all zones say the same, which they often do."""
    said = _by_reason((group.name, reason) for group, reason in sorted(unfit.by_group.items()))
    if len(said) < 2:
        return sentence(unfit.reason)
    return "; ".join(f"{', '.join(groups)}: {words}" for (words, _), groups in said.items())


def _waiting(kind: PendingPods | Unfit) -> str:
    verb = "waits" if len(kind.pods) == 1 else "wait"
    return f"{_named(kind.pods)} {verb} since {rfc3339(kind.since)}"


def _named(pods: Sequence[str]) -> str:
    """How many, and the first of them by name."""
    return f"{counted(len(pods), 'pod')} ({_some(pods)})" if len(pods) > 1 else f"Pod {pods[0]}"


def _some(names: Sequence[str]) -> str:
    more = len(names) - MOST_NAMED
    return ", ".join(names[:MOST_NAMED]) + (f" and {more} more" if more > 0 else "")


def _first(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names[:MOST_NAMED])
