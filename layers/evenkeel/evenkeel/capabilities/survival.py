"""The field about the loss of a zone."""

from typing import Annotated

from pydantic import BeforeValidator, Field

from evenkeel.domain.survival.setting import SurviveZones
from evenkeel.validation import Strict

_Zones = Annotated[SurviveZones, BeforeValidator(SurviveZones.read)]


class SurvivalFields(Strict):
    """The field of a record, and of its pools."""

    # The number of zones that a pool may lose at once and still hold what it needs. None: "0"
    survive_zones: _Zones | None = Field(default=None, examples=list(SurviveZones))
