"""What each capability adds to records, annotations and stored pools. Functions that do not plan read it, too."""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from evenkeel.capabilities.minimum_at import MINIMUM_AT, MinimumAtFields
from evenkeel.domain.model.parts import Setting
from evenkeel.domain.rebalancing.membership.fallbacks import FALLBACK_FOR
from evenkeel.domain.relief.model import Relief
from evenkeel.domain.survival.model import HeldNodes
from evenkeel.domain.survival.setting import SURVIVE_ZONES, SurviveZones
from evenkeel.validation import PoolName

SETTINGS: tuple[Setting[Any], ...] = (SURVIVE_ZONES, FALLBACK_FOR, MINIMUM_AT)
# Name of a part in a pool's item -> its type.
STORED_PARTS: Mapping[str, type[Any]] = {"survival": HeldNodes, "relief": Relief}
_Zones = Annotated[SurviveZones, BeforeValidator(SURVIVE_ZONES.read)]


class ClusterParts(MinimumAtFields):
    """The fields that capabilities add to a record."""

    # The number of zones that a pool may lose at once and still hold what it needs. None: "0"
    survive_zones: _Zones | None = Field(default=None, examples=list(SurviveZones))


class PoolParts(ClusterParts):
    """The fields that capabilities add to a pool of a record."""

    fallback_for: PoolName | None = None  # the pool of which this pool is a fallback
