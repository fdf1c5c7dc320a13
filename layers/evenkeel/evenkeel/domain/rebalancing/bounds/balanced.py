"""Balanced, our own strategy: the headroom of a pool dealt out once, to where it can be used.

The maxima add up to PoolMaximum, so no number of autoscaler loops can pass it. What was dealt stands long enough for
every loop to read it; what a zone has used up is followed by more where the other zones stand still meanwhile: then
only that zone can serve the demand. The pool remembers what it has dealt, for that (``Publication``). Where pods
are seen, nobody has to guess: headroom is lent to the zones that they wait for, and nothing wanders.

The steps are numbered as in docs/strategies.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.model.choices import Size, Strategy
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import Publication
from evenkeel.domain.model.water_fill import Bucket, water_fill


def _balanced(pool: PoolDraft) -> list[Size]:
    """Size every group, as before where nothing calls for a change. Leaves in the draft what to remember of it."""
    deal = _Deal(pool.pool.max, pool.groups)
    last = pool.pool.state.published
    targets = {draft.key: draft.requested for draft in pool.groups}
    grower = pool.grower or (last.grower if last else "")
    fresh = Publication(at=pool.now, basis=deal.basis, targets=targets, grower=grower)
    ends: datetime | None = None
    if last is None or last.basis != deal.basis:
        deal.level_out(grower, 0)
        publication = fresh
    elif last.targets != targets:
        publication, ends = _after_change(pool, deal, last, fresh)
    else:
        deal, publication = _after_quiet(pool, deal, last, fresh)
    if pool.awaited and not deal.serves(pool.awaited):
        deal = _Deal(pool.pool.max, pool.groups)
        deal.serve(pool.awaited)
        deal.level_out(grower, 0)
        stands = last is not None and last.is_for(fresh) and deal.is_as(last)
        publication, ends = last if stands and last else replace(fresh, lent=True), None
    sizes = deal.sizes(pool.pool.min)
    if publication is not last and ends is None:
        maxima = {draft.key: size.max for draft, size in zip(pool.groups, sizes, strict=True)}
        publication = replace(publication, maxima=maxima)
    if ends is None and (publication.lent or deal.is_scarce) and pool.now < publication.stands_until:
        ends = publication.stands_until
    pool.publication, pool.deal_ends = publication, ends
    return sizes


def _after_change(
    pool: PoolDraft, deal: "_Deal", last: Publication, fresh: Publication
) -> tuple[Publication, datetime | None]:
    """Something of the pool's requested has changed: lend to those at their bound, or level out anew.

    Until the others have stood still for long enough, what was dealt stays; until when, if so.
    """
    guesses = pool.awaited is None and not deal.is_scarce
    at_bound = deal.at_their_bound(last) if guesses else []
    if not at_bound:
        deal.level_out(fresh.grower, 0)
        return fresh, None
    still_until = pool.snapshot.since + pool.pool.standstill
    if pool.now < still_until:
        deal.keep(last, Reason.of(Rule.HEADROOM_STANDS_GROWING))
        return replace(last, grower=fresh.grower), still_until
    deal.lend(at_bound)
    return replace(fresh, lent=True), None


def _after_quiet(pool: PoolDraft, deal: "_Deal", last: Publication, fresh: Publication) -> tuple["_Deal", Publication]:
    """Nothing has changed: what was dealt stands, until it has been read; unused, it goes back or wanders on."""
    if pool.now < last.stands_until:
        deal.level_out(last.grower, last.turn)
        if not deal.is_as(last):
            deal = _Deal(pool.pool.max, pool.groups)
            deal.keep(last, Reason.of(Rule.HEADROOM_STANDS_UNREAD))
        return deal, last
    if last.lent and pool.awaited:
        # Pods still wait for it: for as long as it serves them, it stays.
        deal.keep(last, Reason.of(Rule.HEADROOM_AWAITED))
        return deal, last
    if last.lent or not deal.is_scarce:
        # What was lent and not used goes back. Else nothing changes: the same deal for the same pool.
        deal.level_out(last.grower, 0)
        return deal, replace(fresh, grower=last.grower) if last.lent else last
    if pool.awaited is not None:
        deal.level_out(last.grower, last.turn)  # nobody waits for the last nodes
        return deal, last
    # Nobody has used the last nodes where they are.
    deal.level_out(last.grower, last.turn + 1)
    return deal, replace(fresh, grower=last.grower, turn=last.turn + 1)


class _Deal:
    """One deal: who takes part, what is left, and who has got what and why."""

    def __init__(self, maximum: int, drafts: Sequence[Draft]) -> None:
        self._drafts = drafts
        self._states = [_state(draft) for draft in drafts]
        self._targets = [draft.requested for draft in drafts]
        self._keys = [draft.key for draft in drafts]
        self._steps: list[list[Reason]] = [[] for _ in drafts]
        self._live = [i for i, state in enumerate(self._states) if state is not State.FROZEN]
        # 1. What is left of PoolMaximum. A frozen group keeps its bounds, so its room is spoken for; an owner that
        # accepts no max of 0 takes its one node of headroom first, or the sum would pass PoolMaximum.
        self._extra = [draft.kept_room for draft in drafts]
        self._left = max(0, maximum - sum(self._targets) - sum(self._extra))
        self._headroom = self._left
        caps = [draft.cap for draft in drafts]
        # How far the operator lets each grow beyond its target. Without a cap, never less than what is left.
        self._caps = [maximum if cap is None else cap - target for cap, target in zip(caps, self._targets, strict=True)]
        for i in self._live:
            if (short := drafts[i].group.owner_min_max - self._targets[i]) > 0:
                share = min(short, self._left)
                self._extra[i] += share
                self._left -= share
        self._healthy = [i for i in self._live if self._states[i] is State.HEALTHY and self._caps[i] > 0]
        self._smallest_first = sorted(self._live, key=lambda i: (self._targets[i], drafts[i].tie))
        # 2. A probe is one machine. (A fenced group gets nothing: its max is its target.)
        self._probing = [i for i in self._smallest_first if self._may_probe(i)]
        self.is_scarce = 0 < self._left < len(self._healthy) + len(self._probing)
        if not self.is_scarce:
            for i in self._probing:
                self._give(i, self._drafts[i].probe, Reason.of(Rule.HEADROOM_PROBE))
        self.basis = f"{maximum} " + " ".join(
            [_basis(draft, state, cap) for draft, state, cap in zip(drafts, self._states, caps, strict=True)]
        )

    def _may_probe(self, i: int) -> bool:
        probes = self._states[i] is State.PROBING and self._drafts[i].probe > 0
        return probes and self._caps[i] > 0 and not self._extra[i]

    def _give(self, i: int, nodes: int, reason: Reason) -> None:
        share = min(nodes, self._left, self._caps[i] - self._extra[i])
        if share > 0:
            self._extra[i] += share
            self._left -= share
            self._steps[i].append(reason)

    def keep(self, last: Publication, reason: Reason) -> None:
        """3. What was published stays as it is, as far as there is headroom for it."""
        for i in self._healthy + self._probing:
            self._give(i, last.maxima.get(self._keys[i], 0) - self._targets[i] - self._extra[i], reason)

    def is_as(self, last: Publication) -> bool:
        """Whether what has been dealt is what was published."""
        return all(
            self._targets[i] + self._extra[i] == last.maxima.get(self._keys[i]) for i in self._healthy + self._probing
        )

    def at_their_bound(self, last: Publication) -> list[int]:
        """The groups that have used up what they were offered, while others with headroom stand where they stood."""
        used_up = []
        others = False
        for i, (key, target, state) in enumerate(zip(self._keys, self._targets, self._states, strict=True)):
            before, offered = last.targets.get(key), last.maxima.get(key)
            if before is None or offered is None:
                return []
            if state is State.HEALTHY and target == offered > before:
                used_up += [i] if self._caps[i] > 0 else []
            elif target != before:
                return []
            else:
                others |= state is State.HEALTHY and offered > before
        return used_up if others else []

    def serves(self, awaited: Mapping[str, int]) -> bool:
        """Whether every group has what pods wait for there, as far as it may have it."""
        return all(self._extra[i] >= nodes for i, nodes in self._awaited(awaited))

    def serve(self, awaited: Mapping[str, int]) -> None:
        """4. What pods wait for there; where headroom does not suffice for all, levelled."""
        wanted = [(i, nodes - self._extra[i]) for i, nodes in self._awaited(awaited) if nodes > self._extra[i]]
        buckets = [Bucket(level=0, room=nodes, tie=self._drafts[i].tie) for i, nodes in wanted]
        for (i, _), more in zip(wanted, water_fill(buckets, self._left), strict=True):
            self._give(i, more, Reason.of(Rule.HEADROOM_AWAITED))

    def _awaited(self, awaited: Mapping[str, int]) -> list[tuple[int, int]]:
        groups = self._healthy + self._probing
        return [(i, min(awaited.get(self._keys[i], 0), self._most(i))) for i in groups]

    def _most(self, i: int) -> int:
        """How far it may grow at once. A zone that is tried is tried with one machine."""
        return self._caps[i] if self._states[i] is State.HEALTHY else self._drafts[i].probe

    def lend(self, at_bound: Sequence[int]) -> None:
        """4. All of the headroom but one node for each other healthy group."""
        self._one_each(set(self._healthy) - set(at_bound))
        buckets = [Bucket(level=0, room=self._caps[i] - self._extra[i], tie=self._drafts[i].tie) for i in at_bound]
        for i, more in zip(at_bound, water_fill(buckets, self._left), strict=True):
            self._give(i, more, Reason.of(Rule.HEADROOM_LENT))
        self._level_rest()  # what their caps leave of it

    def level_out(self, grower: str, turn: int) -> None:
        """5 and 6. The last nodes to one after the other; else one for each healthy group, and the rest levelled."""
        if self.is_scarce:
            self._last_nodes(grower, turn)
            return
        self._one_each(set(self._healthy))
        self._level_rest()

    def _one_each(self, groups: set[int]) -> None:
        for i in self._smallest_first:
            if not self._extra[i] and i in groups:
                self._give(i, 1, Reason.of(Rule.HEADROOM_ONE))

    def _last_nodes(self, grower: str, turn: int) -> None:
        healthy, probing = set(self._healthy), set(self._probing)
        order = [i for i in self._smallest_first if i in healthy or i in probing]
        order.sort(key=lambda i: (self._keys[i] != grower, i not in probing))
        start = turn % len(order)
        order = order[start:] + order[:start]
        if self._keys[order[0]] == grower and order[0] in healthy:
            self._give(order[0], self._left, Reason.of(Rule.HEADROOM_LAST_STAY))
        reason = Reason.of(Rule.HEADROOM_LAST_UNUSED if turn else Rule.HEADROOM_LAST)
        for i in order:
            self._give(i, 1, reason)
        for i in order:
            self._give(i, self._left if i in healthy else 0, reason)

    def _level_rest(self) -> None:
        if not self._left:
            return
        buckets = [
            Bucket(
                level=self._targets[i] + self._extra[i],
                room=self._caps[i] - self._extra[i],
                weight=self._drafts[i].group.weight,
                tie=self._drafts[i].tie,
            )
            for i in self._healthy
        ]
        levelled = Reason.of(Rule.HEADROOM_LEVELLED)
        for i, more in zip(self._healthy, water_fill(buckets, self._left), strict=True):
            self._give(i, more, levelled)

    def sizes(self, minimum: int) -> list[Size]:
        """7. With PoolMinimum levelled over the groups, never above what is there."""
        minima = [
            draft.group.bounds.min if state is State.FROZEN and draft.group.bounds is not None else 0
            for draft, state in zip(self._drafts, self._states, strict=True)
        ]
        for i in self._live:
            minima[i] = self._drafts[i].zone_share
        buckets = [
            Bucket(
                level=minima[i],
                room=(
                    min(self._drafts[i].group.running, self._targets[i])
                    if self._states[i] is State.FENCED
                    else self._targets[i]
                )
                - minima[i],
                tie=self._drafts[i].tie,
            )
            for i in self._live
        ]
        for i, share in zip(self._live, water_fill(buckets, minimum - sum(minima)), strict=True):
            minima[i] += share
        return [
            Size(
                minima[i],
                target + self._extra[i],
                Reason.of(
                    Rule.STRATEGY,
                    strategy=BALANCED.name,
                    nodes=self._extra[i],
                    headroom=self._headroom,
                    steps=tuple(self._steps[i]),
                ),
            )
            for i, target in enumerate(self._targets)
        ]


def _state(draft: Draft) -> State:
    """The state that a group is sized by. Where its autoscaler backs off by itself, it is sized as if healthy."""
    if draft.group.bounds_held:
        return State.FROZEN
    unfenced = not draft.group.fencing_enabled and draft.state in (State.FENCED, State.PROBING)
    return State.HEALTHY if unfenced else draft.state


def _basis(draft: Draft, state: State, cap: int | None) -> str:
    """What a deal rests on besides the group's target."""
    group = draft.group
    probe = draft.probe if state is State.PROBING else ""
    room = group.bounds.max if state is State.FROZEN and group.bounds is not None else ""
    return f"{draft.key}:{state.value}:{probe}{room}:{group.weight}:{cap}:{group.owner_min_max}"


BALANCED = Strategy(
    name="Balanced",
    size=_balanced,
    publishes_minima=False,
    adds_up=True,
    reserves=True,
    sentence="may grow by {nodes} of the pool's {headroom:free node}[ ({steps:;})]",
    sentence_of_min="PoolMinimum {minimum} levelled over the zones, each at most what it requests",
)
