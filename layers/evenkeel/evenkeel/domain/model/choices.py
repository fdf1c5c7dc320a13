"""What people choose from: the sizing strategy of a pool, and what becomes of replicas that a zone does not deliver."""

from enum import StrEnum
from typing import Self

from evenkeel.domain.model.values import BadValueError


def _fold(name: str) -> str:
    return name.replace("-", "").replace("_", "").lower()


class Strategy(StrEnum):
    """How a pool's numbers become bounds. GEP-24 section 3; Balanced is our own."""

    LAX_GREEDY = "Lax-Greedy"
    BACKWARD_COMPATIBLE = "Backward-Compatible"
    ADAPTIVE = "Adaptive"
    BALANCED = "Balanced"

    @classmethod
    def read(cls, value: object) -> Self:
        """A strategy from its name, in any case, with or without hyphens; GEP-24's ``Equitable`` is an alias.

        Raises:
            BadValueError: no such strategy.
        """
        names = {_fold(member.value): member for member in cls}
        names["equitable"] = cls("Backward-Compatible")
        try:
            return names[_fold(str(value))]
        except KeyError:
            known = ", ".join(member.value for member in cls)
            raise BadValueError(f"no such strategy: choose one of {known}") from None


class OnFailure(StrEnum):
    """What happens to replicas that a failing zone does not deliver."""

    RELEASE = "release"  # requested := running; Cluster Autoscaler places the pods again
    MOVE = "move"  # the same, and we order the machines elsewhere ourselves
    HOLD = "hold"  # replicas stay as they are; the group is only fenced

    @classmethod
    def read(cls, value: object) -> Self:
        """Raises BadValueError for a word that is none of them."""
        try:
            return cls(str(value).lower())
        except ValueError:
            known = ", ".join(member.value for member in cls)
            raise BadValueError(f"no such treatment of failures: choose one of {known}") from None
