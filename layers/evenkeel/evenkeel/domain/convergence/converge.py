"""Converge: one machine more in the smallest zone, and, once its node runs, one named machine less in the fullest.

Launch before drain: no node goes before its successor runs. One step of a pool at a time, as far as budget and windows
allow, and none while anything else of the pool is under way. What a step is, and how it is written down:
``domain.model.convergence``. Which machine may go, its pods say (``domain.convergence.machine_choice``).

    look    step        what is planned
    1       -           destination +1; both zones keep what they request, so that no autoscaler interferes
    2       open        nothing: its machine is on its way. Late, or with any word about a zone: destination -1
    3       open        its machine runs: source -1, one machine by name. If none of the source may go, its zone is in
                        doubt, or the node that has come is not well, and the provision timeout is over:
                        destination -1, by name as well
    4       given       nothing, until the machine has gone; a drain that hangs is told, and no second one begins
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from fractions import Fraction

from evenkeel.domain.model.choices import Level
from evenkeel.domain.model.convergence import (
    AFTER_FAILURE,
    BUDGET,
    COMES_BACK,
    HELD,
    IDLE_GOES,
    PASS_LASTS,
    SETTLES,
    Choice,
    ConvergenceState,
    Converging,
    LastDrain,
    Step,
)
from evenkeel.domain.model.drafts import Draft, PoolDraft
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import ROLLOUTS, Reason, Rule
from evenkeel.domain.rebalancing.replicas.deletion import remove

_COURSE = 100  # steps of a course that are told
_FIRST_SIGHT = timedelta(minutes=1)  # a look comes 15 s after a write, and a scan every minute


# ---------------------------------------------------------------- what has become of the step


def update_step(pool: PoolDraft) -> None:
    """Before all else: how far the step has come, and its machine taken back where nothing comes of it any more.

    What is taken back must not be taken for stuck, and moved to another zone.
    """
    drafts = {draft.key: draft for draft in pool.groups}
    pool.convergence = convergence = _bound(_followed(pool.pool.state.convergence, drafts, pool.now), drafts, pool.now)
    step = convergence.step
    if step is None:
        return
    source, destination = drafts.get(step.source), drafts.get(step.destination)
    if destination is not None:
        destination.protected = not step.is_undone
    if not step.is_open or destination is None:
        return
    step = _open_to_growth(pool, step, source)
    pool.surge = pool.pool.converge.surge
    if pool.now < _ends(step, destination):
        _keep_autoscalers_out(pool, source, destination)
    why = None if _has_come(step, destination) else _stops(pool, step, source, destination)
    takes_back = why is not None and destination.state is not State.FROZEN
    # One that is preserved goes last, and a node would go in its place: nothing does before people let go of it.
    lowest = max(destination.owner_min, destination.group.running + destination.group.preserved)
    takes_back = takes_back and destination.requested > lowest
    if takes_back:
        destination.requested -= 1
        destination.step_max = destination.requested  # nobody is raised here in the same patch: it says what went
        destination.protected = False
        destination.add_reason(Rule.STEP_TAKEN_BACK, why=why)
    pool.convergence = replace(convergence, step=replace(step, less=destination.requested if takes_back else None))


def _followed(convergence: ConvergenceState, drafts: Mapping[str, Draft], now: datetime) -> ConvergenceState:
    """What is remembered, with what the groups say of the step."""
    step = convergence.step
    if step is None:
        return convergence
    source, destination = drafts.get(step.source), drafts.get(step.destination)
    if not step.ordered:
        if destination is None or not step.id or destination.group.move != step.id:
            return replace(convergence, step=None, begun=tuple(at for at in convergence.begun if at != step.begun_at))
        step = replace(step, ordered=True)
    if step.is_open:
        draining_group = drafts.get(step.draining_group)
        if draining_group is not None and step.back and draining_group.group.move == step.back:
            step = replace(step, delete_requested_at=now)
            if draining_group is source:
                convergence = replace(
                    convergence, given=LastDrain(source=step.source, requested=step.unbound - 1, at=now)
                )
        elif destination is None or _is_less(step, destination.group.requested):
            ended = replace(convergence, step=None)  # taken back, by us or by others
            return ended if _is_fenced(step, destination, now) else ended.held(now, AFTER_FAILURE)
        elif source is not None and step.is_taken(source.group.requested):
            return replace(convergence, step=None)  # somebody else has taken one there
        else:
            if step.back:
                step = replace(step, draining_group="", machine=None, back="")  # that patch was never written
            grown = 0 if source is None else min(source.group.requested, source.group.running)
            step = replace(step, ran=grown) if step.had < grown > step.ran else step
    if step.delete_requested_at is not None and _is_gone(step, drafts.get(step.draining_group)):
        convergence = replace(convergence, step=None)
        return convergence.held(now, AFTER_FAILURE) if step.is_undone else convergence
    return convergence if step == convergence.step else replace(convergence, step=step)


def _is_less(step: Step, requested: int) -> bool:
    """Whether a destination that requests so many has lost the machine of its step, whatever else was asked of it."""
    return requested < step.wants or (step.less is not None and requested <= step.less)


def _is_fenced(step: Step, destination: Draft | None, now: datetime) -> bool:
    """Whether a fence says when to ask its zone again. Not where the machine was late, which fences its zone before the
    step ends (``_ends``): each such try keeps autoscalers out of its zones for as long as it takes.
    """
    if destination is None or destination.state is not State.FENCED:
        return False
    return now < step.begun_at + destination.provision_timeout


def _is_gone(step: Step, draining_group: Draft | None) -> bool:
    """Whether the machine that was given is there no more, or another one has gone in its place."""
    if draining_group is None:
        return True
    group = draining_group.group
    if group.machines is None:
        return group.running <= group.requested
    named = next((machine for machine in group.machines if machine.ref == step.machine), None)
    staying = sum(not machine.deleting for machine in group.machines)
    return named is None or (not named.deleting and staying <= group.requested)


def _bound(convergence: ConvergenceState, drafts: Mapping[str, Draft], now: datetime) -> ConvergenceState:
    """Held, where a source requests again what it had given: that demand can be served nowhere else. Once a step."""
    if _word(drafts.values()) is not None:
        return _shared(convergence, drafts)
    step, given = convergence.step, convergence.given
    causes = []
    if step is not None and step.is_open and _grew(drafts, step.source, step.unbound):
        causes.append(step.begun_at)
    if given is not None and now - given.at <= COMES_BACK and _grew(drafts, given.source, given.requested):
        causes.append(given.at)
    if not causes:
        return (
            _shared(convergence, drafts)
            if any(draft.state is not State.HEALTHY for draft in drafts.values())
            else convergence
        )
    if convergence.held_until is not None and max(causes) + HELD <= convergence.held_until:
        return convergence
    return convergence.held(now, HELD)


def _shared(convergence: ConvergenceState, drafts: Mapping[str, Draft]) -> ConvergenceState:
    """While a zone cannot deliver, others grow in its place: that says nothing of who is bound where, then or later."""

    def at_least(source: str, requested: int) -> int:
        return max(requested, drafts[source].group.requested) if source in drafts else requested

    step, given = convergence.step, convergence.given
    return replace(
        convergence,
        step=step and replace(step, stood_in=at_least(step.source, step.stood_in)),
        given=given and replace(given, requested=at_least(given.source, given.requested)),
    )


def _grew(drafts: Mapping[str, Draft], key: str, requested: int) -> bool:
    """Whether a source requests more than that, and others that deliver far less: what any could serve grows all."""
    source = drafts.get(key)
    if source is None or source.group.requested <= requested:
        return False
    return any(other.is_far_below(source) for other in drafts.values() if other.state is State.HEALTHY)


def _keep_autoscalers_out(pool: PoolDraft, source: Draft | None, destination: Draft) -> None:
    """While its machine may be on its way, nobody orders in either zone: an autoscaler does not count what it did not
    order. No longer, and not where the source alone delivers: nobody could order at all.
    """
    if not pool.pool.autoscaler:
        return
    destination.step_max = destination.requested
    if source is not None and not _is_alone(pool, source):
        source.step_max = source.requested


def _is_alone(pool: PoolDraft, source: Draft) -> bool:
    """Whether no other zone is known to deliver: it stays open, and what it grows by says nothing of who is bound."""
    return all((draft.state is State.HEALTHY) == (draft is source) for draft in pool.groups)


def _open_to_growth(pool: PoolDraft, step: Step, source: Draft | None) -> Step:
    """A step whose source stays open in this look: by the next one it may have grown, and others may be well again."""
    if source is None or not _is_alone(pool, source):
        return step
    return replace(step, stood_in=max(step.stood_in, pool.pool.max))


def _has_come(step: Step, destination: Draft) -> bool:
    """Whether the destination has a node more than before the step."""
    return destination.group.running >= step.wants


def _runs(step: Step, destination: Draft) -> bool:
    """Whether it has, and the newest is well. Whoever ordered there meanwhile, their machines are not waited for."""
    newest = max(
        (machine for machine in destination.group.machines or () if machine.has_node and not machine.deleting),
        key=lambda machine: (machine.created_at, machine.name),
        default=None,
    )
    return _has_come(step, destination) and (newest is None or newest.ready)


def _ends(step: Step, destination: Draft) -> datetime:
    """When a machine that does not run is late. Its group is fenced for it before: its clock begins with the first look
    that finds it ordered.
    """
    return step.begun_at + destination.provision_timeout + _FIRST_SIGHT


def _stops(pool: PoolDraft, step: Step, source: Draft | None, destination: Draft) -> Reason | None:
    """Why nothing comes of a step whose machine does not run yet; None: it is waited for."""
    if source is None:
        return Reason.of(Rule.STEP_SOURCE_GONE, group=step.source)
    if source.group.requested > step.unbound:
        return Reason.of(Rule.STEP_BOUND, zone=source.group.zone)
    if pool.now >= (until := _ends(step, destination)):
        return Reason.of(Rule.STEP_LATE, until=until)
    return _word(pool.groups, source) or _in_the_way(pool, source, destination)


def _in_the_way(pool: PoolDraft, source: Draft, destination: Draft, *, more: int = 0) -> Reason | None:
    """A try, with so many more, that leaves nothing to the zone that alone delivers: it may come to nothing only after
    the whole provision timeout, and pods would wait for as long.
    """
    is_try = pool.pool.autoscaler and destination.state is not State.HEALTHY and _is_alone(pool, source)
    return _full(pool, more=more) if is_try else None


# ---------------------------------------------------------------- going on, and beginning


def converge(pool: PoolDraft) -> None:
    """After all else that changes what is requested: the next patch of a step, or why there is none."""
    home = pool.pool
    is_pass = home.convergence_requested is not None and pool.now < home.convergence_requested + PASS_LASTS
    wanted = home.level is Level.CONVERGE or is_pass
    ways = _ways(pool, pool.groups, _least(pool))
    if pool.convergence.step is not None:
        _continue_step(pool, pool.convergence.step)
    if not wanted:
        pool.convergence = replace(pool.convergence, uneven_since=None)
        return
    if pool.convergence.step is None:
        since = (pool.convergence.uneven_since or pool.now) if ways else None
        pool.convergence = replace(pool.convergence, uneven_since=since)
        why = _start_step(pool, ways, is_pass=is_pass) if ways else None
        pool.converging = Converging(left=_left(pool), why=why, begins=pool.step is not None, step=pool.step)
    if pool.converging is not None:
        pool.converging = replace(pool.converging, course=_course(pool))


def _left(pool: PoolDraft) -> int:
    return max(0, pool.pool.converge.per_hour - len(pool.convergence.spent(pool.now)))


def _continue_step(pool: PoolDraft, step: Step) -> None:
    """What an open step comes to in this look. It goes on where nobody wants converge any more: every step ends."""
    drafts = {draft.key: draft for draft in pool.groups}
    destination = drafts.get(step.destination)
    told = Converging(left=_left(pool), step=step)
    if step.delete_requested_at is not None:
        ends = step.delete_requested_at + (
            destination.provision_timeout if destination else pool.pool.provision_timeout
        )
        pool.look_at += [ends] if pool.now < ends else []
        why = Reason.of(
            Rule.STEP_DRAINS, machine=str(step.machine), group=step.draining_group, since=step.delete_requested_at
        )
        pool.converging = replace(told, why=why, hangs_since=ends if pool.now >= ends else None)
        if destination is not None and pool.now >= ends:
            destination.protected = False
        return
    source = drafts.get(step.source)
    if source is not None and source.journal_delta < 0:  # another zone takes it on: it has not gone for this step
        less = source.requested
        step = replace(step, had=min(step.had, less), ran=min(step.ran, less), stood_in=step.unbound)
        pool.convergence = replace(pool.convergence, step=step)
    if destination is None:
        return
    ends = _ends(step, destination)
    pool.look_at += [ends] if pool.now < ends else []
    if not _runs(step, destination) and not (_has_come(step, destination) and pool.now >= ends):
        why = Reason.of(Rule.STEP_AWAITS_NODE, zone=destination.group.zone, until=ends)
        hangs = pool.now >= ends and step.less is None and destination.state is not State.FROZEN
        pool.converging = _kept(told, step, destination, ends) if hangs else replace(told, why=why)
        return
    if pool.requested - 1 < pool.pool.min:
        pool.convergence = replace(pool.convergence, step=None)  # PoolMinimum has been raised: the node more is wanted
        return
    protected = _give(pool, step, drafts, is_late=pool.now >= ends)
    hangs = protected is not None and pool.now >= ends
    pool.converging = replace(told, why=protected, step=pool.step or step, hangs_since=ends if hangs else None)


def _kept(told: Converging, step: Step, destination: Draft, ends: datetime) -> Converging:
    """A machine that did not come and may not be taken back either: who holds it, and which it is, where it says so."""
    why = Reason.of(Rule.GROUP_AT_ITS_MIN, min=destination.requested)
    if preserved := destination.group.preserved:
        why = Reason.of(Rule.PRESERVED, count=preserved)
        machines = destination.group.machines or ()
        kept = next((each for each in machines if each.preserved and not (each.has_node or each.deleting)), None)
        step = replace(step, draining_group=step.destination, machine=None if kept is None else kept.ref)
    why = Reason.of(Rule.STEP_CANNOT_GIVE, zone=destination.group.zone, why=why)
    return replace(told, step=step, why=why, hangs_since=ends)


def _give(pool: PoolDraft, step: Step, drafts: Mapping[str, Draft], *, is_late: bool) -> Reason | None:
    """One machine goes by name: of the source; where that cannot give, or the machine that has come does not get well,
    in the end of the destination. Why not yet.
    """
    source, destination = drafts.get(step.source), drafts[step.destination]
    why: Reason | None = _rollout(pool) or _fence(pool) or _under_way(pool)
    if why is not None:
        return why
    why = None if source is None else _doubt(source)  # what it gave could not come back for sure
    may_give = source is not None and source.group.requested <= step.unbound and _runs(step, destination)
    givers = [source] if source is not None and may_give and why is None else []
    givers += [destination] if is_late or not (givers or may_give) else []
    for draining_group in givers:
        choice = _choice(pool, draining_group)
        if choice.machine is None or not remove(pool, {draining_group.key: (choice.machine,)}):
            protected = choice.why or Reason.of(Rule.GROUP_AT_ITS_MIN, min=draining_group.requested)
            why = why or Reason.of(Rule.STEP_CANNOT_GIVE, zone=draining_group.group.zone, why=protected)
            continue
        if draining_group is destination:
            draining_group.protected = False
            draining_group.add_reason(Rule.STEP_UNDONE, group=step.source)
        else:
            draining_group.add_reason(Rule.STEP_GIVES, zone=destination.group.zone)
        if draining_group.step_max is not None:
            draining_group.step_max = draining_group.requested
        pool.step = replace(step, draining_group=draining_group.key, machine=choice.machine)
        return None
    return why


def _start_step(pool: PoolDraft, ways: "list[tuple[Draft, Draft]]", *, is_pass: bool) -> Reason | None:
    """Order a machine in the smallest zone for one of the fullest; or the first thing that keeps it from beginning."""
    why = _not_now(pool, is_pass=is_pass) or _rollout(pool)
    why = why or _word(pool.groups) or _under_way(pool) or _awaited(pool.groups) or _full(pool)
    if why is not None:
        return why
    for source, destination in ways:
        if source.state is State.PROBING:  # what it gave could not come back for sure
            why = why or _in_state(source)
            continue
        if (idle := _goes_by_itself(pool, source)) is not None:
            why = why or idle
            continue
        choice = _choice(pool, source, destination)
        if choice.why is not None:
            why = why or Reason.of(Rule.CONVERGE_STAYS, zone=source.group.zone, why=choice.why)
            continue
        if (full := _in_the_way(pool, source, destination, more=1)) is not None:
            why = why or full
            continue
        destination.requested += 1
        destination.journal_delta += 1
        destination.protected = True
        destination.add_reason(Rule.STEP_ORDERS, zone=source.group.zone)
        _keep_autoscalers_out(pool, source, destination)
        pool.surge = pool.pool.converge.surge
        step = Step(
            source=source.key,
            destination=destination.key,
            begun_at=pool.now,
            had=source.requested,
            wants=destination.requested,
        )
        pool.step = _open_to_growth(pool, step, source)
        return None
    return why


def _goes_by_itself(pool: PoolDraft, source: Draft) -> Reason | None:
    """Return the reason not to order a node for the source: scale-down takes one of its nodes without that.

    Evenkeel's own does for sure: it keeps a clock for the node. Whether an autoscaler does is not known, so it gets
    ``IDLE_GOES`` since the zones have differed. Without either there is no scale-down to wait for.
    """
    nodes = () if pool.advice is None else pool.advice.nodes
    idle = [node for node in nodes if node.needed is None and str(node.group) == source.key]
    until = (pool.convergence.uneven_since or pool.now) + IDLE_GOES
    is_ours = any(node.since is not None for node in idle)
    if not idle or not (is_ours or (pool.pool.autoscaler and pool.now < until)):
        return None
    if not is_ours:
        pool.look_at.append(until)
    return Reason.of(Rule.CONVERGE_IDLE, zone=source.group.zone, node=idle[0].node)


def _not_now(pool: PoolDraft, *, is_pass: bool) -> Reason | None:
    """What the record and the clock say. A pass that is asked for by hand waits for neither, but for its failures."""
    convergence, policy, now = pool.convergence, pool.pool.converge, pool.now
    since, held, asked = convergence.held_since, convergence.held_until, pool.pool.convergence_requested
    is_before = is_pass and since is not None and asked is not None and since < asked
    if held is not None and now < held and not is_before:
        return Reason.of(Rule.CONVERGE_HELD, until=held)
    if is_pass:
        return None
    if convergence.uneven_since is not None and now < (until := convergence.uneven_since + SETTLES):
        pool.look_at.append(until)
        return Reason.of(Rule.CONVERGE_SETTLES, until=until)
    opens = policy.opens(now)
    if opens != now:
        return Reason.of(Rule.CONVERGE_WINDOW, until=opens)
    if (spent := convergence.spent(now)) and len(spent) >= policy.per_hour:
        until = min(spent) + BUDGET
        pool.look_at.append(until)
        return Reason.of(Rule.CONVERGE_BUDGET, per_hour=policy.per_hour, until=until)
    return None


def _rollout(pool: PoolDraft) -> Reason | None:
    """Machines that are being replaced somewhere."""
    for draft in pool.groups:
        frozen = draft.group.frozen_because
        if frozen is not None and frozen.rule in ROLLOUTS:
            return Reason.of(Rule.CONVERGE_ROLLOUT, zone=draft.group.zone)
    return None


def _word(drafts: Iterable[Draft], source: Draft | None = None) -> Reason | None:
    """Whatever says of a zone that it may not deliver: its own failures, somebody's word, other clusters'. Of those
    that are probing only the source counts.
    """
    for draft in drafts:
        if draft.state is State.FENCED:
            return _in_state(draft)
        if (draft is source or draft.state is not State.PROBING) and (why := _doubt(draft)) is not None:
            return why
    return None


def _fence(pool: PoolDraft) -> Reason | None:
    return next((_in_state(draft) for draft in pool.groups if draft.state is State.FENCED), None)


def _doubt(draft: Draft) -> Reason | None:
    """Why nobody knows whether its zone delivers: it has failed, or has others say that it would."""
    if draft.state is State.PROBING:
        return _in_state(draft)
    return None if draft.throttled_max is None else Reason.of(Rule.CONVERGE_CAUTIOUS, zone=draft.group.zone)


def _in_state(draft: Draft) -> Reason:
    return Reason.of(Rule.CONVERGE_STATE, zone=draft.group.zone, state=draft.state.value)


def _under_way(pool: PoolDraft) -> Reason | None:
    """A move or a request: one journal, one story."""
    changes = any(draft.requested != draft.group.requested for draft in pool.groups)
    asked = pool.request is not None or pool.pool.scale_request is not None
    return Reason.of(Rule.CONVERGE_BEHIND) if pool.moves or asked or changes else None


def _awaited(drafts: Iterable[Draft]) -> Reason | None:
    for draft in drafts:
        group = draft.group
        if group.requested != group.running:
            return Reason.of(Rule.CONVERGE_AWAITS, zone=group.zone, requested=group.requested, running=group.running)
    return None


def _full(pool: PoolDraft, *, more: int = 0) -> Reason | None:
    """With so many more, no other node fits under PoolMaximum, and none may pass it."""
    spoken_for = pool.spoken_for() if pool.pool.strategy.reserves else 0
    if pool.requested + more + spoken_for < pool.pool.max + pool.pool.converge.surge:
        return None
    return Reason.of(Rule.CONVERGE_FULL, maximum=pool.pool.max, requested=pool.requested)


# ---------------------------------------------------------------- who gives, who takes


def _ways(pool: PoolDraft, drafts: Iterable[Draft], least: Mapping[str, int]) -> list[tuple[Draft, Draft]]:
    """Sources with the destination that a machine of theirs would go to, the fullest first; none: zones are level.

    Zones that may not deliver are compared too: what keeps a step from beginning is told of them. The lowest comes
    first, and of equals one that surely delivers. One that has failed since the last step has to wait for another step,
    or for those in doubt that have failed before: else one that stays out would keep all others from being filled.
    """
    able = [draft for draft in drafts if draft.state is not State.FROZEN and not draft.group.bounds_held]
    given = pool.convergence.given

    def turn(draft: Draft) -> tuple[float, float, bool, int]:
        failed = draft.doubted_since
        waits = failed is not None and (given is None or given.at <= failed)
        since = failed.timestamp() if failed is not None and waits else 0.0
        return since, draft.requested / draft.group.weight, draft.state is not State.HEALTHY, draft.tie

    may_give = [draft for draft in able if draft.requested > least[draft.key]]
    # Whoever is far below any of them is far below this one: a level pool of thousands is told by a look at each.
    fullest = max(may_give, key=lambda draft: Fraction(draft.requested - 1, draft.group.weight), default=None)
    for low in sorted([draft for draft in able if draft.room > 0], key=turn):
        if fullest is not None and low.is_far_below(fullest):
            givers = [draft for draft in may_give if low.is_far_below(draft)]
            givers.sort(key=lambda draft: (-draft.requested / draft.group.weight, draft.tie))
            return [(draining_group, low) for draining_group in givers]
    return []


def _least(pool: PoolDraft) -> dict[str, int]:
    return {draft.key: pool.least_of(draft) for draft in pool.groups}


def _choice(pool: PoolDraft, draft: Draft, coming: Draft | None = None) -> Choice:
    """Which machine of a group may go; ``coming``: once one has come there. What only its pods can say is asked for."""
    if draft.drain_blocked_by is not None:
        return Choice(why=draft.drain_blocked_by)
    if draft.key in pool.choices:
        return pool.choices[draft.key]
    pool.asks[draft.key] = "" if coming is None else coming.key
    if not pool.pool.converge.blind:
        return Choice(why=Reason.of(Rule.CONVERGE_NO_VIEW))
    if coming is not None:
        return Choice()  # nobody has listed its machines yet
    may_go = [
        machine
        for machine in draft.group.machines or ()
        if machine.has_node and not machine.deleting and not machine.preserved
    ]
    # Those that are unwell, then the newest: what has run for longest is moved last.
    may_go.sort(key=lambda machine: (machine.ready, -machine.created_at.timestamp(), machine.name))
    return Choice(machine=may_go[0].ref) if may_go else Choice(why=Reason.of(Rule.CONVERGE_NO_MACHINE))


def _course(pool: PoolDraft) -> tuple[tuple[str, str], ...]:
    """Source and destination of every step until zones are level: with the one that begins, without one under way."""
    played = [replace(draft, step_max=None) for draft in pool.groups]
    begins = pool.convergence.step is None and pool.step is not None
    is_owed = pool.convergence.step is not None and pool.convergence.step.is_open and pool.step is None
    step = pool.step or pool.convergence.step
    for draft in played:
        if step is not None and ((begins and draft.key == step.destination) or (is_owed and draft.key == step.source)):
            draft.requested -= 1
    course: list[tuple[str, str]] = []
    least = _least(pool)
    while len(course) < _COURSE and (ways := _ways(pool, played, least)):
        source, destination = ways[0]
        course.append((source.group.zone or source.key, destination.group.zone or destination.key))
        source.requested -= 1
        destination.requested += 1
    return tuple(course)
