"""The ports of incidents."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from evenkeel.application.ports import NAMELESS, RUNBOOKS, Bus, CheckTimesStore, Clock, Versions
from evenkeel.domain.model.incidents import ClusterHealth


class HealthStore(Protocol):
    """Stores the health of one cluster. All methods raise StateUnavailableError."""

    def save_cluster_health(self, cluster: str, cluster_health: ClusterHealth, versions: Versions | None) -> None:
        """Store the health in the cluster's items and in the overview of all clusters. Raises StateConflictError."""

    def cluster_health(self, cluster: str) -> tuple[ClusterHealth, Versions]:
        """Return the health of a cluster, even if the cluster's other items cannot be read."""


class FleetHealthStore(HealthStore, CheckTimesStore, Protocol):
    """A ``HealthStore`` that also reads the health of all clusters."""

    def cluster_healths(self) -> Mapping[str, ClusterHealth]:
        """Return the health of all clusters that ever had an incident, from one query (and one more per MiB)."""


class AlertQueue(Protocol):
    """The queue of the function ``notify``."""

    def send(self, detail: Mapping[str, Any]) -> bool:
        """Send a change of an incident to chats and pagers. Return False if the queue does not accept it."""


@dataclass(frozen=True, kw_only=True)
class HealthPorts:
    """The ports that store and notify cluster health.

    ``stack`` is the stack's name in commands, ``runbooks`` a URL or file. Other programs can send events to the bus, so
    chats and pagers are notified by a queue to which only runs may send.
    """

    store: HealthStore
    bus: Bus
    clock: Clock
    alerts: AlertQueue | None = None  # None: the stack notifies no chat and no pager
    stack: str = NAMELESS
    runbooks: str = RUNBOOKS
