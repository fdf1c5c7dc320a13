"""Random worlds for ``python -m bench oracle``. Plan, state and events of each check are recorded as JSON.

A world depends only on its seed. The use case of a run, the stored items and the plan are real. Machines, pods, other
writers and operators act at random.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any

from evenkeel.application.errors import ClusterUnavailableError, RejectedError
from evenkeel.application.rebalancing.decisions import plan_json
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.model.groups import Bounds, GroupKey, MachineFailure, NodeGroup
from evenkeel.domain.model.workload import ZONE, Pod
from evenkeel.domain.rebalancing.writes import Patch
from evenkeel.state_records import ScaleRequestRecord, ZoneRecord, ZoneStatement
from tests.builders import group, owned, stated
from tests.crashing import How, Life
from tests.fakes import InMemoryStore, record, register, register_again
from tests.parts import replace
from tests.workloads import template
from tests.world import App, Machines
from tests.world import World as Base

MINUTE = timedelta(minutes=1)
REGION = "eu-central-1"
#: The main subject of a world. A theme that is listed more often has more worlds.
THEMES = (
    *("outage", "outage", "outage", "move", "move", "return", "return", "return", "level", "level", "level"),
    *("requests", "requests", "pods", "pods", "restore", "restore", "release", "release", "anything"),
)
FLAVOURS = ("cluster-api", "cluster-api", "gardener", "gardener", "openshift", "auto-scaling")
STRATEGIES = ("balanced", "balanced", "lax-greedy", "backward-compatible", "adaptive")
CODES = (
    *("InsufficientInstanceCapacity", "InsufficientInstanceCapacity", "InsufficientInstanceCapacity"),
    *("VcpuLimitExceeded", "AuthFailure", "Odd"),
)
#: Events that happen before a patch of a run.
DISTURBANCES = (*["killed between patches"] * 3, "changed meanwhile", "refused", "answer lost")
#: The weight of each incident, and the factor for worlds of a theme.
INCIDENTS = {
    **{"zone_dies": 6, "zone_heals": 4, "replicas_rise": 5, "replicas_fall": 3, "autoscaler_acts": 6},
    **{"bounds_are_put_back": 3, "group_freezes": 2, "group_thaws": 2, "zone_is_said_impaired": 3, "apps_change": 3},
    **{"nodes_are_requested": 3, "nodes_are_given_back": 3, "pool_is_paused": 1, "cluster_is_paused": 1, "resumed": 3},
    **{"pool_is_restored": 1, "cluster_is_restored": 1, "record_changes": 2, "machine_is_preserved": 6},
    **{"workload_goes_or_returns": 1, "controllers_stop_or_go_on": 2, "a_pass_is_requested": 1},
    **{"awaited_zone_dies": 2, "a_list_is_incomplete": 2},
}
MORE: Mapping[str, Mapping[str, int]] = {
    "outage": {
        "pool_is_paused": 3,
        "cluster_is_paused": 2,
        "zone_dies": 12,
        "zone_heals": 12,
        "replicas_rise": 20,
        "autoscaler_acts": 10,
    },
    "move": {"zone_dies": 12, "zone_heals": 6, "replicas_rise": 16},
    "level": {"zone_is_said_impaired": 5, "replicas_rise": 4, "awaited_zone_dies": 12, "autoscaler_acts": 4},
    "return": {"awaited_zone_dies": 6, "zone_heals": 6},
    "requests": {"nodes_are_requested": 30, "nodes_are_given_back": 30},
    "pods": {"apps_change": 20},
    "restore": {"pool_is_restored": 6, "cluster_is_restored": 6, "resumed": 6, "pool_is_paused": 4},
    "release": {"zone_heals": 6, "apps_change": 6},
}


class World(Base):
    """One or two pools in a cluster, and all its writers."""

    def __init__(self, seed: int) -> None:
        chance = random.Random(seed)
        self.theme, self.happened = chance.choice(THEMES), Counter[str]()
        self.flavour = chance.choice(FLAVOURS)
        self.alone = self.theme != "release" and chance.random() < (0.8 if self.theme in ("move", "pods") else 0.4)
        self.zones = "abcd"[: chance.randint(2, 4) if self.theme not in ("pods", "requests") else chance.randint(1, 3)]
        has_fallback = self.theme == "return" or chance.random() < 0.25
        self.names = ["workers", "spare"] if has_fallback or chance.random() < 0.2 else ["workers"]
        counts = {name: [chance.randint(0, 5) for _ in self.zones] for name in self.names}
        if self.theme == "level":
            counts["workers"] = [chance.choice([0, 1, 2, 4, 6]) for _ in self.zones]
        elif self.theme == "return":
            counts = {"workers": [chance.randint(0, 3) for _ in self.zones]}
            counts["spare"] = [chance.randint(0, 1) for _ in self.zones]
        self.settings = self._settings(chance, counts, has_fallback=has_fallback)
        self._count_settings()
        super().__init__(
            self._apps(chance, sum(map(sum, counts.values()))),
            nodes=(),
            takes=chance.choice([timedelta(0), MINUTE, MINUTE, 4 * MINUTE]),
            mark_is_ours=self.flavour != "auto-scaling",
            seed=seed,
        )
        self.chance = chance
        self.clock.at += timedelta(minutes=chance.randint(0, 600))
        self.store = InMemoryStore(clock=self.clock)
        register(self.store, **self.settings)
        groups = [
            self._group(name, zone, count)
            for name in self.names
            for zone, count in zip(self.zones, counts[name], strict=True)
        ]
        self.cluster = Machines(groups, self.clock, mark_is_ours=self.flavour != "auto-scaling")
        self.cluster.before_apply = self._before_patch
        self.settle_pods()
        #: Pool and zone -> the code of its failures, and whether they are reported.
        self.failing: dict[str, tuple[str, bool]] = {}
        self.disturbs, self.disturbed_patch, self.life, self.patches = "", 0, Life(), 0
        self.requests = 0
        #: A group whose bounds or replicas another writer puts back after each run.
        self.contested = chance.choice(list(self.cluster.groups)) if chance.random() < 0.1 else None
        self.hidden: dict[GroupKey, NodeGroup] = {}  # groups that lists leave out for now
        self.order = list(self.cluster.groups)

    # -- the beginning of a world

    def _settings(
        self, chance: random.Random, counts: Mapping[str, list[int]], *, has_fallback: bool
    ) -> dict[str, Any]:
        stages = ["off", "scale-up", "full"] if self.alone else ["off", "off", "advise"]
        stage = {"release": "advise", "pods": stages[-1]}.get(self.theme, chance.choice(stages))
        levels = ["off", "converge", "converge"] if self.theme in ("level", "return") else ["off", "shrink", "converge"]
        aws = self.flavour == "auto-scaling"
        found: dict[str, Any] = {
            "flavours": [self.flavour],
            "access": {"kind": "auto-scaling", "region": REGION} if aws else {"kind": "kubeconfig", "secret": "demo"},
            "autoscaler": "none" if self.alone else "cluster-autoscaler",
            "strategy": chance.choice(STRATEGIES),
            "dry_run": chance.random() < 0.06,
            "converge": {
                "blind": chance.random() < 0.7,
                "per_hour": chance.choice([1, 4, 60]),
                "surge": chance.randint(0, 1),
                "windows": ["08:00-16:00"] if chance.random() < 0.1 else [],
            },
            "pools": [self._pool(chance, name, sum(counts[name]), levels) for name in self.names],
        }
        if stage != "off":
            found["demand"] = stage
        if stage != "off" or self.theme == "return" or chance.random() < 0.4:
            access = {"kind": "eks", "name": "demo", "region": REGION} if aws else {"kind": "same"}
            found["workload"] = {"access": access}
        if has_fallback:
            found["pools"][-1]["fallback_for"] = "workers"
        if chance.random() < 0.3:
            found["max_step"] = chance.randint(1, 3)
        if chance.random() < 0.2:
            found["backoff"] = {"initial": 60, "longest": 600, "forget_after": 3600}
        if chance.random() < 0.3:
            found["provision_timeout"] = chance.choice([120, 300])
        if chance.random() < 0.15:
            found["trouble_after"] = 120
        return found

    def _count_settings(self) -> None:
        found = self.settings
        self.happened[f"flavour {self.flavour}"] += 1
        self.happened[f"demand {found.get('demand', 'off')}, autoscaler {found['autoscaler']}"] += 1
        self.happened["dry run of the cluster"] += found["dry_run"]
        self.happened["a view of the pods"] += "workload" in found
        for pool in found["pools"]:
            self.happened[f"strategy {pool.get('strategy', found['strategy'])}"] += 1
            for name in ("on_failure", "level", "dry_run", "max_step", "survive_zones"):
                if name in pool:
                    self.happened[f"{name} {pool[name] if name != 'max_step' else 'of a pool'}"] += 1
        self.happened["a fallback"] += any("fallback_for" in pool for pool in found["pools"])

    def _pool(self, chance: random.Random, name: str, nodes: int, levels: list[str]) -> dict[str, Any]:
        found: dict[str, Any] = {
            "name": name,
            "min": chance.choice([0, 0, min(2, nodes), nodes // 2, nodes]),
            "max": max(1, nodes + chance.choice([0, 1, 3, 8, 20])),
            "level": chance.choice(levels),
        }
        if self.theme in ("return", "level") and chance.random() < 0.85:
            room = chance.choice([3, 8, 20])
            return {"name": name, "min": chance.choice([0, nodes // 2]), "max": nodes + room, "level": "converge"}
        if self.theme == "release" and chance.random() < 0.7:
            return {"name": name, "min": 0, "max": nodes + chance.choice([8, 20]), "on_failure": "release"}
        choices = {"move": ["move"], "release": ["release"]}.get(self.theme, ["release", "release", "move", "hold"])
        if self.theme in ("move", "release") or chance.random() < 0.8:
            found["on_failure"] = chance.choice(choices)
        if chance.random() < 0.3:
            found["strategy"] = chance.choice(STRATEGIES)
        if chance.random() < 0.1:
            found["dry_run"] = chance.random() < 0.5
        if chance.random() < 0.2:
            found["survive_zones"] = "1"
        if chance.random() < 0.15:
            found["max_step"] = chance.randint(1, 4)
        return found

    def _apps(self, chance: random.Random, nodes: int) -> list[App]:
        if self.theme in ("return", "release"):
            return [
                App(
                    name="app0",
                    pods=nodes * 2,
                    milli=1900 if self.theme == "release" else chance.choice([900, 1900, 1900]),
                )
            ]
        return [
            App(
                name=f"app{number}",
                pods=chance.randint(0, max(1, nodes * 2)),
                milli=chance.choice([200, 500, 1000, 1900]),
                budget=chance.choice([None, None, 0, 1, 2]),
                fields={"node_selector": {ZONE: chance.choice(self.zones)}} if chance.random() < 0.15 else {},
            )
            for number in range(chance.randint(1, 3))
        ]

    def _group(self, pool: str, zone: str, nodes: int) -> NodeGroup:
        chance = self.chance
        space = REGION if self.flavour == "auto-scaling" else "default"
        least = chance.choice([0, 0, 0, min(1, nodes), nodes])
        bounds = (least, nodes + chance.choice([0, 1, 4]))
        fields: dict[str, Any] = {"template": template()}
        if chance.random() < 0.1:
            fields["weight"] = chance.choice([2, 3])
        if chance.random() < 0.06:
            fields["zone_max"] = nodes + chance.randint(0, 2)
        if chance.random() < 0.06:
            fields["zone_min"] = chance.randint(0, nodes)
        fields["fencing_enabled"] = chance.random() < 0.96
        found = group(
            zone,
            nodes,
            pool=pool,
            key=GroupKey(self.flavour, space, f"{pool}-{zone}"),
            bounds=bounds if chance.random() < 0.85 else None,
            **fields,
        )
        if self.flavour != "openshift" or found.bounds is None:
            return found
        owner = owned(f"{pool}-{zone}", found.bounds).owner
        return replace(found, owner=owner)

    # -- machines

    def allows(self, pod: Pod, place: str) -> bool:  # noqa: ARG002
        """Return True. The recorded scheduler compares only sizes."""
        return True

    def control(self) -> None:
        """Create machines for replicas and nodes for machines, except in dead zones. Delete surplus machines."""
        if self.slow:
            return
        now = self.clock.now()
        for key, each in list(self.cluster.groups.items()):
            if each.owner.two_objects and each.owner.copied != each.bounds:
                self.cluster.change(key, owner=replace_copied(each, each.bounds))
            staying = self.cluster.staying(key)
            for _ in range(each.requested - len(staying)):
                self.cluster.make(key)
            order = sorted(
                staying, key=lambda machine: (not machine.marked, machine.preserved, machine.has_node, machine.name)
            )
            for machine in order[: max(0, len(staying) - each.requested)]:
                self.cluster.set(key, machine.name, deleting=True, deleting_since=now)
            for machine in list(self.cluster.machines[key].values()):
                if not machine.has_node and not machine.deleting and now - machine.created_at >= self.takes:
                    self._start(key, machine.name)
                if machine.deleting:
                    self._drain(key, machine)

    def _start(self, key: GroupKey, machine: str) -> None:
        """Make a machine a node, or let it fail."""
        code, is_reported = self.failing.get(key.name, ("", False))
        if not code:
            self.cluster.set(key, machine, has_node=True, failure=None)
        elif is_reported and self.cluster.machines[key][machine].failure is None:
            failure = MachineFailure(code=code, message=f"{code} in {key.name[-1]}", at=self.clock.now())
            self.cluster.set(key, machine, failure=failure)

    # -- runs

    def _before_patch(self, patch: Patch) -> None:
        """Apply the event that is drawn for a patch, before it."""
        key = patch.plan.group.key
        self.patches += 1
        if self.patches != self.disturbed_patch or not self.disturbs:
            return
        self.happened[f"a run that is disturbed: {self.disturbs}"] += 1
        match self.disturbs:
            case "killed between patches":
                self.life.die()
            case "changed meanwhile":
                self.cluster.change(key, requested=self.cluster.groups[key].requested + 1)
            case "refused":
                raise RejectedError("admission webhook denied the request")
            case "answer lost":
                raise ClusterUnavailableError("no answer")

    def check(self, number: int) -> dict[str, Any]:
        """Play one run with its drawn events, and return its recording."""
        chance = self.chance
        self.life, self.patches, self.disturbs = Life(), 0, ""
        if number and chance.random() < 0.3:
            self.disturbs = chance.choice(
                [*["killed between patches"] * 3, "changed meanwhile", "refused", "answer lost"]
            )
            self.disturbed_patch = chance.choice([1, 2, 2, 3])
        elif number and chance.random() < 0.1:
            self.life = Life(at=chance.randrange(20), how=chance.choice([How.BEFORE, How.AFTER, How.LOST]))
        told, decided = len(self.bus.published), {decision["id"] for decision in self.store.decisions("demo", 1000)}
        started = self.clock.now()
        before = self.cluster.groups.get(self.contested) if self.contested else None
        summary = self.run(self.life)
        if before is not None and (after := self.cluster.groups[before.key]) != before:
            fields = (
                {"requested": before.requested} if after.requested != before.requested else {"bounds": before.bounds}
            )
            self.cluster.change(before.key, **fields)
        if self.hidden and chance.random() < 0.6:
            found = {**self.cluster.groups, **self.hidden}
            self.cluster.groups, self.hidden = {key: found[key] for key in self.order}, {}
        if self.life.dead:
            self.happened["killed runs"] += 1
        document = {
            "at": started.isoformat(),
            "plan": None if summary is None or summary.plan is None else plan_json(summary.plan),
            "summary": None if summary is None else self._summary(summary),
            "state": {key: json.loads(text) for key, text in self.store.texts("demo").items() if key != "META"},
            "decisions": [each for each in self.store.decisions("demo", 1000) if each["id"] not in decided],
            "events": self.bus.published[told:],
            "groups": {
                str(key): [each.requested, each.bounds and [each.bounds.min, each.bounds.max], each.ours.move]
                for key, each in self.cluster.groups.items()
            },
            "marked": sorted(
                name
                for machines in self.cluster.machines.values()
                for name, machine in machines.items()
                if machine.marked
            ),
        }
        self._count(document)
        return document

    @staticmethod
    def _summary(summary: RunSummary) -> dict[str, Any]:
        """Return the parts of a run's summary that are compared."""
        return {"message": summary.message, "metrics": summary.metrics(), "writes": summary.writes}

    def _count(self, document: Mapping[str, Any]) -> None:
        """Count the rules and states in the plan and the stored items."""
        for key, item in document["state"].items():
            if key.startswith("POOL#"):
                state = item["state"]
                self.happened["nodes held for another pool"] += bool(state.get("held_nodes"))
                self.happened["releases stored"] += bool(state.get("release"))
                if step := state.get("convergence", {}).get("step"):
                    self.happened[f"step {step['phase']}"] += 1
            elif "nodes" in item:
                self.happened["requests done"] += bool(item.get("done"))
                self.happened["requests with a rest"] += "left" in item
        for pool in (document["plan"] or {}).get("pools", ()):
            told = [rule for planned in pool["groups"] for rule in planned["rules"]]
            rules = {rule["rule"] for rule in told}
            if any(rule["rule"] == "request-share" and not rule["request"].startswith("request-") for rule in told):
                whose = "nodes ordered for pods" if self.alone else "released nodes ordered again"
                self.happened[whose] += 1
            rules |= {rule["rule"] for rule in pool.get("noteRules", ())}
            self.happened.update(f"rule {rule}" for rule in rules)
            self.happened.update(f"problem {each['rule']}" for each in pool.get("problemRules", ()))
            self.happened.update(f"state {planned['state']}" for planned in pool["groups"])

    def play(self) -> Iterator[dict[str, Any]]:
        """Yield the recordings of all checks. Incidents happen between them."""
        for number in range(18 if self.theme in ("return", "level") else 10):
            yield self.check(number)
            incidents, apart = [0, 1, 1, 2], [15, 45, 60, 60, 75, 150, 330, 700]
            if self.theme == "return":
                self._drought(number)
            elif self.theme == "release" and number in (0, 1, 5):
                self._launches_fail()
            if self.theme in ("return", "level"):
                incidents, apart = [0, 0, 0, 1], [60, 60, 150, 300, 660]
            elif self.theme == "release":
                incidents, apart = [0, 0, 1], [15, 30, 30, 60]
            for _ in range(self.chance.choice(incidents)):
                self._incident()
            self.pass_time(timedelta(seconds=self.chance.choice(apart)))

    def _drought(self, number: int) -> None:
        """Let the first pool get no node for a while, so that its fallback grows."""
        groups = [key for key in self.cluster.groups if key.name.startswith("workers")]
        if number == 0:
            self.failing = {key.name: (CODES[0], True) for key in groups}
            for key in groups:
                self.cluster.change(key, requested=self.cluster.groups[key].requested + 1)
        elif number in (2, 3):
            spare = [key for key in self.cluster.groups if key.name.startswith("spare")]
            for key in self.chance.sample(spare, self.chance.randint(1, len(spare))):
                more = self.chance.randint(1, 2)
                self.cluster.change(key, requested=self.cluster.groups[key].requested + more)
                self.apps["app0"].pods += 2 * more if self.chance.random() < 0.7 else 0
        elif number == 4:
            self.failing = {}
            for key in groups:
                for machine in self.cluster.staying(key):
                    self.cluster.set(key, machine.name, has_node=True, failure=None)

    def _launches_fail(self) -> None:
        """Create pods that wait for nodes of a group that gets none."""
        found, more = self._any_group(), self.chance.randint(1, 3)
        self.failing[found.key.name] = (CODES[0], True)
        self.cluster.change(found.key, requested=found.requested + more)
        self.apps["app0"].pods += 2 * more

    # -- incidents

    def _incident(self) -> None:
        weights = {name: count + MORE.get(self.theme, {}).get(name, 0) for name, count in INCIDENTS.items()}
        name = self.chance.choices(list(weights), list(weights.values()))[0]
        before = self.happened.total()
        getattr(self, name)()
        if self.happened.total() == before:
            self.happened[f"incident: {name.replace('_', ' ')}"] += 1

    def _any_group(self) -> NodeGroup:
        return self.chance.choice(list(self.cluster.groups.values()))

    def zone_dies(self) -> None:
        key = self._any_group().key
        same = [each.name for each in self.cluster.groups if each.name[-1] == key.name[-1]]
        failing = (self.chance.choice(CODES), self.chance.random() < 0.8)
        for name in same if self.chance.random() < 0.5 else [key.name]:
            self.failing[name] = failing
        self.cluster.change(key, requested=self.cluster.groups[key].requested + self.chance.randint(0, 2))

    def awaited_zone_dies(self) -> None:
        """Let the zone of a group that waits for a node deliver none."""
        awaited = [key for key, each in self.cluster.groups.items() if each.requested > len(self._running(key))]
        if awaited:
            self.failing[self.chance.choice(awaited).name] = (self.chance.choice(CODES), self.chance.random() < 0.5)

    def _running(self, key: GroupKey) -> list[str]:
        return [machine.name for machine in self.cluster.staying(key) if machine.has_node]

    def zone_heals(self) -> None:
        if self.failing:
            del self.failing[self.chance.choice(sorted(self.failing))]

    def replicas_rise(self) -> None:
        found = self._any_group()
        dead = [each for each in self.cluster.groups.values() if each.key.name in self.failing]
        if dead and self.chance.random() < 0.7:
            found = self.chance.choice(dead)
        self.cluster.change(found.key, requested=found.requested + self.chance.randint(1, 3))

    def replicas_fall(self) -> None:
        found = self._any_group()
        self.cluster.change(found.key, requested=max(0, found.requested - self.chance.randint(1, 2)))

    def autoscaler_acts(self) -> None:
        found = self._any_group()
        if found.bounds is None or self.alone:
            return
        wanted = found.requested + self.chance.choice([-1, 1, 1, 2])
        self.cluster.change(found.key, requested=min(max(wanted, found.bounds.min), found.bounds.max))

    def bounds_are_put_back(self) -> None:
        found = self._any_group()
        least = self.chance.randint(0, 3)
        bounds = Bounds(least, least + self.chance.randint(0, 6))
        owner = found.owner
        if owner.numbers is not None:
            owner = replace(owner, numbers=replace(owner.numbers, bounds=bounds), copied=bounds)
        self.cluster.change(found.key, bounds=bounds, owner=owner)

    def a_list_is_incomplete(self) -> None:
        """Hide one group from the next checks."""
        if len(self.cluster.groups) > 1:
            key = self._any_group().key
            if key != self.contested:
                self.hidden[key] = self.cluster.groups.pop(key)

    def group_freezes(self) -> None:
        self.cluster.change(self._any_group().key, frozen_because=stated("rolling out"))

    def group_thaws(self) -> None:
        for key, each in list(self.cluster.groups.items()):
            if each.frozen_because is not None:
                self.cluster.change(key, frozen_because=None)

    def zone_is_said_impaired(self) -> None:
        now = self.clock.now()
        until = now + timedelta(minutes=self.chance.choice([-1, 5, 30]))
        words = {self.chance.choice(["operator", "autoshift"]): ZoneStatement(until=until, stated_at=now)}
        zone, versions = self.chance.choice(self.zones), self.store.load("demo").versions
        self.store.save_zone("demo", "-", zone, ZoneRecord(statements=words), versions)

    def apps_change(self) -> None:
        app = self.chance.choice(list(self.apps.values()))
        app.pods = max(0, app.pods + self.chance.choice([-6, -3, 2, 5]))

    def nodes_are_requested(self) -> None:
        self._ask(self.chance.randint(1, 4))

    def nodes_are_given_back(self) -> None:
        self._ask(-self.chance.randint(1, 4))

    def _ask(self, nodes: int) -> None:
        """Request nodes, unless a request is open. These worlds have no queued requests."""
        stored = self.store.load("demo")
        if any(not each.done for each in stored.scale_requests.values()):
            return
        self.requests += 1
        found = self._any_group()
        pool = found.key.name.partition("-")[0]
        same = [key.name for key in self.cluster.groups if key.name.startswith(pool)]
        match self.chance.choice(["pool", "pool", "group", "only"]):
            case "group":
                of: dict[str, Any] = {"group": found.key.name}
            case "only":
                of = {"pool": pool, "only": tuple(sorted(self.chance.sample(same, self.chance.randint(1, len(same)))))}
            case _:
                of = {"pool": pool}
        asked = ScaleRequestRecord(id=f"request-{self.requests}", nodes=nodes, at=self.clock.now(), **of)
        self.store.save_scale_request("demo", asked, stored.versions)

    def _control(self, **fields: Any) -> None:
        stored = self.store.load("demo")
        self.store.save_record(stored.record, stored.control.model_copy(update=fields), stored.versions)

    def pool_is_paused(self) -> None:
        until = self.chance.choice([None, self.clock.now() + 5 * MINUTE])
        self._control(paused_pools={self.chance.choice(self.names): until})

    def cluster_is_paused(self) -> None:
        self._control(paused=True, paused_until=self.chance.choice([None, self.clock.now() + 5 * MINUTE]))

    def resumed(self) -> None:
        self._control(
            paused=False,
            paused_until=None,
            paused_pools={},
            restoring=False,
            restoring_pools=(),
            restored=False,
            restored_pools=(),
        )

    def pool_is_restored(self) -> None:
        self._control(restoring_pools=(self.chance.choice(self.names),))

    def cluster_is_restored(self) -> None:
        self._control(restoring=True)

    def a_pass_is_requested(self) -> None:
        self._control(convergence_requested={self.chance.choice(self.names): self.clock.now()})

    def record_changes(self) -> None:
        """Register the cluster again, with another limit or mode."""
        pool = self.chance.choice(self.settings["pools"])
        match self.chance.choice(["max", "max", "min", "level", "dry_run", "strategy", "on_failure"]):
            case "max":
                pool["max"] = max(1, pool["min"], pool["max"] + self.chance.choice([-2, 2]))
            case "min":
                pool["min"] = max(0, min(pool["max"], pool["min"] + self.chance.choice([-1, 1, 2])))
            case "level":
                pool["level"] = self.chance.choice(["off", "shrink", "converge"])
            case "dry_run":
                self.settings["dry_run"] = not self.settings["dry_run"]
            case "strategy":
                pool["strategy"] = self.chance.choice(STRATEGIES)
            case _:
                pool["on_failure"] = self.chance.choice(["release", "move", "hold"])
        register_again(self.store, record(**self.settings))

    def machine_is_preserved(self) -> None:
        """Preserve one machine as Gardener does, preferably a failed one."""
        if self.flavour != "gardener":
            return
        listed = [(key, machine) for key in self.cluster.groups for machine in self.cluster.staying(key)]
        listed.sort(key=lambda each: each[1].has_node)
        if listed:
            key, machine = listed[0]
            self.cluster.set(key, machine.name, preserved=not machine.preserved)
            self.happened["machines preserved"] += 1

    def workload_goes_or_returns(self) -> None:
        self.unread = None if self.unread else ClusterUnavailableError("away")

    def controllers_stop_or_go_on(self) -> None:
        self.slow = not self.slow


def replace_copied(each: NodeGroup, bounds: Bounds | None) -> Any:
    """Return the owner's bounds after its controller has copied them to the scalable."""
    return replace(each.owner, copied=bounds)
