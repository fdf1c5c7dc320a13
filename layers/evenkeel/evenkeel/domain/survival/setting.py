"""The setting ``survive_zones``."""

from enum import StrEnum
from functools import partial

from evenkeel.domain.model.choices import read_choice
from evenkeel.domain.model.parts import Setting
from evenkeel.domain.model.pools import AnyPool


class SurviveZones(StrEnum):
    """The number of zones that a pool may lose at once and still hold what it needs."""

    NONE = "0"
    ONE = "1"


SURVIVE_ZONES = Setting(
    name="survive_zones",
    read=partial(read_choice, SurviveZones, title="number of zones to survive"),
    default=SurviveZones.NONE,
)


def has_to_survive(pool: AnyPool) -> bool:
    """Return True if the pool must hold what it needs after the loss of any one zone."""
    return SURVIVE_ZONES.of(pool.settings.own) is SurviveZones.ONE
