"""Survival in the pipeline of a plan: the mins of zones, the nodes to order, and the report."""

from evenkeel.domain.rebalancing.capability import Capability, Point
from evenkeel.domain.survival.minimum import order_to_survive, report_survival, set_survival_minima

SURVIVAL = Capability(
    steps={Point.START: set_survival_minima, Point.REPLICAS: order_to_survive, Point.BOUNDS: report_survival}
)
