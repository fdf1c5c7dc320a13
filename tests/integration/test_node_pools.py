"""HyperShift's NodePools as writers: real use case and adapter, and an operator that reconciles NodePools at once."""

import functools
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenkeel.domain.model.groups import GroupKey
from sandbox.admission import FILE, AdmissionWatch
from sandbox.kube.access import Rule
from sandbox.kube.controllers.node_pools import NODE_POOLS
from sandbox.kube.schema import Object
from sandbox.kube.world import ZONES
from tests.crashing import BUSY, DEAD, How, Life, Scene, dying_at_every_step, steps_of
from tests.ecosystems import CAPI_DEPLOYMENTS, Estate

FOLDER = FILE.parent / "hypershift"
ROLES = {"no right": FILE.parent / "rbac.yaml", "the right": FOLDER / "rbac.yaml"}


@functools.cache
def scene(owner: str, **fields: Any) -> Scene:
    return Scene(owner, **fields)


def played(owner: str = "hypershift", **fields: Any) -> Scene:
    return scene(owner, **fields).again()


def pool(found: Scene, zone: str = DEAD) -> Object:
    return found.owner(zone)


def size(found: Scene, zone: str = DEAD) -> Any:
    spec = pool(found, zone)["spec"]
    return spec["autoScaling"] if "autoScaling" in spec else spec["replicas"]


def patches(life: Life, plural: str) -> int:
    return sum(step.startswith("PATCH") and f"/{plural}/" in step for step in life.steps)


def watch_writes(found: Scene) -> list[Object]:
    """Return the dead zone's NodePool after each patch of Evenkeel that has changed it."""
    written: list[Object] = []

    def note(request: Any) -> None:
        if request.method == "PATCH" and request.path.endswith(pool(found)["metadata"]["name"]):
            found_now = pool(found)
            if not written or found_now["spec"] != written[-1]["spec"]:
                written.append(found_now)

    found.api.after.append(note)
    return written


def no_autoscaler_left(found: Scene) -> bool:
    return not any("autoScaling" in item["spec"] for item in found.objects.list(NODE_POOLS))


class TestRelease:
    def test_it_is_marks_and_one_patch_of_the_node_pool(self) -> None:
        found, life = played(), Life()
        found.run(life)
        asked = [step for step in life.steps if f"/nodepools/{pool(found)['metadata']['name']}" in step]
        assert len(asked) == 2, "once as a rehearsal, before the first mark"
        assert patches(life, "machinedeployments") == 0
        assert patches(life, "machines") == found.stuck
        assert (found.replicas()[DEAD], size(found)["max"]) == (2, 2)

    def test_what_its_operator_does_not_lower_a_later_run_does(self) -> None:
        found = played()
        found.patch(pool(found), {"spec": {"release": {"image": "nonsense"}}})
        found.controllers.reconcile_owners(found.clock.at)
        found.run()
        assert (found.replicas()[DEAD], size(found)["max"]) == (4, 2)
        life = Life()
        found.run(life)
        assert patches(life, "machinedeployments") == 1
        assert patches(life, "nodepools") == 0
        assert found.replicas()[DEAD] == 2
        assert found.nodes <= found._nodes()
        states = found.memory.load("demo").state.groups.values()
        assert not any(state.contest.reverts for state in states), "nobody has put anything back"


class TestRace:
    @pytest.mark.parametrize("owner", ["hypershift", "hypershift-pinned", "openshift", "cluster-class"])
    def test_a_max_is_not_lowered_below_an_order_between_check_and_patch(self, owner: str) -> None:
        """The order is written right before the scalable is read again."""
        found = played(owner, stuck=1)
        steps, name = steps_of(found), found.name_of(DEAD)
        last = max(at for at, step in enumerate(steps) if step.startswith("GET") and step.endswith(f"/{name}"))
        ran = found.run(Life(at=last, how=How.SLIP, slip=lambda: found.slip(DEAD)))
        assert (found.scaled, ran.conflicts) == (1, 1)
        found.settle()
        assert found.wrong(found.requested - 1) == []
        assert found.replicas()[DEAD] == 2, "released with the others, once it was known of"


class TestZone:
    """On AWS a NodePool names a subnet, so its zone is that of its machines."""

    def test_a_group_that_is_emptied_stays_in_the_zone_of_its_last_machines(self) -> None:
        estate = Estate("hypershift", replicas=(1, 1, 1), minimum=0, maximum=6, autoscaler=False)
        estate.live(2)
        emptied = estate.all(CAPI_DEPLOYMENTS)[0]
        estate.patch(CAPI_DEPLOYMENTS, emptied, {"spec": {"replicas": 0}}, manager="cluster-autoscaler")
        estate.live(3)
        found = estate.pool()
        assert (estate.replicas, found.report.problems) == ([0, 1, 1], ())
        assert {plan.group.identity.zone for plan in found.groups} == set(ZONES)


class TestRights:
    def evaluate(self, role: Path, **fields: Any) -> Scene:
        found = played(**fields)
        documents = yaml.safe_load_all(role.read_text(encoding="utf-8"))
        self.let(found, next(item for item in documents if item["kind"] == "ClusterRole"))
        return found

    def let(self, found: Scene, role: Object) -> None:
        found.api._rules = {**found.api._rules, "evenkeel": Rule.of_role(dict(role))}

    def test_without_the_right_to_patch_a_node_pool_its_group_is_not_written(self) -> None:
        found = self.evaluate(ROLES["no right"])
        before = found.replicas(), {zone: size(found, zone) for zone in found.zones}
        summary = found.run()
        assert (found.replicas(), {zone: size(found, zone) for zone in found.zones}) == before
        assert found.marks() == []
        assert summary.plan is not None
        key = GroupKey("cluster-api", found.namespace, found.name_of(DEAD))
        said = found.memory.load("demo").state.groups[key].contest.write_refused
        name = pool(found)["metadata"]["name"]
        assert said.startswith(f"NodePool clusters/{name} is not ours to write: ")
        assert "apply deploy/kubernetes/hypershift/rbac.yaml" in said

    def test_a_missing_right_is_checked_again_and_used_once_granted(self) -> None:
        found = self.evaluate(ROLES["no right"])
        found.run()
        quiet = Life()
        found.run(quiet)
        assert patches(quiet, "nodepools") == 0
        documents = yaml.safe_load_all(ROLES["the right"].read_text(encoding="utf-8"))
        self.let(found, next(item for item in documents if item["kind"] == "ClusterRole"))
        for _ in range(6):
            found.troubled(Life())
        assert found.replicas()[DEAD] == 2


@pytest.mark.parametrize(
    ("owner", "files"),
    [
        ("hypershift", [FOLDER / "admission-policy.yaml"]),
        ("hypershift-pinned", [FOLDER / "admission-policy.yaml", FOLDER / "admission-policy-fence.yaml"]),
    ],
)
def test_the_policies_of_the_folder_allow_every_write(owner: str, files: list[Path]) -> None:
    found = played(owner)
    watch = AdmissionWatch(found.api, files=files)
    found.run()
    found.settle()
    restore(found)
    found.settle()
    assert watch.refused == []
    assert {"nodepools", "machines"} <= watch.judged.keys()


def restore(found: Scene) -> None:
    stored = found.memory.load("demo")
    control = stored.control.model_copy(update={"restoring": True})
    found.memory.save_record(stored.record, control, stored.versions)


def switch_off(found: Scene) -> None:
    stored = found.memory.load("demo")
    record = stored.record.model_copy(update={"node_pool_fence": None})
    found.memory.save_record(record, stored.control, stored.versions)


def fenced() -> Scene:
    found = played("hypershift-pinned")
    found.run()
    assert size(found) == 2, "pinned"
    return found


class TestFence:
    def test_it_is_one_patch_and_its_operator_takes_the_group_from_the_autoscaler(self) -> None:
        found = played("hypershift-pinned")
        written = watch_writes(found)
        found.run()
        assert [item["spec"].get("replicas") for item in written if "autoScaling" not in item["spec"]] == [2]
        assert found.replicas()[DEAD] == 2
        notes = found.item(DEAD)["metadata"]["annotations"]
        assert (notes[found.machine_api.min_key], notes[found.machine_api.max_key]) == ("0", "0")
        assert "autoScaling" in pool(found, BUSY)["spec"]

    def test_when_the_zone_delivers_again_autoscaling_is_back(self) -> None:
        found = fenced()
        found.cloud.restore_zone(DEAD)
        for _ in range(40):
            found.troubled(Life())
        assert "autoScaling" in pool(found)["spec"]
        assert found.memory.load("demo").state.groups == {} or size(found)["max"] >= 2

    @pytest.mark.parametrize("end", [restore, switch_off], ids=["restore", "switched off"])
    @pytest.mark.parametrize("how", [How.AFTER, How.LOST])
    def test_its_end_survives_a_crash_at_every_step(self, end: Callable[[Scene], None], how: How) -> None:
        prepared = fenced()
        prepared.controllers.step(prepared.clock.at)
        end(prepared)

        def wrong(found: Scene) -> list[str]:
            problems = [] if "autoScaling" in pool(found)["spec"] else [f"still pinned: {size(found)}"]
            if end is restore and size(found) != {"min": 1, "max": 4}:
                problems.append(f"{size(found)} is not what was wanted")
            return problems + [problem for problem in found.faults if "requests" in problem]

        assert dying_at_every_step(prepared, [how], wrong) == {}

    def test_no_crash_leaves_a_cluster_without_an_autoscaler(self) -> None:
        prepared = scene("hypershift-pinned")
        found = dying_at_every_step(
            prepared, [How.AFTER, How.LOST], lambda played: ["none is scaled"] if no_autoscaler_left(played) else []
        )
        assert found == {}

    def test_a_fence_without_a_stored_state_stays_until_it_is_restored(self) -> None:
        found = fenced()
        stored = found.memory.load("demo")
        for id, state in stored.state.pools.items():
            found.memory.save_pool("demo", id, replace(state, desired_bounds={}), stored.versions)
        found.cloud.restore_zone(DEAD)
        for _ in range(3):
            found.troubled(Life())
        assert size(found) == 2
        restore(found)
        found.settle()
        assert size(found)["max"] == 4
