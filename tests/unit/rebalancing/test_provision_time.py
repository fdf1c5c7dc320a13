"""The provision time of a suspect group is set while it is suspect, and never over a user's own value."""

from datetime import timedelta
from typing import Any

import pytest

from evenkeel.adapters.kubernetes.flavours import CLUSTER_API, FLAVOURS, GARDENER, OPENSHIFT
from evenkeel.adapters.kubernetes.read.groups import Listing, read_groups
from evenkeel.adapters.own_annotations import PROVISION_TIME
from evenkeel.domain.model.groups import Bounds, NodeGroup
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.restore import carries_ours
from evenkeel.domain.rebalancing.writes import patches
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.cluster_file import ClusterFile
from tests import objects
from tests.builders import group, numbers, owned, pool_plan, problems_of
from tests.fakes import register_again
from tests.house import House
from tests.objects import ZONES
from tests.parts import make, replace

SHORT = timedelta(seconds=180)
MAKE: dict[str, Any] = {
    "gardener": objects.gardener,
    "cluster-api": objects.cluster_api,
    "openshift": objects.openshift,
}
OPTIONS = (
    *("provision_timeout", "unneeded_time", "unready_time"),
    *("utilization_threshold", "gpu_utilization_threshold"),
)


def wants(seconds: int | None = 180) -> Policy:
    return replace(numbers(0, 9), suspect_provision_time=seconds and timedelta(seconds=seconds))


def read(flavour: str = "cluster-api", **annotations: str) -> NodeGroup:
    """The group of a scalable with these annotations, by the names that its flavour has for them."""
    states, item = FLAVOURS[flavour], MAKE[flavour](ZONES[0], 1)
    named = {getattr(states.autoscaler, name, PROVISION_TIME): value for name, value in annotations.items()}
    item["metadata"].setdefault("annotations", {}).update(named)
    ((found,), _) = read_groups(Listing(flavour=states, objects={item["kind"]: [item]}))
    return found.group


def times(groups: list[NodeGroup], policy: Policy | None = None, **states: Any) -> list[timedelta | None]:
    return [plan.short_provision for plan in pool_plan(groups, policy or wants(), **states).groups]


def test_it_is_set_while_a_group_is_fenced_or_probing() -> None:
    groups = [group(zone, 1, bounds=(0, 3)) for zone in "abc"]
    assert times(groups, fenced="a", probing="b") == [SHORT, SHORT, None]
    assert times(groups, wants(None), fenced="a", probing="b") == [None, None, None]


def test_it_is_removed_after_recovery_and_stays_on_a_frozen_group() -> None:
    marked = group("a", 1, bounds=(0, 3), short_provision=SHORT)
    assert times([marked, group("b", 1)]) == [None, None]
    assert times([replace(marked, frozen_because=pool_plan([marked]).groups[0].reasons[0]), group("b", 1)]) == [
        SHORT,
        None,
    ]


@pytest.mark.parametrize(
    ("fields", "policy"),
    [
        pytest.param({"keeps_provision": True}, wants(), id="a user's own value"),
        pytest.param({}, replace(wants(), provision_timeout=timedelta(seconds=120)), id="the pool waits for less"),
        pytest.param({}, replace(wants(), autoscaler=False), id="no autoscaler reads it"),
    ],
)
def test_a_fenced_group_keeps_its_time(fields: dict[str, Any], policy: Policy) -> None:
    assert times([group("a", 1, **fields), group("b", 1)], policy, fenced="a") == [None, None]


def test_it_is_set_where_bounds_cannot_be_fenced() -> None:
    held = owned("a", Bounds(0, 4), requested=2)
    assert held.owner.numbers is not None
    held = replace(held, owner=replace(held.owner.numbers, needs_consent=True))
    found = pool_plan([held, owned("b", Bounds(0, 4), requested=2)], wants(), fenced="a")
    assert found.groups[0].short_provision == SHORT
    assert [(patch.bounds, patch.requested) for patch in patches(found.groups[0])] == [(None, None)]


def test_on_one_object_it_goes_with_the_bounds_and_on_two_apart() -> None:
    fenced = pool_plan([group("a", 1, bounds=(0, 3)), group("b", 1)], wants(), fenced="a").groups[0]
    assert [patch.bounds for patch in patches(fenced)] == [fenced.bounds]
    two = pool_plan([owned("a", Bounds(0, 4), requested=2), group("b", 1)], wants(), fenced="a").groups[0]
    assert [(patch.bounds, patch.requested) for patch in patches(two)] == [(two.bounds, None), (None, None)]


@pytest.mark.parametrize("end", ["recovery", "switched off", "restore"])
def test_it_is_set_once_with_the_fence_and_removed(end: str) -> None:
    assert carries_ours(group("a", short_provision=SHORT))
    house = House([group(zone, 2, bounds=(0, 9)) for zone in "abc"], suspect_provision_time=180)
    house.settle()
    house.fail("a")
    house.run()
    name = group("a").key
    assert house.cluster.groups[name].options.short_provision == SHORT
    written = len(house.cluster.applied)
    house.run()
    assert len(house.cluster.applied) == written
    match end:
        case "recovery":
            house.store.save_group("demo", name, GroupState(), house.store.load("demo").versions)
        case "switched off":
            register_again(house.store, house.record.model_copy(update={"suspect_provision_time": None}))
        case _:
            house.ask("restore")
    house.settle()
    assert house.cluster.groups[name].options.short_provision is None
    assert end != "restore" or not any(carries_ours(member) for member in house.cluster.groups.values())


# -- read


@pytest.mark.parametrize("flavour", ["cluster-api", "openshift"])
def test_our_value_is_not_the_groups_provision_time(flavour: str) -> None:
    ours = read(flavour, provision_timeout="180s", ours="180s")
    assert (ours.options.provision_timeout, ours.options.short_provision, ours.options.keeps_provision) == (
        None,
        SHORT,
        False,
    )
    theirs = read(flavour, provision_timeout="20m")
    assert (theirs.options.provision_timeout, theirs.options.short_provision, theirs.options.keeps_provision) == (
        timedelta(minutes=20),
        None,
        True,
    )


def test_a_value_that_a_user_sets_or_removes_is_not_written_again() -> None:
    changed = read(provision_timeout="7m", ours="180s")
    assert (changed.options.provision_timeout, changed.options.keeps_provision) == (timedelta(minutes=7), True)
    assert times([replace(changed, pool_label="workers", bounds=Bounds(0, 3))], fenced=[ZONES[0]]) == [None]
    removed = replace(read(ours="180s"), pool_label="workers", bounds=Bounds(0, 3))
    assert times([removed], fenced=[ZONES[0]]) == [removed.options.short_provision]


@pytest.mark.parametrize("mark", ["", "x", "-3m"])
def test_an_unreadable_mark_is_removed(mark: str) -> None:
    found = read(provision_timeout=mark, ours=mark)
    assert found.options.short_provision == timedelta(0)
    assert times([replace(found, pool_label="workers", bounds=Bounds(0, 3))]) == [None]


def test_on_gardener_it_is_never_set() -> None:
    assert read("gardener").options.keeps_provision
    with pytest.raises(ConfigError, match="Gardener takes such an annotation off again"):
        read_model(ClusterFile, {"flavours": ["gardener"], "suspect_provision_time": 180}, "record")
    assert read_model(ClusterFile, {"flavours": ["gardener", "openshift"], "suspect_provision_time": 180}, "record")


@pytest.mark.parametrize(
    "fields",
    [
        {"suspect_provision_time": 119},
        {"suspect_provision_time": 901},
        {"suspect_provision_time": 300, "provision_timeout": 300},
        {"suspect_provision_time": "many"},
    ],
)
def test_a_time_outside_the_useful_range_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="suspect_provision_time"):
        read_model(ClusterFile, fields, "record")


# -- options of a group that others set


@pytest.mark.parametrize("flavour", MAKE)
def test_the_groups_own_provision_time_counts(flavour: str) -> None:
    found = replace(read(flavour, provision_timeout="25M"), pool_max=9, pool_label="workers")
    assert found.options.provision_timeout == timedelta(minutes=25)
    (planned,) = pool_plan([found], numbers(0, 9)).groups
    assert planned.provision_timeout == timedelta(minutes=25)


@pytest.mark.parametrize("flavour", MAKE)
@pytest.mark.parametrize("option", OPTIONS)
@pytest.mark.parametrize("value", ["", "soon", "-5m", "1e400"])
def test_an_unreadable_option_is_reported_and_the_default_counts(flavour: str, option: str, value: str) -> None:
    found = replace(read(flavour, **{option: value}), pool_max=9, pool_label="workers")
    assert getattr(found.options, option) is None
    assert [fault.field for fault in found.unreadable.notes] == [getattr(FLAVOURS[flavour].autoscaler, option)]
    planned = pool_plan([found], numbers(0, 9))
    assert planned.mode.valid
    assert "the default counts" in problems_of(planned.report.problems)[0]
    assert (
        planned.groups[0].provision_timeout
        == make(Policy, strategy=numbers().settings.strategy).settings.provision_timeout
    )


def test_each_api_has_its_own_option_names() -> None:
    assert [flavour.autoscaler.provision_timeout for flavour in (CLUSTER_API, OPENSHIFT, GARDENER)] == [
        "cluster.x-k8s.io/autoscaling-options-maxnodeprovisiontime",
        "machine.openshift.io/autoscaling-options-maxnodeprovisiontime",
        "autoscaler.gardener.cloud/max-node-provision-time",
    ]
