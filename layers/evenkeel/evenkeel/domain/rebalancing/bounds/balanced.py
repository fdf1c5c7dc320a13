"""Balanced, Evenkeel's default strategy: it divides a pool's headroom among the groups that can use it.

The maxima add up to PoolMaximum, so autoscalers cannot exceed it. Each division is called a deal. A deal is published
long enough for every autoscaler loop to read it. If a group has used up its headroom while the other groups are
unchanged, only its zone can serve the demand. Such a group gets a loan, which is headroom of the other groups. To
detect such a group, the pool stores its last deal (``Publication``). If pods are read, the zones that pods wait for get
the headroom, and the headroom does not rotate.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.model.choices import Size, Strategy
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.holds import held_until
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import Publication
from evenkeel.domain.model.water_fill import water_fill

# Reasons without facts are the same for all groups.
_ONE, _LEVELLED = Reason.of(Rule.HEADROOM_ONE), Reason.of(Rule.HEADROOM_LEVELLED)
_LENT, _AWAITED = Reason.of(Rule.HEADROOM_LENT), Reason.of(Rule.HEADROOM_AWAITED)


def _balanced(pool: PoolDraft) -> list[Size]:
    """Return the size of every group, and set the draft's ``publication``: the deal to store."""
    deal = _Deal(pool.pool.max, pool.groups)
    last = pool.pool.state.published
    grower = pool.bounds.grower or (last.grower if last else "")
    ends: datetime | None = None
    if last is None or last.basis != deal.basis:
        deal.level_out(grower, 0)
        publication = deal.published(pool.now, grower)
    elif last.targets != deal.targets:
        publication, ends = _after_change(pool, deal, last, grower)
    else:
        deal, publication = _after_quiet(pool, deal, last)
    if pool.awaited and not deal.serves(pool.awaited):
        deal = _Deal(pool.pool.max, pool.groups)
        deal.serve(pool.awaited)
        deal.level_out(grower, 0)
        lasts = last is not None and last.basis == deal.basis and last.targets == deal.targets and deal.is_as(last)
        publication, ends = last if lasts and last else deal.published(pool.now, grower, lent=True), None
    if ends is None and (publication.lent or deal.is_scarce):
        ends = held_until(publication.ends_at(pool.pool.publication_stands), pool.now)
    pool.bounds.publication, pool.bounds.deal_ends = publication, ends
    return deal.sizes(pool.pool.min)


def _after_change(
    pool: PoolDraft, deal: "_Deal", last: Publication, grower: str
) -> tuple[Publication, datetime | None]:
    """Return the deal after a change of requested replicas: a loan to the groups at their bound, or a new leveling.

    A loan starts once the replicas have been unchanged for ``standstill``. Until then, the last deal remains, and the
    second returned value is the time at which the loan starts.
    """
    # Without an autoscaler, no program reads a loan.
    guesses = pool.awaited is None and pool.pool.settings.autoscaler and not deal.is_scarce
    at_bound = deal.at_their_bound(last) if guesses else []
    if not at_bound:
        deal.level_out(grower, 0)
        return deal.published(pool.now, grower), None
    still_until = pool.snapshot.since + pool.pool.standstill
    if pool.now < still_until:
        deal.keep(last, Reason.of(Rule.HEADROOM_STANDS_GROWING))
        return replace(last, grower=grower), still_until
    deal.lend(at_bound)
    return deal.published(pool.now, grower, lent=True), None


def _after_quiet(pool: PoolDraft, deal: "_Deal", last: Publication) -> tuple["_Deal", Publication]:
    """Return the deal of an unchanged pool. Until every autoscaler loop has read the last deal, that deal remains.

    Afterwards, an unused loan ends, or the next group gets the last nodes of the headroom.
    """
    if pool.now < last.ends_at(pool.pool.publication_stands):
        deal.level_out(last.grower, last.turn)
        if not deal.is_as(last):
            deal = _Deal(pool.pool.max, pool.groups)
            deal.keep(last, Reason.of(Rule.HEADROOM_STANDS_UNREAD))
        return deal, last
    if last.lent and pool.awaited:
        # The loan remains while pods wait for its nodes.
        deal.keep(last, _AWAITED)
        return deal, last
    if last.lent or not deal.is_scarce:
        # An unused loan ends. Without a loan, the unchanged pool keeps its deal.
        deal.level_out(last.grower, 0)
        return deal, deal.published(pool.now, last.grower) if last.lent else last
    if pool.awaited is not None or not pool.pool.settings.autoscaler:
        # No pod waits for the last nodes, or no autoscaler reads the offer, so they do not rotate.
        deal.level_out(last.grower, last.turn)
        return deal, last
    # The group with the last nodes has not ordered them, so the next group gets them.
    deal.level_out(last.grower, last.turn + 1)
    return deal, deal.published(pool.now, last.grower, turn=last.turn + 1)


class _Share:
    """One group in a deal. Its max is its target, plus the nodes that it keeps or that the deal has given to it."""

    __slots__ = ("basis", "cap", "draft", "max", "state", "steps", "target")

    def __init__(self, draft: Draft, pool_max: int) -> None:
        group, limit, target, state = draft.group, draft.most, draft.target, draft.state
        if group.owner.bounds_held:
            state = State.FROZEN  # a group with held bounds is sized as if frozen
        elif state is not State.HEALTHY and draft.is_unfenced:
            state = State.HEALTHY
        self.draft, self.target, self.state = draft, target, state
        # The highest max that the group may get. Without a cap, only the headroom limits it.
        self.cap = target + pool_max if limit is None else limit
        self.max = target + draft.kept_room
        self.steps: tuple[Reason, ...] = ()
        fixed: int | str = ""
        if state is State.PROBING:
            fixed = draft.probe
        elif state is State.FROZEN and draft.may_grow and group.bounds is not None:
            fixed = group.bounds.max
        # The group's values that a deal depends on, except the target.
        self.basis = f"{draft.key}:{state}:{fixed}:{group.annotations.weight}:{limit}:{group.owner.least_max}"

    @property
    def growth(self) -> int:
        """Return the number of nodes by which the group may grow at once: at most 1 if the group is probing."""
        return self.cap - self.target if self.state is State.HEALTHY else self.draft.probe


def _by_size(share: _Share) -> tuple[int, int]:
    """Return the sort key that puts the smallest group first."""
    return share.target, share.draft.tie


class _Deal:
    """One deal: the participating groups, the remaining headroom, and the share of each group."""

    def __init__(self, pool_max: int, drafts: Sequence[Draft]) -> None:
        self._shares = [_Share(draft, pool_max) for draft in drafts]
        # Compute the headroom. A frozen group keeps its bounds, so the nodes up to its max are reserved if it may grow.
        # If an owner requires a least max, its group first gets the nodes up to that max. Otherwise the sum of the
        # maxima could exceed PoolMaximum.
        self._left = self._headroom = max(0, pool_max - sum([share.max for share in self._shares]))
        self._healthy: list[_Share] = []
        self._probing: list[_Share] = []
        for share in self._shares:
            least_max = share.draft.group.owner.least_max
            if least_max > share.target and share.state is not State.FROZEN:
                nodes = min(least_max - share.target, self._left)
                share.max += nodes
                self._left -= nodes
            if share.cap <= share.target:
                continue
            if share.state is State.HEALTHY:
                self._healthy.append(share)
            elif share.state is State.PROBING and share.draft.probe > 0 and share.max == share.target:
                self._probing.append(share)
        # A probing group gets one machine. A fenced group gets no machine, so its max is its target.
        self._probing.sort(key=_by_size)
        self.is_scarce = 0 < self._left < len(self._healthy) + len(self._probing)
        if not self.is_scarce:
            for share in self._probing:
                self._give(share, share.draft.probe, Reason.of(Rule.HEADROOM_PROBE))
        self.basis = f"{pool_max} " + " ".join([share.basis for share in self._shares])

    @property
    def targets(self) -> dict[str, int]:
        """Return each group's target, by key of the group."""
        return {share.draft.key: share.target for share in self._shares}

    def published(self, at: datetime, grower: str, *, turn: int = 0, lent: bool = False) -> Publication:
        """Return the deal to store."""
        maxima = {share.draft.key: share.max for share in self._shares}
        return Publication(
            at=at, basis=self.basis, targets=self.targets, maxima=maxima, grower=grower, turn=turn, lent=lent
        )

    def _give(self, share: _Share, nodes: int, reason: Reason) -> None:
        given = min(nodes, self._left, share.cap - share.max)
        if given > 0:
            share.max += given
            self._left -= given
            share.steps += (reason,)

    def _fill(
        self,
        shares: Sequence[_Share],
        levels: Sequence[int],
        room: Sequence[int],
        reason: Reason,
        weights: Sequence[int] = (),
    ) -> None:
        """Distribute the remaining headroom evenly over these shares, which have these levels and this room."""
        filled = water_fill(self._left, levels, room, lambda i: shares[i].draft.tie, weights)
        for share, nodes in zip(shares, filled, strict=True):
            if nodes:  # each room is at most cap - max, so ``_give`` would give as many
                share.max += nodes
                share.steps += (reason,)
                self._left -= nodes

    def keep(self, last: Publication, reason: Reason) -> None:
        """Keep the published maxima, as far as the headroom suffices."""
        for share in self._healthy + self._probing:
            self._give(share, last.maxima.get(share.draft.key, 0) - share.max, reason)

    def is_as(self, last: Publication) -> bool:
        """Return True if this deal has the same maxima as the last one."""
        shares = self._healthy + self._probing
        return all([share.max == last.maxima.get(share.draft.key) for share in shares])

    def at_their_bound(self, last: Publication) -> list[_Share]:
        """Return the groups that have used up their headroom.

        The list is empty if another group has changed, or if no other group has unused headroom.
        """
        used_up = []
        others = False
        for share in self._shares:
            before, offered = last.targets.get(share.draft.key), last.maxima.get(share.draft.key)
            if before is None or offered is None:
                return []
            if share.state is State.HEALTHY and share.target == offered > before:
                used_up += [share] if share.cap > share.target else []
            elif share.target != before:
                return []
            else:
                others |= share.state is State.HEALTHY and offered > before
        return used_up if others else []

    def serves(self, awaited: Mapping[str, int]) -> bool:
        """Return True if each group has headroom for the nodes that pods wait for, up to its ``growth``."""
        return not self._short(awaited)

    def serve(self, awaited: Mapping[str, int]) -> None:
        """Give each group headroom for the nodes that pods wait for. If the headroom does not suffice, level it."""
        short = self._short(awaited)
        self._fill([share for share, _ in short], [0] * len(short), [nodes for _, nodes in short], _AWAITED)

    def _short(self, awaited: Mapping[str, int]) -> list[tuple[_Share, int]]:
        shares = self._healthy + self._probing
        wanted = [(share, share.target + min(awaited.get(share.draft.key, 0), share.growth)) for share in shares]
        return [(share, most - share.max) for share, most in wanted if most > share.max]

    def lend(self, at_bound: Sequence[_Share]) -> None:
        """Lend the headroom to these groups, except one node for each other healthy group."""
        lent = set(at_bound)
        self._one_each([share for share in self._healthy if share not in lent])
        self._fill(at_bound, [0] * len(at_bound), [share.cap - share.max for share in at_bound], _LENT)
        self._level_rest()  # distribute the headroom that the groups at their caps cannot use

    def level_out(self, grower: str, turn: int) -> None:
        """Give each healthy group one node, then level the remaining headroom.

        If the headroom is scarce, the groups get it one after another.
        """
        if self.is_scarce:
            self._last_nodes(grower, turn)
            return
        self._one_each(self._healthy)
        self._level_rest()

    def _one_each(self, shares: Sequence[_Share]) -> None:
        without = [share for share in shares if share.max == share.target]
        # The order matters only if the headroom does not suffice for all. Each healthy group can grow by one node.
        given = without if len(without) <= self._left else sorted(without, key=_by_size)[: self._left]
        for share in given:
            share.max, share.steps = share.max + 1, (_ONE,)
        self._left -= len(given)

    def _last_nodes(self, grower: str, turn: int) -> None:
        healthy, probing = set(self._healthy), set(self._probing)
        order = sorted([*self._healthy, *self._probing], key=_by_size)
        order.sort(key=lambda share: (share.draft.key != grower, share in probing))
        start = turn % len(order)
        order = order[start:] + order[:start]
        if order[0].draft.key == grower and order[0] in healthy:
            self._give(order[0], self._left, Reason.of(Rule.HEADROOM_LAST_STAY))
        reason = Reason.of(Rule.HEADROOM_LAST_UNUSED if turn else Rule.HEADROOM_LAST)
        for share in order:
            self._give(share, 1, reason)
        for share in order:
            self._give(share, self._left if share in healthy else 0, reason)

    def _level_rest(self) -> None:
        if self._left:
            levels = [share.max for share in self._healthy]
            room = [share.cap - share.max for share in self._healthy]
            weights = [share.draft.group.annotations.weight for share in self._healthy]
            self._fill(self._healthy, levels, room, _LEVELLED, weights)

    def sizes(self, pool_min: int) -> list[Size]:
        """Return the sizes. PoolMinimum is leveled over the groups, and no min is above the group's replicas."""
        minima, spaces = [], []
        for share in self._shares:
            low, room = share.draft.kept(share.draft.floors.get(Rule.ZONE_MIN, 0)), share.target
            if share.state is not State.HEALTHY:
                group = share.draft.group
                if share.state is State.FROZEN:
                    low, room = (0 if group.bounds is None else group.bounds.min), 0
                    low = low if share.draft.may_grow else min(low, share.target)
                elif share.state is State.FENCED:
                    room = min(group.running, share.target)
            minima.append(low)
            spaces.append(room - low)
        more = water_fill(pool_min - sum(minima), minima, spaces, lambda i: self._shares[i].draft.tie)
        rule, name, headroom = Rule.STRATEGY, BALANCED.name, self._headroom
        return [
            Size(
                low + nodes,
                share.max,
                Reason(
                    rule,
                    {"strategy": name, "nodes": share.max - share.target, "headroom": headroom, "steps": share.steps},
                ),
            )
            for share, low, nodes in zip(self._shares, minima, more, strict=True)
        ]


BALANCED = Strategy(
    name="Balanced",
    size=_balanced,
    publishes_minima=False,
    adds_up=True,
    reserves=True,
    sentence="may grow by {nodes} of the pool's {headroom:free node}[ ({steps:;})]",
    sentence_of_min="PoolMinimum {minimum} levelled over the zones, each at most what it requests",
)
