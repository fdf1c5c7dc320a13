"""The setting ``survive_zones``."""

from enum import StrEnum

from evenkeel.domain.model.choices import read_choice
from evenkeel.domain.model.parts import Setting
from evenkeel.domain.model.pools import AnyPool


class SurviveZones(StrEnum):
    """The number of zones that a pool may lose at once and still hold what it needs."""

    NONE = "0"
    ONE = "1"

    @classmethod
    def read(cls, value: object) -> "SurviveZones":
        """Return the member with this value. Raises BadValueError if there is no such member."""
        return read_choice(cls, value, "number of zones to survive")


SURVIVE_ZONES = Setting(name="survive_zones", read=SurviveZones.read, default=SurviveZones.NONE)


def has_to_survive(pool: AnyPool) -> bool:
    """Return True if the pool must hold what it needs after the loss of any one zone."""
    return SURVIVE_ZONES.of(pool.settings.own) is SurviveZones.ONE
