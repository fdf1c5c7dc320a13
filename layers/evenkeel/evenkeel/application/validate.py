"""Pools whose numbers break a rule, and what would mend them."""

from dataclasses import dataclass
from typing import Any

from evenkeel.application.preview import Preview
from evenkeel.application.words import diff, problem_words, unfixable_words
from evenkeel.config import ClusterRecord, FixEntry
from evenkeel.domain.membership.numbers import Change, fix_for
from evenkeel.domain.model.pools import AnyPool, InvalidPool


@dataclass(frozen=True, kw_only=True)
class Findings:
    """What is wrong in one cluster: the answer, and the changes that it proposes, each with its pool."""

    pools: list[dict[str, Any]]
    changes: tuple[tuple[AnyPool, Change], ...]

    @property
    def invalid(self) -> int:
        """Pools that are left alone until somebody mends them."""
        return sum(not pool["valid"] for pool in self.pools)

    @property
    def diff(self) -> list[str]:
        """The lines of all changes; a number that two pools share is changed once."""
        seen = dict.fromkeys(diff(change) for _, change in self.changes)
        return [line for lines in seen for line in lines]


def validate(look: Preview, name: str | None = None) -> Findings:
    """Every pool with a problem or a warning; of one name or id, if given."""
    found, changes = [], []
    for pool in look.pools:
        if name is not None and name not in pool.id.names:
            continue
        problems = pool.problems if isinstance(pool, InvalidPool) else ()
        warnings = [*map(problem_words, pool.warnings), *_overshoot(pool)]
        if not problems and not warnings:
            continue
        mend = fix_for(pool, look.record.policy())
        changes += [(pool, change) for change in mend.changes]
        found.append(
            {
                "name": pool.id.name,
                "id": str(pool.id),
                "valid": not problems,
                "problems": [problem_words(problem) for problem in problems],
                "warnings": warnings,
                "fix": [line for change in mend.changes for line in diff(change)],
                "left": unfixable_words(mend) or None,
            }
        )
    return Findings(pools=found, changes=tuple(changes))


def wishes(findings: Findings) -> tuple[FixEntry, ...]:
    """The changes as the control record carries them to the next run."""
    return tuple(
        FixEntry(
            pool=str(pool.id),
            group="" if change.group is None else str(change.group.key),
            before=change.before,
            after=change.after,
        )
        for pool, change in findings.changes
    )


def with_numbers(record: ClusterRecord, findings: Findings) -> ClusterRecord:
    """The record with the numbers changed that it holds itself: the larger one where an entry stands for two pools."""
    wanted: dict[tuple[str, str | None], int] = {}
    for _, change in findings.changes:
        if change.rule is not None:
            key = (change.rule.name, change.rule.namespace)
            wanted[key] = max(change.after, wanted.get(key, 0))
    seen: set[tuple[str, str | None]] = set()
    entries = []
    for entry in record.pool_entries:
        key = (entry.name, entry.namespace)
        if key in wanted and key not in seen:  # the first of that name is the one that counts
            entry = entry.model_copy(update={"max": wanted[key]})
        seen.add(key)
        entries.append(entry)
    found = record.discovered_pools
    pools = tuple(entries) if found is None else found.model_copy(update={"rules": tuple(entries)})
    return record.model_copy(update={"pools": pools})


def _overshoot(pool: AnyPool) -> list[str]:
    if isinstance(pool, InvalidPool) or pool.strategy.adds_up or len(pool.groups) < 2:
        return []
    return [
        f"{pool.strategy.name} offers the same headroom to every zone at once, so that Cluster Autoscaler can pass "
        f"PoolMaximum {pool.max} between two looks: choose Balanced, or guard the pool with a quota"
    ]
