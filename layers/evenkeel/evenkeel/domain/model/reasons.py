"""Reasons as values. A reason names a rule and the facts that the rule used. It contains no sentence.

The code of a rule creates the reason, and only ``texts.english`` turns it into a sentence. Other code reads the rule
and the facts of a reason, and never parses the sentence.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Self


class Topic(StrEnum):
    """The subject of a reason: the value that its rule has set, or the group as a whole."""

    STATE = "state"
    REQUESTED = "requested"
    MIN = "min"
    MAX = "max"
    NOTE = "note"


class Rule(StrEnum):
    """All rules that a reason can name. JSON contains the value; ``topic`` is the subject of the reason."""

    topic: Topic

    def __new__(cls, value: str, topic: Topic) -> "Rule":
        member = str.__new__(cls, value)
        member._value_ = value
        member.topic = topic
        return member

    # health: the state of a group
    FROZEN = "frozen", Topic.STATE
    CONTESTED_BOUNDS = "contested-bounds", Topic.STATE
    CONTESTED_REPLICAS = "contested-replicas", Topic.REQUESTED
    REPLICAS_NOT_OURS = "replicas-not-ours", Topic.REQUESTED
    REPLICAS_OF_KARPENTER = "replicas-of-karpenter", Topic.REQUESTED
    ZONE_IMPAIRED = "zone-impaired", Topic.STATE
    ZONE_LEFT = "zone-left", Topic.STATE
    LAUNCHES_STOPPED = "launches-stopped", Topic.STATE
    IN_BACKOFF = "in-backoff", Topic.STATE
    PROBING_AFTER_ARRIVAL = "probing-after-arrival", Topic.STATE
    PROBING_AFTER_BACKOFF = "probing-after-backoff", Topic.STATE
    PROBING_AFTER_CHANGE = "probing-after-change", Topic.STATE
    SLOW_START = "slow-start", Topic.STATE
    GROUP_UNHEALTHY = "group-unhealthy", Topic.STATE
    ZONE_UNHEALTHY = "zone-unhealthy", Topic.STATE
    CLUSTER_UNHEALTHY = "cluster-unhealthy", Topic.STATE
    UNHEALTHY_BEFORE = "unhealthy-before", Topic.STATE
    # replicas
    TAKES_ON = "takes-on", Topic.REQUESTED
    MOVED = "moved", Topic.REQUESTED
    RELEASED = "released", Topic.REQUESTED
    STUCK_ON_HOLD = "stuck-on-hold", Topic.REQUESTED
    STUCK_SAME_FAILURE = "stuck-same-failure", Topic.REQUESTED
    STUCK_FOR_AUTOSCALER = "stuck-for-autoscaler", Topic.REQUESTED
    STUCK_BEHIND_REQUEST = "stuck-behind-request", Topic.REQUESTED
    STUCK_WITHOUT_TAKER = "stuck-without-taker", Topic.REQUESTED
    STUCK_BY_WORKER = "stuck-by-worker", Topic.REQUESTED
    STUCK_BY_BOUNDS = "stuck-by-bounds", Topic.REQUESTED
    STUCK_BY_OWNER = "stuck-by-owner", Topic.REQUESTED
    STUCK_PUT_BACK = "stuck-put-back", Topic.REQUESTED
    STUCK_OFFERED = "stuck-offered", Topic.REQUESTED
    TAKEN_BACK = "taken-back", Topic.REQUESTED
    PROBE_UNSEEN = "probe-unseen", Topic.REQUESTED
    POOL_MINIMUM = "pool-minimum", Topic.REQUESTED
    PROBE_FOR_MINIMUM = "probe-for-minimum", Topic.REQUESTED
    OWN_MINIMUM = "own-minimum", Topic.REQUESTED
    SURVIVAL_ORDER = "survival-order", Topic.REQUESTED
    REQUEST_SHARE = "request-share", Topic.REQUESTED
    REQUEST_NO_SHARE = "request-no-share", Topic.REQUESTED
    GIVES_BACK = "gives-back", Topic.REQUESTED
    KEPT_FOR_PODS = "kept-for-pods", Topic.NOTE
    KEPT_TO_SURVIVE = "kept-to-survive", Topic.NOTE
    REMOVES = "removes", Topic.REQUESTED
    PRESERVED = "preserved", Topic.REQUESTED
    NODES_OF_ANOTHER = "nodes-of-another", Topic.REQUESTED
    STEP_ORDERS = "step-orders", Topic.REQUESTED
    STEP_GIVES = "step-gives", Topic.REQUESTED
    STEP_UNDONE = "step-undone", Topic.REQUESTED
    STEP_TAKEN_BACK = "step-taken-back", Topic.REQUESTED
    # bounds
    FENCE = "fence", Topic.MAX
    UNHEALTHY_MAX = "unhealthy-max", Topic.MAX
    MOVE_UNDER_WAY = "move-under-way", Topic.MAX
    CLOSED_FOR_ORDER = "closed-for-order", Topic.MAX
    OPEN_FOR_PODS = "open-for-pods", Topic.MAX
    OPENED = "opened", Topic.NOTE
    STRATEGY = "strategy", Topic.MAX
    PROBE = "probe", Topic.MAX
    SLOW_START_MAX = "slow-start-max", Topic.MAX
    WORKER_SHARE = "worker-share", Topic.MAX
    ZONE_MAX = "zone-max", Topic.MAX
    GIVES_UP_FIRST = "gives-up-first", Topic.MAX
    MAX_STEP = "max-step", Topic.NOTE
    BOUNDS_HELD = "bounds-held", Topic.MAX
    TAKEN_FROM = "taken-from", Topic.MAX
    MAX_BELOW_REQUESTED = "max-below-requested", Topic.MAX
    OWNER_MIN_MAX = "owner-min-max", Topic.MAX
    OWNER_MIN_MIN = "owner-min-min", Topic.MIN
    PINNED = "pinned", Topic.MAX
    MIN_ABOVE_REQUESTED = "min-above-requested", Topic.MIN
    MIN_ABOVE_RUNNING = "min-above-running", Topic.MIN
    ZONE_MIN = "zone-min", Topic.MIN
    SURVIVAL_MIN = "survival-min", Topic.MIN
    LEVEL_KEPT = "level-kept", Topic.MIN
    LEVEL_GIVES = "level-gives", Topic.MIN
    LEVEL_RESTS = "level-rests", Topic.MIN
    STEP_MIN = "step-min", Topic.MIN
    STEP_MAX = "step-max", Topic.MAX
    # converge: what a step waits for, and why a step ends without effect
    STEP_AWAITS_NODE = "step-awaits-node", Topic.NOTE
    STEP_DRAINS = "step-drains", Topic.NOTE
    STEP_CANNOT_GIVE = "step-cannot-give", Topic.NOTE
    STEP_LATE = "step-late", Topic.NOTE
    STEP_BOUND = "step-bound", Topic.NOTE
    STEP_SOURCE_GONE = "step-source-gone", Topic.NOTE
    # converge: the return of nodes from a fallback pool
    RETURN_ORDERS = "return-orders", Topic.REQUESTED
    RETURN_GIVES = "return-gives", Topic.REQUESTED
    RETURN_TOO_LARGE = "return-too-large", Topic.NOTE
    RETURN_PAST_MOST = "return-past-most", Topic.NOTE
    # converge: why no step starts, or why the step in progress waits
    LEAVES_ZONE = "leaves-zone", Topic.NOTE
    LEAVE_STOPS = "leave-stops", Topic.NOTE
    LEAVE_FINDS_NO_ZONE = "leave-finds-no-zone", Topic.NOTE
    CONVERGE_SETTLES = "converge-settles", Topic.NOTE
    CONVERGE_HELD = "converge-held", Topic.NOTE
    CONVERGE_WINDOW = "converge-window", Topic.NOTE
    CONVERGE_BUDGET = "converge-budget", Topic.NOTE
    CONVERGE_ROLLOUT = "converge-rollout", Topic.NOTE
    CONVERGE_STATE = "converge-state", Topic.NOTE
    CONVERGE_BEHIND = "converge-behind", Topic.NOTE
    CONVERGE_AWAITS = "converge-awaits", Topic.NOTE
    CONVERGE_FULL = "converge-full", Topic.NOTE
    CONVERGE_IDLE = "converge-idle", Topic.NOTE
    CONVERGE_STAYS = "converge-stays", Topic.NOTE
    CONVERGE_NO_VIEW = "converge-no-view", Topic.NOTE
    CONVERGE_NO_MACHINE = "converge-no-machine", Topic.NOTE
    # restore
    RESTORED = "restored", Topic.MAX
    RESTORED_TO_NONE = "restored-to-none", Topic.MAX
    RESTORED_WITHOUT_BOUNDS = "restored-without-bounds", Topic.MAX
    NOT_RESTORED_YET = "not-restored-yet", Topic.STATE
    NOT_RESTORED = "not-restored", Topic.STATE
    # notes
    CLOSED_AT_ZERO = "closed-at-zero", Topic.REQUESTED
    ROLLING_SHARE = "rolling-share", Topic.NOTE
    MANAGED_BY_HIVE = "managed-by-hive", Topic.NOTE
    MANAGED_BY_RANCHER = "managed-by-rancher", Topic.NOTE
    MANAGED_BY_EKS_ANYWHERE = "managed-by-eks-anywhere", Topic.NOTE
    BOUNDS_UNREAD = "bounds-unread", Topic.NOTE  # about a whole pool
    ZONES_DIFFER = "zones-differ", Topic.NOTE  # about a whole pool
    # the provision timeout of a kind of machine
    TIMEOUT_LEARNED = "timeout-learned", Topic.NOTE
    TIMEOUT_OF_OWNER = "timeout-of-owner", Topic.NOTE
    TIMEOUT_SET = "timeout-set", Topic.NOTE
    HOLDS_NODES = "holds-nodes", Topic.NOTE  # about a whole pool
    THAW_ADDS = "thaw-adds", Topic.NOTE  # about a whole pool
    POOL_DRY_RUN = "pool-dry-run", Topic.NOTE  # about a pool whose own setting overrides the cluster's
    POOL_LIVE = "pool-live", Topic.NOTE
    CLUSTER_DRY_RUN = "cluster-dry-run", Topic.NOTE  # about a pool without a setting, beside a live pool
    POOL_INVALID = "pool-invalid", Topic.NOTE
    FEW_MEMBERS = "few-members", Topic.NOTE
    AS_IT_SHOULD_BE = "as-it-should-be", Topic.NOTE
    NOTHING_OF_OURS = "nothing-of-ours", Topic.NOTE
    # why an object is in no pool
    SAID = "said", Topic.NOTE  # its fact is a sentence from the adapter that reads the object
    IN_NO_POOL = "in-no-pool", Topic.NOTE
    TAKES_NO_PART = "takes-no-part", Topic.NOTE
    SWITCHED_OFF = "switched-off", Topic.NOTE
    NOT_SELECTED = "not-selected", Topic.NOTE
    TEMPLATE_UNREADABLE = "template-unreadable", Topic.NOTE
    NO_BOUNDS = "no-bounds", Topic.NOTE
    NO_CPU_AND_MEMORY = "no-cpu-and-memory", Topic.NOTE
    # relief by a Shoot's maximum
    RELIEF_WAITS = "relief-waits", Topic.NOTE
    RELIEF_RAISES = "relief-raises", Topic.NOTE
    RELIEF_STANDS = "relief-stands", Topic.NOTE
    RELIEF_KEEPS = "relief-keeps", Topic.NOTE
    RELIEF_ENDS = "relief-ends", Topic.NOTE
    RELIEF_LEFT = "relief-left", Topic.NOTE
    RELIEF_NOT = "relief-not", Topic.NOTE  # its fact ``why`` is one of the rules below
    RELIEF_NO_WORKER = "relief-no-worker", Topic.NOTE
    RELIEF_ZONES_DIFFER = "relief-zones-differ", Topic.NOTE
    RELIEF_NO_ZONE = "relief-no-zone", Topic.NOTE
    RELIEF_FIXED = "relief-fixed", Topic.NOTE
    RELIEF_SUFFICES = "relief-suffices", Topic.NOTE
    RELIEF_ROOM = "relief-room", Topic.NOTE
    RELIEF_TRIED = "relief-tried", Topic.NOTE
    RELIEF_AT_LIMIT = "relief-at-limit", Topic.NOTE
    RELIEF_PUT_BACK = "relief-put-back", Topic.NOTE
    RELIEF_UNDER_WAY = "relief-under-way", Topic.NOTE
    RELIEF_REFUSED = "relief-refused", Topic.NOTE
    SHOOT_UNREAD = "shoot-unread", Topic.NOTE
    SHOOT_UNNAMED = "shoot-unnamed", Topic.NOTE
    SHOOT_OF_ANOTHER = "shoot-of-another", Topic.NOTE
    SHOOT_ASLEEP = "shoot-asleep", Topic.NOTE
    SHOOT_IGNORED = "shoot-ignored", Topic.NOTE
    SHOOT_CONFINED = "shoot-confined", Topic.NOTE
    SHOOT_OPERATION = "shoot-operation", Topic.NOTE
    BELOW_RUNNING = "below-running", Topic.NOTE
    REFUSED_EVERYWHERE = "refused-everywhere", Topic.NOTE  # why a pool lacks nodes, if no zone has another answer
    # part of another reason: why a group gets no share of a request
    AT_ITS_MAX = "at-its-max", Topic.NOTE
    PODS_DO_NOT_FIT = "pods-do-not-fit", Topic.NOTE
    IN_STATE = "in-state", Topic.NOTE
    # parts of a reason with Rule.STRATEGY: how Balanced divides the headroom, and remarks of Adaptive
    HEADROOM_PROBE = "headroom-probe", Topic.MAX
    HEADROOM_STANDS_GROWING = "headroom-stands-growing", Topic.MAX
    HEADROOM_STANDS_UNREAD = "headroom-stands-unread", Topic.MAX
    HEADROOM_ONE = "headroom-one", Topic.MAX
    HEADROOM_LENT = "headroom-lent", Topic.MAX
    HEADROOM_AWAITED = "headroom-awaited", Topic.MAX
    HEADROOM_LAST_STAY = "headroom-last-stay", Topic.MAX
    HEADROOM_LAST = "headroom-last", Topic.MAX
    HEADROOM_LAST_UNUSED = "headroom-last-unused", Topic.MAX
    HEADROOM_LEVELLED = "headroom-levelled", Topic.MAX
    MIN_ZERO_WHILE_FENCED = "min-zero-while-fenced", Topic.MIN
    LAST_BOUNDS_STAY = "last-bounds-stay", Topic.MAX
    NO_LAST_BOUNDS = "no-last-bounds", Topic.MAX
    # why a group is frozen
    OBJECT_BEING_DELETED = "object-being-deleted", Topic.STATE
    OBJECT_PAUSED = "object-paused", Topic.STATE
    ROLLOUTS_PAUSED = "rollouts-paused", Topic.STATE
    CLUSTER_BEING_DELETED = "cluster-being-deleted", Topic.STATE
    CLUSTER_PAUSED = "cluster-paused", Topic.STATE
    FROZEN_BY_CONTROLLER = "frozen-by-controller", Topic.STATE
    HIBERNATED = "hibernated", Topic.STATE
    NOT_AUTHORITATIVE = "not-authoritative", Topic.STATE
    AUTHORITY_MOVES = "authority-moves", Topic.STATE
    OWNER_MISSING = "owner-missing", Topic.STATE
    OWNER_NOT_READ = "owner-not-read", Topic.STATE
    OWNER_SETS_REPLICAS = "owner-sets-replicas", Topic.STATE
    OWNER_PAUSED = "owner-paused", Topic.STATE
    FIELD_NOT_OURS = "field-not-ours", Topic.STATE
    REPLICAS_UNSET = "replicas-unset", Topic.STATE
    ROLLING_SETS = "rolling-sets", Topic.STATE
    REFRESHING = "refreshing", Topic.STATE
    NODE_GROUP_BUSY = "node-group-busy", Topic.STATE
    LAUNCHES_UNREAD = "launches-unread", Topic.STATE
    MANAGED_BY_OPERATOR = "managed-by-operator", Topic.STATE
    CONTROL_PLANE = "control-plane", Topic.STATE
    PROCESS_SUSPENDED = "process-suspended", Topic.STATE
    AUTOSCALER_USES_FLAGS = "autoscaler-uses-flags", Topic.STATE
    NO_ROOM_FOR_TAGS = "no-room-for-tags", Topic.STATE
    TAGS_LOST = "tags-lost", Topic.STATE
    WRITTEN_BY_OTHER_CLUSTER = "written-by-other-cluster", Topic.STATE
    TOPOLOGY_ENTRY_MISSING = "topology-entry-missing", Topic.STATE
    TOPOLOGY_SETS_REPLICAS = "topology-sets-replicas", Topic.STATE
    POOL_PAUSED = "pool-paused", Topic.STATE
    WRITE_REFUSED = "write-refused", Topic.STATE
    # why a group without nodes gets no node, and how to change that
    UNSEEN_AT_ZERO = "unseen-at-zero", Topic.NOTE
    UNREAD_AT_ZERO = "unread-at-zero", Topic.NOTE
    UNKNOWN_AT_ZERO = "unknown-at-zero", Topic.NOTE
    UNREADABLE_VALUE = "unreadable-value", Topic.NOTE
    ANNOTATE = "annotate", Topic.NOTE
    SET_TAGS = "set-tags", Topic.NOTE
    # why an object is no node group
    NAMELESS = "nameless", Topic.NOTE
    NOT_DISCOVERED = "not-discovered", Topic.NOTE
    SECOND_OBJECT = "second-object", Topic.NOTE
    TWIN_HAS_MOVED = "twin-has-moved", Topic.NOTE
    TWIN_WAITS = "twin-waits", Topic.NOTE
    SPANS_ZONES = "spans-zones", Topic.NOTE
    GROUP_SPANS_ZONES = "group-spans-zones", Topic.NOTE
    GROUP_WITHOUT_ZONE = "group-without-zone", Topic.NOTE
    GROUP_NAME_UNUSABLE = "group-name-unusable", Topic.NOTE
    GROUP_WEIGHTED = "group-weighted", Topic.NOTE
    GROUP_IN_OTHER_UNITS = "group-in-other-units", Topic.NOTE
    NAMES_NO_ZONE = "names-no-zone", Topic.NOTE
    REPLICAS_MANAGED = "replicas-managed", Topic.NOTE
    TOPOLOGY_MAKES_POOL = "topology-makes-pool", Topic.NOTE
    KIND_FORBIDDEN = "kind-forbidden", Topic.NOTE
    SECOND_COPY = "second-copy", Topic.NOTE
    NODES_NOT_READ = "nodes-not-read", Topic.NOTE
    KIND_ALONE = "kind-alone", Topic.NOTE
    UNKNOWN_KIND = "unknown-kind", Topic.NOTE
    KIND_REFUSED = "kind-refused", Topic.NOTE
    FLAVOUR_NOT_LISTED = "flavour-not-listed", Topic.NOTE
    NOT_OF_CLUSTER = "not-of-cluster", Topic.NOTE
    UNUSED_ANSWER = "unused-answer", Topic.NOTE
    NO_GROUP_ANSWERED = "no-group-answered", Topic.NOTE
    NODE_GROUPS_ALONE = "node-groups-alone", Topic.NOTE
    ANSWER_ALONE = "answer-alone", Topic.NOTE
    ACTIVITIES_NOT_READ = "activities-not-read", Topic.NOTE
    DEMAND_OFF = "demand-off", Topic.NOTE
    # demand: why there is no advice
    WORKLOAD_UNREAD = "workload-unread", Topic.NOTE
    WORKLOAD_TOO_LARGE = "workload-too-large", Topic.NOTE
    WORKLOADS_MIXED = "workloads-mixed", Topic.NOTE
    WORKLOAD_UNJUDGED = "workload-unjudged", Topic.NOTE
    TWO_AUTOSCALERS = "two-autoscalers", Topic.NOTE
    # demand: why a pod does not fit a node, in the order of the scheduler's filters
    CLAIM_MISSING = "claim-missing", Topic.NOTE
    CLAIM_OF_ANOTHER = "claim-of-another", Topic.NOTE
    CLAIM_GOING = "claim-going", Topic.NOTE
    CLAIM_LOST = "claim-lost", Topic.NOTE
    CLAIM_UNBOUND = "claim-unbound", Topic.NOTE
    VOLUME_MISSING = "volume-missing", Topic.NOTE
    NODE_NOT_READY = "node-not-ready", Topic.NOTE
    NODE_CORDONED = "node-cordoned", Topic.NOTE
    TAINT_NOT_TOLERATED = "taint-not-tolerated", Topic.NOTE
    NODE_SELECTOR = "node-selector", Topic.NOTE
    NODE_AFFINITY = "node-affinity", Topic.NOTE
    HOST_PORT_TAKEN = "host-port-taken", Topic.NOTE
    NODE_FULL_OF_PODS = "node-full-of-pods", Topic.NOTE
    TOO_LITTLE_FREE = "too-little-free", Topic.NOTE
    CLAIM_IN_USE = "claim-in-use", Topic.NOTE
    VOLUME_LIMIT = "volume-limit", Topic.NOTE
    VOLUME_FOR_OTHER_NODE = "volume-for-other-node", Topic.NOTE
    VOLUME_OUT_OF_REACH = "volume-out-of-reach", Topic.NOTE
    VOLUME_ELSEWHERE = "volume-elsewhere", Topic.NOTE
    SPREAD_KEY_MISSING = "spread-key-missing", Topic.NOTE
    SPREAD_SKEW = "spread-skew", Topic.NOTE
    AFFINITY_KEY_MISSING = "affinity-key-missing", Topic.NOTE
    WITHOUT_COMPANY = "without-company", Topic.NOTE
    KEEPS_AWAY = "keeps-away", Topic.NOTE
    KEPT_AWAY = "kept-away", Topic.NOTE
    # demand: why a pool gets no node for a pod
    FRESH_NODE_UNKNOWN = "fresh-node-unknown", Topic.NOTE
    POOL_AT_ITS_MAX = "pool-at-its-max", Topic.NOTE
    CHECK_AT_ITS_MOST = "check-at-its-most", Topic.NOTE
    ORDER_DID_NOT_HELP = "order-did-not-help", Topic.NOTE
    UNFIT_IN_POOL = "unfit-in-pool", Topic.NOTE
    FITS_NO_POOL = "fits-no-pool", Topic.NOTE
    # demand: why a pending pod does not count
    POD_GOING = "pod-going", Topic.NOTE
    POD_COMES_WITH_NODE = "pod-comes-with-node", Topic.NOTE
    POD_EXPENDABLE = "pod-expendable", Topic.NOTE
    POD_NOT_TRIED_YET = "pod-not-tried-yet", Topic.NOTE
    POD_HELD_BACK = "pod-held-back", Topic.NOTE
    POD_YOUNG = "pod-young", Topic.NOTE
    POD_GATED = "pod-gated", Topic.NOTE
    POD_OF_OTHER_SCHEDULER = "pod-of-other-scheduler", Topic.NOTE
    POD_NEEDS_DEVICES = "pod-needs-devices", Topic.NOTE
    POD_NEEDS_UNKNOWN = "pod-needs-unknown", Topic.NOTE
    POD_OF_UNKNOWN_VOLUME = "pod-of-unknown-volume", Topic.NOTE
    # scale-down: why a node is not removed
    NODE_OF_NO_GROUP = "node-of-no-group", Topic.NOTE
    NODE_GOING = "node-going", Topic.NOTE
    NODE_STARTING = "node-starting", Topic.NOTE
    MACHINE_PRESERVED = "machine-preserved", Topic.NOTE
    SCALE_DOWN_DISABLED = "scale-down-disabled", Topic.NOTE
    GROUP_AT_ITS_MIN = "group-at-its-min", Topic.NOTE
    POOL_AT_ITS_MIN = "pool-at-its-min", Topic.NOTE
    ALLOCATABLE_UNKNOWN = "allocatable-unknown", Topic.NOTE
    NODE_IN_USE = "node-in-use", Topic.NOTE
    NODE_AWAITED = "node-awaited", Topic.NOTE
    NOT_REPLICATED = "not-replicated", Topic.NOTE
    SYSTEM_POD = "system-pod", Topic.NOTE
    NOT_SAFE_TO_EVICT = "not-safe-to-evict", Topic.NOTE
    LOCAL_STORAGE = "local-storage", Topic.NOTE
    BUDGET_EXHAUSTED = "budget-exhausted", Topic.NOTE
    TWO_BUDGETS = "two-budgets", Topic.NOTE
    VOLUME_OF_ITS_ZONE = "volume-of-its-zone", Topic.NOTE
    POD_NOT_PLACEABLE = "pod-not-placeable", Topic.NOTE
    NO_PLACE_ELSEWHERE = "no-place-elsewhere", Topic.NOTE
    NEEDED_TO_SURVIVE = "needed-to-survive", Topic.NOTE
    HELD_TO_SURVIVE = "held-to-survive", Topic.NOTE
    DRAINS_HELD_TO_SURVIVE = "drains-held-to-survive", Topic.NOTE
    # PoolMinimum by the clock, about a whole pool
    MINIMUM_AT = "minimum-at", Topic.NOTE
    MINIMUM_AT_AHEAD = "minimum-at-ahead", Topic.NOTE
    MINIMUM_AT_NEXT = "minimum-at-next", Topic.NOTE
    # survival: what remains after the loss of a zone
    SURVIVES_ZONE = "survives-zone", Topic.NOTE
    PODS_BOUND = "pods-bound", Topic.NOTE
    # parts of the reason above: why a zone gets no node
    NO_NODE_TO_SURVIVE = "no-node-to-survive", Topic.NOTE
    SURVIVAL_WAITS = "survival-waits", Topic.NOTE
    ZONE_HAS_ENOUGH = "zone-has-enough", Topic.NOTE
    REPLICAS_JUST_CHANGED = "replicas-just-changed", Topic.NOTE
    # removal: why no machine of a group is removed
    REPLICAS_OF_OTHERS = "replicas-of-others", Topic.NOTE
    REPLICAS_CHANGE = "replicas-change", Topic.NOTE
    NOTHING_DRAINS = "nothing-drains", Topic.NOTE
    NO_MACHINE_CAN_BE_NAMED = "no-machine-can-be-named", Topic.NOTE
    MACHINES_AWAITED = "machines-awaited", Topic.NOTE
    MARKED_BY_OTHERS = "marked-by-others", Topic.NOTE
    # scale-down: why an unneeded node is not removed yet
    PODS_TOO_NEW = "pods-too-new", Topic.NOTE
    AFTER_GROWTH = "after-growth", Topic.NOTE
    AFTER_FAILURE = "after-failure", Topic.NOTE
    UNNEEDED_TOO_SHORT = "unneeded-too-short", Topic.NOTE
    WAITS_FOR_COMPLETION = "waits-for-completion", Topic.NOTE
    ONE_DRAIN_AT_A_TIME = "one-drain-at-a-time", Topic.NOTE
    EMPTY_AT_THEIR_MOST = "empty-at-their-most", Topic.NOTE
    DRAIN_HANGS = "drain-hangs", Topic.NOTE
    POOL_BUSY = "pool-busy", Topic.NOTE


# Rules by which a group keeps replicas that have no running machine.
KEEPING = frozenset(
    {
        Rule.PRESERVED,
        Rule.CONTESTED_REPLICAS,
        Rule.REPLICAS_NOT_OURS,
        Rule.REPLICAS_OF_KARPENTER,
        Rule.STUCK_ON_HOLD,
        Rule.STUCK_SAME_FAILURE,
        Rule.STUCK_FOR_AUTOSCALER,
        Rule.STUCK_BEHIND_REQUEST,
        Rule.STUCK_WITHOUT_TAKER,
        Rule.STUCK_BY_WORKER,
        Rule.STUCK_BY_BOUNDS,
        Rule.STUCK_BY_OWNER,
        Rule.STUCK_PUT_BACK,
        Rule.STUCK_OFFERED,
    }
)

# Rules that freeze a group while its machines are being replaced.
ROLLOUTS = frozenset({Rule.ROLLING_SETS, Rule.FROZEN_BY_CONTROLLER, Rule.REFRESHING, Rule.NODE_GROUP_BUSY})
# Rules that freeze a group for which its controllers create no machine, whatever replicas it requests.
DELETIONS = frozenset({Rule.OBJECT_BEING_DELETED, Rule.CLUSTER_BEING_DELETED})
STOPS = DELETIONS | {Rule.OBJECT_PAUSED, Rule.CLUSTER_PAUSED, Rule.OWNER_PAUSED, Rule.HIBERNATED}


# This class is not frozen, because a frozen object takes twice as long to create, and a plan creates several for each
# group.
@dataclass(slots=True)
class Reason:
    """One rule, and its facts by name. The rule's sentence uses these names."""

    rule: Rule
    facts: Mapping[str, "Fact"] = field(default_factory=dict)

    @classmethod
    def of(cls, rule: Rule, **facts: "Fact") -> Self:
        """Return the reason with its facts by name."""
        return cls(rule, facts)

    def without(self, fact: str) -> "Reason":
        """Return the reason without a fact, which its sentence may omit."""
        return Reason(self.rule, {name: value for name, value in self.facts.items() if name != fact})


# This type is defined after the class, so that type annotations in other modules need no forward reference.
Fact = int | str | datetime | None | Reason | tuple[Reason, ...] | tuple[str, ...]
