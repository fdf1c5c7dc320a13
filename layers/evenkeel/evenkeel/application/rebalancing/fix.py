"""Writing the numbers that an operator has agreed to (``validate`` with ``apply``)."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from evenkeel.application.errors import RejectedError
from evenkeel.application.rebalancing.ports import Cluster
from evenkeel.domain.model.groups import Bounds, GroupKey, NodeGroup
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.owner_intent import desired_bounds_of
from evenkeel.domain.model.plans import Plan
from evenkeel.record import FixEntry
from evenkeel.texts.english import sentence


@dataclass(frozen=True, kw_only=True)
class Fixes:
    """What became of each change that was tried, and the changes that there was no time for."""

    outcomes: tuple[tuple[FixEntry, Outcome], ...]
    postponed: tuple[FixEntry, ...]

    @property
    def written(self) -> int:
        return sum(outcome.result is Result.WRITTEN for _, outcome in self.outcomes)


def fix(
    fixes: Sequence[FixEntry], plan: Plan, api: Cluster, is_late: Callable[[], bool], dry_run: Mapping[str, bool]
) -> Fixes:
    """Write the changes that were agreed to; ``dry_run``: of each pool, by its id, whether nothing is.

    A change is written to an object that is as it was when the operator saw it, or not at all. Written twice is written
    once: after a crash, what stands there already is found done.

    Raises ConflictError, ClusterUnavailableError, AccessError: then everything is tried again.
    """
    groups = {str(group.group.key): group.group for pool in plan.pools for group in pool.groups}
    states = {str(group.group.key): pool.remembered for pool in plan.pools for group in pool.groups}
    outcomes: list[tuple[FixEntry, Outcome]] = []
    postponed: list[FixEntry] = []
    for entry in fixes:
        group = groups.get(entry.group)
        wish = None if group is None or not entry.owner else desired_bounds_of(group, states[entry.group])
        outcome = Outcome(Result.PLANNED) if dry_run[entry.pool] else _obstacle(entry, group, wish)
        if outcome is None and is_late():
            postponed.append(entry)
        else:
            outcomes.append((entry, outcome or _write(entry, wish, api)))
    return Fixes(outcomes=tuple(outcomes), postponed=tuple(postponed))


def _write(entry: FixEntry, wish: Bounds | None, api: Cluster) -> Outcome:
    try:
        if wish is None:
            api.write_pool_maximum(GroupKey.read(entry.group), entry.after)
        else:
            api.write_owner_numbers(GroupKey.read(entry.group), Bounds(wish.min, entry.after))
    except RejectedError as error:
        return Outcome(Result.REJECTED, str(error))
    return Outcome(Result.WRITTEN)


def _obstacle(entry: FixEntry, group: NodeGroup | None, wish: Bounds | None) -> Outcome | None:
    """Why a change is not to be written; None: it is."""
    if not entry.group:  # agreed to in dry run, when records are not written either
        return Outcome(Result.NOT_WRITTEN, "it is a number of the record: validate again")
    if group is None:
        return Outcome(Result.NOT_WRITTEN, "it is no node group any more")
    if entry.owner and (wish is None or group.owner is None or group.owner.ref.id != entry.owner):
        return Outcome(Result.NOT_WRITTEN, "its owner is another one by now: validate again")
    stands = group.pool_max if wish is None else wish.max
    if stands == entry.after:
        return Outcome(Result.LEFT_ALONE, "it is as it should be")
    if stands != entry.before or group.faults:
        return Outcome(Result.NOT_WRITTEN, f"it has changed since, to {stands}: validate again")
    if group.frozen_because is not None:
        return Outcome(Result.NOT_WRITTEN, sentence(group.frozen_because))
    return None
