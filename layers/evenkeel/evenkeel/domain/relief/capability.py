"""Relief in the pipeline of a plan: the write to a pool's Shoot."""

from evenkeel.domain.rebalancing.capability import Capability
from evenkeel.domain.relief.relief import relieve

RELIEF = Capability(finish=relieve)
