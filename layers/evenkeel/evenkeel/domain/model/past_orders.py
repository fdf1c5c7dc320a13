"""Stored orders of nodes for pods, so that no order repeats without effect."""

from dataclasses import dataclass
from datetime import datetime, timedelta

from evenkeel.domain.model.reasons import Reason, Rule

# The orders that one pool stores, and for how long. The longest wait between two orders is shorter.
MOST_ORDERS = 20
ORDERS_KEPT = timedelta(hours=3)
# Failed orders for the same pods after which groups that were not tried for them wait too.
FREE_ORDERS = 4
# While a node this young helps, the wait does not grow: machines of one group may differ.
HELP_COUNTS = timedelta(hours=1)
_FIRST_WAIT = timedelta(minutes=10)
_LONGEST_WAIT = timedelta(hours=1)
# The wait between two orders of which no node became Ready, however short the provision timeout is.
_UNREADY_WAIT = timedelta(minutes=15)


def wait_after(failed: int) -> timedelta:
    """Return the time from the last of so many orders that did not help to the next one."""
    return min(_LONGEST_WAIT, _FIRST_WAIT * (1 << min(failed - 1, 8))) if failed > 0 else timedelta(0)


@dataclass(frozen=True, kw_only=True)
class PastOrder:
    """The last order for pods with equal needs and one expected node.

    The API server sets both ``seen`` and the creation time of a node, so the worker's clock does not matter.
    """

    at: datetime
    seen: datetime  # the latest time that the API server had set by then: a node of this order is younger
    groups: tuple[str, ...]  # where the nodes are expected, by key
    failed_in: tuple[str, ...] = ()  # groups whose last node did not help
    helped_in: tuple[str, ...] = ()  # groups whose last node helped, while others failed
    is_open: bool = True  # no node of this order has shown yet whether it helps
    failed: int = 0  # orders in a row that did not help
    node: str = ""  # the last node that did not help
    why: Reason | None = None  # the filter that rejects the pods on that node

    @property
    def counted(self) -> int:
        """Return the orders that double the wait. Nodes that are never Ready do not."""
        return 0 if self._is_unready else self.failed

    @property
    def wait(self) -> timedelta:
        """Return the least time from this order to the next one. A first node that is not Ready may have died."""
        return _UNREADY_WAIT if self._is_unready and self.failed > 1 else timedelta(0)

    @property
    def _is_unready(self) -> bool:
        return self.why is not None and self.why.rule is Rule.NODE_NOT_READY


@dataclass(frozen=True, kw_only=True)
class IneffectiveOrder:
    """Pods that are still pending after a node ordered for them has arrived."""

    pods: tuple[str, ...]  # <namespace>/<name>, the oldest first
    since: datetime  # the order
    node: str
    why: Reason
    groups: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class BlockedPods:
    """Pods that get no node because the DaemonSets of a new node leave too little of it."""

    pods: tuple[str, ...]  # <namespace>/<name>, the oldest first
    why: Reason  # the filter that rejects the pods on a new node
    daemons: tuple[tuple[str, str], ...]  # <namespace>/<name> and its request, the largest first
    groups: tuple[str, ...] = ()
