"""What each capability adds to records, annotations, observations and stored pools.

Functions that do not plan read it, too.
"""

from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from evenkeel.capabilities.minimum_at import MINIMUM_AT, MinimumAtFields
from evenkeel.capabilities.relief import RegisteredReliefFields, ReliefFields
from evenkeel.domain.model.parts import Setting
from evenkeel.domain.rebalancing.membership.fallbacks import FALLBACK_FOR
from evenkeel.domain.relief.model import SHOOT_RELIEF, Relief, Shoots
from evenkeel.domain.survival.model import HeldNodes
from evenkeel.domain.survival.setting import SURVIVE_ZONES, SurviveZones
from evenkeel.validation import PoolName

SETTINGS: tuple[Setting[Any], ...] = (SURVIVE_ZONES, FALLBACK_FOR, MINIMUM_AT)
CLUSTER_SETTINGS: tuple[Setting[Any], ...] = (SHOOT_RELIEF,)  # only the record itself sets these
# Name of a part in the JSON of a pool's state, or of an observation -> its type.
STORED_PARTS: Mapping[str, type[Any]] = {"survival": HeldNodes, "relief": Relief}
OBSERVED_PARTS: Mapping[str, type[Any]] = {"shoots": Shoots}
_Zones = Annotated[SurviveZones, BeforeValidator(SURVIVE_ZONES.read)]


class _SharedFields(MinimumAtFields):
    """The fields that capabilities add to a record, and to a pool of it."""

    # The number of zones that a pool may lose at once and still hold what it needs. None: "0"
    survive_zones: _Zones | None = Field(default=None, examples=list(SurviveZones))


class ClusterFields(_SharedFields, ReliefFields):
    """The fields that capabilities add to a record."""


class RegisteredFields(RegisteredReliefFields, ClusterFields):
    """The same, with the rules for a record that is registered."""


class CapabilityPoolFields(_SharedFields):
    """The fields that capabilities add to a pool of a record."""

    fallback_for: PoolName | None = None  # the pool of which this pool is a fallback
