"""What each capability adds to records, annotations and stored pools. Functions that do not plan read it, too."""

from collections.abc import Mapping
from typing import Any

from evenkeel.capabilities.fallback import FallbackFields
from evenkeel.capabilities.minimum_at import MINIMUM_AT, MinimumAtFields
from evenkeel.capabilities.survival import SurvivalFields
from evenkeel.domain.model.parts import Setting
from evenkeel.domain.rebalancing.membership.fallbacks import FALLBACK_FOR
from evenkeel.domain.relief.model import Relief
from evenkeel.domain.survival.model import HeldNodes
from evenkeel.domain.survival.setting import SURVIVE_ZONES

SETTINGS: tuple[Setting[Any], ...] = (SURVIVE_ZONES, FALLBACK_FOR, MINIMUM_AT)
# Name of a part in a pool's item -> its type.
STORED_PARTS: Mapping[str, type[Any]] = {"survival": HeldNodes, "relief": Relief}


class PoolParts(FallbackFields, MinimumAtFields, SurvivalFields):
    """The fields that capabilities add to a pool of a record."""


class ClusterParts(MinimumAtFields, SurvivalFields):
    """The fields that capabilities add to a record."""
