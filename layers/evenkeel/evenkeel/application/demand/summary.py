"""Demand's advice for a pool and for a cluster, as documents for programs and as sentences for people."""

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
from evenkeel.texts.english import MOST_NAMED, counted, rfc3339, sentence, some_names


def pool_demand(advice: PoolAdvice | None) -> DemandDocument | None:
    """Return the document for a pool; None: there is no advice."""
    if advice is None:
        return None
    return DemandDocument(
        pending=tuple(
            WaitingDocument(pods=_first(pods.pods), count=len(pods.pods), since=pods.since, zones=pods.zones)
            for pods in advice.asked.pending
        ),
        nodes={str(group): nodes for group, nodes in advice.asked.nodes.items()},
        unfit=(*map(_unfit, advice.asked.unfit), *_not_counted(advice.not_counted)),
        unneeded=tuple(_node(node) for node in advice.nodes if node.needed is None),
        needed=tuple(_node(node) for node in advice.nodes if node.needed is not None),
        says=tuple(_pool_sentences(advice)),
    )


def cluster_demand(advice: Advice | None) -> ClusterDemandDocument | None:
    """Return the document for a cluster; None: there is no advice."""
    if advice is None:
        return None
    return ClusterDemandDocument(
        unread=None if advice.unread is None else sentence(advice.unread),
        unmet=tuple(map(_unfit, advice.unmet)),
        not_counted=tuple(_not_counted(advice.not_counted)),
        fit_already=advice.fit_already,
        check_again=advice.check_again,
        says=tuple(_cluster_sentences(advice)),
    )


def unknown_in_order(name: str) -> str:
    """Return the problem of a name in ``expander_order`` that no pool has."""
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
    for (text, rule), names in _by_reason((pod.pod, pod.reason) for pod in pods).items():
        yield UnfitDocument(pods=_first(names), count=len(names), reason=text, rule=rule)


def _by_reason(entries: Iterable[tuple[str, Reason | None]]) -> Mapping[tuple[str, str], list[str]]:
    """Return the names, grouped by the sentence and the rule of their reason. Names without a reason are left out."""
    names: dict[tuple[str, str], list[str]] = defaultdict(list)
    for name, reason in entries:
        if reason is not None:
            names[sentence(reason), reason.rule.value].append(name)
    return names


def _node(node: NodeAdvice) -> NodeDocument:
    reason = node.needed or node.waits
    until = None if node.waits is None else node.waits.facts.get("until")
    return NodeDocument(
        node=node.node,
        group=str(node.group),
        reason=None if reason is None else sentence(reason),
        rule=None if reason is None else reason.rule.value,
        since=node.since,
        goes_at=until if isinstance(until, datetime) else None,
    )


# ---------------------------------------------------------------- sentences


def _pool_sentences(advice: PoolAdvice) -> Iterator[str]:
    asked = advice.asked
    for pods in asked.pending:
        zones = f" in zone {' or '.join(pods.zones)}" if pods.zones else ""
        yield f"{_waiting(pods)} for a node of this pool{zones}."
    if asked.nodes:
        shares = ", ".join(f"{nodes} for {group.name}" for group, nodes in asked.nodes.items())
        verb = "requests" if advice.is_ordered else "would request"
        yield f"This plan {verb} {counted(sum(asked.nodes.values()))}: {shares}."
    for unfit in asked.unfit:
        yield f"{_named(unfit.pods)} {_verb(unfit.pods, 'gets', 'get')} no node of this pool: {_by_group(unfit)}."
    yield from _node_sentences(advice.nodes)


def _node_sentences(nodes: Sequence[NodeAdvice]) -> Iterator[str]:
    if unneeded := [node.node for node in nodes if node.needed is None]:
        yield f"Unneeded of {counted(len(nodes))}: {some_names(unneeded)}."
    for (text, _), names in _by_reason((node.node, node.waits) for node in nodes).items():
        yield f"{some_names(names)} {_verb(names, 'stays', 'stay')} for now: {text}."
    if removed := [node.node for node in nodes if node.goes]:
        yield f"{some_names(removed)} {_verb(removed, 'is', 'are')} removed now."
    for node in nodes:
        if (drain := node.hangs) is not None:
            held = f", held by {_named(drain.pods)}" if drain.pods else ""
            yield f"{node.node} has been draining since {rfc3339(drain.since)}{held}."
    for (text, _), names in _by_reason((node.node, node.needed) for node in nodes).items():
        yield f"{some_names(names)} {_verb(names, 'is', 'are')} needed: {text}."


def _cluster_sentences(advice: Advice) -> Iterator[str]:
    if advice.unread is not None:
        text = sentence(advice.unread)
        yield f"{text[:1].upper()}{text[1:]}."
    for name in advice.unknown_order:
        yield f"{unknown_in_order(name)}."
    if advice.check_again is not None:
        yield f"Pending pods are too new to act on before {rfc3339(advice.check_again)}."
    if advice.fit_already:
        verb = "fits" if advice.fit_already == 1 else "fit"
        yield f"{counted(advice.fit_already, 'pending pod')} {verb} on existing or upcoming nodes."
    for unfit in advice.unmet:
        yield f"{_waiting(unfit)}, and no node is requested: {_all_pools(unfit)}."
    for (text, _), names in _by_reason((pod.pod, pod.reason) for pod in advice.not_counted).items():
        yield f"{_named(names)} {_verb(names, 'is', 'are')} not counted: {text}."


def _all_pools(unfit: Unfit) -> str:
    reasons = unfit.reason.facts.get("why")
    pools = [sentence(reason) for reason in reasons if isinstance(reason, Reason)] if isinstance(reasons, tuple) else []
    return "; ".join(pools) or sentence(unfit.reason)


def _by_group(unfit: Unfit) -> str:
    """Return one sentence if all groups have the same reason, which is usual. Otherwise return one for each reason."""
    groups = _by_reason((group.name, reason) for group, reason in sorted(unfit.by_group.items()))
    if len(groups) < 2:
        return sentence(unfit.reason)
    return "; ".join(f"{', '.join(names)}: {text}" for (text, _), names in groups.items())


def _waiting(pods: PendingPods | Unfit) -> str:
    return f"{_named(pods.pods)} {_verb(pods.pods, 'has', 'have')} been waiting since {rfc3339(pods.since)}"


def _verb(names: Sequence[str], one: str, several: str) -> str:
    return one if len(names) == 1 else several


def _named(pods: Sequence[str]) -> str:
    return f"{counted(len(pods), 'pod')} ({some_names(pods)})" if len(pods) > 1 else f"Pod {pods[0]}"


def _first(names: Sequence[str]) -> tuple[str, ...]:
    return tuple(names[:MOST_NAMED])
