"""Places of pods, found without the product: every order and every node is tried, on small worlds."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from hypothesis import strategies as st

from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Claim,
    NodeSelectorTerm,
    Owner,
    Pod,
    PodAffinityTerm,
    PodVolume,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    Workload,
)
from tests.builders import key
from tests.workloads import node, pod, selector, taint, template

CORES, MEMORY = 4, 16  # of a node
KEPT_AWAY = "only=others:NoSchedule"
NEEDS = (
    "nothing",
    "its zone",
    "a zonal volume",
    "no other on the node",
    "no other in the zone",
    "another in the zone",
    "even zones",
    "even nodes",
)


@dataclass(frozen=True)
class Kind:
    """Equal pods. ``needs`` is one of NEEDS; ``zone`` is the only zone of those that are bound to one."""

    name: str
    cores: int
    memory: int
    needs: str = "nothing"
    zone: str = ""
    tolerates: bool = False
    priority: int | None = None


@dataclass(frozen=True)
class Place:
    """A node with its pods."""

    name: str
    zone: str
    kinds: Mapping[Kind, int] = field(default_factory=dict)
    is_tainted: bool = False
    daemons: int = 0  # cores that DaemonSet pods take

    def fits(self, kind: Kind, places: Iterable["Place"]) -> bool:
        used = sum(each.cores * count for each, count in self.kinds.items()) + self.daemons
        memory = sum(each.memory * count for each, count in self.kinds.items())
        if used + kind.cores > CORES or memory + kind.memory > MEMORY:
            return False
        if (self.is_tainted and not kind.tolerates) or kind.zone not in ("", self.zone):
            return False
        by_zone: Counter[str] = Counter()
        for place in places:
            by_zone[place.zone] += place.kinds.get(kind, 0)
        here = self.kinds.get(kind, 0)
        match kind.needs:
            case "no other on the node":
                return not here
            case "no other in the zone":
                return not by_zone[self.zone]
            case "another in the zone":  # the first of its kind may be anywhere
                return bool(by_zone[self.zone]) or not by_zone.total()
            case "even zones":
                return by_zone[self.zone] + 1 - min(by_zone.values()) <= 1
            case "even nodes":
                return here + 1 - min(place.kinds.get(kind, 0) for place in places) <= 1
        return True

    def plus(self, kind: Kind) -> "Place":
        return replace(self, kinds={**self.kinds, kind: self.kinds.get(kind, 0) + 1})

    @property
    def shape(self) -> Any:
        """Return a key that is equal for two equivalent nodes."""
        return self.zone, self.is_tainted, tuple(sorted((kind.name, n) for kind, n in self.kinds.items() if n))


World = tuple[Place, ...]


def fewest_without_place(kinds: Mapping[Kind, int], places: World) -> int:
    """Return the fewest pods that find no place, over all orders and nodes."""
    best = sum(kinds.values())
    tried = set()

    def search(left: Counter[Kind], world: World) -> None:
        nonlocal best
        best = min(best, left.total())
        state = (
            tuple(sorted(left.items(), key=lambda each: each[0].name)),
            tuple(sorted(place.shape for place in world)),
        )
        if not best or state in tried:
            return
        tried.add(state)
        for kind in +left:
            seen = set()
            for i, place in enumerate(world):
                if place.shape not in seen and place.fits(kind, world):
                    seen.add(place.shape)
                    search(left - Counter([kind]), (*world[:i], place.plus(kind), *world[i + 1 :]))

    search(Counter(kinds), places)
    return best


def without_place(world: World, zone: str, new: Iterable[Place] = ()) -> int:
    """Return the fewest pods of a lost zone that find no place in the other zones and on these new nodes."""
    lost: Counter[Kind] = Counter()
    for place in world:
        if place.zone == zone:
            lost.update(place.kinds)
    return fewest_without_place(lost, (*(place for place in world if place.zone != zone), *new))


@st.composite
def worlds(draw: st.DrawFn, needs: Sequence[str] = NEEDS) -> World:
    """Draw two or three zones of up to two nodes, with up to seven placed pods of up to three kinds."""
    zones = "abc"[: draw(st.integers(2, 3))]
    tainted = draw(st.sampled_from(["", "", *zones]))
    daemons = draw(st.sampled_from([0, 0, 1]))
    # A group without a node has the properties of other zones' nodes. So in a tainted world each zone has one.
    counts = [draw(st.integers(1 if tainted else 0, 2)) for _ in zones]
    world = [
        Place(f"{zone}{i}", zone, is_tainted=zone == tainted, daemons=daemons)
        for zone, count in zip(zones, counts, strict=True)
        for i in range(count)
    ]
    for number in range(draw(st.integers(1, 3))):
        need = draw(st.sampled_from(needs))
        kind = Kind(
            f"k{number}",
            draw(st.integers(1, 3)),
            draw(st.sampled_from([1, 5, 9])),
            need,
            draw(st.sampled_from(zones)) if need in ("its zone", "a zonal volume") else "",
            draw(st.booleans()),
            draw(st.sampled_from([None, None, 100])),
        )
        for _ in range(draw(st.integers(1, 3))):
            able = [i for i, place in enumerate(world) if place.fits(kind, world)]
            if able:
                i = draw(st.sampled_from(able))
                world[i] = world[i].plus(kind)
    return tuple(world)


def _pod(kind: Kind, name: str, on: str) -> Pod:
    own = selector(f"app in {kind.name}")
    fields: dict[str, dict[str, Any]] = {
        "its zone": {"node_selector": {ZONE: kind.zone}},
        "a zonal volume": {"volumes": (PodVolume("data", "persistentVolumeClaim", name),)},
        "no other on the node": {"anti_affinity": (PodAffinityTerm(key=HOSTNAME, selector=own),)},
        "no other in the zone": {"anti_affinity": (PodAffinityTerm(key=ZONE, selector=own),)},
        "another in the zone": {"affinity": (PodAffinityTerm(key=ZONE, selector=own),)},
        "even zones": {"spread": (TopologySpreadConstraint(key=ZONE, max_skew=1, selector=own),)},
        "even nodes": {"spread": (TopologySpreadConstraint(key=HOSTNAME, max_skew=1, selector=own),)},
    }
    tolerations = (Toleration(operator="Exists"),) if kind.tolerates else ()
    return pod(
        name,
        cpu=str(kind.cores),
        memory=f"{kind.memory}Gi",
        node=on,
        labels={"app": kind.name},
        priority=kind.priority,
        tolerations=tolerations,
        **fields.get(kind.needs, {}),
    )


def daemon(name: str = "agent", **fields: Any) -> Pod:
    everywhere = (Toleration(operator="Exists"),)
    return pod(name, cpu="1", memory="0", owner=Owner("DaemonSet", "agent"), tolerations=everywhere, **fields)


def workload_of(world: World) -> Workload:
    """Return the same nodes and pods as the product reads them."""
    taints = {True: (taint(KEPT_AWAY),), False: ()}
    nodes = [node(each.name, each.zone, group=key(each.zone), taints=taints[each.is_tainted]) for each in world]
    pods, claims, volumes = list[Pod](), list[Claim](), list[Volume]()
    for place in world:
        for kind, count in place.kinds.items():
            for i in range(count):
                name = f"{kind.name}-{place.name}-{i}"
                pods.append(_pod(kind, name, place.name))
                if kind.needs == "a zonal volume":
                    term = NodeSelectorTerm(selector(f"{ZONE} in {kind.zone}"))
                    claims.append(Claim(namespace="default", name=name, volume=name, bound=True))
                    volumes.append(Volume(name=name, terms=(term,), claim=f"default/{name}"))
    has_daemons = any(place.daemons for place in world)
    pods += [daemon(f"agent-{place.name}", node=place.name) for place in world if place.daemons]
    return Workload(
        pods=tuple(pods),
        nodes=tuple(nodes),
        claims=tuple(claims),
        volumes=tuple(volumes),
        daemon_sets=(daemon(),) if has_daemons else (),
    )


def template_of(zone: str, world: World) -> Any:
    is_tainted = any(place.is_tainted for place in world if place.zone == zone)
    return template(taints=(taint(KEPT_AWAY),) if is_tainted else ())


def new_places(world: World, zones: str, lost: str, count: int) -> list[Place]:
    """Return so many empty nodes in each zone except the lost one, like its nodes."""
    tainted = {place.zone for place in world if place.is_tainted}
    daemons = max((place.daemons for place in world), default=0)
    return [
        Place(f"new-{zone}{i}", zone, is_tainted=zone in tainted, daemons=daemons)
        for zone in zones
        if zone != lost
        for i in range(count)
    ]
