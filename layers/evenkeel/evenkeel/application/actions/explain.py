"""``explain``: all incidents with their remedies; or, for groups, the rule of each number and the obstacles to growth.

All numbers are from a plan that is made for the answer.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from datetime import datetime
from itertools import islice
from typing import Annotated, Any

from evenkeel.application.actions.call import Answer, Call, Fields, GroupName, PoolName, Right, action
from evenkeel.application.actions.overview import cause_summary, causes_of_cluster, overview, titles_of_causes
from evenkeel.application.convergence.summary import pool_level
from evenkeel.application.demand.summary import cluster_demand, pool_demand
from evenkeel.application.errors import UNREADABLE, BadRequestError
from evenkeel.application.plan_documents import (
    ONLY_WHEN_KNOWN,
    DecisionDocument,
    Document,
    document_json,
    or_named,
    read_decisions,
)
from evenkeel.application.ports import StoredCluster
from evenkeel.application.rebalancing.decisions import pool_json
from evenkeel.application.rebalancing.preview import Preview, find_group, find_pool
from evenkeel.domain.incidents.health import unreadable
from evenkeel.domain.model.groups import NodeGroup, State
from evenkeel.domain.model.incidents import ClusterHealth, Incident, IncidentKind
from evenkeel.domain.model.origins import POOL_MAX
from evenkeel.domain.model.outcomes import Result
from evenkeel.domain.model.plans import GroupPlan, PoolPlan
from evenkeel.domain.model.pools import AnyPool, rule_of
from evenkeel.domain.model.reasons import KEEPING, Reason, Rule, Topic
from evenkeel.domain.plan import CAPABILITIES
from evenkeel.domain.rebalancing.dry_run import is_pool_dry
from evenkeel.domain.rebalancing.health.provision_times import timeouts_of
from evenkeel.texts.drill import drill_text
from evenkeel.texts.english import ago, in_words, problem_text, rfc3339, sentence, some_names, without_request_ids
from evenkeel.texts.incidents import command_line, explains, incident_text, runbook, todo
from evenkeel.texts.pool_numbers import chain_text, origin_text
from evenkeel.validation import ConfigError

_DECISIONS_TOLD = 3
_INCIDENTS_TOLD = 3  # of each cause that clusters or pools share
_DECISIONS_READ = 50  # more than are shown, because most decisions are about other pools


class ExplainFields(Fields):
    """A group or a pool of a cluster. Without either, all incidents are explained."""

    group: GroupName = None
    pool: PoolName = None


class Explanation(Document):
    """The answer. ``groups`` has the sentences about each group, by key."""

    pool: Annotated[dict[str, Any] | None, ONLY_WHEN_KNOWN] = None
    incidents: Annotated[list[dict[str, Any]] | None, ONLY_WHEN_KNOWN] = None
    sentences: list[str]
    groups: dict[str, list[str]] = field(default_factory=dict)
    history: list[str]
    message: str = ""

    def json(self) -> Answer:
        """Return the answer as JSON. If no message is set, it consists of all sentences."""
        groups = [line for lines in self.groups.values() for line in lines]
        self.message = self.message or " ".join([*self.sentences, *groups, *self.history])
        return document_json(self)


def _explain_fleet(call: Call, fields: ExplainFields) -> Answer:
    """Explain each open incident of all clusters, from stored items. What clusters share is explained once."""
    if fields.group is not None or fields.pool is not None:
        raise BadRequestError("a group or a pool goes with a cluster: name the cluster, too")
    fleet = overview(call, Fields())
    lines: list[str] = []
    open_incidents = [(cluster, each) for cluster in fleet["clusters"] for each in cluster.get("incidents", ())]
    for cause in fleet["causes"]:
        told = [(cluster, each) for cluster, each in open_incidents if each.get("cause") == cause["title"]]
        told = told[:_INCIDENTS_TOLD]
        shown = {cluster["cluster"] for cluster, _ in told}
        alike = [cluster for cluster in cause["clusters"] if cluster not in shown]
        lines += _shared(cause, _quoted_once(told), alike)
    for cluster, incident in open_incidents:
        if "cause" not in incident:
            lines += [f"{incident['severity']}: {_told(cluster, incident)}", _remedy(incident)]
    for cluster in fleet["clusters"]:
        if cluster.get("truncated"):
            command = f"evenkeel explain --stack {call.ports.stack} --cluster {cluster['cluster']}"
            lines.append(f"{cluster['cluster']}: {cluster['message']}; the answer had no room for more: {command}")
    lines.append(f"{fleet['message']}.")
    texts = {"sentences": lines, "groups": {}, "history": [], "message": fleet["message"]}
    incidents = [{"cluster": cluster["cluster"], **incident} for cluster, incident in open_incidents]
    return {**texts, "causes": fleet["causes"], "incidents": incidents, "counts": fleet["counts"]}


def _shared(cause: Mapping[str, Any], told: Iterable[str], alike: Sequence[str]) -> list[str]:
    """Return a cause, some of its incidents, the names of the others, and what to do."""
    others = [f"The same in {some_names(alike)}."] if alike else []
    return [f"{cause['severity']}: {_ended(cause['message'])}", *told, *others, _remedy(cause)]


def _quoted_once(told: Iterable[tuple[Mapping[str, Any], Mapping[str, Any]]]) -> Iterator[str]:
    """Yield the incidents of clusters. A message of the cloud or API server that several have is in the first."""
    quoted: set[str] = set()
    for cluster, incident in told:
        said = without_request_ids(incident["said"] or "")
        yield _told(cluster, incident, "headline" if said in quoted else "message")
        quoted.add(said)


def _told(cluster: Mapping[str, Any], incident: Mapping[str, Any], text: str = "message") -> str:
    return f"{cluster['cluster']}: since {incident['since']}: {_ended(incident[text])}"


def _remedy(incident: Mapping[str, Any]) -> str:
    return f"What to do: {incident['todo']}: {incident['command']} ({incident['runbook']})."


def _ended(text: str) -> str:
    return text if text.endswith("…") else f"{text}."


@action(ExplainFields, Right.READ, of_all=True, overview=_explain_fleet)
def explain(call: Call, fields: ExplainFields) -> Answer:
    """The incidents of all clusters or of one, and what to do; or the reasons for the numbers of a group or pool."""
    if fields.group is not None and fields.pool is not None:
        raise BadRequestError("explain takes a group or a pool: name one of them, or neither")
    if fields.group is None and fields.pool is None:
        return _explain_incidents(call)
    preview = call.preview(with_demand=True)
    if fields.group is not None:
        pool, plan = find_group(preview, fields.group)
        plans, incidents = [plan], []
    else:
        pool = find_pool(preview, str(fields.pool))
        plans = list(pool.groups)
        incidents = [each for each in call.health(preview).incidents if each.pool == str(pool.id)]
    groups = {str(plan.group.key): explain_group(preview, pool, plan) for plan in plans}
    return Explanation(
        pool=pool_json(pool),
        incidents=[call.incident_json(each, preview.now) for each in incidents] or None,
        sentences=[
            *(line for each in incidents for line in _what_to_do(call, each)),
            *_mode(call, preview),
            *_open_drill(call, preview.stored),
            *explain_pool(preview, pool),
        ],
        groups=groups,
        history=_history(call, groups, preview.now),
    ).json()


def _explain_incidents(call: Call) -> Answer:
    """Return the explanation of all incidents, and of the numbers of their pools and groups."""
    try:
        evaluated = call.evaluate(with_demand=True)
    except ConfigError as error:  # all other parts of the answer need a valid record
        return _explain_invalid_record(call, str(error))
    incidents, now = evaluated.cluster_health.incidents, evaluated.now
    causes = causes_of_cluster(call, incidents)
    titles = titles_of_causes(causes)[call.cluster]
    about = [f"{call.cluster} cannot be read: {evaluated.unread}."] if evaluated.unread is not None else []
    explained = [incident for incident in incidents if incident.key not in titles]
    for cause in causes:
        told = [each.incident for each in cause.incidents]
        alike = [incident.pool.rpartition("/")[2] for incident in told[_INCIDENTS_TOLD:]]
        explained += told[:_INCIDENTS_TOLD]
        documents = [call.incident_json(incident, call.now) for incident in told[:_INCIDENTS_TOLD]]
        texts = _quoted_once(({"cluster": call.cluster}, document) for document in documents)
        about += _shared(document_json(cause_summary(cause, call)), texts, alike)
    about += [line for each in incidents if each.key not in titles for line in _what_to_do(call, each)]
    keys = {key for incident in explained for key in (incident.pool, *incident.groups)}
    about = about or [f"{call.cluster} has no incident."]
    about += _open_drill(call, evaluated.stored)
    groups: dict[str, list[str]] = {}
    if (preview := evaluated.preview) is not None:
        about += [line for pool in preview.plan.pools if str(pool.id) in keys for line in explain_pool(preview, pool)]
        members = [(pool, plan) for pool in preview.plan.pools for plan in pool.groups]
        groups = {
            key: explain_group(preview, pool, plan) for pool, plan in members if (key := str(plan.group.key)) in keys
        }
    return Explanation(
        incidents=[call.incident_json(each, now, titles.get(each.key, "")) for each in incidents],
        sentences=about,
        groups=groups,
        history=_history(call, groups, now),
    ).json()


def _explain_invalid_record(call: Call, fault: str) -> Answer:
    health = unreadable(call.ports.store.cluster_healths().get(call.cluster, ClusterHealth()), fault, call.now)
    incident = next(incident for incident in health.incidents if incident.kind is IncidentKind.INVALID_RECORD)
    about = _what_to_do(call, incident)
    return Explanation(
        incidents=[call.incident_json(incident, call.now)],
        sentences=about,
        history=_history(call, (), call.now),
        message=" ".join(about),
    ).json()


def _what_to_do(call: Call, incident: Incident) -> list[str]:
    """Return sentences about an incident and its remedy, without the remedy's command if that is `explain`."""
    command = "" if explains(incident) else f": {command_line(incident, call.cluster, call.ports.stack)}"
    return [
        _ended(incident_text(incident, call.now)),
        f"What to do: {todo(incident)}{command} ({runbook(incident, call.ports.runbooks)}).",
    ]


def _mode(call: Call, preview: Preview) -> list[str]:
    if preview.stored.control.is_paused(call.now):
        return [f"Cluster {call.cluster} is paused: what follows would be so if it were not."]
    if preview.stored.control.writes_nothing(preview.record, call.ports.dry_run):
        live = [pool.id.name for pool in preview.plan.pools if not is_pool_dry(pool.mode.dry_run, True)]
        except_for = f", but of pool {', '.join(live)}" if live else ", and numbers stay as they are"
        return [f"Cluster {call.cluster} is in dry run: nothing of this is written{except_for}."]
    return []


def _open_drill(call: Call, stored: StoredCluster) -> list[str]:
    drill = stored.drill
    return [f"{drill_text(drill, call.now)}."] if drill is not None and drill.is_open(call.now) else []


def _history(call: Call, names: Iterable[str], now: datetime) -> list[str]:
    return history(call.ports.store.decisions(call.cluster, _DECISIONS_READ), names, now)


# The kinds of rules, as in docs/operate/status.md. The sentence about a number starts with the kind of its rule.
_NAMES: Mapping[Rule, str] = {
    rule: name
    for name, rules in {
        "strategy": (
            Rule.STRATEGY,
            Rule.LAST_BOUNDS_STAY,
            Rule.NO_LAST_BOUNDS,
            Rule.MIN_ZERO_WHILE_FENCED,
            *(rule for rule in Rule if rule.name.startswith("HEADROOM_")),
        ),
        "fence": (Rule.FENCE, Rule.UNHEALTHY_MAX, Rule.PINNED, Rule.PROBE, Rule.SLOW_START_MAX),
        "safety pass": (
            Rule.WORKER_SHARE,
            Rule.ZONE_MAX,
            Rule.GIVES_UP_FIRST,
            Rule.ZONE_MIN,
            Rule.MAX_BELOW_REQUESTED,
            Rule.OWNER_MIN_MAX,
            Rule.OWNER_MIN_MIN,
            Rule.MIN_ABOVE_REQUESTED,
            Rule.MIN_ABOVE_RUNNING,
        ),
        "level": (Rule.LEVEL_KEPT, Rule.LEVEL_GIVES, Rule.LEVEL_RESTS),
        "converge": tuple(rule for rule in Rule if rule.name.startswith(("STEP_", "RETURN_"))),
        "restore": (Rule.RESTORED, Rule.RESTORED_TO_NONE, Rule.RESTORED_WITHOUT_BOUNDS),
        "release": (Rule.RELEASED,),
        "move": (Rule.TAKES_ON, Rule.MOVED, Rule.MOVE_UNDER_WAY, Rule.CLOSED_FOR_ORDER, Rule.OPEN_FOR_PODS),
        "held": (*KEEPING, Rule.NODES_OF_ANOTHER, Rule.REQUEST_NO_SHARE, Rule.CLOSED_AT_ZERO, Rule.BOUNDS_HELD),
        "owner": (Rule.TAKEN_FROM,),
        "take-back": (Rule.TAKEN_BACK,),
        "raise": (Rule.POOL_MINIMUM, Rule.PROBE_FOR_MINIMUM, Rule.OWN_MINIMUM),
        "probe": (Rule.PROBE_UNSEEN,),
        "request": (Rule.REQUEST_SHARE, Rule.GIVES_BACK),
        "removal": (Rule.REMOVES,),
    }.items()
    for rule in rules
} | {rule: kind for capability in CAPABILITIES for rule, kind in capability.kinds.items()}


def explain_reason(reason: Reason, flavour: str = "") -> str:
    """Return a reason as a sentence. If the reason set a number, the sentence starts with the kind of rule."""
    if reason.rule.topic in (Topic.STATE, Topic.NOTE):
        return sentence(reason, flavour)
    return f"{_NAMES[reason.rule]}: {sentence(reason, flavour)}"


def explain_pool(preview: Preview, planned: PoolPlan) -> list[str]:
    """Return sentences about a pool: its numbers with their sources, its unused PoolMaximum, and its problems."""
    pool, flavour = preview.pool(planned.id), planned.id.flavour
    sentences = [f"Pool {planned.id} is sized by {planned.strategy.name} ({_strategy_from(preview, pool)})."]
    for origin in planned.report.origins:
        name = "PoolMaximum" if origin.field == POOL_MAX else "PoolMinimum"
        sentences.append(f"{name} is {origin.value}: {origin_text(origin)}.")
        sentences += chain_text(origin)
    notes = [sentence(note, flavour) for note in planned.report.notes]
    sentences += [f"{note[:1].upper()}{note[1:]}." for note in notes]
    sentences += [
        f"{text[:1].upper()}{text[1:]}." for text in (sentence(reason, flavour) for reason in timeouts_of(planned))
    ]
    if planned.mode.valid and planned.max is not None:
        sentences.append(_room(planned, planned.max))
    if preview.stored.control.restores(planned.id):
        sentences.append("It is being restored, in dry run too: what is listed below is written with the next check.")
    if not planned.mode.valid:
        sentences.append("It is invalid, so it is not written until that is fixed.")
    sentences += [f"Problem: {problem_text(problem, flavour)}." for problem in planned.report.problems]
    level = pool_level(planned.convergence.report)
    sentences += level.says if level else ()
    of_cluster, of_pool = cluster_demand(preview.plan.demand), pool_demand(planned.demand.advice)
    return [*sentences, *(of_pool.says if of_pool else ()), *(of_cluster.says if of_cluster else ())]


def _strategy_from(preview: Preview, pool: AnyPool) -> str:
    annotated = next((group for group in pool.groups if group.annotations.strategy is not None), None)
    if annotated is not None:
        return f"{in_words('annotation', pool.id.flavour)} evenkeel.dev/strategy on {annotated.key}"
    rule = rule_of(pool.id, preview.record.policy())
    if rule is not None and rule.strategy is not None:
        return f"the record's strategy for pool {rule.name}"
    return "the record's strategy, Balanced unless it says otherwise"


def _room(pool: PoolPlan, maximum: int) -> str:
    requested = sum(plan.requested for plan in pool.groups) - pool.report.uncounted
    over = requested - maximum
    room = f"{over} more than PoolMaximum allows" if over > 0 else f"{pool.headroom} more may come"
    offered = sum(max(0, plan.bounds.max - plan.requested) for plan in pool.groups if plan.bounds)
    if offered != pool.headroom:
        room += f", and the maxima of its zones leave room for {offered}"
    return f"Its zones request {requested} of {maximum}: {room}."


def explain_group(preview: Preview, pool: PoolPlan, plan: GroupPlan) -> list[str]:
    """Return sentences about a group: its state, replicas, max, min, and the obstacles to its growth."""
    group, old, new = plan.group, plan.group.bounds, plan.bounds
    since, until = preview.span(pool, plan)
    about: dict[Topic, list[str]] = {topic: [] for topic in Topic}
    for reason in plan.reasons:
        brief = reason.without("words")  # ``_past`` has the whole message
        about[reason.rule.topic].append(explain_reason(brief, plan.group.key.flavour))
    begin = "" if since is None else f" since {rfc3339(since)} ({ago(preview.now - since)})"
    end = "" if until is None else f", until {rfc3339(until)}"
    minimum = _minimum(pool, plan) + (about[Topic.MIN] if pool.mode.valid else [])
    return [
        _because(
            f"Node group {group.key} in zone {group.identity.zone or '?'} is {plan.state.value}{begin}{end}",
            about[Topic.STATE],
        ),
        _because(
            f"Requested {_step(group.requested, plan.requested)}, running {group.running}", about[Topic.REQUESTED]
        ),
        _because(f"Max {_step(old.max if old else None, new.max if new else None)}", about[Topic.MAX]),
        _because(f"Min {_step(old.min if old else None, new.min if new else None)}", minimum),
        *(f"{note[:1].upper()}{note[1:]}." for note in about[Topic.NOTE]),
        _growth(pool, plan, until),
        *_past(preview, pool, plan),
    ]


def _minimum(pool: PoolPlan, plan: GroupPlan) -> list[str]:
    if not pool.mode.valid or pool.min is None or not plan.writable or plan.leaves:
        return []
    return [f"strategy: {pool.strategy.sentence_of_min.format(minimum=pool.min)}"]


def _past(preview: Preview, pool: PoolPlan, plan: GroupPlan) -> list[str]:
    """Return sentences about a group's last failure, the last write of its bounds, and its adopted bounds."""
    group, state, sentences = plan.group, preview.state_of(plan.group.key), []
    if state.failure.last_failure is not None and plan.state in (State.FENCED, State.PROBING):
        message = " ".join(state.failure.message.split()).rstrip(".") or state.failure.failure_class.value
        age = ago(preview.now - state.failure.last_failure)
        sentences.append(f"Its last failure was at {rfc3339(state.failure.last_failure)} ({age}): {message}.")
    if (published := group.ours.published) is not None and published.bounds is not None:
        sentences.append(
            f"Its bounds were last written at {rfc3339(published.at)} ({ago(preview.now - published.at)}), "
            f"to {published.bounds.min} and {published.bounds.max}."
        )
    if options := list(_scale_down_options(group)):
        sentences.append(f"Its own scale-down options: {', '.join(options)}.")
    if group.ours.has_adopted or str(group.key) in pool.next_state.adopted:
        adopted = pool.adopted.get(str(group.key))
        before = "no bounds" if adopted is None else f"{adopted.min} to {adopted.max}"
        sentences.append(f"Before Evenkeel it had {before}: its adopted bounds, which restore puts back.")
    return sentences


def _scale_down_options(group: NodeGroup) -> Iterator[str]:
    """Yield the group's own scale-down options, each with its value."""
    shares = {
        "utilization threshold": group.options.utilization_threshold,
        "GPU utilization threshold": group.options.gpu_utilization_threshold,
    }
    for name, share in shares.items():
        if share is not None:
            yield f"{name} {share:.0%}"
    for name, time in {
        "unneeded time": group.options.unneeded_time,
        "unready time": group.options.unready_time,
    }.items():
        if time is not None:
            minutes, rest = divmod(time.total_seconds(), 60)
            yield f"{name} {time.total_seconds():g} s" if rest or not minutes else f"{name} {minutes:.0f} min"


def history(decisions: Iterable[Mapping[str, Any]], names: Iterable[str], now: datetime) -> list[str]:
    """Return sentences about the last operator actions, and the last decisions about groups with these keys."""
    keys = set(names)
    lines = (line for entry in map(or_named, decisions) for line in _lines_of(entry, keys, now))
    return list(islice(lines, _DECISIONS_TOLD))


def _lines_of(entry: Mapping[str, Any], keys: Collection[str], now: datetime) -> Iterator[str]:
    when = f"{entry['at']} ({ago(now - datetime.fromisoformat(entry['at']))})"
    if "pool" in entry:
        (decision,) = read_decisions([entry], f"decision {entry['id']}")
        yield from _changes(decision, keys, now)
    elif entry["cause"] == UNREADABLE:
        yield f"At {when}: {entry['what']}."
    else:
        yield f"At {when}: {entry['cause']}, asked for by {entry['by'] or 'an unnamed caller'}."


def _changes(decision: DecisionDocument, keys: Collection[str], now: datetime) -> Iterator[str]:
    when = f"{rfc3339(decision.at)} ({ago(now - decision.at)}, {decision.cause})"
    for group in decision.pool.groups:
        if group.key in keys and group.result != Result.LEFT_ALONE:
            changes = group.changes
            steps = ", ".join(
                f"{name} {_step(changes[name].before, changes[name].after)}"
                for name in ("requested", "max", "min")
                if name in changes
            )
            reasons = "; ".join(group.reasons)
            yield f"At {when}: {group.name}: {steps or 'no change'}: {reasons}: {group.outcome}."


def _growth(pool: PoolPlan, plan: GroupPlan, until: datetime | None) -> str:
    """Return a sentence that says by how many nodes the group may grow, or which change would let it grow."""
    group, top = plan.group, plan.bounds.max if plan.bounds else None
    flavour = group.key.flavour
    holds = [] if pool.mode.valid else ["its pool is invalid"]
    if not plan.writable:
        frozen = sentence(group.frozen_because, flavour) if group.frozen_because else "resume ends it"
        holds.append(f"it is frozen: {frozen}")
    unseen = [] if group.template.closed_because is None else [sentence(group.template.closed_because, flavour)]
    closed = unseen if plan.requested == 0 else []
    obstacles = _obstacles(pool, plan, until) + ([] if closed else unseen)
    if top is None and any(fault.field.endswith(("size", "Replicas")) for fault in group.unreadable.faults):
        return f"Its bounds cannot be read: {'; '.join(holds)}."
    if top is None and not closed:
        return "It has no bounds: nothing limits its growth."
    if top is not None and group.owner.allowed_replicas is not None:
        top = min(top, group.owner.allowed_replicas.max)
    more = 0 if top is None else top - plan.requested
    if more <= 0 or closed:
        return f"It cannot grow now: {'; '.join(closed + holds + obstacles) or _spent(plan)}."
    if holds:
        return f"Its bounds leave room for {more} more, to {top}; Evenkeel does not write them: {'; '.join(holds)}."
    probing = plan.state is State.PROBING and not plan.leaves
    probe = ", until a new node shows that the zone delivers" if probing else ""
    although = f", although {'; '.join(obstacles)}" if obstacles else ""
    return f"It may grow by {more}, to {top}{probe}{although}."


def _obstacles(pool: PoolPlan, plan: GroupPlan, until: datetime | None) -> list[str]:
    """Return the obstacles to the growth of a group, each with the change that would remove the obstacle."""
    group, obstacles = plan.group, []
    if plan.state is State.FENCED:
        obstacles.append("it is fenced" if until is None else f"its fence ends at {rfc3339(until)}")
    elif plan.group.status.unhealthy is not None:
        obstacles.append("too many nodes are not Ready")
    requested = sum(plan.requested for plan in pool.groups)
    if pool.mode.valid and pool.max is not None and requested >= pool.max:
        obstacles.append(_pool_is_full(pool, requested, pool.max))
    if group.annotations.zone_max is not None and plan.requested >= group.annotations.zone_max:
        obstacles.append(f"evenkeel.dev/zone-max is {group.annotations.zone_max}")
    reach = max(plan.requested, plan.bounds.max - 1) if plan.bounds else plan.requested
    if group.owner.allowed_replicas is not None and reach >= group.owner.allowed_replicas.max:
        owner = "bounds that are held allow" if group.owner.bounds_held else "Worker allows"
        obstacles.append(f"its {owner} {group.owner.allowed_replicas.max} in this zone")
    return obstacles


def _pool_is_full(pool: PoolPlan, requested: int, maximum: int) -> str:
    full = f"the pool requests {requested} of PoolMaximum {maximum}"
    if requested > maximum:
        return f"{full}: what is beyond it has to go first, or PoolMaximum has to rise"
    return f"{full}: PoolMaximum has to rise" + (", or another zone to shrink" if len(pool.groups) > 1 else "")


def _spent(plan: GroupPlan) -> str:
    """Return why a group without other obstacles has a max that is not above its requested replicas."""
    if any(reason.rule in (Rule.MOVE_UNDER_WAY, Rule.CLOSED_FOR_ORDER) for reason in plan.reasons):
        return "its max rises again once what is on its way has come"
    if plan.leaves:
        return "its bounds from before Evenkeel allow no more"
    return "its max is what it requests: a larger PoolMaximum would raise it"


def _step(before: int | None, after: int | None) -> str:
    if before == after:
        return f"stays {_or_unset(after)}"
    return f"goes from {_or_unset(before)} to {_or_unset(after)}"


def _or_unset(number: int | None) -> str:
    return "unset" if number is None else str(number)


def _because(statement: str, reasons: list[str]) -> str:
    return f"{statement}: {'; '.join(reasons)}." if reasons else f"{statement}."
