"""What a pool remembers of the nodes that it ordered for pods, so that no order repeats without effect."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from evenkeel.domain.model.reasons import Reason, Rule

# One pool remembers so many orders, for so long. The longest wait between two orders is shorter.
MOST_ORDERS = 20
ORDERS_KEPT = timedelta(hours=3)
# Orders that may fail for the same pods before groups that were not tried for them wait as well.
FREE_ORDERS = 4
_FIRST_WAIT = timedelta(minutes=10)
_LONGEST_WAIT = timedelta(hours=1)
# Between two orders of which no node became Ready, however short the provision timeout is.
_UNREADY_WAIT = timedelta(minutes=15)


# Where a node as young as this helps, the next order does not wait ever longer: machines of one group may differ.
HELP_COUNTS = timedelta(hours=1)


def wait_after(failed: int) -> timedelta:
    """Return the time from the last of so many orders that did not help to the next one."""
    return min(_LONGEST_WAIT, _FIRST_WAIT * (1 << min(failed - 1, 8))) if failed > 0 else timedelta(0)


@dataclass(frozen=True, kw_only=True)
class PastOrder:
    """The last order for pods with equal needs, of one expected node.

    ``seen`` and the creation of a node are both times of the API server, so the clock of the worker plays no part.
    """

    at: datetime
    seen: datetime  # the latest time that the API server had set by then: a node of this order is younger
    groups: tuple[str, ...]  # where the nodes are expected, by key
    failed_in: tuple[str, ...] = ()  # groups whose last node did not help
    helped_in: tuple[str, ...] = ()  # groups whose last node did, where others failed
    is_open: bool = True  # no node of this order has shown yet whether it helps
    failed: int = 0  # orders in a row that did not help
    node: str = ""  # the last node that did not help
    why: Reason | None = None  # the rule by which the pods do not fit that node

    @property
    def counted(self) -> int:
        """The orders that make the next one wait ever longer. Nodes that are never Ready do not."""
        return 0 if self._is_unready else self.failed

    @property
    def wait(self) -> timedelta:
        """The time from this order to the next one at least. A first node that is not Ready may have died."""
        return _UNREADY_WAIT if self._is_unready and self.failed > 1 else timedelta(0)

    @property
    def _is_unready(self) -> bool:
        return self.why is not None and self.why.rule is Rule.NODE_NOT_READY


@dataclass(frozen=True, kw_only=True)
class IneffectiveOrder:
    """Pods that wait although a node that was ordered for them has arrived."""

    pods: tuple[str, ...]  # <namespace>/<name>, the oldest first
    since: datetime  # the order
    node: str
    why: Reason
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BlockedPods:
    """Pods for which nothing is ordered, because the DaemonSets of a new node leave too little of it."""

    pods: tuple[str, ...]  # <namespace>/<name>, the oldest first
    why: Reason  # the rule by which the pods do not fit a new node
    daemons: tuple[tuple[str, str], ...]  # <namespace>/<name> and what it claims, the largest first
    groups: tuple[str, ...] = ()
