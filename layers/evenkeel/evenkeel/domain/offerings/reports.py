"""What other clusters' failures mean for a group that buys the same, and what its own mean for them.

A word is no failure of the group: it only makes it cautious. What it may do is kept with the group's own state, as a
*warning*, so that nothing depends on two clusters' clocks:

    first word        two words: fenced, 5 min at most,          more runs than stood      words count again
        |             while another zone is well                 at the warning            |
    ----*=================|-------- one more than stood ---------*.........................|-----
                            cautious                              trusts itself, 5 min

A warning ends with the first machine that comes on top of what was requested when it began; that answers all words said
until then, for everybody. Then the group trusts what it has seen itself for as long as a first backoff lasts. So,
however many clusters say whatever they like, at whatever pace, a group waits for no more than one such fence and one
machine, and has five minutes to order all that it wants; with one cluster's words, for one machine.

The fence is never longer than the one that a failed launch of its own would have led to, and stands only while another
group of the pool is well and has room. What stuck is not given up because of what others say.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime

from evenkeel.domain.model.failures import FailureClass, is_own_affair
from evenkeel.domain.model.groups import GroupKey, NodeGroup
from evenkeel.domain.model.offerings import CapacityReport, Experience, Offering, OfferingState
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState

# Two would do for everybody but those who say them; the third is so that they, too, hear of two others.
REPORTS_KEPT = 3
# Two clusters that cannot buy it are no accident of one of them.
REPORTS_TO_FENCE = 2


_USUAL = BackoffPolicy()


def merged(one: OfferingState, other: OfferingState) -> OfferingState:
    """What both say: of each server the later word, of all the newest few; answered ones are gone.

    In whatever order and however often states are merged, the same comes out.
    """
    delivered = [at for at in (one.delivered_at, other.delivered_at) if at is not None]
    delivered_at = max(delivered, default=None)
    words: dict[str, CapacityReport] = {}
    for server, word in (*one.words.items(), *other.words.items()):
        is_answered = delivered_at is not None and word.failed_at <= delivered_at
        if not is_answered and (server not in words or _age(word) > _age(words[server])):
            words[server] = word
    newest = sorted(words, key=lambda server: (*_age(words[server]), server), reverse=True)[:REPORTS_KEPT]
    return OfferingState(words={server: words[server] for server in sorted(newest)}, delivered_at=delivered_at)


def _age(word: CapacityReport) -> tuple[datetime, datetime, str]:
    return word.failed_at, word.until, word.cluster


def standing(state: OfferingState | None, now: datetime, policy: BackoffPolicy) -> list[CapacityReport]:
    """The words that no machine has answered and nobody has forgotten, the newest first."""
    words = [] if state is None else [word for word in state.words.values() if not is_answered(word, state)]
    return sorted((word for word in words if not policy.is_forgotten(word.failed_at, now)), key=_age, reverse=True)


def reports_about(
    group: NodeGroup, offerings: Mapping[Offering, OfferingState], now: datetime, policy: BackoffPolicy
) -> list[CapacityReport]:
    """What is said of the offering that a group buys."""
    return standing(offerings.get(group.offering), now, policy) if offerings and group.offering is not None else []


def is_answered(word: CapacityReport, state: OfferingState) -> bool:
    """Whether a machine has come since."""
    return state.delivered_at is not None and word.failed_at <= state.delivered_at


def changes(
    state: OfferingState, server: str, experience: Experience, now: datetime, policy: BackoffPolicy = _USUAL
) -> OfferingState | None:
    """The state with what a server has seen, where that changes what anybody does; None: it does not.

    A storm in ten thousand clusters so writes three words; the next is written when those have run down to half.
    """
    after = merged(state, OfferingState(delivered_at=experience.delivered_at))
    answers = len(standing(after, now, policy)) < len(standing(state, now, policy))
    word = experience.word
    if word is not None and not is_answered(word, after) and _adds(after, server, word, now, policy):
        return merged(after, OfferingState(words={server: word}))
    return after if answers else None


def _adds(state: OfferingState, server: str, word: CapacityReport, now: datetime, policy: BackoffPolicy) -> bool:
    if policy.is_forgotten(word.failed_at, now):
        return False
    words = {voice: said for voice, said in state.words.items() if said in standing(state, now, policy)}
    own = words.pop(server, None)
    if own is not None and (own.until, own.cluster) == (word.until, word.cluster):
        return False
    if word.until <= now:
        return not words and own is None
    half = now + (word.until - now) / 2
    return sum(said.until >= half for said in words.values()) < REPORTS_KEPT


def experiences(
    groups: Iterable[NodeGroup], states: Mapping[GroupKey, GroupState], now: datetime
) -> dict[Offering, Experience]:
    """What a cluster's groups have seen of what they buy. Nothing, where nothing has failed and nobody was warned."""
    found: dict[Offering, Experience] = {}
    for group in groups:
        state = states.get(group.key)
        if group.offering is None or state is None:
            continue
        before = found.get(group.offering, Experience())
        words = [word for word in (before.word, _word(state, now)) if word is not None]
        delivered = [at for at in (before.delivered_at, _delivered_at(state)) if at is not None]
        if words or delivered:
            newest = max(words, key=_age, default=None)
            found[group.offering] = Experience(word=newest, delivered_at=max(delivered, default=None))
    return found


def _word(state: GroupState, now: datetime) -> CapacityReport | None:
    """Its last failure, if the offering is what failed, and nothing has come since."""
    if not state.is_failing or state.fence_ended or state.failure_class is not FailureClass.CAPACITY:
        return None
    if state.last_failure is None or state.backoff_until is None or is_own_affair(state.message):
        return None
    return CapacityReport(failed_at=min(state.last_failure, now), until=state.backoff_until)


def _delivered_at(state: GroupState) -> datetime | None:
    """When a machine was last seen to come that was launched after a failure, its own or another cluster's."""
    moments = (state.cleared_at, state.last_success, *state.ended[-1:])
    return max((at for at in moments if at is not None), default=None)


def apply_reports(
    group: NodeGroup,
    before: GroupState | None,
    after: GroupState | None,
    words: Sequence[CapacityReport],
    now: datetime,
    policy: BackoffPolicy,
) -> GroupState | None:
    """The state after this look with its warning: begun, followed down, ended, or as it was.

    ``after`` is what the group's own failures and successes have made of it. The group is warned by ``requested`` as it
    stood: its own replicas are on their way already, and the first beyond them that runs was launched since.
    """
    if group.frozen_because is not None or not group.fencing_enabled or not (words or after):
        return after
    state = after or GroupState()
    heard = [word for word in words if state.cleared_at is None or word.failed_at > state.cleared_at]
    stands = max(group.requested, group.running)
    if state.throttled_requested is None:
        trusts_itself = state.cleared_at is not None and now < state.cleared_at + policy.initial
        if not heard or trusts_itself:
            return after
        return replace(state, throttled_requested=stands, throttled_until=_fenced_until(heard, now, policy))
    if group.running > state.throttled_requested or _has_succeeded(before, state):
        return replace(state, cleared_at=now, throttled_requested=None, throttled_until=None)
    if not heard:
        return replace(state, throttled_requested=None, throttled_until=None)
    until = state.throttled_until or _fenced_until(heard, now, policy)  # fenced once for each warning
    followed = replace(state, throttled_requested=min(state.throttled_requested, stands), throttled_until=until)
    return after if followed == after else followed


def _has_succeeded(before: GroupState | None, after: GroupState) -> bool:
    """Whether this look has seen a machine come that was launched after a failure of the group's own."""
    return before is not None and (before.last_success, before.ended) != (after.last_success, after.ended)


def _fenced_until(words: Sequence[CapacityReport], now: datetime, policy: BackoffPolicy) -> datetime | None:
    """Until when enough clusters are in backoff, but no longer than a first backoff of the group's own would last."""
    ends = sorted((word.until for word in words if word.until > now), reverse=True)
    return min(ends[REPORTS_TO_FENCE - 1], now + policy.initial) if len(ends) >= REPORTS_TO_FENCE else None
