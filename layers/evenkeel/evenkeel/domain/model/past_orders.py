"""Stored orders of nodes for pods, so that Evenkeel does not repeat orders that did not help."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from evenkeel.domain.model.holds import doubled
from evenkeel.domain.model.reasons import Reason, Rule

# How many orders a pool stores, and for how long. This time is longer than the longest wait between two orders.
MOST_ORDERS = 20
ORDERS_KEPT = timedelta(hours=3)
# After this many failed orders for the same pods, the wait also applies to groups that were never tried for these pods.
FREE_ORDERS = 4
# While the pods would fit on a node that is younger than this, failed orders do not double the wait. The failed nodes
# may be exceptions, because machines of one group may differ.
HELP_COUNTS = timedelta(hours=1)
_FIRST_WAIT = timedelta(minutes=10)
_LONGEST_WAIT = timedelta(hours=1)
# The shortest wait after orders whose nodes never became Ready, even if the provision timeout is shorter.
_UNREADY_WAIT = timedelta(minutes=15)


def wait_after(failed: int) -> timedelta:
    """Return how long the next order waits after the last order, if this many orders have failed."""
    return doubled(_FIRST_WAIT, failed - 1, _LONGEST_WAIT) if failed > 0 else timedelta(0)


@dataclass(frozen=True, kw_only=True)
class PastOrder:
    """The last order of one kind of node for pods with equal needs.

    Both ``seen`` and the creation times of nodes are from the API server. So Evenkeel's own clock does not matter.
    """

    at: datetime
    # The latest creation time of any node or pod before the order. The ordered nodes have later creation times.
    seen: datetime
    groups: tuple[str, ...]  # keys of the groups that get the nodes
    failed_in: tuple[str, ...] = ()  # keys of the groups whose last node did not help
    helped_in: tuple[str, ...] = ()  # keys of the groups whose last node helped, although nodes of other groups did not
    is_open: bool = True  # True: it is not known yet whether the nodes of this order help
    failed: int = 0  # the number of orders in a row that did not help
    node: str = ""  # the last node that did not help
    why: Reason | None = None  # the filter that rejects the pods on that node

    @property
    def counted(self) -> int:
        """Return the number of failed orders that lengthen the wait. It is 0 if the nodes were never Ready."""
        return 0 if self._is_unready else self.failed

    @property
    def wait(self) -> timedelta:
        """Return the shortest wait after orders whose nodes were never Ready.

        A single such order causes no wait, because its node may simply have crashed.
        """
        return _UNREADY_WAIT if self._is_unready and self.failed > 1 else timedelta(0)

    @property
    def _is_unready(self) -> bool:
        return self.why is not None and self.why.rule is Rule.NODE_NOT_READY


@dataclass(frozen=True, kw_only=True)
class IneffectiveOrder:
    """Pods that are still pending although a node that was ordered for them has registered."""

    pods: tuple[str, ...]  # <namespace>/<name>, the oldest first
    since: datetime  # the time of the order
    node: str  # the ordered node
    why: Reason
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BlockedPods:
    """Pods that get no node, because the DaemonSets of a new node would leave too little room for them."""

    pods: tuple[str, ...]  # <namespace>/<name>, the oldest first
    why: Reason  # the filter that rejects the pods on a new node
    daemons: tuple[tuple[str, str], ...]  # <namespace>/<name> and request of each DaemonSet, the largest request first
    groups: tuple[str, ...] = ()
