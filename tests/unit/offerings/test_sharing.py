"""Clusters share capacity reports through the table: the deployed run, with its ports in memory."""

from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any

import pytest

from evenkeel.application.errors import StateConflictError, StateUnavailableError
from evenkeel.application.offerings.sharing import ZoneIds, buyer_of, is_affected, server_of
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.offerings import Bought, Buyer, CapacityReport, Offering, OfferingState
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.offerings.reports import apply_reports, experiences, merged, standing
from evenkeel.domain.rebalancing.health.backoff import record_failure
from tests.builders import MINUTE, NOW, group, key, stated, zones
from tests.fakes import FakeClock, FakeCluster, FakeClusters, InMemoryStore, plenty, record, register
from tests.house import NUMBERS, House
from tests.parts import replace

IN_A = Offering("aws", "eu-central-1", "euc1-az2", "m5.xlarge", "on-demand")
ROLE = "arn:aws:iam::123456789012:role/evenkeel"


def buying(groups: Sequence[NodeGroup], offering: Offering | None = IN_A) -> list[NodeGroup]:
    """Zone a buys it; the others buy what no cluster fails to get."""
    return [
        replace(
            group,
            offering=offering
            and replace(offering, zone=IN_A.zone if group.identity.zone == "a" else f"z{group.identity.zone}"),
        )
        for group in groups
    ]


def steady(*names: str) -> "Fleet":
    """A fleet of these clusters after a first check of each."""
    fleet = Fleet(*names)
    fleet.check()
    return fleet


class Fleet:
    """Clusters of one stack: one table, one clock, and every check looks up what is bought."""

    def __init__(self, *names: str, **fields: Any) -> None:
        self.clock = FakeClock()
        self.store = InMemoryStore(clock=self.clock)
        self.clusters: dict[str, FakeCluster | Exception] = {}
        self.apis: dict[str, FakeCluster] = {}
        for name in names:
            self.add(name, **fields)
        self.house = House(store=self.store, clock=self.clock, clusters=FakeClusters(self.clusters))

    def add(self, name: str, groups: Sequence[NodeGroup] | None = None, **fields: Any) -> None:
        api = FakeCluster(buying(zones((2, 2, 2), bounds=[(0, 9)] * 3)) if groups is None else groups)
        self.clusters[name] = self.apis[name] = api
        access = {"kind": "kubeconfig", "secret": f"evenkeel/{name}"}
        register(self.store, name, **{"pools": NUMBERS, "access": access, **fields})

    def fails(
        self,
        name: str,
        message: str = "InsufficientInstanceCapacity: no room",
        ahead: int = 0,
        failure: FailureClass = FailureClass.CAPACITY,
    ) -> None:
        """An event reports a failure in zone a, by a clock that is so many minutes ahead, and a check follows."""
        versions = self.store.load(name).versions
        before = self.store.load(name).state.groups.get(key("a"), GroupState())
        at, now = self.clock.at + ahead * MINUTE, self.clock.at
        state = record_failure(before, at, failure, message, BackoffPolicy(), now=now)
        self.store.save_group(name, key("a"), state, versions)
        self.check(name)

    def check(self, *names: str) -> None:
        self.clock.at += timedelta(seconds=1)
        for name in names or self.apis:
            self.house.rebalance(name, "a test", plenty)

    def room(self, name: str) -> int:
        group = self.apis[name].groups[key("a")]
        assert group.bounds is not None
        return group.bounds.max - group.requested

    def grows(self, name: str, *, arrives: bool = True) -> None:
        """One machine more is ordered in zone a, and comes."""
        group = self.apis[name].groups[key("a")]
        self.apis[name].change(key("a"), requested=group.requested + 1, running=group.running + arrives)

    def rooms(self) -> list[int]:
        return [self.room(name) for name in self.apis]

    def explained(self, name: str) -> str:
        return str(self.house.ask("explain", name, group="workers-a")["message"])

    def stored(self) -> OfferingState:
        return self.store.offering(IN_A).state


def test_one_clusters_failure_throttles_the_others_until_a_machine_arrives() -> None:
    fleet = steady("blue", "green", "red")
    assert fleet.rooms() == [2, 2, 2]
    fleet.fails("blue")
    fleet.check()
    assert fleet.rooms() == [0, 1, 1]
    assert f"healthy: throttled: cluster blue could not get {IN_A}; only one more machine" in fleet.explained("green")
    fleet.grows("green")
    fleet.check("green")
    assert "healthy: throttled" not in fleet.explained("green")
    assert fleet.stored().reports == {}
    fleet.check("red")
    assert fleet.room("red") == 2
    assert "healthy: throttled" not in fleet.explained("red")


@pytest.mark.parametrize("ahead", [-10, -3, 3, 10])
def test_clocks_of_clusters_may_differ_by_minutes(ahead: int) -> None:
    fleet = steady("blue", "green")
    fleet.fails("blue", ahead=ahead)
    fleet.check("green")
    assert fleet.room("green") == 1
    fleet.grows("green")
    fleet.check("green")
    assert fleet.stored().reports == {}
    fleet.check("green")
    assert "healthy: throttled" not in fleet.explained("green")


def test_two_clusters_reports_fence_a_third() -> None:
    fleet = steady("blue", "green", "red")
    fleet.fails("blue")
    fleet.fails("green")
    fleet.check("red")
    assert fleet.room("red") == 0
    assert "cluster blue and 1 other could not get" in fleet.explained("red")
    assert fleet.house.ask("status", "red")["pools"][0]["groups"][0]["state"] == "fenced"
    fleet.clock.at += 6 * MINUTE
    fleet.check("red")
    assert fleet.room("red") == 1


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (FailureClass.QUOTA, "no room"),
        (FailureClass.CONFIGURATION, "no room"),
        (FailureClass.TIMEOUT, "no room"),
        (FailureClass.CAPACITY, "InsufficientFreeAddressesInSubnet: not enough free addresses in subnet"),
        (FailureClass.CAPACITY, "SpotMaxPriceTooLow: your price is too low"),
    ],
)
def test_only_a_lack_of_capacity_is_reported_to_other_clusters(failure: FailureClass, message: str) -> None:
    fleet = steady("blue", "green")
    fleet.fails("blue", message, failure=failure)
    fleet.check("green")
    assert fleet.store.offerings() == {}
    assert fleet.room("green") == 2


def test_a_clusters_own_report_does_not_throttle_it() -> None:
    fleet = steady("blue", "green")
    fleet.fails("blue")
    fleet.check()
    assert fleet.store.load("blue").state.groups[key("a")].throttled_requested is None
    assert fleet.store.load("green").state.groups[key("a")].throttled_requested == 2


def test_without_reports_nothing_is_written_or_read() -> None:
    fleet = Fleet("blue", "green")
    for _ in range(4):
        fleet.check()
    fleet.store.journal.entries.clear()
    fleet.check()
    assert fleet.store.journal.entries == ["load", "offerings"] * 2


def test_a_lasting_failure_is_reported_once() -> None:
    fleet = steady("blue", "green")
    fleet.fails("blue")
    for _ in range(3):
        fleet.check()
    fleet.store.journal.entries.clear()
    fleet.check()
    assert "save OFFERING" not in fleet.store.journal.entries
    assert "save GROUP" not in fleet.store.journal.entries


@pytest.mark.parametrize("sharing", [False, "anonymous"])
def test_a_cluster_that_shares_nothing_or_no_name_is_not_named(sharing: object) -> None:
    fleet = Fleet("green")
    fleet.add("blue", share_offerings=sharing)
    fleet.check()
    fleet.fails("blue")
    fleet.check()
    assert fleet.room("green") == (1 if sharing else 2)
    assert "blue" not in fleet.explained("green")
    assert ("another cluster could not get" in fleet.explained("green")) == bool(sharing)
    assert "blue" not in str(fleet.stored())


def test_a_cluster_that_shares_nothing_reads_no_reports() -> None:
    fleet = Fleet("blue")
    fleet.add("green", share_offerings=False)
    fleet.check()
    fleet.fails("blue")
    fleet.check("green")
    assert fleet.room("green") == 2


def test_a_group_of_an_unknown_offering_takes_no_part() -> None:
    fleet = Fleet("blue")
    fleet.add("green", buying(zones((2, 2, 2), bounds=[(0, 9)] * 3), offering=None))
    fleet.check()
    fleet.fails("green")
    assert fleet.store.offerings() == {}
    fleet.fails("blue")
    fleet.check("green")
    assert "healthy: throttled" not in fleet.explained("green")


def test_two_records_of_one_server_count_once() -> None:
    fleet = Fleet("blue")
    fleet.add("azure", access={"kind": "kubeconfig", "secret": "evenkeel/blue"})
    fleet.add("green")
    fleet.check()
    fleet.fails("blue")
    fleet.clock.at += MINUTE
    fleet.fails("azure")
    fleet.check("green")
    assert fleet.room("green") == 1
    assert len(fleet.stored().reports) == 1


def test_a_report_that_was_not_written_is_written_by_the_next_check() -> None:
    fleet = steady("blue", "green")
    broken: list[str] = []

    def conflict(sort_key: str) -> None:
        if sort_key.startswith("OFFERING"):
            broken.append(sort_key)
            raise StateConflictError("the record has been written since it was read")
        fleet.store.before_write.append(conflict)

    fleet.store.before_write += [conflict] * 4
    fleet.fails("blue")
    assert len(broken) == 4
    fleet.store.before_write.clear()
    assert fleet.store.offerings() == {}
    fleet.check("blue")
    assert [report.cluster for report in fleet.stored().reports.values()] == ["blue"]


@pytest.mark.parametrize("known", [[], ["red"]])
def test_a_concurrent_report_of_another_cluster_stays(known: list[str]) -> None:
    fleet = steady("blue")
    reports = {name: CapacityReport(failed_at=NOW, until=NOW + 5 * MINUTE, cluster=name) for name in (*known, "green")}
    if known:
        fleet.store.save_offering(IN_A, OfferingState(reports={name: reports[name] for name in known}), None)

    def write_first(sort_key: str) -> None:
        if sort_key.startswith("OFFERING"):
            fleet.store.save_offering(IN_A, OfferingState(reports=reports), fleet.store.offering(IN_A).version)
        else:
            fleet.store.before_write.append(write_first)

    fleet.store.before_write.append(write_first)
    fleet.fails("blue")
    assert sorted(report.cluster for report in fleet.stored().reports.values()) == ["blue", "green", *known]


def test_an_arrival_that_was_not_written_is_written_by_the_next_check() -> None:
    fleet = steady("blue", "green")
    fleet.fails("blue")
    fleet.check("green")
    fleet.grows("green")
    original, fleet.store.save_offering = fleet.store.save_offering, broken  # type: ignore[method-assign]
    fleet.check("green")
    assert fleet.stored().reports
    fleet.store.save_offering = original  # type: ignore[method-assign]
    fleet.check("green")
    assert fleet.stored().reports == {}


def broken(*_: object) -> None:
    raise StateConflictError("the record has been written since it was read")


def test_unreadable_reports_keep_every_throttle() -> None:
    fleet = steady("blue", "green")
    fleet.fails("blue")
    fleet.check("green")
    before = fleet.store.load("green").state.groups
    original, fleet.store.offerings = fleet.store.offerings, throttled  # type: ignore[method-assign]
    fleet.check("green")
    assert (fleet.store.load("green").state.groups, fleet.room("green")) == (before, 1)
    assert "throttled: another cluster could not get" in fleet.explained("green")
    fleet.store.offerings = original  # type: ignore[method-assign]


def throttled() -> Any:
    raise StateUnavailableError("table: throttled")


def test_a_hundred_failing_clusters_write_three_reports() -> None:
    names = [f"cluster-{i}" for i in range(100)]
    fleet = steady(*names)
    fleet.store.journal.entries.clear()
    for name in names:
        fleet.fails(name)
    fleet.check()
    assert fleet.store.journal.count("save OFFERING") == 3
    assert len(fleet.stored().reports) == 3


def test_a_check_reads_offerings_of_troubled_zones() -> None:
    asked: list[Buyer | None] = []

    class Watched(FakeCluster):
        def observe(self, reads_machines: Collection[Any] = (), buyer: Buyer | None = None) -> Observation:
            asked.append(buyer)
            return super().observe(reads_machines, buyer)

    fleet = Fleet("blue", "green")
    fleet.clusters["green"] = Watched(buying(zones((2, 2, 2))))
    fleet.check("green")
    fleet.fails("blue")
    fleet.check("green")
    assert [buyer and buyer.troubled for buyer in asked] == [frozenset(), frozenset({"euc1-az2"})]


# What things are called


M5 = Bought(provider="aws", region="eu-central-1", machine_type="m5.large")
D4S = Bought(provider="azure", region="westeurope", machine_type="Standard_D4s_v5")
N2 = Bought(provider="gcp", region="", machine_type="n2-standard-4", capacity_type="spot")
ZONE = "eu-central-1a"


@pytest.mark.parametrize(
    ("fields", "zone", "bought", "expected"),
    [
        ({}, ZONE, M5, "aws/eu-central-1/own/eu-central-1a/m5.large/on-demand"),
        ({"zone_ids": {"euc1-az2": ZONE}}, ZONE, M5, "aws/eu-central-1/euc1-az2/m5.large/on-demand"),
        ({"account": "123456789012"}, ZONE, M5, "aws/eu-central-1/123456789012/eu-central-1a/m5.large/on-demand"),
        ({"event_accounts": ["1" * 12]}, ZONE, M5, f"aws/eu-central-1/{'1' * 12}/eu-central-1a/m5.large/on-demand"),
        ({"event_accounts": ["1" * 12, "2" * 12]}, ZONE, M5, None),
        ({}, "us-west-2-lax-1a", replace(M5, region=""), "aws/us-west-2/own/us-west-2-lax-1a/m5.large/on-demand"),
        ({}, "europe-west3-a", N2, "gcp/europe-west3/europe-west3-a/n2-standard-4/spot"),
        ({}, "westeurope-1", D4S, "azure/westeurope/own/1/Standard_D4s_v5/on-demand"),
        ({}, "1", D4S, "azure/westeurope/own/1/Standard_D4s_v5/on-demand"),
        ({}, "1", replace(D4S, region=""), None),
        ({}, None, M5, None),
        ({}, ZONE, replace(M5, machine_type="m5/large"), None),
        ({}, ZONE, replace(M5, machine_type=""), None),
        ({}, ZONE, None, None),
    ],
)
def test_an_offering_has_one_name_everywhere(
    fields: dict[str, Any], zone: str, bought: Bought, expected: str | None
) -> None:
    buyer = buyer_of(record(**fields), {})
    assert buyer is not None
    offering = buyer.offering(bought, zone)
    assert (None if offering is None else str(offering)) == expected
    if offering is not None:
        assert Offering.read(str(offering)) == offering
        receiver = buyer_of(record(**fields), {offering: OfferingState()})
        assert receiver is not None
        assert receiver.is_concerned(zone)
        assert not receiver.is_concerned("ap-south-1b")


@pytest.mark.parametrize(("zone_ids", "place"), [({}, "euc1-az3"), ({"euc1-az2": ZONE}, "euc1-az2")])
def test_a_nodes_zone_id_counts_where_the_record_has_none(zone_ids: dict[str, str], place: str) -> None:
    buyer = buyer_of(record(zone_ids=zone_ids), {})
    assert buyer is not None
    assert str(buyer.offering(M5, ZONE, "euc1-az3")) == f"aws/eu-central-1/{place}/m5.large/on-demand"


@pytest.mark.parametrize(
    ("known", "concerned"),
    [(None, True), ({}, False), ({IN_A: OfferingState()}, True), ({replace(IN_A, zone="euc1-az9"): None}, False)],
)
def test_a_cluster_is_affected_by_reports_about_its_zones(known: dict[Offering, Any] | None, concerned: bool) -> None:
    zone_ids = {"euc1-az2": ZONE}
    assert is_affected(record(zone_ids=zone_ids), known, [ZONE]) is concerned
    assert not is_affected(record(zone_ids=zone_ids, share_offerings=False), known, [ZONE])


def test_the_reporter_is_identified_by_its_server() -> None:
    assert server_of(record("blue")) == server_of(record("green"))
    assert server_of(record()) != server_of(record(access={"kind": "kubeconfig", "secret": "evenkeel/other"}))


# ---------------------------------------------------------------- one group and what it is told


def warned(group: NodeGroup, reports: int = 1, **fields: Any) -> GroupState | None:
    """Return the state after one check in which so many clusters report a failure until in half an hour."""
    reported = [
        CapacityReport(failed_at=NOW, until=NOW + 30 * MINUTE, cluster=str(number)) for number in range(reports)
    ]
    state = GroupState(**fields) if fields else None
    return apply_reports(group, state, state, reported, NOW, BackoffPolicy())


@pytest.mark.parametrize(
    ("member", "fields", "expected"),
    [
        pytest.param(group("a", 3, running=2), {}, {"throttled_requested": 3}, id="a machine on its way"),
        pytest.param(group("a", 3), {"throttled_requested": 5}, {"throttled_requested": 3}, id="a smaller group"),
        pytest.param(
            group("a", 3),
            {"reports": 2, "throttled_requested": 3, "throttled_until": NOW + MINUTE},
            {"throttled_until": NOW + MINUTE},
            id="a throttled group is fenced once",
        ),
        pytest.param(group("a", 3, frozen_because=stated("paused")), {}, None, id="a frozen group"),
    ],
)
def test_reports_throttle_a_group(member: NodeGroup, fields: dict[str, Any], expected: dict[str, Any] | None) -> None:
    state = warned(member, **fields)
    assert (state and {name: getattr(state, name) for name in expected or {}}) == expected


@pytest.mark.parametrize("is_ended", [True, False])
def test_a_failure_that_a_machine_has_ended_is_not_reported(is_ended: bool) -> None:
    state = GroupState(
        failures=1,
        last_failure=NOW - 5 * MINUTE,
        backoff_until=NOW + 5 * MINUTE,
        failure_class=FailureClass.CAPACITY,
        ended=(NOW - 4 * MINUTE,) if is_ended else (),
    )
    bought = replace(group("a", 3), offering=IN_A)
    experience = experiences([bought], {bought.key: state}, NOW)[IN_A]
    assert (experience.report is None) is is_ended


@pytest.mark.parametrize("minutes", [(3, 1), (1, 3)])
def test_of_two_groups_of_one_offering_the_later_failure_is_reported(minutes: tuple[int, int]) -> None:
    bought = [replace(group(zone, 3), offering=IN_A) for zone in "ab"]
    states = {
        each.key: record_failure(GroupState(), NOW - ago * MINUTE, FailureClass.CAPACITY, "no room", BackoffPolicy())
        for each, ago in zip(bought, minutes, strict=True)
    }
    report = experiences(bought, states, NOW)[IN_A].report
    assert report is not None
    assert report.failed_at == NOW - MINUTE


def test_a_report_is_forgotten_like_an_own_failure() -> None:
    policy = BackoffPolicy()
    state = OfferingState(
        reports={"server": CapacityReport(failed_at=NOW, until=NOW + timedelta(days=9), cluster="blue")}
    )
    assert standing(state, NOW + policy.forget_after - MINUTE, policy) == [state.reports["server"]]
    assert standing(state, NOW + policy.forget_after + MINUTE, policy) == []


def test_the_later_of_two_deliveries_counts() -> None:
    early, late = (OfferingState(delivered_at=NOW + minutes * MINUTE) for minutes in (0, 5))
    assert merged(early, late) == merged(late, early) == late


@pytest.mark.parametrize(("access", "place"), [({}, "own/eu-central-1a"), ({"role_arn": ROLE}, None)])
def test_the_zones_of_a_role_have_no_known_account(access: dict[str, str], place: str | None) -> None:
    eks = record("blue", access={"kind": "eks", "name": "blue", "region": "eu-central-1", **access})
    assert ZoneIds.of([]).place(eks, "eu-central-1a") == place


@pytest.mark.parametrize(
    ("others", "place"), [([], f"own/{ZONE}"), (["euc1-az2"] * 2, "euc1-az2"), (["euc1-az2", "euc1-az3"], None)]
)
def test_a_zone_has_the_id_on_which_all_records_of_the_account_agree(others: list[str], place: str | None) -> None:
    records = [record(f"other-{i}", zone_ids={id: ZONE}) for i, id in enumerate(others)]
    assert ZoneIds.of(records).place(record(), ZONE) == place


@pytest.mark.parametrize("seen", [{"last_success": NOW}, {"ended": (NOW,)}, {}])
def test_a_machine_after_an_own_failure_ends_the_throttle(seen: dict[str, Any]) -> None:
    before = GroupState(throttled_requested=5)
    reported = [CapacityReport(failed_at=NOW, until=NOW + 30 * MINUTE)]
    state = apply_reports(group("a", 5, running=4), before, replace(before, **seen), reported, NOW, BackoffPolicy())
    assert state is not None
    assert (state.throttled_requested, state.cleared_at) == ((None, NOW) if seen else (5, None))
