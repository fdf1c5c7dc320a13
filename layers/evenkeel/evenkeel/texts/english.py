"""Reasons, problems and outcomes in words: the one place where the values of the domain become English.

Nobody reads these words back. Whoever changes a sentence here changes what people read, and nothing else.
"""

import json
import shlex
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import SOMEBODY, Bounds, NodeGroup, OwnerNumbers, OwnerRef, shoot_of_namespace
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.domain.model.moves import FOR_PODS, UNNEEDED_NODES
from evenkeel.domain.model.origins import POOL_MAX, POOL_MIN, Origin, OwnerShare, Source
from evenkeel.domain.model.outcomes import Outcome
from evenkeel.domain.model.plans import TakenOff
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.values import quote
from evenkeel.domain.rebalancing.bounds import strategies
from evenkeel.domain.rebalancing.membership.numbers import Change, Fix, Unfixable

Facts = Mapping[str, Fact]
Words = str | Callable[[Facts], str]
"""A sentence with the names of facts in braces, or what makes one from them."""


def rfc3339(at: datetime) -> str:
    """A moment as Kubernetes writes it: UTC, whole seconds, Z."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_words(skew: timedelta) -> str:
    """Return how far an API server's clock is from ours; empty where they agree."""
    minutes = round(abs(skew).total_seconds() / 60, 1)
    return f"is {minutes:g} min {'ahead of' if skew > timedelta(0) else 'behind'} ours" if skew else ""


def ago(length: timedelta) -> str:
    """A length of time in words, in its largest unit."""
    seconds = int(length.total_seconds())
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            number = seconds // size
            return f"{number} {unit}{'' if number == 1 else 's'} ago"
    return "just now"


def lasting(length: timedelta) -> str:
    """How long something lasts, in its largest unit."""
    for unit, size in (("days", timedelta(days=1)), ("h", timedelta(hours=1))):
        if length >= 2 * size:
            return f"for {length // size} {unit}"
    return f"for {max(0, length // timedelta(minutes=1))} min"


def counted(number: int, noun: str = "node") -> str:
    """So many of something; how many nodes are added or given back is said without the sign."""
    return f"{abs(number)} {noun}{'' if abs(number) == 1 else 's'}"


def taken_off_words(taken: TakenOff) -> str:
    """Return the answer to a request to give nodes back that were not added yet."""
    off = Counter(taken.before) + Counter(taken.nodes)
    stay = -taken.scale_request.nodes - sum(off.values())
    said = ", ".join(f"{counted(nodes)} of request {id} will not be added" for id, nodes in sorted(off.items()))
    return said + (f", {stay} more have to stay: ask again to give them back" if stay else "")


def _request(facts: Facts) -> str:
    """A request for nodes, or for giving some back."""
    nodes = int(str(facts["nodes"]))
    whose = {FOR_PODS: f"for {FOR_PODS}", UNNEEDED_NODES: UNNEEDED_NODES}.get(str(facts["request"]))
    whose = whose or f"request {facts['request']}"
    return f"{counted(nodes)} {'asked for' if nodes >= 0 else 'to be given back'} ({whose})"


def _of_request(template: str) -> Words:
    def words(facts: Facts) -> str:
        quoted = {name: _quoted(facts[name]) for name in ("named", "names") if name in facts}
        return _filled(template, {**facts, **quoted, "what": _request(facts)})

    return words


def _nowhere(facts: Facts) -> str:
    words = f"{_request(facts)} of {_quoted(facts['named'])}: no pool here has that name"
    pools = _texts(facts["group_of"])
    return f"{words}, but pool {', '.join(pools)} has a group of that name: name that pool" if pools else words


def _quoted(fact: Fact) -> str:
    return ", ".join(quote(name) for name in fact) if isinstance(fact, tuple) else quote(fact)


def _gone(verb: str) -> Words:
    def words(facts: Facts) -> str:
        coming = f" and the {facts['coming']} on their way" if facts["coming"] else ""
        return f"{verb} {facts['count']} stuck replicas: the {facts['running']} running{coming} stay"

    return words


def _strategy(facts: Facts) -> str:
    """A strategy's own sentence, after its name."""
    template = next(strategy.sentence for strategy in strategies.STRATEGIES if strategy.name == facts["strategy"])
    note, steps = facts.get("note"), _texts(facts.get("steps"))
    extra = {"note": f"; {_shown(note)}" if note else "", "steps": f" ({'; '.join(steps)})" if steps else ""}
    return f"{facts['strategy']}: {_filled(template, {**facts, **extra})}"


def _with_steps(template: str) -> Words:
    def words(facts: Facts) -> str:
        return _filled(template, {**facts, "steps": "; ".join(_texts(facts["steps"]))})

    return words


def _listing(fact: str, template: str) -> Words:
    """A sentence in which one fact is a list of names."""

    def words(facts: Facts) -> str:
        return _filled(template, {**facts, fact: ", ".join(_texts(facts[fact]))})

    return words


def _closed_for_order(facts: Facts) -> str:
    until = facts["until"]
    then = "so Evenkeel does" if until is None else f"so Evenkeel orders up to {facts['nodes']} after {_shown(until)}"
    return f"max is what is requested: no autoscaler orders the released replicas, {then}"


def _paused(facts: Facts) -> str:
    until = facts["until"]
    return f"paused by an operator until {'resumed' if until is None else _shown(until)}"


# Who applies fields by server-side apply and puts them back within seconds, and where they can be changed instead.
_REMEDIES: Mapping[str, str] = {
    "capi-topology": "set it for this machine deployment in the Cluster's topology, which goes before its ClusterClass",
}


def _applied(facts: Facts) -> str:
    """A field that a controller declares to be its own."""
    manager = str(facts["manager"])
    remedy = _REMEDIES.get(manager, f"take it out of what {manager} applies, or change it there")
    return f"{facts['place']} is not ours: {manager} applies it and would put it back: {remedy}; then resume"


def _unread(facts: Facts) -> str:
    """Of a pool whose autoscaler has its bounds from flags (Gardener)."""
    sentence = (
        "no autoscaler reads the bounds of this pool, since cluster-autoscaler has its own from Gardener, as flags: "
        "release, moves, taking back, levelling and PoolMinimum work all the same, within the Worker's shares"
    )
    if not facts["shared"]:
        return sentence
    return (
        f"{sentence}, and with one worker for each zone in the Shoot a zone could take over what another cannot deliver"
    )


def _whose(template: str) -> Words:
    """A sentence about what other clusters say, which begins with who they are."""

    def words(facts: Facts) -> str:
        names, others = _texts(facts["clusters"]), int(str(facts["others"]))
        more = len(names) - 1 + others
        if not names:
            who = "another cluster" if others < 2 else f"{others} clusters"
        else:
            who = f"cluster {names[0]}" + (f" and {counted(more, 'other')}" if more else "")
        return _filled(template, {**facts, "who": who})

    return words


def _fits_no_pool(facts: Facts) -> str:
    """Pods that wait for a node, and what each pool says to that, in one sentence."""
    number = int(str(facts["pods"]))
    who = f"pod {facts['pod']}" if number == 1 else f"{number} pods like {facts['pod']}"
    why = "; ".join(_texts(facts["why"])) or "there is no pool"
    return f"{who} can have no node: {why}"


def _who_waits(facts: Facts) -> str:
    """The pods of a problem, and how many there are."""
    names, count = _texts(facts["pods"]), int(str(facts["count"]))
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return f"{', '.join(names)}{more} {'waits' if count == 1 else 'wait'}"


def _ineffective_order(facts: Facts) -> str:
    """Pods, the node that was ordered for them, and the scheduler's rule that keeps them off it."""
    return f"{_who_waits(facts)}; node {facts['node']} was ordered and does not help: {_shown(facts['why'])}"


def _blocked_by_daemon_sets(facts: Facts) -> str:
    """Pods, the DaemonSets of a new node, and the scheduler's rule that then keeps the pods off it."""
    claims = zip(_texts(facts["daemons"]), _texts(facts["claims"]), strict=True)
    daemons = ", ".join(f"{name} ({claim})" if claim else name for name, claim in claims)
    return f"{_who_waits(facts)}; a new node does not help beside its DaemonSets {daemons}: {_shown(facts['why'])}"


WORDS: dict[Rule, Words] = {
    Rule.FROZEN: "frozen: {why}",
    Rule.CONTESTED_BOUNDS: "frozen: {by} put our bounds back {times} times within an hour; operator resume tries again",
    Rule.CONTESTED_REPLICAS: "replicas stay as they are: {by} put them back {times} times within an hour; "
    "operator resume tries again",
    Rule.REPLICAS_NOT_OURS: "replicas stay as they are: {why}",
    Rule.REPLICAS_OF_KARPENTER: "replicas stay as they are: Karpenter orders the machines here and claims them",
    Rule.ZONE_IMPAIRED: "fenced: zone {zone} is impaired until {until}",
    Rule.IN_BACKOFF: "fenced: {kind} failure {failures}, in backoff until {until}",
    Rule.PROBING_AFTER_ARRIVAL: "probing: a node has come since {kind} failure {failures}, so its backoff is over",
    Rule.PROBING_AFTER_BACKOFF: "probing: backoff after {kind} failure {failures} is over, no new node seen yet",
    Rule.FENCED_BY_OTHERS: _whose("fenced until {until}: {who} could not get {offering}, and another zone can grow"),
    Rule.THROTTLED: _whose("cautious: {who} could not get {offering}: one more machine, until it has come"),
    Rule.SLOW_START: "slow start: its zone delivers again, so {nodes} machines may be on their way, and one more for "
    "each that comes",
    Rule.TAKES_ON: "takes on {count} replicas that another zone cannot deliver",
    Rule.MOVED: _gone("moved"),
    Rule.RELEASED: _gone("released"),
    Rule.STUCK_ON_HOLD: "{count} stuck replicas stay: evenkeel.dev/on-failure is hold",
    Rule.STUCK_SAME_FAILURE: "{count} stuck replicas stay: another zone would fail the same way",
    Rule.STUCK_BEHIND_REQUEST: "{count} stuck replicas stay for now: growth on request is under way in the pool",
    Rule.STUCK_WITHOUT_TAKER: "{count} stuck replicas stay: no healthy zone can take them",
    Rule.STUCK_BY_WORKER: "{count} stuck replicas stay: the Worker wants {minimum} in this zone",
    Rule.STUCK_BY_BOUNDS: "{count} stuck replicas stay: the bounds that are held want {minimum} in this zone",
    Rule.STUCK_BY_OWNER: "{count} stuck replicas stay: the owner of the bounds lets no fewer than {minimum} stand",
    Rule.STUCK_PUT_BACK: "{count} stuck replicas stay: they are put back",
    Rule.STUCK_OFFERED: "{count} stuck replicas stay: the owner of the bounds offers {offered} here whatever happens, "
    "so Cluster Autoscaler would order them again",
    Rule.TAKEN_BACK: "took back {count} replicas without a machine: the pool requests more than PoolMaximum {maximum}",
    Rule.PROBE_UNSEEN: "raised to 1 to probe: at zero, Cluster Autoscaler does not see this group",
    Rule.POOL_MINIMUM: "raised by {count}: the pool requests less than PoolMinimum {minimum}",
    Rule.PROBE_FOR_MINIMUM: "raised by 1 to probe: the pool requests less than PoolMinimum {minimum}, "
    "and no healthy zone can take it",
    Rule.OWN_MINIMUM: "raised by {count} to its own min {minimum}",
    Rule.REQUEST_SHARE: _of_request("raised by {count}, its share of the {what}: the smallest first"),
    Rule.REQUEST_NO_SHARE: _of_request("no share of the {what}: {why}"),
    Rule.PRESERVED: "{count} replicas are held by machines that Gardener preserves: they are no nodes, and "
    "are not given up, since a healthy node would go in their place; annotation node.machine.sapcloud.io/preserve: "
    "'false' on a machine or its node ends that",
    Rule.REMOVES: "takes away {machines}",
    Rule.STEP_ORDERS: "raised by 1 to bring the zones level: a machine of {zone} goes once this one runs",
    Rule.STEP_GIVES: "lowered by 1 to bring the zones level: its successor runs in {zone}",
    Rule.STEP_UNDONE: "lowered by 1: the step that ordered a machine here is undone, since {group} cannot give one",
    Rule.STEP_TAKEN_BACK: "lowered by 1: the machine that was ordered to bring the zones level is taken back: {why}",
    Rule.KEPT_FOR_PODS: "nodes that stay for pods that Evenkeel could not place again: {count}",
    Rule.GIVES_BACK: _of_request("gives back {count}, its share of the {what}: the largest first"),
    Rule.FENCE: "max is the {requested} requested: a fenced zone gets no growth",
    Rule.CLOSED_FOR_ORDER: _closed_for_order,
    Rule.OPEN_FOR_PODS: "max is {nodes} above what is requested: pods want as many beyond what is on its way",
    Rule.OPENED: "the pool is paused or in dry run: before that, its bounds let the autoscaler order again",
    Rule.MOVE_UNDER_WAY: "max is what is requested: Cluster Autoscaler would order what is on its way again",
    Rule.STRATEGY: _strategy,
    Rule.PROBE: "max cut to {max}: a probing zone may have one machine on its way",
    Rule.CAUTIOUS_MAX: "max cut to {max}: a cautious zone may have one more machine on its way",
    Rule.SLOW_START_MAX: "max cut to {max}: in a slow start, {nodes} machines may be on their way",
    Rule.WORKER_SHARE: "max cut to {max}: the Worker's share of the zone is {share}",
    Rule.ZONE_MAX: "max cut to {max}: evenkeel.dev/zone-max is {zone_max}",
    Rule.MAX_STEP: "max_step is {max_step}: nodes that later runs add: {later}",
    Rule.GIVES_UP_FIRST: "max stays at {max} while the group gives replicas up: the next run may raise it",
    Rule.BOUNDS_HELD: "min and max stay as they are: they belong to {owner}, which the record does not let us write",
    Rule.TAKEN_FROM: "{field} of {owner} is taken from {manager}, who applied or wrote it before",
    Rule.MAX_BELOW_REQUESTED: "max raised from {max} to the {requested} requested: less would block scale-down",
    Rule.OWNER_MIN_MAX: "max raised from {max} to {owner_min_max}, the least that the owner of the bounds accepts",
    Rule.OWNER_MIN_MIN: "min raised from {min} to {owner_min_min}, the least that the owner of the bounds accepts",
    Rule.PINNED: "its owner holds replicas at {requested}: no autoscaler adds or takes a node here",
    Rule.MIN_ABOVE_REQUESTED: "min lowered from {min} to the {requested} requested: more would block small growth",
    Rule.ZONE_MIN: "min raised to {min}: evenkeel.dev/zone-min is {zone_min}",
    Rule.LEVEL_KEPT: "min raised to the {min} requested until {until}: nodes go, and other zones have more to give",
    Rule.LEVEL_GIVES: "min raised to {min} until {until}: nodes go, and this one has some to give",
    Rule.STEP_MIN: "min raised to the {min} requested: the machine that has come to bring the zones level stays",
    Rule.STEP_MAX: "max is {max} while a machine is on its way to bring the zones level: nobody else orders here",
    Rule.STEP_AWAITS_NODE: "its machine is on its way to {zone}, until {until} at most",
    Rule.STEP_DRAINS: "machine {machine} of {group} is going since {since}",
    Rule.STEP_CANNOT_GIVE: "no machine of {zone} may go: {why}",
    Rule.STEP_LATE: "it was not there by {until}",
    Rule.STEP_BOUND: "{zone} requests more again, so its demand can be served nowhere else",
    Rule.STEP_SOURCE_GONE: "{group} is no group of the pool any more",
    Rule.CONVERGE_SETTLES: "zones have to differ until {until} before a node is moved",
    Rule.CONVERGE_HELD: "no node is moved before {until}: demand was bound to a zone, or a step came to nothing",
    Rule.CONVERGE_WINDOW: lambda facts: (
        "none of the record's windows ever opens"
        if facts["until"] is None
        else f"the record's next window opens at {_shown(facts['until'])}"
    ),
    Rule.CONVERGE_BUDGET: "the {per_hour} steps of an hour are used up until {until}",
    Rule.CONVERGE_ROLLOUT: "zone {zone} is rolling out, or frozen by its controller",
    Rule.CONVERGE_STATE: "zone {zone} is {state}",
    Rule.CONVERGE_CAUTIOUS: "zone {zone} is cautious: other clusters could not get such machines",
    Rule.CONVERGE_BEHIND: "a move, a request or a raise is under way in the pool",
    Rule.CONVERGE_AWAITS: "zone {zone} requests {requested}, and {running} run",
    Rule.CONVERGE_FULL: "{requested} of PoolMaximum {maximum} are requested, and a successor has to come before a "
    "machine goes: let the record have converge: surge 1, or raise PoolMaximum",
    Rule.CONVERGE_IDLE: "node {node} of {zone} is unneeded: scale-down takes it, and no successor is ordered",
    Rule.CONVERGE_STAYS: "no machine of {zone} may go: {why}",
    Rule.CONVERGE_NO_VIEW: "nobody knows its pods: let the record say where they are (workload), or consent to do "
    "without (converge: blind)",
    Rule.CONVERGE_NO_MACHINE: "it has no machine that can be named",
    Rule.LEVEL_RESTS: "no zone keeps its nodes for levelling before {until}: the last time, none went for 30 min",
    Rule.RESTORED: "restored: its bounds before us were {min} to {max}",
    Rule.RESTORED_TO_NONE: "restored: it had no bounds before us",
    Rule.RESTORED_WITHOUT_BOUNDS: "restored: its bounds are not ours, and stay as they are",
    Rule.NOT_RESTORED_YET: "not restored yet: {why}",
    Rule.NOT_RESTORED: "not restored: its adopted-bounds annotation has been edited beyond reading",
    Rule.CLOSED_AT_ZERO: "{why}",
    Rule.SHORT_PROVISION: "Cluster Autoscaler waits {seconds} s for a node here while the zone is suspect",
    Rule.ROLLING_SHARE: "rolling update: this zone's share is maxSurge {surge}, maxUnavailable {unavailable} "
    "(reported, not written)",
    Rule.BOUNDS_UNREAD: _unread,
    Rule.POOL_DRY_RUN: "in dry run by its own word: nothing of it is written",
    Rule.POOL_LIVE: "live by its own word: it is written, also while its cluster is in dry run",
    Rule.RELIEF_WAITS: _listing(
        "zones",
        "relief by the Shoot's maximum is looked at from {until} on, if {zones} still fails: a hiccup is no reason",
    ),
    Rule.RELIEF_RAISES: _listing(
        "zones",
        "relief: {place} rises from {found} to {number} while {zones} fails, so that a healthy zone may have {share}; "
        "Gardener carries it out in minutes and restarts cluster-autoscaler",
    ),
    Rule.RELIEF_STANDS: "relief stands: {place} is {number} in place of {wish} until every zone is healthy",
    Rule.RELIEF_KEEPS: "relief stays: {place} may not be below {least}, or Gardener deletes nodes beyond their zones' "
    "shares; wanted is {wish}",
    Rule.RELIEF_ENDS: "relief ends: {place} goes back from {number} to {wish}: every zone has its nodes in its share",
    Rule.RELIEF_LEFT: "relief is left over: the Shoot's maximum of this pool is {number}, wanted is {wish}: set it in "
    "the Shoot, or let the record have shoot_relief with enabled: false, and it is put back",
    Rule.RELIEF_NOT: "no relief by the Shoot's maximum: {why}",
    Rule.RELIEF_NO_WORKER: "its groups are not all of one worker of a Shoot",
    Rule.RELIEF_ZONES_DIFFER: "its groups are not one for each zone of the Shoot's worker",
    Rule.RELIEF_NO_ZONE: "no zone of it is healthy",
    Rule.RELIEF_FIXED: "its worker has minimum = maximum, so that nobody scales it",
    Rule.RELIEF_SUFFICES: "the healthy zones may have {alive} as it is, which is enough",
    Rule.RELIEF_ROOM: "the healthy zones have not reached their shares",
    Rule.RELIEF_TRIED: "a machine is on its way to a zone that has failed, which may be well again",
    Rule.RELIEF_AT_LIMIT: "the CloudProfile allows a cluster {limit} nodes",
    Rule.RELIEF_PUT_BACK: "somebody has put the Shoot's maximum back: not again until every zone is healthy",
    Rule.RELIEF_UNDER_WAY: "Gardener is still carrying out the Shoot's last change",
    Rule.RELIEF_REFUSED: "the garden refuses {number}, and is asked again in an hour or once the Shoot has changed: "
    "{said}",
    Rule.SHOOT_UNREAD: "the Shoot cannot be read: {said}",
    Rule.SHOOT_UNNAMED: "namespace {namespace} does not say which Shoot it is of: name it in shoot_relief.shoots",
    Rule.SHOOT_OF_ANOTHER: "{shoot} is of namespace {namespace}: correct it in shoot_relief.shoots",
    Rule.SHOOT_ASLEEP: "the Shoot is hibernated",
    Rule.SHOOT_IGNORED: "the Shoot has annotation shoot.gardener.cloud/ignore",
    Rule.SHOOT_CONFINED: "spec.maintenance.confineSpecUpdateRollout of the Shoot holds every change back until its "
    "maintenance window",
    Rule.SHOOT_OPERATION: "the Shoot's last operation is {type} {state}",
    Rule.POOL_INVALID: "left alone: its pool is invalid",
    Rule.FEW_MEMBERS: "left alone: node groups of the pool, or their owners, were not found: a second check must agree",
    Rule.AS_IT_SHOULD_BE: "left alone: it is as it should be",
    Rule.NOTHING_OF_OURS: "left alone: it carries nothing of ours",
    Rule.SAID: "{text}",
    Rule.IN_NO_POOL: lambda facts: "; ".join([f"in no pool: {_shown(facts['why'])}", *_texts(facts["faults"])]),
    Rule.TAKES_NO_PART: "takes no part: it has neither bounds nor pool numbers "
    "(evenkeel.dev/pool-min, evenkeel.dev/pool-max)",
    Rule.SWITCHED_OFF: "takes no part: no node is there, and none is wanted: {fields} is 0",
    Rule.NOT_SELECTED: "label it evenkeel.dev/pool, or select it in the cluster's record",
    Rule.POOL_NAME_TAKEN: "another pool is called {name}, as this one would be: label it evenkeel.dev/pool",
    Rule.TEMPLATE_UNREADABLE: lambda facts: "; ".join(_texts(facts["faults"])),
    Rule.NO_BOUNDS: "it has no bounds, or a max of 0: set them, or label it evenkeel.dev/pool",
    Rule.NO_CPU_AND_MEMORY: "nothing says what cpu and memory its nodes have: annotate "
    "capacity.cluster-autoscaler.kubernetes.io/cpu and capacity.cluster-autoscaler.kubernetes.io/memory, "
    "or label it evenkeel.dev/pool",
    Rule.AT_ITS_MAX: "it is at its max",
    Rule.PODS_DO_NOT_FIT: "its pods do not fit here",
    Rule.IN_STATE: "it is {state}",
    Rule.CPU_AND_MEMORY_UNKNOWN: "it is at zero, and its cpu and memory are unknown",
    Rule.HEADROOM_PROBE: "one node to probe whether the zone delivers again",
    Rule.HEADROOM_STANDS_GROWING: "stands while other zones may still grow",
    Rule.HEADROOM_STANDS_UNREAD: "stands until every autoscaler loop has read it",
    Rule.HEADROOM_ONE: "one node of headroom",
    Rule.HEADROOM_LENT: "lent: it has used up its own, and the others stand still",
    Rule.HEADROOM_AWAITED: "lent: pods wait for nodes here",
    Rule.HEADROOM_LAST_STAY: "the last nodes stay where the pool has grown last",
    Rule.HEADROOM_LAST: "one of the last nodes",
    Rule.HEADROOM_LAST_UNUSED: "one of the last nodes, which nobody else has used",
    Rule.HEADROOM_LEVELLED: "levelled with the other zones",
    Rule.MIN_ZERO_WHILE_FENCED: "min 0 while fenced",
    Rule.LAST_BOUNDS_STAY: "{strategy}: every zone is fenced, so the last bounds stay",
    Rule.NO_LAST_BOUNDS: "{strategy}: every zone is fenced and there are no last bounds to keep",
    Rule.OBJECT_BEING_DELETED: "it is being deleted",
    Rule.OBJECT_PAUSED: "it is paused",
    Rule.CLUSTER_BEING_DELETED: "its Cluster {cluster} is being deleted",
    Rule.CLUSTER_PAUSED: "its Cluster {cluster} is paused",
    Rule.FROZEN_BY_CONTROLLER: "{controller} has frozen it",
    Rule.HIBERNATED: "its shoot is hibernated: the pool has no replicas although its Worker asks for some",
    Rule.NOT_AUTHORITATIVE: "{field} is {value}: another API owns it",
    Rule.AUTHORITY_MOVES: "it is between two APIs: spec.authoritativeAPI is {wanted}, status.authoritativeAPI is "
    "{found}; it is written again once both are the same",
    Rule.OWNER_MISSING: "its bounds belong to {owner}, which is not there",
    Rule.OWNER_NOT_READ: "its bounds belong to {owner}, which was not read: allow it to be listed, and name its "
    "namespace in the record where that names any",
    Rule.OWNER_SETS_REPLICAS: "{owner} sets its replicas itself: give it minimum and maximum in their place",
    Rule.OWNER_PAUSED: "{owner} is paused: its spec.pausedUntil is {until}",
    Rule.FIELD_NOT_OURS: _applied,
    Rule.REPLICAS_UNSET: "its spec.replicas is not set yet",
    Rule.ROLLING_SETS: "it is rolling: {sets} MachineSets hold machines",
    Rule.TOPOLOGY_ENTRY_MISSING: "it belongs to a ClusterClass, and its entry in the Cluster's topology is not there",
    Rule.TOPOLOGY_SETS_REPLICAS: "the Cluster's topology sets its replicas",
    Rule.POOL_PAUSED: _paused,
    Rule.WRITE_REFUSED: "its write was refused: {error}",
    Rule.UNSEEN_AT_ZERO: _with_steps("at zero, and Cluster Autoscaler cannot see it: {steps}"),
    Rule.UNREAD_AT_ZERO: _with_steps("at zero, and its cpu and memory are not known ({object} was not read): {steps}"),
    Rule.UNKNOWN_AT_ZERO: _with_steps("at zero, and its cpu and memory are not known: {steps}"),
    Rule.UNREADABLE_VALUE: "{object}: {field} is {value}: {problem}",
    Rule.ANNOTATE: lambda facts: f"annotate {' and '.join(_texts(facts['annotations']))}",
    Rule.NAMELESS: "a {kind} without metadata.name",
    Rule.NOT_DISCOVERED: "not matched by the record's discovery",
    Rule.SECOND_OBJECT: "a second object of this name: the {planned} is planned, this {kind} is not",
    Rule.TWIN_HAS_MOVED: "its machines are those of {twin}, which counts: the pool has moved to Cluster API",
    Rule.TWIN_WAITS: "its machines are those of {twin}, which counts until all of the pool has moved to Cluster API",
    Rule.SPANS_ZONES: _listing(
        "zones",
        "it spans the zones {zones}, and its provider chooses among them: a pool needs one MachinePool for each zone, "
        "with that one in spec.failureDomains",
    ),
    Rule.NAMES_NO_ZONE: "spec.failureDomains is empty, so its provider may spread it over several zones: name the one "
    "there, or in label topology.kubernetes.io/zone where the provider's own object names it",
    Rule.REPLICAS_MANAGED: "annotation cluster.x-k8s.io/replicas-managed-by is {by}: its replicas are managed outside "
    "of Cluster API, and what we wrote would be lost; only 'false' takes that back",
    Rule.TOPOLOGY_MAKES_POOL: "its Cluster's topology makes it, and owns its bounds in "
    "spec.topology.workers.machinePools, which Evenkeel does not write",
    Rule.KIND_FORBIDDEN: "objects of this kind may not be listed, so none takes part: apply "
    "deploy/kubernetes/rbac.yaml and rbac-readers.yaml",
    Rule.SECOND_COPY: "a second {kind} of this name: the first one counts",
    Rule.NODES_NOT_READ: "nodes are read only where the record's pools are discovered with nodes: true",
    Rule.UNKNOWN_KIND: "{kind} of {version} is no object that Evenkeel reads",
    Rule.KIND_REFUSED: "{kind} of {group} may not be listed: numbers that stand there are not known",
    Rule.FLAVOUR_NOT_LISTED: "flavour {flavour} is not among the record's flavours",
    Rule.DEMAND_OFF: "a {kind} is read only where the record has demand or workload",
    Rule.WORKLOAD_UNREAD: "what runs in the workload cluster is not known, so nothing follows from it: {error}",
    Rule.WORKLOADS_MIXED: "the node groups are of more than one workload cluster, {clusters}: let the record's "
    "namespaces or discovery name one, since pods of one cluster need nodes of that one",
    Rule.TWO_AUTOSCALERS: "a cluster-autoscaler was at work in it at {at}, so no node is ordered here: take it away, "
    "or set demand to off and autoscaler to cluster-autoscaler in the record",
    Rule.CLAIM_MISSING: "its claim {claim} is not there",
    Rule.CLAIM_OF_ANOTHER: "claim {claim} has the name of its ephemeral volume and belongs to something else",
    Rule.CLAIM_GOING: "its claim {claim} is being deleted",
    Rule.CLAIM_LOST: "its claim {claim} has lost its volume",
    Rule.CLAIM_UNBOUND: "its claim {claim} is not bound, and storage class {storage_class} waits for no pod",
    Rule.VOLUME_MISSING: "volume {volume} of its claim {claim} is not there",
    Rule.NODE_NOT_READY: "the node is not Ready",
    Rule.NODE_CORDONED: "the node is cordoned",
    Rule.TAINT_NOT_TOLERATED: "it does not tolerate taint {taint}",
    Rule.NODE_SELECTOR: "its node selector wants {key} {wanted}, which is {found}",
    Rule.NODE_AFFINITY: "none of its {terms} required node affinity terms matches (they ask for {keys})",
    Rule.HOST_PORT_TAKEN: "port {port} ({protocol}) of the host is taken",
    Rule.NODE_FULL_OF_PODS: "the node takes {pods} pods, and has them",
    Rule.TOO_LITTLE_FREE: "it asks for {asked} of {resource}, and {free} of {allocatable} are free",
    Rule.CLAIM_IN_USE: "claim {claim} may be used by one pod only, and is",
    Rule.VOLUME_LIMIT: "it brings {wanted} volumes of {driver}, and {attached} of {limit} are attached",
    Rule.VOLUME_FOR_OTHER_NODE: "the volume of its claim {claim} is being made for node {node}",
    Rule.VOLUME_OUT_OF_REACH: "the volume of its claim {claim} cannot be reached from there",
    Rule.VOLUME_ELSEWHERE: "the volume of its claim {claim} wants {key} {wants}, which is {found}",
    Rule.SPREAD_KEY_MISSING: "it is spread by {key}, which the node has not",
    Rule.SPREAD_SKEW: "one more in {key} {domain} would be {skew} more than in the emptiest, "
    "and it allows {max_skew} (maxSkew)",
    Rule.AFFINITY_KEY_MISSING: "it has to be with others by {key}, which the node has not",
    Rule.WITHOUT_COMPANY: "no pod that it has to be with is in {key} {domain}",
    Rule.KEEPS_AWAY: "a pod that it keeps away from is in {key} {domain}",
    Rule.KEPT_AWAY: "a pod in {key} {domain} keeps it away",
    Rule.FRESH_NODE_UNKNOWN: "nobody says what cpu and memory its next node would have",
    Rule.POOL_AT_ITS_MAX: "the pool is at its max",
    Rule.LOOK_AT_ITS_MOST: "this look has asked for {nodes} nodes, the most of one look",
    Rule.ORDER_DID_NOT_HELP: "node {node} was ordered for it and does not fit: {why}; the next node is ordered "
    "after {until}",
    Rule.UNFIT_IN_POOL: "{pool}: {why}",
    Rule.FITS_NO_POOL: _fits_no_pool,
    Rule.POD_GOING: "it is being deleted",
    Rule.POD_COMES_WITH_NODE: "it comes with its node",
    Rule.POD_EXPENDABLE: "its priority {priority} is below {least}",
    Rule.POD_NOT_TRIED_YET: "no scheduler has found it unschedulable yet",
    Rule.POD_HELD_BACK: "its scheduler says {state}, not Unschedulable",
    Rule.POD_YOUNG: "its annotation pod-scale-up-delay holds it back until {until}",
    Rule.POD_GATED: "scheduling gates hold it: {gates}",
    Rule.POD_OF_OTHER_SCHEDULER: "scheduler {scheduler} places it, by rules that are not known here",
    Rule.POD_NEEDS_DEVICES: "it needs resource claims, which are not judged here: {claims}",
    Rule.POD_NEEDS_UNKNOWN: "it needs what is not judged here: {fields}",
    Rule.POD_OF_UNKNOWN_VOLUME: "it has volumes of kinds that are not judged here: {kinds}",
    Rule.NODE_OF_NO_GROUP: "it is no machine of a node group here",
    Rule.NODE_GOING: "it is going already",
    Rule.NODE_STARTING: "it is still starting",
    Rule.MACHINE_PRESERVED: "its machine is preserved",
    Rule.SCALE_DOWN_DISABLED: 'it is annotated {annotation}: "true"',
    Rule.GROUP_AT_ITS_MIN: "its group is at its min {min}",
    Rule.POOL_AT_ITS_MIN: "its pool is at PoolMinimum {min}",
    Rule.ALLOCATABLE_UNKNOWN: "it does not say how much cpu and memory it has",
    Rule.NODE_IN_USE: "{percent} % of its {resource} are asked for, more than {threshold} %",
    Rule.NODE_AWAITED: "pods that wait, or that leave other nodes, have their place there",
    Rule.NOT_REPLICATED: "nobody would make pod {pod} anew",
    Rule.SYSTEM_POD: "pod {pod} of kube-system is younger than an hour and under no disruption budget",
    Rule.NOT_SAFE_TO_EVICT: "pod {pod} is annotated safe-to-evict: false",
    Rule.LOCAL_STORAGE: "pod {pod} keeps data on the node, in volume {volume}",
    Rule.BUDGET_EXHAUSTED: "disruption budget {budget} allows no eviction of pod {pod} now",
    Rule.TWO_BUDGETS: "pod {pod} is under several disruption budgets, {budgets}: the API evicts no such pod",
    Rule.VOLUME_OF_ITS_ZONE: "pod {pod} has a volume that no other zone reaches, claim {claim}",
    Rule.POD_NOT_PLACEABLE: "Evenkeel cannot place pod {pod} on another node: {why}",
    Rule.NO_PLACE_ELSEWHERE: "pod {pod} has no place elsewhere",
    Rule.REPLICAS_OF_OTHERS: "the replicas of its group are written by others",
    Rule.REPLICAS_CHANGE: "the replicas of its group go from {before} to {after} now",
    Rule.NO_MACHINE_CAN_BE_NAMED: "nobody can say which machine of its {kind} is to go",
    Rule.MACHINES_AWAITED: "its group requests {requested} and has {machines} machines",
    Rule.MARKED_BY_OTHERS: "somebody else has marked machine {machine} of its group to go first",
    Rule.PODS_TOO_NEW: "pods that wait are too new to be judged before {until}",
    Rule.AFTER_GROWTH: "nodes were asked for lately: not before {until}",
    Rule.AFTER_FAILURE: "taking a node away failed lately: not before {until}",
    Rule.UNNEEDED_TOO_SHORT: "unneeded since {since}: not before {until}",
    Rule.WAITS_FOR_COMPLETION: "it goes once pod {pod} has completed",
    Rule.ONE_DRAIN_AT_A_TIME: "another node is being drained",
    Rule.EMPTY_AT_THEIR_MOST: "{most} nodes are going, the most at once",
    Rule.DRAIN_HANGS: "node {node} of its pool is being drained since {since}, and its pods stay",
    Rule.POOL_BUSY: "a move or a request of its pool is not ended",
}

WORDS_OF_PROBLEMS: dict[ProblemKind, Words] = {
    ProblemKind.UNREADABLE: "{object}: {field} is {value}: {problem}",
    ProblemKind.MEMBERS_DISAGREE: "members disagree on {annotation}: {values}: make them equal, "
    "or keep it on one member",
    ProblemKind.MIN_ABOVE_MAX: "PoolMinimum {minimum} is larger than PoolMaximum {maximum}: "
    "lower one or raise the other",
    ProblemKind.NO_ZONE: "{group}: has no zone: set the flavour's zone field, or label topology.kubernetes.io/zone",
    ProblemKind.WEIGHTS_PAST_POOL: "evenkeel.dev/weight: the zones name {percent} % of the pool, {others} name none: "
    "name 100 % together, or less where other zones are to have a share",
    ProblemKind.FEWER_THAN_ZONES: "PoolMaximum {maximum} is smaller than the number of zones, {zones}: "
    "some zone could never have a node; raise it to {zones}",
    ProblemKind.UNREADABLE_AND_LEFT_OUT: "{object}: {field} is {value}: {problem}",
    ProblemKind.FEWER_THAN_ZONES_IN_USE: "PoolMaximum {maximum} is smaller than the number of zones, {zones}: "
    "sized all the same, because the pool exists; raise it to {zones}",
    ProblemKind.BOUNDS_HELD: _listing(
        "fields",
        "bounds that belong to {owner} stay as they are, and replicas within them ({fields}): set write_topology in "
        "the record and apply deploy/kubernetes/cluster-api/rbac-topology.yaml and admission-policy-topology.yaml, or "
        "take both keys out of the topology: then they are ours on the MachineDeployment",
    ),
    ProblemKind.NEW_WISH: "{owner} now says {min} to {max}, which is not ours: that counts from now on",
    ProblemKind.AUTOSCALER_BESIDE_KARPENTER: "{group}: cluster-autoscaler writes its replicas beside Karpenter: "
    "take label node.cluster.x-k8s.io/karpenter-member off, or leave it out of cluster-autoscaler's discovery",
    ProblemKind.OVER_COMMITTED: "over-committed: {requested} requested, PoolMaximum is {maximum}: nobody may grow",
    ProblemKind.OVER_OFFERED: "over-offered: the maxima add up to {offered}, PoolMaximum is {maximum}: the owner of "
    "the bounds accepts no max below 1, so keep a node of PoolMaximum free for each empty zone",
    ProblemKind.INEFFECTIVE_ORDER: _ineffective_order,
    ProblemKind.BLOCKED_BY_DAEMON_SETS: _blocked_by_daemon_sets,
    ProblemKind.STARVED: "starved: {nodes} nodes find no healthy zone that can take them",
    ProblemKind.REQUEST_BEHIND_MOVE: _of_request("growth: {what}: it waits for the end of a move between zones"),
    ProblemKind.REQUEST_AWAITS_CHECK: _of_request(
        "{what}: it waits: node groups were not found, and a second check must agree"
    ),
    ProblemKind.REQUEST_BEHIND_REQUEST: _of_request("{what}: it waits for request {first} of the same pool"),
    ProblemKind.REQUEST_AWAITS_PODS: _of_request("{what}: it waits: pods cannot be read"),
    ProblemKind.REQUEST_EXPIRED: _of_request("growth: {what}: older than an hour: ask again"),
    ProblemKind.REQUEST_TOO_OLD: _of_request("{what}: older than an hour: ask again"),
    ProblemKind.REQUEST_UNMET: lambda facts: (
        f"growth: {facts['unmet']} of {_request(facts)} "
        + ("find no room" if int(str(facts["nodes"])) > 0 else "have to stay")
    ),
    ProblemKind.REQUEST_POOL_GONE: _of_request(
        "{what}: begun in pool {pool}, which is not here any more: ask again for what is missing"
    ),
    ProblemKind.REQUEST_AMBIGUOUS: _of_request("{what} of {named}: which of {pools}? Name one"),
    ProblemKind.REQUEST_NOWHERE: _nowhere,
    ProblemKind.REQUEST_UNKNOWN_GROUPS: _of_request("{what}: only: {names}: no group of pool {pool}"),
    ProblemKind.REQUEST_POOL_INVALID: _of_request("{what}: pool {pool} is invalid: it waits for that to be mended"),
}


def sentence(reason: Reason) -> str:
    return _in_words(WORDS[reason.rule], reason.facts)


def sentences(reasons: Iterable[Reason]) -> list[str]:
    return [sentence(reason) for reason in reasons]


def problem_words(problem: Problem) -> str:
    return _in_words(WORDS_OF_PROBLEMS[problem.kind], problem.facts)


def outcome_words(outcome: Outcome) -> str:
    """What became of a write, in words: the result, and what whoever stopped it says."""
    return f"{outcome.result.value}: {outcome.detail}" if outcome.detail else outcome.result.value


def _in_words(words: Words, facts: Facts) -> str:
    return _filled(words, facts) if isinstance(words, str) else words(facts)


def _filled(template: str, facts: Facts) -> str:
    return template.format_map({name: _shown(fact) for name, fact in facts.items()})


def _shown(fact: Fact) -> str:
    if isinstance(fact, Reason):
        return sentence(fact)
    if isinstance(fact, datetime):
        return rfc3339(fact)
    if isinstance(fact, tuple):
        return ", ".join(_shown(part) for part in fact)
    return str(fact)


def _texts(fact: Fact) -> list[str]:
    return [_shown(part) for part in fact] if isinstance(fact, tuple) else []


# Of the objects that a number comes from: a pool may have thousands of members.
MOST_NAMED = 12
# What becomes of an owner's numbers: who reads them, and what he does with them.
READERS: Mapping[str, str] = {
    "Worker": "copied from the Shoot by gardenlet; the Worker's controller splits it over the zones, keeps replicas "
    "within the shares, and cluster-autoscaler gets those as --nodes flags",
    "Shoot": "gardenlet copies it to the Worker, whose controller splits it over the zones and keeps replicas within "
    "the shares",
    "MachineAutoscaler": "cluster-autoscaler-operator copies it to the MachineSet, where cluster-autoscaler reads it",
    "NodePool": "HyperShift's operator copies it to the MachineDeployment or MachineSet, where cluster-autoscaler "
    "reads it, and keeps replicas within it",
    "Cluster": "the topology controller copies it to the MachineDeployment, where cluster-autoscaler reads it",
}


def origin_words(origin: Origin) -> str:
    """Where a pool's number stands, to follow the number."""
    words = _origin(origin)
    if origin.cut_by is not None:
        cap = origin.cut_by
        words += f"; cut to {origin.value}: {cap.field} of {cap.ref} is {cap.nodes}"
    return words


def _origin(origin: Origin) -> str:
    if origin.source is Source.ANNOTATION:
        return f"annotation {origin.field} on {_some([object_words(group) for group in origin.groups])}"
    if origin.rule is not None:
        return f"the record's {'min' if origin.field == POOL_MIN else 'max'} for pool {origin.rule.name}"
    if origin.source is Source.ADOPTION:
        return "the sum of its members' bounds as they were at adoption"
    if len(origin.owners) == 1 and not origin.groups:
        owner = origin.owners[0].owner
        return f"{_field(owner, origin)} of {owner.ref}"
    added = [f"{share.wish} ({share.owner.ref}{_entry(share.owner.ref)})" for share in origin.owners]
    rest = ["what members without an owner had at adoption"] if origin.groups else []
    return f"the sum of {_some([*added, *rest])}"


def _some(texts: list[str]) -> str:
    """The first of a list that may have thousands."""
    return ", ".join(texts[:MOST_NAMED]) + (f" and {len(texts) - MOST_NAMED} more" if len(texts) > MOST_NAMED else "")


def unknown_words(clusters: Sequence[str]) -> str:
    """Of clusters whose records cannot be read, to whoever has named others by their labels."""
    return f"left out, since nobody can read which labels they have: {_some(list(clusters))}"


def _entry(ref: OwnerRef) -> str:
    return f", {ref.part}" if ref.part else ""


def _field(owner: OwnerNumbers, origin: Origin) -> str:
    return owner.min_field if origin.field == POOL_MIN else owner.max_field


def chain_words(origin: Origin) -> list[str]:
    """A sentence for each owner of a number: what stands there, who wrote it, and who reads it.

    Scalables that own their bounds have one for both numbers: beside PoolMaximum.
    """
    links = [_link(share, origin) for share in origin.owners[:MOST_NAMED]]
    if origin.source is Source.ANNOTATION or origin.field == POOL_MIN:
        return links
    return links + [_own_link(group, group.bounds) for group in origin.groups[:MOST_NAMED] if group.bounds is not None]


def _own_link(group: NodeGroup, bounds: Bounds) -> str:
    if group.max_only:
        reader = "karpenter-provider-cluster-api reads it, and no min"
    else:
        reader = "cluster-autoscaler reads it" if group.bounds_are_read else "no autoscaler reads it"
    by = "" if group.bounds_by == SOMEBODY else f", last set by {group.bounds_by}"
    return f"{group.bounds_place} is {bounds.max}{by}: {reader}."


def _link(share: OwnerShare, origin: Origin) -> str:
    owner = share.owner
    stands = owner.bounds.min if origin.field == POOL_MIN else owner.bounds.max
    what = f"{_field(owner, origin)} of {owner.ref} is {stands}"
    if stands != share.wish:
        what += f", which Evenkeel wrote there: wanted is {share.wish}"
    if owner.set_by:
        what += f", last set by {owner.set_by}"
    if owner.besides:
        what += f" (beside it: {', '.join(f'{field} {value}' for field, value in owner.besides)})"
    return f"{what}: {READERS[owner.ref.kind]}."


def object_words(group: NodeGroup) -> str:
    return f"{group.kind} {group.key.namespace}/{group.key.name}"


def diff(change: Change) -> tuple[str, ...]:
    """A change of PoolMaximum as the lines of a diff."""
    if change.group is not None:
        place, line = object_words(change.group), f'{POOL_MAX}: "{{}}"'
    elif change.owner is not None:
        place, line = str(change.owner.ref), f"{change.owner.max_field}: {{}}"
    else:
        place, line = f"record, pool {change.rule.name if change.rule else ''}", "max: {}"
    old_lines = () if change.before is None else (f"-{line.format(change.before)}",)
    return (f"--- {place}", f"+++ {place}", *old_lines, f"+{line.format(change.after)}")


def command_words(change: Change) -> str:
    """What a person runs to change the number of an owner that Evenkeel does not write."""
    owner = change.owner
    if owner is None:
        raise ValueError("a change of an annotation or of the record needs no command")
    ref, after = owner.ref, change.after
    if ref.kind == "Cluster":  # a patch of a list would replace it
        return f"kubectl --namespace {ref.namespace} edit cluster {ref.name}  # {owner.max_field}: {after}"
    if ref.kind in ("Worker", "Shoot"):
        shoot, namespace = _shoot(ref)
        workers = {"provider": {"workers": [{"name": ref.part, "maximum": after}]}}
        return (
            f"kubectl --namespace {namespace} patch shoot {shoot} --type strategic {_spec(workers)}  # garden cluster"
        )
    spec: object = after
    for step in reversed(owner.max_field.removeprefix("spec.").split(".")):
        spec = {step: spec}
    return f"kubectl --namespace {ref.namespace} patch {ref.kind.lower()} {ref.name} --type merge {_spec(spec)}"


def _spec(spec: object) -> str:
    return f"--patch '{json.dumps({'spec': spec}, separators=(',', ':'))}'"


def _shoot(ref: OwnerRef) -> tuple[str, str]:
    """Name and namespace of a Worker's Shoot, as far as the seed's namespace tells them."""
    if ref.kind == "Shoot":
        return ref.name, ref.namespace
    place = shoot_of_namespace(ref.namespace)
    return ref.name, "garden-<project>" if place is None else place[0]


def unfixable_words(fix: Fix) -> str:
    """Why a fault is left to people; empty where it is not."""
    if fix.unfixable is Unfixable.AMBIGUOUS:
        return "which value is meant is for people to say"
    if fix.unfixable is Unfixable.CUT:
        return "the cluster may have no more nodes: the most that it may have would have to rise"
    if fix.frozen is not None and fix.frozen.frozen_because is not None:
        return f"{fix.frozen.key} is left alone: {sentence(fix.frozen.frozen_because)}"
    return ""


# Trouble

_NO_NODES: dict[FailureClass | None, str] = {
    FailureClass.CAPACITY: "The cloud has no such machines there: Evenkeel goes on trying by itself; let the pool buy "
    "another machine type, or have another zone",
    FailureClass.QUOTA: "A limit of the account is used up: have the cloud raise the one that it names; Evenkeel tries "
    "again by itself",
    FailureClass.CONFIGURATION: "The cloud refuses these machines wherever they are ordered: mend what it names, in "
    "the template or in the machine controller's credentials; Evenkeel tries again by itself",
    FailureClass.TIMEOUT: "Machines are launched and no node comes of them: look at their console, network and "
    "bootstrap data",
    FailureClass.UNKNOWN: "The cloud's words are all that is known: mend what they name",
    None: "Nobody says why: look at the machine controller, and at what else may keep it from making machines",
}

_NO_TAKER = (
    "Look at the log, the backoff and the limits of your cluster-autoscaler: it has not ordered the released replicas; "
    "with workload in the record Evenkeel orders them itself"
)
_STALLED = (
    "A rollout in this zone cannot go on, and it keeps Evenkeel from releasing the missing replicas: undo the rollout "
    "until the zone delivers, or order nodes in the other zones with evenkeel scale-up"
)

_TODO: dict[IncidentKind, str] = {
    IncidentKind.UNREACHABLE: "Look whether its API server runs and lets the functions in; it is asked again by itself",
    IncidentKind.ACCESS: "Mend the secret, role or access entry that the words name; it is tried again by itself",
    IncidentKind.TOO_LARGE: "Let its record name the namespaces or the discovery strings that count, and register it",
    IncidentKind.INVALID_RECORD: "Register it with a record that can be read",
    IncidentKind.STOPPED: "Look at the schedule, the function look and its dead letters: nobody acts there meanwhile",
    IncidentKind.INVALID: "Correct the numbers or labels named above: until then nothing of the pool is written",
    IncidentKind.REFUSED: "Let Evenkeel write what the words name: rights, admission policies, webhooks",
    IncidentKind.CONTESTED: "Have whoever puts them back leave them out, then have them written again",
    IncidentKind.TWO_AUTOSCALERS: "Take the cluster-autoscaler away, or register the cluster with demand off and with "
    "autoscaler: cluster-autoscaler: until then no node is ordered for pods that wait",
    IncidentKind.STEP_HANGS: "Look what holds the machine: a disruption budget, a finalizer, pods that do not end, who "
    "preserves it; or have a machine given back: until then no other node of the pool is moved",
    IncidentKind.OVER_COMMITTED: "Raise PoolMaximum, or take back what was ordered beside Evenkeel: nobody may grow",
    IncidentKind.DRAIN_HANGS: "Let its pods go: see which disruption budget, finalizer or drain hook holds them; until "
    "then no other node of the pool is drained",
    IncidentKind.INEFFECTIVE_ORDER: "Make the new nodes fit the pods, or the pods fit the nodes: the failing rule is "
    "named. Until then Evenkeel orders ever fewer nodes for them",
}
_TRY_IT = ("plan",)
_COMMANDS: dict[IncidentKind, tuple[str, ...]] = {
    IncidentKind.UNREACHABLE: _TRY_IT,
    IncidentKind.ACCESS: _TRY_IT,
    IncidentKind.TOO_LARGE: ("register", "--record", "FILE"),
    IncidentKind.INVALID_RECORD: ("register", "--record", "FILE"),
    IncidentKind.STOPPED: ("status",),
    IncidentKind.TWO_AUTOSCALERS: ("register", "--record", "FILE"),
    IncidentKind.INVALID: ("validate", "--fix"),
    IncidentKind.REFUSED: _TRY_IT,
    IncidentKind.CONTESTED: ("resume",),
}
_RUNBOOK = "docs/trouble.md"
# Of a cluster, as far as it is not one of its pools that is in trouble.
_UNREAD: dict[IncidentKind, str] = {
    IncidentKind.UNREACHABLE: "unreachable",
    IncidentKind.ACCESS: "access refused",
    IncidentKind.TOO_LARGE: "too large",
    IncidentKind.INVALID_RECORD: "invalid record",
    IncidentKind.STOPPED: "not looked at",
    IncidentKind.TWO_AUTOSCALERS: "two autoscalers",
}


def incident_words(incident: Incident, now: datetime) -> str:
    """What is wrong, since when and where, and why, in one line; that of a pool begins with the pool's name."""
    length, said = lasting(now - incident.since), f": {incident.said}" if incident.said else ""
    match incident.kind:
        case IncidentKind.MISSING:
            words = f"{_missing(incident, length)}{_class(incident)}{_in(incident.zones)}{_untaken(incident)}{said}"
        case IncidentKind.REFUSED:
            words = f"writes refused {length}{_in(incident.zones)}{said}"
        case IncidentKind.CONTESTED:
            words = f"put back by {incident.said or 'somebody'} {length}{_in(incident.zones)}"
        case IncidentKind.DRAIN_HANGS:
            words = f"a drain hangs {length}{_in(incident.zones)}{said}"
        case IncidentKind.STEP_HANGS:
            what = f"machine {incident.said} does not go" if incident.said else "no machine may go"
            words = f"levelling hangs {length}{_in(incident.zones)}: {what}"
        case IncidentKind.INEFFECTIVE_ORDER:
            words = f"new nodes do not help waiting pods {length}{_in(incident.zones)}{_problems(incident)}"
        case IncidentKind.INVALID | IncidentKind.OVER_COMMITTED:
            words = f"{incident.kind.value} {length}{_problems(incident)}"
        case _:
            words = f"{_UNREAD[incident.kind]} {length}{said}"
    return f"{incident.pool.rpartition('/')[2]}: {words}" if incident.pool else words


def incident_headline(incident: Incident, now: datetime) -> str:
    """The same without what the cloud or the API server says of it; who puts back is no such words."""
    return incident_words(incident if incident.kind is IncidentKind.CONTESTED else replace(incident, said=""), now)


def _missing(incident: Incident, length: str) -> str:
    if not incident.missing:
        who = "no zone shows that it delivers" if incident.is_outage else "what failed has not delivered"
        return f"{who} {length}"
    return f"{incident.missing} of {counted(incident.requested)} missing {length}"


def _untaken(incident: Incident) -> str:
    return f"; no autoscaler has ordered the {incident.untaken} released" if incident.untaken else ""


def _in(zones: tuple[str, ...]) -> str:
    """The region once: a line of a terminal must reach the cloud's words."""
    region = zones[0][:-1] if zones else ""
    if region and all(zone[:-1] == region for zone in zones):
        zones = (zones[0], *(zone[-1] for zone in zones[1:]))
    return f" in {', '.join(zones)}" if zones else ""


def _class(incident: Incident) -> str:
    return f": {incident.failure_class.value}" if incident.failure_class else ""


def _problems(incident: Incident) -> str:
    words = [problem_words(problem).removeprefix("over-committed: ") for problem in incident.problems]
    return f": {words[0]}" + (f" (and {len(words) - 1} more)" if len(words) > 1 else "") if words else ""


def todo(incident: Incident) -> str:
    """What people can do about it, in one sentence without its end: the command follows."""
    if _lacks_only_taker(incident):
        return _NO_TAKER
    if incident.kind is IncidentKind.MISSING:
        return _STALLED if incident.is_rollout else _NO_NODES[incident.failure_class]
    return _TODO[incident.kind]


def _lacks_only_taker(incident: Incident) -> bool:
    """Return True if every missing node was released. Else machines that were ordered do not come: that goes first."""
    return 0 < incident.untaken == incident.missing


def explains(incident: Incident) -> bool:
    """Whether there is nothing to be typed but for reading more of it."""
    return incident.kind not in _COMMANDS


def command_line(incident: Incident, cluster: str, stack: str) -> str:
    """What to type then."""
    action, *options = _COMMANDS.get(incident.kind, ("explain", "--pool", incident.pool))
    return shlex.join(["evenkeel", action, "--stack", stack, "--cluster", cluster, *options])


def runbook(incident: Incident) -> str:
    """Where the page on it stands in the repository."""
    if incident.is_rollout and not _lacks_only_taker(incident):
        return "docs/frozen.md#a-rollout-in-a-zone-that-is-out"
    is_missing = incident.kind is IncidentKind.MISSING and not _lacks_only_taker(incident)
    kind = incident.failure_class.value if is_missing and incident.failure_class else ""
    return f"{_RUNBOOK}#{kind or incident.kind.value}"
