"""How long Cluster Autoscaler waits for a node where nodes have failed to come: its own option, which nobody else owns.

It is no fence: past that time it may choose the same group again. But each try costs minutes instead of a quarter of an
hour, above all where max cannot be 0 or the bounds are held.
"""

from evenkeel.domain.model.drafts import PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Rule

_SUSPECT = (State.FENCED, State.PROBING)


def shorten_provision_time(pool: PoolDraft) -> None:
    """The record's time for suspect groups, and nothing of ours for the others. A user's own value stays."""
    wanted = pool.pool.suspect_provision_time if pool.pool.autoscaler else None
    for draft in pool.groups:
        group = draft.group
        if draft.state is State.FROZEN:
            continue
        is_taken = draft.state in _SUSPECT and not (group.keeps_provision or group.max_only)
        draft.short_provision = None
        if wanted is not None and is_taken and wanted < draft.provision_timeout:
            draft.short_provision = wanted
            draft.add_reason(Rule.SHORT_PROVISION, seconds=int(wanted.total_seconds()))
