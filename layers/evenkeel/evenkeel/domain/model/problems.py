"""Problems of a pool or of a request, as values. ``texts`` has their sentences."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from evenkeel.domain.model.reasons import Fact


class ProblemKind(StrEnum):
    """Kinds of problem. JSON contains the value."""

    # Problems of a pool's minimum, maximum and members. They make the pool invalid.
    UNREADABLE = "unreadable"
    MEMBERS_DISAGREE = "members-disagree"
    MIN_ABOVE_MAX = "min-above-max"
    NO_ZONE = "no-zone"
    WEIGHTS_PAST_POOL = "weights-past-pool"
    FEWER_THAN_ZONES = "fewer-than-zones"
    # Problems that are only reported.
    UNREADABLE_AND_LEFT_OUT = "unreadable-and-left-out"
    FEWER_THAN_ZONES_IN_USE = "fewer-than-zones-in-use"
    AUTOSCALER_BESIDE_KARPENTER = "autoscaler-beside-karpenter"
    SURVIVES_NO_ZONE = "survives-no-zone"  # the pool has only one zone
    SURVIVAL_PAST_MAX = "survival-past-max"
    SURVIVAL_PAST_LIMITS = "survival-past-limits"
    SURVIVAL_PAST_ZONES = "survival-past-zones"
    BOUNDS_HELD = "bounds-held"  # the record does not let Evenkeel write to the owner
    NEW_INTENT = "new-intent"  # an owner has new desired bounds, which Evenkeel follows
    # A setting fallback_for that has no effect.
    FALLBACK_UNKNOWN = "fallback-unknown"
    FALLBACK_ELSEWHERE = "fallback-elsewhere"
    FALLBACK_INVALID = "fallback-invalid"
    FALLBACK_RING = "fallback-ring"
    # Settings of a record that do not fit together. They are only reported.
    RELEASE_WITHOUT_AUTOSCALER = "release-without-autoscaler"
    SHRINK_WITHOUT_AUTOSCALER = "shrink-without-autoscaler"
    SHRINK_WITHOUT_PODS = "shrink-without-pods"
    ADVICE_WITHOUT_AUTOSCALER = "advice-without-autoscaler"
    # Problems of a plan.
    OVER_COMMITTED = "over-committed"
    OVER_OFFERED = "over-offered"
    STARVED = "starved"
    INEFFECTIVE_ORDER = "ineffective-order"  # reported only in an incident
    BLOCKED_BY_DAEMON_SETS = "blocked-by-daemon-sets"  # reported only in an incident
    LOST_GROUP = "lost-group"  # reported only in an incident
    PODS_WAIT = "pods-wait"  # reported only in an incident
    PODS_UNREAD = "pods-unread"  # reported only in an incident
    PODS_UNJUDGED = "pods-unjudged"  # reported only in an incident
    # Problems of a request for nodes.
    REQUEST_BEHIND_MOVE = "request-behind-move"
    REQUEST_BEHIND_REQUEST = "request-behind-request"
    REQUEST_AGAINST_REQUEST = "request-against-request"
    REQUEST_AWAITS_PODS = "request-awaits-pods"
    REQUEST_AWAITS_CHECK = "request-awaits-check"
    REQUEST_EXPIRED = "request-expired"  # Evenkeel began to carry out the request, but did not complete it in time
    REQUEST_TOO_OLD = "request-too-old"
    REQUEST_UNMET = "request-unmet"
    REQUEST_POOL_GONE = "request-pool-gone"
    REQUEST_AMBIGUOUS = "request-ambiguous"
    REQUEST_NOWHERE = "request-nowhere"
    REQUEST_UNKNOWN_GROUPS = "request-unknown-groups"
    REQUEST_POOL_INVALID = "request-pool-invalid"


@dataclass(frozen=True)
class Problem:
    """One problem, with the facts that its sentence uses."""

    kind: ProblemKind
    facts: Mapping[str, Fact] = field(default_factory=dict)

    @classmethod
    def of(cls, kind: ProblemKind, **facts: Fact) -> "Problem":
        """Return the problem with its facts by name."""
        return cls(kind, facts)
