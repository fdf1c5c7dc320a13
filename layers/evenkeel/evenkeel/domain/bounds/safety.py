"""The safety pass: what is published, whatever a formula said. It stands once and everything goes through it.

Cluster Autoscaler reads bounds every ten seconds, and one bad bound hides every node group of the cluster from it
(clusterapi_controller.go:804-808). A max below replicas stops scale-down for good (kubernetes/autoscaler#9395); a min
above replicas refuses small growth (kubernetes/autoscaler#4942).
"""

from evenkeel.domain.model.groups import Bounds


def safe_bounds(
    minimum: int, maximum: int, *, target: int, owner_min_max: int = 0, zone_max: int | None = None
) -> tuple[Bounds, list[str]]:
    """Bounds that may be published for a group whose requested will be ``target``, and a reason per change.

    Args:
        minimum: The formula's min; may be negative or too large.
        maximum: The formula's max; may be negative.
        target: Requested after the same patch, >= 0.
        floor_max: The least max that the owner of the bounds accepts (an OpenShift MachineAutoscaler: 1).
        zone_max: The operator's own cap on growth, annotation ``evenkeel.dev/zone-max``.
    """
    reasons = []
    if zone_max is not None and maximum > max(zone_max, target):
        maximum = max(zone_max, target)
        reasons.append(f"max cut to {maximum}: evenkeel.dev/zone-max is {zone_max}")
    if maximum < target:
        reasons.append(f"max raised from {maximum} to the {target} requested: less would block scale-down")
        maximum = target
    if maximum < owner_min_max:
        reasons.append(f"max raised from {maximum} to {owner_min_max}, the least that the owner of the bounds accepts")
        maximum = owner_min_max
    if minimum > target:
        reasons.append(f"min lowered from {minimum} to the {target} requested: more would block small growth")
        minimum = target
    return Bounds(max(0, minimum), maximum), reasons
