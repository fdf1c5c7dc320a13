"""``validate``: return the pools whose numbers break a rule, with the changes that fix them."""

from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import Field

from evenkeel.application.actions.call import PLANNED_ONLY, Answer, Call, Fields, Flag, PoolName, Right, action
from evenkeel.application.demand.summary import unknown_in_order
from evenkeel.application.errors import EvenkeelError
from evenkeel.application.rebalancing.preview import Preview, find_pool
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.pools import AnyPool, InvalidPool, unknown_in
from evenkeel.domain.rebalancing.membership.numbers import Change, fix_for
from evenkeel.record import ClusterRecord, FixEntry
from evenkeel.texts.english import problem_text
from evenkeel.texts.pool_numbers import command_text, diff, unfixable_text


class ValidateFields(Fields):
    """``apply`` implies ``fix``."""

    pool: PoolName = None
    fix: Annotated[Flag, Field(description="Show numbers that would fix the pools.")] = False
    apply: Annotated[Flag, Field(description="Write the fix with the next check.")] = False


@action(ValidateFields, Right.READ, of_all=True, rights_with={"apply": Right.ADMINISTER})
def validate(call: Call, fields: ValidateFields) -> Answer:
    """Pools whose numbers break a rule; exit code 3 means that a pool is invalid."""
    preview = call.preview()
    if fields.pool is not None:
        find_pool(preview, fields.pool)
    findings = _findings(preview, fields.pool)
    fix = fields.fix or fields.apply
    message = (
        f"{call.cluster}: pools checked: {len(preview.pools) if fields.pool is None else 1}, "
        f"invalid: {findings.invalid}, with warnings: {len(findings.pools) - findings.invalid}"
    )
    refused = _refused(call, preview.record)
    if refused:
        message += f"; of what demand needs: {', '.join(refused)}"
    ours = findings.ours(preview.record)
    order = preview.record.expander_order or ()
    unknown = [unknown_in_order(name) for name in unknown_in(order, [pool.id for pool in preview.pools])]
    unknown += map(problem_text, preview.record.misfits())
    if unknown:
        message += f"; {'; '.join(unknown)}"
    planned_only: dict[str, Any] = {}
    if fields.apply and ours.changes:
        agreed, planned_only = _agree(call, preview, ours)
        message += f"; {agreed}"
    elif fix:
        message += f"; changes proposed: {len(findings.changes)}"
    if fix and (theirs := len(findings.changes) - len(ours.changes)):
        message += f"; left to you, by the commands below: {theirs}"
    return {
        "dryRun": preview.stored.control.is_dry(preview.record, call.ports.dry_run),
        "pools": [pool if fix else {**pool, "fix": None} for pool in findings.pools],
        "diff": findings.diff if fix else [],
        "commands": findings.commands(preview.record) if fix else [],
        "refused": refused,
        "record": unknown,
        **planned_only,
        "message": message,
    }


def _refused(call: Call, record: ClusterRecord) -> list[str]:
    """Return the missing rights if Evenkeel reads the cluster's pods; else an empty list.

    Only this action reports a missing right to read autoscaler leases, because checks work without this right.
    """
    if record.demand_stage is DemandStage.OFF:
        return []
    try:
        return list(call.refused_rights(record, writes=False))
    except EvenkeelError:  # the preview already reports that the workload cluster cannot be reached
        return []


@dataclass(frozen=True, kw_only=True)
class _Findings:
    """The faulty pools of one cluster, as JSON, and the proposed changes, each with its pool."""

    pools: list[dict[str, Any]]
    changes: tuple[tuple[AnyPool, Change], ...]

    @property
    def invalid(self) -> int:
        """Return the number of invalid pools. Evenkeel does not write to these pools."""
        return sum(not pool["valid"] for pool in self.pools)

    @property
    def diff(self) -> list[str]:
        """Return all changes as lines of text. A change that two pools share is listed once."""
        diffs = dict.fromkeys(diff(change) for _, change in self.changes)
        return [line for lines in diffs for line in lines]

    def ours(self, record: ClusterRecord) -> "_Findings":
        """Return the findings with only those changes that Evenkeel may write itself."""
        return replace(
            self, changes=tuple((pool, change) for pool, change in self.changes if _may_write(change, record))
        )

    def commands(self, record: ClusterRecord) -> list[str]:
        """Return the commands for the changes that Evenkeel may not write."""
        theirs = (change for _, change in self.changes if change.owner is not None and not _may_write(change, record))
        return list(dict.fromkeys(command_text(change) for change in theirs))


def _may_write(change: Change, record: ClusterRecord) -> bool:
    return change.owner is None or (record.fix_owners is True and change.owner.takes_ours)


def _findings(preview: Preview, name: str | None) -> _Findings:
    """Return the pools with a problem or a warning. With ``name``, return only pools of this name or id."""
    pools, changes = [], []
    for pool in preview.pools:
        if name is not None and name not in pool.id.names:
            continue
        problems = pool.problems if isinstance(pool, InvalidPool) else ()
        warnings = [*map(problem_text, pool.warnings), *_overshoot(pool)]
        if not problems and not warnings:
            continue
        fix = fix_for(pool)
        changes += [(pool, change) for change in fix.changes]
        pools.append(
            {
                "name": pool.id.name,
                "id": str(pool.id),
                "valid": not problems,
                "problems": [problem_text(problem, pool.id.flavour) for problem in problems],
                "warnings": warnings,
                "fix": [line for change in fix.changes for line in diff(change)],
                "left": unfixable_text(fix) or None,
            }
        )
    return _Findings(pools=pools, changes=tuple(changes))


def _agree(call: Call, preview: Preview, findings: _Findings) -> tuple[str, dict[str, Any]]:
    """Store the changes to the record. Request a run that writes the changes to objects in the cluster.

    Return a sentence for the message, and further fields of the answer.
    """
    dry_run = preview.stored.control.is_dry(preview.record, call.ports.dry_run)
    record = preview.record if dry_run else _with_numbers(preview.record, findings)
    entries = tuple(entry for entry in _entries(findings) if entry.group or dry_run)
    replaced = {(entry.pool, entry.group) for entry in entries}
    control = preview.stored.control
    waiting = tuple(entry for entry in control.fixes if (entry.pool, entry.group) not in replaced)
    control = control.model_copy(update={"fixes": waiting + entries})
    call.ports.store.save_record(record, control, preview.stored.versions)
    call.request_run("validate")
    dry = {str(pool.id): pool.id.name for pool in call.dry_pools(preview.stored, preview.plan.pools)}
    planned = [dry[entry.pool] for entry in entries if entry.pool in dry]
    agreed = (
        f"changes: {len(findings.changes)}, of which the next check writes to objects: {len(entries) - len(planned)}"
    )
    if not planned:
        return agreed, {}
    return f"{agreed}; {PLANNED_ONLY}: {len(planned)}", {"plannedOnly": sorted(set(planned))}


def _entries(findings: _Findings) -> tuple[FixEntry, ...]:
    """Return the changes as fixes for the control record."""
    return tuple(
        FixEntry(
            pool=str(pool.id),
            group=_group_of(pool, change),
            owner="" if change.owner is None else change.owner.ref.id,
            before=change.before,
            after=change.after,
        )
        for pool, change in findings.changes
    )


def _group_of(pool: AnyPool, change: Change) -> str:
    """Return the key of the node group whose object or owner is changed; empty if the record is changed."""
    owned = (group for group in pool.groups if change.owner is not None and group.owner.numbers == change.owner)
    group = change.group or next(owned, None)
    return "" if group is None else str(group.key)


def _with_numbers(record: ClusterRecord, findings: _Findings) -> ClusterRecord:
    """Return the record with the changed numbers. An entry that two pools share gets the larger of their numbers."""
    numbers: dict[tuple[str, str | None], int] = {}
    for _, change in findings.changes:
        if change.rule is not None:
            key = (change.rule.name, change.rule.namespace)
            numbers[key] = max(change.after, numbers.get(key, 0))
    seen: set[tuple[str, str | None]] = set()
    entries = []
    for entry in record.pool_entries:
        key = (entry.name, entry.namespace)
        if key in numbers and key not in seen:  # if two entries have the same name, only the first is used
            entry = entry.model_copy(update={"max": numbers[key]})
        seen.add(key)
        entries.append(entry)
    discovered = record.discovered_pools
    pools = tuple(entries) if discovered is None else discovered.model_copy(update={"rules": tuple(entries)})
    return record.model_copy(update={"pools": pools})


def _overshoot(pool: AnyPool) -> list[str]:
    strategy = pool.settings.strategy
    if isinstance(pool, InvalidPool) or strategy.adds_up or len(pool.groups) < 2:
        return []
    return [
        f"{strategy.name} offers the same headroom to every zone at once, so that Cluster Autoscaler can pass "
        f"PoolMaximum {pool.max} between two checks: choose Balanced, or guard the pool with a quota"
    ]
