"""Why a group's bounds and replicas are what they are, which rule set each number, and what would let it grow.

Every number comes from the plan that is explained: the sentences are made from it, not beside it.
"""

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from evenkeel.application.preview import Preview, ago
from evenkeel.application.status import span
from evenkeel.application.words import origin_words, problem_words, rfc3339, sentence
from evenkeel.domain.membership.numbers import POOL_MAX, POOL_MIN, origin
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.pools import AnyPool, rule_of
from evenkeel.domain.model.reasons import KEEPING, Reason, Rule, Topic

_TOLD = 3  # decisions


# The name of the rule that has set a number, before its reason.
_NAMES: Mapping[Rule, str] = {
    **dict.fromkeys((Rule.FENCE, Rule.PROBE), "fence"),
    **dict.fromkeys((Rule.TAKES_ON, Rule.MOVED, Rule.MOVE_UNDER_WAY), "move"),
    **dict.fromkeys((*KEEPING, Rule.REQUEST_NO_SHARE, Rule.CLOSED_AT_ZERO), "held"),
    **dict.fromkeys((Rule.STRATEGY, Rule.LAST_BOUNDS_STAY, Rule.NO_LAST_BOUNDS), "strategy"),
    **dict.fromkeys((Rule.WORKER_SHARE, Rule.ZONE_MAX, Rule.MAX_BELOW_REQUESTED), "safety pass"),
    **dict.fromkeys((Rule.OWNER_MIN_MAX, Rule.MIN_ABOVE_REQUESTED), "safety pass"),
    **dict.fromkeys((Rule.RESTORED, Rule.RESTORED_TO_NONE), "restore"),
    **dict.fromkeys((Rule.POOL_MINIMUM, Rule.PROBE_FOR_MINIMUM, Rule.OWN_MINIMUM), "raise"),
    **dict.fromkeys((Rule.REQUEST_SHARE, Rule.GIVES_BACK), "request"),
    Rule.RELEASED: "release",
    Rule.TAKEN_BACK: "take-back",
    Rule.PROBE_UNSEEN: "probe",
}


def named(reason: Reason) -> str:
    """A reason in words, after the name of its rule where it has set a number."""
    set_a_number = reason.rule.topic not in (Topic.STATE, Topic.NOTE)
    return f"{_NAMES[reason.rule]}: {sentence(reason)}" if set_a_number else sentence(reason)


def explain_pool(look: Preview, planned: PoolPlan) -> list[str]:
    """The pool in sentences: its numbers and where they stand, what is left of PoolMaximum, what is wrong."""
    pool, policy = look.pool(planned.id), look.record.policy()
    requested = sum(plan.requested for plan in planned.groups)
    sentences = [
        f"Pool {planned.id} is sized by {planned.strategy.name} ({_strategy_from(look, pool)}).",
        *(
            f"{word} is {number}: {origin_words(origin(pool, policy, field))}."
            for word, number, field in (
                ("PoolMinimum", planned.min, POOL_MIN),
                ("PoolMaximum", planned.max, POOL_MAX),
            )
            if number is not None
        ),
    ]
    if planned.valid and planned.max is not None:
        over = requested - planned.max
        room = f"{over} more than PoolMaximum allows" if over > 0 else f"{planned.headroom} more may come"
        offered = sum(max(0, plan.bounds.max - plan.requested) for plan in planned.groups if plan.bounds)
        if offered != planned.headroom:
            room += f", and the maxima of its zones leave room for {offered}"
        sentences.append(f"Its zones request {requested} of {planned.max}: {room}.")
    if look.remembered.control.restores(planned.id):
        sentences.append("It is being restored, in dry run too: what stands below of it is written with the next look.")
    if not planned.valid:
        sentences.append("It is invalid, so nothing of it is written until that is mended.")
    return sentences + [f"Problem: {problem_words(problem)}." for problem in planned.problems]


def explain_group(look: Preview, pool: PoolPlan, plan: GroupPlan) -> list[str]:
    """One group in sentences: its state and since when, replicas, max, min, and what would let it grow."""
    group = plan.group
    state = {**look.remembered.state.groups, **look.plan.states}.get(group.key)
    zone = look.remembered.zones.get(group.zone or "")
    since, until = span(plan, state, zone, look.pool(pool.id).backoff, look.now)
    about: dict[Topic, list[str]] = {}
    for reason in plan.reasons:
        about.setdefault(reason.rule.topic, []).append(named(reason))
    age = "" if since is None else f" since {rfc3339(since)} ({ago(look.now - since)})"
    end = "" if until is None else f", until {rfc3339(until)}"
    old, new = group.bounds, plan.bounds
    own = [] if not pool.valid else about.get(Topic.MIN, [])
    sentences = [
        _said(
            f"Node group {group.key} in zone {group.zone or '?'} is {plan.state.value}{age}{end}",
            about.get(Topic.STATE),
        ),
        _said(
            f"Requested {_step(group.requested, plan.requested)}, running {group.running}", about.get(Topic.REQUESTED)
        ),
        _said(f"Max {_step(old.max if old else None, new.max if new else None)}", about.get(Topic.MAX)),
        _said(f"Min {_step(old.min if old else None, new.min if new else None)}", _minimum(pool, plan) + own),
        *(f"{note[:1].upper()}{note[1:]}." for note in about.get(Topic.NOTE, [])),
        _growth(pool, plan, until),
    ]
    if state is not None and state.last_failure is not None and plan.state in (State.FENCED, State.PROBING):
        failed = f"Its last failure was at {rfc3339(state.last_failure)} ({ago(look.now - state.last_failure)})"
        words = " ".join(state.message.split()).rstrip(".") or state.failure_class.value
        sentences.append(f"{failed}: {words}.")
    if group.publication is not None:
        published = group.publication
        sentences.append(
            f"Its bounds were last written at {rfc3339(published.at)} ({ago(look.now - published.at)}), "
            f"to {published.bounds.min} and {published.bounds.max}."
        )
    adopted = pool.adopted.get(str(group.key))
    if group.has_adopted or str(group.key) in pool.remembered.adopted:
        before = "no bounds" if adopted is None else f"{adopted.min} to {adopted.max}"
        sentences.append(f"Before Evenkeel it had {before}: its adopted bounds, which restore puts back.")
    return sentences


def history(decisions: Iterable[Mapping[str, Any]], names: Iterable[str], now: datetime) -> list[str]:
    """The last decisions that changed one of these groups, and what people asked for, in sentences; names are keys."""
    wanted = set(names)
    told: list[str] = []
    for decision in decisions:
        if "pool" not in decision and len(told) < _TOLD:
            when = f"{decision['at']} ({ago(now - datetime.fromisoformat(decision['at']))})"
            told.append(f"At {when}: {decision['cause']}, asked for by {decision['by'] or 'nobody named'}.")
        for group in (decision.get("pool") or {}).get("groups", []):
            key = f"{group['flavour']}/{group['namespace']}/{group['name']}"
            if key not in wanted or group.get("outcome") == "left alone" or len(told) >= _TOLD:
                continue
            steps = ", ".join(
                f"{name} {_step(group[name]['from'], group[name]['to'])}"
                for name in ("requested", "max", "min")
                if group[name]["from"] != group[name]["to"]
            )
            at = datetime.fromisoformat(decision["at"])
            told.append(
                f"At {decision['at']} ({ago(now - at)}, {decision['cause']}): {group['name']}: {steps or 'no change'}: "
                f"{'; '.join(group['reasons'])}: {group['outcome']}."
            )
    return told


def _strategy_from(look: Preview, pool: AnyPool) -> str:
    said = [group for group in pool.groups if group.strategy is not None]
    rule = rule_of(pool.id, look.record.policy())
    if said:
        return f"annotation evenkeel.dev/strategy on {said[0].key}"
    if rule is not None and rule.strategy is not None:
        return f"the record's strategy for pool {rule.name}"
    return "the record's strategy, Balanced unless it says otherwise"


def _minimum(pool: PoolPlan, plan: GroupPlan) -> list[str]:
    if not pool.valid or pool.min is None or plan.state is State.FROZEN or plan.leaves:
        return []
    return [f"strategy: {pool.strategy.sentence_of_min.format(minimum=pool.min)}"]


def _growth(pool: PoolPlan, plan: GroupPlan, until: datetime | None) -> str:
    """How far the group may grow, by its max; where it may not, what would have to change."""
    group, top = plan.group, plan.bounds.max if plan.bounds else None
    kept = [] if pool.valid else ["its pool is invalid"]
    if plan.state is State.FROZEN:
        kept.append("it is frozen: " + (group.frozen_because or "resume ends it"))
    unseen = [] if group.closed_because is None else [group.closed_because]
    closed = unseen if plan.requested == 0 else []
    against = _obstacles(pool, plan, until) + ([] if closed else unseen)
    if top is None and any(fault.field.endswith(("size", "Replicas")) for fault in group.faults):
        return f"Nobody can read its bounds: {'; '.join(kept)}."
    if top is None and not closed:
        return "It can grow as far as whoever orders machines likes: it has no bounds."
    top = top if group.worker_range is None or top is None else min(top, group.worker_range.max)
    more = 0 if top is None else top - plan.requested
    if more <= 0 or closed:
        spent = closed + kept + against
        return f"It cannot grow now: {'; '.join(spent) if spent else _spent(plan)}."
    if kept:
        return f"Its bounds leave room for {more} more, to {top}, and are left alone: {'; '.join(kept)}."
    probing = plan.state is State.PROBING and not plan.leaves
    probe = ", until a new node shows that the zone delivers" if probing else ""
    although = f", although {'; '.join(against)}" if against else ""
    return f"It may grow by {more}, to {top}{probe}{although}."


def _obstacles(pool: PoolPlan, plan: GroupPlan, until: datetime | None) -> list[str]:
    """What speaks against growth, each with what would have to change."""
    group, found = plan.group, []
    if plan.state is State.FENCED:
        found.append("it is fenced" if until is None else f"its fence ends at {rfc3339(until)}")
    requested = sum(one.requested for one in pool.groups)
    if pool.valid and pool.max is not None and requested >= pool.max:
        over = requested - pool.max
        rise = "PoolMaximum has to rise" + (", or another zone to shrink" if len(pool.groups) > 1 and not over else "")
        found.append(
            f"the pool requests {requested} of PoolMaximum {pool.max}: "
            + (f"what is beyond it has to go first, or {rise}" if over else rise)
        )
    if group.zone_max is not None and plan.requested >= group.zone_max:
        found.append(f"evenkeel.dev/zone-max is {group.zone_max}")
    reach = max(plan.requested, plan.bounds.max - 1) if plan.bounds else plan.requested
    if group.worker_range is not None and reach >= group.worker_range.max:
        found.append(f"its Worker allows {group.worker_range.max} in this zone")
    return found


def _spent(plan: GroupPlan) -> str:
    """Why max is no more than what is requested, where nothing else says so."""
    if any(reason.rule is Rule.MOVE_UNDER_WAY for reason in plan.reasons):
        return "its max rises again once what is on its way has come"
    if plan.leaves:
        return "its bounds from before Evenkeel allow no more"
    return "its max is what it requests: a larger PoolMaximum would raise it"


def _step(before: int | None, after: int | None) -> str:
    if before == after:
        return f"stays {_shown(after)}"
    return f"goes from {_shown(before)} to {_shown(after)}"


def _shown(number: int | None) -> str:
    return "unset" if number is None else str(number)


def _said(sentence: str, reasons: list[str] | None) -> str:
    return f"{sentence}: {'; '.join(reasons)}." if reasons else f"{sentence}."
