"""Reasons, problems and outcomes in words: the one place where the values of the domain become English.

Nobody reads these words back. Whoever changes a sentence here changes what people read, and nothing else.
"""

from collections.abc import Callable, Iterable, Mapping
from datetime import UTC, datetime, timedelta

from evenkeel.domain.bounds import strategies
from evenkeel.domain.membership.numbers import POOL_MAX, POOL_MIN, Change, Fix, Origin, Unfixable
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.outcomes import Outcome
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.reasons import Fact, Reason, Rule
from evenkeel.domain.model.values import shown

Facts = Mapping[str, Fact]
Words = str | Callable[[Facts], str]
"""A sentence with the names of facts in braces, or what makes one from them."""


def rfc3339(at: datetime) -> str:
    """A moment as Kubernetes writes it: UTC, whole seconds, Z."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def ago(length: timedelta) -> str:
    """A length of time in words, in its largest unit."""
    seconds = int(length.total_seconds())
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            number = seconds // size
            return f"{number} {unit}{'' if number == 1 else 's'} ago"
    return "just now"


def counted(number: int, noun: str = "node") -> str:
    """So many of something; how many nodes are added or given back is said without the sign."""
    return f"{abs(number)} {noun}{'' if abs(number) == 1 else 's'}"


def _request(facts: Facts) -> str:
    """A request for nodes, or for giving some back."""
    nodes = int(str(facts["nodes"]))
    return f"{counted(nodes)} {'asked for' if nodes >= 0 else 'to be given back'} (request {facts['request']})"


def _of_request(template: str) -> Words:
    def words(facts: Facts) -> str:
        quoted = {name: _quoted(facts[name]) for name in ("named", "names") if name in facts}
        return _filled(template, {**facts, **quoted, "what": _request(facts)})

    return words


def _quoted(fact: Fact) -> str:
    return ", ".join(shown(name) for name in fact) if isinstance(fact, tuple) else shown(fact)


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


def _paused(facts: Facts) -> str:
    until = facts["until"]
    return f"paused by an operator until {'resumed' if until is None else _shown(until)}"


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


WORDS: dict[Rule, Words] = {
    Rule.FROZEN: "frozen: {why}",
    Rule.CONTESTED_BOUNDS: "frozen: {by} put our bounds back {times} times within an hour; operator resume tries again",
    Rule.CONTESTED_REPLICAS: "replicas stay as they are: {by} put them back {times} times within an hour; "
    "operator resume tries again",
    Rule.ZONE_IMPAIRED: "fenced: zone {zone} is impaired until {until}",
    Rule.IN_BACKOFF: "fenced: {kind} failure {failures}, in backoff until {until}",
    Rule.PROBING_AFTER_ARRIVAL: "probing: a node has come since {kind} failure {failures}, so its backoff is over",
    Rule.PROBING_AFTER_BACKOFF: "probing: backoff after {kind} failure {failures} is over, no new node seen yet",
    Rule.FENCED_BY_OTHERS: _whose("fenced until {until}: {who} could not get {offering}, and another zone can grow"),
    Rule.CAUTIOUS: _whose("cautious: {who} could not get {offering}: one more machine, until it has come"),
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
    Rule.GIVES_BACK: _of_request("gives back {count}, its share of the {what}: the largest first"),
    Rule.FENCE: "max is the {requested} requested: a fenced zone gets no growth",
    Rule.MOVE_UNDER_WAY: "max is what is requested: Cluster Autoscaler would order what is on its way again",
    Rule.STRATEGY: _strategy,
    Rule.PROBE: "max cut to {max}: a probing zone may have one machine on its way",
    Rule.CAUTIOUS_MAX: "max cut to {max}: a cautious zone may have one more machine on its way",
    Rule.SLOW_START_MAX: "max cut to {max}: in a slow start, {nodes} machines may be on their way",
    Rule.WORKER_SHARE: "max cut to {max}: the Worker's share of the zone is {share}",
    Rule.ZONE_MAX: "max cut to {max}: evenkeel.dev/zone-max is {zone_max}",
    Rule.MAX_BELOW_REQUESTED: "max raised from {max} to the {requested} requested: less would block scale-down",
    Rule.OWNER_MIN_MAX: "max raised from {max} to {owner_min_max}, the least that the owner of the bounds accepts",
    Rule.MIN_ABOVE_REQUESTED: "min lowered from {min} to the {requested} requested: more would block small growth",
    Rule.ZONE_MIN: "min raised to {min}: evenkeel.dev/zone-min is {zone_min}",
    Rule.LEVEL_KEPT: "min raised to the {min} requested until {until}: nodes go, and other zones have more to give",
    Rule.LEVEL_GIVES: "min raised to {min} until {until}: nodes go, and this one has some to give",
    Rule.LEVEL_RESTS: "no zone keeps its nodes for levelling before {until}: the last time, none went for 30 min",
    Rule.RESTORED: "restored: its bounds before us were {min} to {max}",
    Rule.RESTORED_TO_NONE: "restored: it had no bounds before us",
    Rule.NOT_RESTORED_YET: "not restored yet: {why}",
    Rule.NOT_RESTORED: "not restored: its adopted-bounds annotation has been edited beyond reading",
    Rule.CLOSED_AT_ZERO: "{why}",
    Rule.ROLLING_SHARE: "rolling update: this zone's share is maxSurge {surge}, maxUnavailable {unavailable} "
    "(reported, not written)",
    Rule.POOL_INVALID: "left alone: its pool is invalid",
    Rule.FEW_MEMBERS: "left alone: no more than half of the pool's groups were found: a second look must find the same",
    Rule.AS_IT_SHOULD_BE: "left alone: it is as it should be",
    Rule.NOTHING_OF_OURS: "left alone: it carries nothing of ours",
    Rule.SAID: "{text}",
    Rule.IN_NO_POOL: lambda facts: "; ".join([f"in no pool: {_shown(facts['why'])}", *_texts(facts["faults"])]),
    Rule.TAKES_NO_PART: "takes no part: it has neither bounds nor pool numbers "
    "(evenkeel.dev/pool-min, evenkeel.dev/pool-max)",
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
    Rule.OWNER_MISSING: "its bounds belong to {owner}, which is not there",
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
    Rule.SECOND_COPY: "a second {kind} of this name: the first one counts",
    Rule.NODES_NOT_READ: "nodes are read only where the record's pools are discovered with nodes: true",
    Rule.UNKNOWN_KIND: "{kind} of {version} is no object that Evenkeel reads",
    Rule.FLAVOUR_NOT_LISTED: "flavour {flavour} is not among the record's flavours",
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
    ProblemKind.OVER_COMMITTED: "over-committed: {requested} requested, PoolMaximum is {maximum}: nobody may grow",
    ProblemKind.OVER_OFFERED: "over-offered: the maxima add up to {offered}, PoolMaximum is {maximum}: the owner of "
    "the bounds accepts no max below 1, so keep a node of PoolMaximum free for each empty zone",
    ProblemKind.STARVED: "starved: {nodes} nodes find no healthy zone that can take them",
    ProblemKind.REQUEST_BEHIND_MOVE: _of_request("growth: {what}: it waits for the end of a move between zones"),
    ProblemKind.REQUEST_BEHIND_REQUEST: _of_request("{what}: it waits for request {first} of the same pool"),
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
    ProblemKind.REQUEST_NOWHERE: _of_request("{what} of {named}: no pool here has that name, or a group of that name"),
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


def origin_words(origin: Origin) -> str:
    """Where a pool's number stands, to follow the number."""
    if origin.groups:
        return f"annotation {origin.field} on {', '.join(object_words(group) for group in origin.groups)}"
    if origin.rule is not None:
        return f"the record's {'min' if origin.field == POOL_MIN else 'max'} for pool {origin.rule.name}"
    return "the sum of its members' bounds as they were at adoption"


def object_words(group: NodeGroup) -> str:
    return f"{group.kind} {group.key.namespace}/{group.key.name}"


def diff(change: Change) -> tuple[str, ...]:
    """A change of PoolMaximum as the lines of a diff."""
    if change.group is not None:
        place, line = object_words(change.group), f'{POOL_MAX}: "{{}}"'
    else:
        place, line = f"record, pool {change.rule.name if change.rule else ''}", "max: {}"
    old_lines = () if change.before is None else (f"-{line.format(change.before)}",)
    return (f"--- {place}", f"+++ {place}", *old_lines, f"+{line.format(change.after)}")


def unfixable_words(fix: Fix) -> str:
    """Why a fault is left to people; empty where it is not."""
    if fix.unfixable is Unfixable.AMBIGUOUS:
        return "which value is meant is for people to say"
    if fix.frozen is not None and fix.frozen.frozen_because is not None:
        return f"{fix.frozen.key} is left alone: {sentence(fix.frozen.frozen_because)}"
    return ""
