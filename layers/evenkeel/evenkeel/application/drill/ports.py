"""The port of drills."""

from typing import Protocol

from evenkeel.application.ports import ClusterStore, Versions
from evenkeel.domain.drill.drill import Drill


class DrillStore(ClusterStore, Protocol):
    """Stores the last drill of each cluster."""

    def save_drill(self, cluster: str, drill: Drill, versions: Versions | None) -> None:
        """Write the drill. Raises StateConflictError, StateUnavailableError."""
