"""Events of AWS and Kubernetes as failures, zone shifts and requests; anything else is ignored with a reason."""

import json
import re
from copy import deepcopy
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from evenkeel.adapters.aws import inbound, sources
from evenkeel.adapters.aws.inbound import LARGEST_EVENT, account_of, read_event
from evenkeel.adapters.aws.sources import kubernetes_event_exporter
from evenkeel.application.rebalancing import events
from evenkeel.application.rebalancing.events import (
    EventOutcome,
    EventResult,
    Failure,
    Ignored,
    ReceiveEvent,
    Report,
    ScaleRequestEvent,
    ZoneShift,
)
from evenkeel.application.rebalancing.failure import RecordFailure
from evenkeel.domain.model.failures import FailureClass, classify
from evenkeel.domain.model.groups import GroupKey
from tests.builders import json_values
from tests.fakes import FakeClock, FakeQueue, InMemoryStore, adopt, register
from tests.stack import Stack
from tests.world import FULL

ROOT = Path(__file__).resolve().parents[3]
OURS = "123456789012"
THEIRS = "210987654321"
EVENTS = {
    path.stem.removeprefix("provisioning-"): json.loads(path.read_text(encoding="utf-8"))
    for path in sorted((ROOT / "events").glob("provisioning-failure*.json"))
}
NOON = datetime(2026, 1, 15, 12, tzinfo=UTC)
MACHINE = "demo-workers-eu-central-1a-5b6f7-x7k2p"


def event(name: str, **detail: Any) -> dict[str, Any]:
    found: dict[str, Any] = deepcopy(EVENTS[name])
    found["detail"].update(detail)
    return found


def involved(event_name: str, /, **fields: Any) -> dict[str, Any]:
    found = event(event_name)
    found["detail"]["involvedObject"].update(fields)
    return found


def failure(given: dict[str, Any]) -> Failure:
    found = read_event(given, OURS)
    assert isinstance(found, Failure), found
    return found


def ignored(given: Any, account: str | None = OURS) -> Ignored:
    found = read_event(given, account)
    assert isinstance(found, Ignored), found
    return found


@pytest.mark.parametrize("name", EVENTS)
def test_every_event_of_the_folder_is_understood(name: str) -> None:
    word = read_event(EVENTS[name], OURS)
    if isinstance(word, Ignored):
        assert word.kind in ("spot", "practice run")
        assert "on purpose" in word.reason
    elif isinstance(word, Failure):
        assert abs((word.occurred_at - NOON).total_seconds()) < 10
        assert word.reports is not Report.FAILURE or classify(word.code, word.message) is FailureClass.CAPACITY
        assert word.cluster_name.startswith(("demo-cluster-api", "demo-openshift", "demo-eks"))
    elif isinstance(word, ScaleRequestEvent):
        assert (word.cluster, word.record.nodes, word.record.at) == ("demo-cluster-api", 4, NOON)
    else:
        assert (word.zone, word.region) == ("euc1-az2", "eu-central-1")


def test_every_row_of_the_table_has_its_event() -> None:
    quote = {(one["source"], one["detail-type"]) for one in EVENTS.values()}
    siblings = {
        key for key in sources.ROWS if key[1].startswith(("FIS", "Practice Run")) or key[1] == "Manual Shift Updated"
    }
    rows = {row for row in sources.ROWS if not any(all(map(fnmatchcase, key, row)) for key in quote)}
    assert rows - siblings <= {("evenkeel.kubernetes*", "*")}  # the same parser as the exporter's usual name
    assert ("aws.arc-zonal-shift", "Practice Run Started") in quote


def test_the_native_event_names_its_node_group() -> None:
    found = failure(event("failure"))
    assert (found.cluster, found.namespace, found.name) == ("demo-cluster-api", "demo", "demo-workers-eu-central-1a")
    assert found.code == "InsufficientInstanceCapacity"


@pytest.mark.parametrize("fields", [{"type": "Normal"}, {"reason": "SuccessfulCreate"}])
def test_any_event_of_a_machine_shows_that_events_arrive(fields: dict[str, str]) -> None:
    found = failure(event("failure-kubernetes-event", **fields))
    assert (found.reports, found.cluster_name, found.name) == (
        Report.ARRIVAL,
        "demo-cluster-api",
        "demo-workers-eu-central-1a",
    )


def test_no_groups_name_is_guessed_from_a_machines_name() -> None:
    assert (failure(event("failure-machine")).name, failure(event("failure-machine")).machine) == (None, MACHINE)
    named = event("failure", machine=MACHINE)
    del named["detail"]["name"]
    assert (failure(named).name, failure(named).machine) == (None, MACHINE)
    del named["detail"]["machine"]
    assert "neither" in ignored(named).reason


def test_an_infrastructure_machines_labels_name_its_deployment() -> None:
    found = failure(event("failure-kubernetes-event"))
    assert (found.cluster, found.called, found.flavour) == (None, ("demo-cluster-api",), "cluster-api")
    assert (found.namespace, found.name, found.machine) == ("demo", "demo-workers-eu-central-1a", MACHINE)
    assert found.id.startswith("2f0d8f3e-")


def test_an_openshift_machine_names_its_group_by_label_or_owner() -> None:
    name = "failure-kubernetes-event-openshift"
    assert failure(event(name)).name == "demo-x7k2p-worker-eu-central-1a"
    assert failure(involved(name, labels=None)).name == "demo-x7k2p-worker-eu-central-1a"
    assert failure(involved(name, labels=None, ownerReferences=None)).name is None


MCM = "machine.sapcloud.io/v1alpha1"
CAPI = "cluster.x-k8s.io/v1beta2"
OWNED = {
    "labels": {"cluster.x-k8s.io/cluster-name": "a"},
    "ownerReferences": [{"kind": "MachineDeployment", "name": "workers-a"}],
}


@pytest.mark.parametrize(
    ("api", "kind", "fields", "scalable"),
    [
        (MCM, "MachineDeployment", {"labels": None}, "thing"),
        (MCM, "MachineSet", {"labels": {"name": "shoot--a--main-z1"}}, "shoot--a--main-z1"),
        (MCM, "Machine", {"labels": {"name": "shoot--a--main-z1"}}, "shoot--a--main-z1"),
        (MCM, "Machine", {"labels": {}}, None),
        (CAPI, "MachineSet", {"labels": {"cluster.x-k8s.io/cluster-name": "a"}}, "thing"),
        (CAPI, "MachineSet", {"labels": None}, None),  # the exporter found no object
        (CAPI, "MachineSet", OWNED, "workers-a"),
        (CAPI, "Machine", {"labels": {"cluster.x-k8s.io/set-name": "single"}}, "single"),
        # Cluster API writes a hash instead of a name that is too long for a label
        (CAPI, "Machine", {"labels": {"cluster.x-k8s.io/deployment-name": "hash_ab_z"}}, None),
        (CAPI, "Machine", {"labels": {"cluster.x-k8s.io/deployment-name": "../.."}}, None),
        ("machine.openshift.io/v1beta1", "MachineSet", {"labels": None}, "thing"),
    ],
)
def test_labels_and_owners_name_the_scalable(api: str, kind: str, fields: Any, scalable: str | None) -> None:
    given = {"name": "thing", "ownerReferences": None, "apiVersion": api, "kind": kind, **fields}
    assert failure(involved("failure-kubernetes-event", **given)).name == scalable


def test_a_pod_without_a_node_gives_only_the_cluster_to_check() -> None:
    pod = failure(event("failure-kubernetes-pod"))
    assert (pod.reports, pod.called, pod.message) == (Report.PENDING_POD, ("demo-cluster-api",), "")
    assert (pod.cluster, pod.flavour, pod.namespace, pod.name, pod.machine) == (None, None, "", None, None)


def test_a_storm_of_pods_without_a_node_requests_two_checks() -> None:
    stack = Registered()
    for number in range(200):
        pod = event("failure-kubernetes-pod", metadata={"uid": f"u{number}"})
        assert stack.receive(pod).result is EventResult.REQUESTED
    assert len(stack.asked) <= 2


def test_a_pod_requests_no_check_where_the_record_orders_no_nodes() -> None:
    stack = Stack()
    received = stack.record_failure(failure(event("failure-kubernetes-pod", clusterName="demo")))
    assert received.result is EventResult.KNOWN
    assert "orders no nodes" in received.message
    assert stack.queue.requests == {}


@pytest.mark.parametrize("message", ['admission webhook "x" did not answer', "the request timed out"])
def test_a_message_of_no_known_kind_only_requests_a_check(message: str) -> None:
    found = failure(event("failure-kubernetes-event", message=message))
    assert (found.name, found.machine) == (None, MACHINE)


def test_a_refusal_of_any_cloud_is_a_failure_of_the_labelled_group() -> None:
    found = failure(event("failure-kubernetes-event", reason="FailedCreate", message="Out of host capacity."))
    assert (found.name, found.machine) == ("demo-workers-eu-central-1a", MACHINE)


def test_a_kubernetes_event_without_cluster_name_is_ignored_with_what_to_set() -> None:
    assert "clusterName" in ignored(event("failure-kubernetes-event", clusterName="")).reason


def test_the_last_time_of_a_kubernetes_event_counts() -> None:
    name = "failure-kubernetes-event"
    times = {"lastTimestamp": None, "eventTime": "2026-01-15T12:00:01.5Z", "firstTimestamp": "2026-01-15T11:00:00Z"}
    assert failure(event(name, **times)).occurred_at.microsecond == 500_000
    assert failure(event(name, **{**times, "eventTime": None})).occurred_at.hour == 11
    assert failure(event(name, **dict.fromkeys(times))).occurred_at.second == 5


def test_a_repeated_kubernetes_event_is_a_failure_and_a_duplicate_is_not() -> None:
    one, twice, two = (failure(event("failure-kubernetes-event", count=count)).id for count in (1, 1, 2))
    assert one == twice != two


def test_the_exporters_detail_type_is_free_and_its_source_is_not() -> None:
    given = event("failure-kubernetes-event") | {"detail-type": "anything at all"}
    assert isinstance(read_event(given | {"source": "evenkeel.kubernetes"}), Failure)
    assert ignored(given | {"source": "cd"}).kind == "unknown shape"


def test_a_refused_launch_names_the_cluster_by_its_tags_and_no_group() -> None:
    launch = failure(event("failure-cloudtrail-run-instances"))
    assert (launch.cluster, launch.called, launch.name) == (None, ("demo-cluster-api",), None)
    assert launch.machine == MACHINE
    assert launch.code == "Server.InsufficientInstanceCapacity"
    assert "timed out" in failure(event("failure-cloudtrail-run-instances", errorMessage="it timed out")).message


def test_a_fleets_refused_launches_are_read_from_its_answer() -> None:
    given = event("failure-cloudtrail-create-fleet")
    fleet = failure(given)
    assert (fleet.called, fleet.code) == (("demo-cluster-api",), "InsufficientInstanceCapacity")
    errors = given["detail"]["responseElements"]["CreateFleetResponse"]["errorSet"]
    errors["item"] = [errors["item"], {**errors["item"], "errorCode": "VcpuLimitExceeded", "errorMessage": "limit 32"}]
    assert failure(given).message.endswith("; limit 32")
    whole = event("failure-cloudtrail-create-fleet", errorCode="Client.VcpuLimitExceeded", responseElements=None)
    assert failure(whole).code == "Client.VcpuLimitExceeded"


def test_an_auto_scaling_group_names_a_cluster_by_the_start_of_its_name() -> None:
    found = failure(event("failure-auto-scaling"))
    assert "demo-cluster-api" in found.called
    assert found.called[0].startswith("demo-cluster-api-3ac2b1d0")
    assert (found.name, found.code) == (found.called[0].join(("eks-", "")), "InsufficientInstanceCapacity")


@pytest.mark.parametrize(
    ("kind", "impaired"),
    [
        ("Autoshift In Progress", True),
        ("Autoshift Completed", False),
        ("FIS Experiment Autoshift In Progress", True),
        ("FIS Experiment Autoshift Completed", False),
        ("FIS Experiment Autoshift Canceled", False),
        ("Manual Shift Started", True),
        ("Manual Shift Updated", True),
        ("Manual Shift Canceled", False),
    ],
)
def test_shifts_begin_and_end_the_impairment_of_a_zone(kind: str, impaired: bool) -> None:
    word = read_event(event("failure-zone-autoshift-started") | {"detail-type": kind}, OURS)
    assert isinstance(word, ZoneShift)
    assert (word.impaired, word.at, word.until) == (impaired, NOON, None)
    assert word.by.startswith("ARC")


@pytest.mark.parametrize(
    ("call", "parameters", "minutes"),
    [
        ("StartZonalShift", {"expiresIn": "90m", "awayFrom": "euc1-az2"}, 90),
        ("StartZonalShift", {"expiresIn": "72h", "awayFrom": "euc1-az2"}, 72 * 60),
        ("UpdateZonalShift", {"expiresIn": "1h", "zonalShiftId": "1f2e3d4c"}, 60),
    ],
)
def test_a_zonal_shift_call_has_its_end(call: str, parameters: dict[str, str], minutes: int) -> None:
    shift = read_event(event("failure-zone-shift-call", eventName=call, requestParameters=parameters), OURS)
    assert isinstance(shift, ZoneShift)
    assert (shift.zone, shift.impaired) == ("euc1-az2", True)
    assert shift.until == shift.at + timedelta(minutes=minutes)
    started = read_event(event("failure-zone-shift-started"), OURS)
    assert isinstance(started, ZoneShift)
    assert shift.by == started.by, "two events about one shift have the same by"


# test_auto_scaling_events.py tests the events that name an Auto Scaling group of a registered cluster.
UNDERSTOOD = [
    name
    for name, one in EVENTS.items()
    if not name.startswith("failure-auto-scaling-") and not isinstance(read_event(one), Ignored)
]


class Registered:
    """Cluster demo-cluster-api, whose record names these accounts, and the functions' use cases."""

    def __init__(self, *accounts: str) -> None:
        self.stack = Stack(store=InMemoryStore(), clock=FakeClock(NOON + timedelta(minutes=1)))
        self.store, self.queue = self.stack.store, self.stack.queue
        for cluster, flavour in (("demo-cluster-api", "cluster-api"), ("demo-openshift", "openshift")):
            fields = {"flavours": [flavour], "event_accounts": accounts, "zone_ids": {"euc1-az2": "eu-central-1a"}}
            register(self.store, cluster, **{**FULL, "demand": "scale-up", **fields})

    def receive(self, given: dict[str, Any], account: str | None = OURS) -> EventOutcome:
        receive = ReceiveEvent(
            record_failure=self.stack.record_failure,
            record_zone_shift=self.stack.record_zone_shift,
            request_scale=self.stack.request_scale,
            idempotent=lambda key, remaining, work: work(),
        )
        answer = receive(read_event(given, account), lambda: 60.0)
        return EventOutcome(result=EventResult(answer["result"]), message=answer["message"], kind=answer["kind"])

    @property
    def asked(self) -> list[str]:
        return [*self.queue.clusters, *(cluster for cluster, _, _ in self.queue.second_checks)]


@pytest.mark.parametrize("name", UNDERSTOOD)
@pytest.mark.parametrize("account", [THEIRS, None, 7, {"a": []}])
def test_events_of_a_foreign_account_are_ignored_and_change_nothing(name: str, account: Any) -> None:
    stack = Registered()
    received = stack.receive(event(name) | {"account": account})
    assert (received.result, received.kind) == (EventResult.IGNORED, "foreign account")
    assert received.answer()["kind"] == "foreign account"
    assert "event_accounts" in received.message
    assert OURS in received.message
    assert stack.asked == []
    stored = stack.store.load("demo-cluster-api")
    assert (stored.state.groups, stored.scale_requests, stored.zones) == ({}, {}, {})


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_the_accounts_of_a_record_replace_the_stacks_own(name: str) -> None:
    stack = Registered(THEIRS, "333333333333")
    assert stack.receive(event(name) | {"account": OURS}).kind == "foreign account"
    assert stack.asked == []
    assert stack.receive(event(name) | {"account": THEIRS}).result in (EventResult.RECORDED, EventResult.REQUESTED)
    assert stack.asked


@pytest.mark.parametrize("name", UNDERSTOOD)
def test_an_event_that_is_sent_by_hand_needs_no_account(name: str) -> None:
    received = Registered().receive(event(name) | {"account": THEIRS}, account=None)
    assert received.result in (EventResult.RECORDED, EventResult.REQUESTED)


def test_a_very_long_account_is_cut() -> None:
    received = Registered().receive(event("failure") | {"account": "\x1b[31m" + "9" * 10_000})
    assert len(received.message) < 400
    assert "\x1b" not in received.message


@pytest.mark.parametrize(("of", "account"), [(OURS, OURS), ("", None)])
def test_the_functions_own_account_is_read_from_its_arn(of: str, account: str | None) -> None:
    context = SimpleNamespace(invoked_function_arn=f"arn:aws:lambda:eu-central-1:{of}:function:x")
    assert account_of(context) == account
    assert account_of(SimpleNamespace(invoked_function_arn="")) is None
    assert account_of(None) is None


def shift_call(**fields: Any) -> dict[str, Any]:
    return event("failure-zone-shift-call", **fields)


def launch_call(**fields: Any) -> dict[str, Any]:
    return event("failure-cloudtrail-run-instances", **fields)


def without_tags() -> dict[str, Any]:
    given = launch_call()
    given["detail"]["requestParameters"]["tagSpecificationSet"]["items"][0]["tags"][2:] = []
    return given


NO_FLEET_ERROR = {"CreateFleetResponse": {"errorSet": ""}}


MACHINE_OBJECT = event("failure-kubernetes-event")["detail"]["involvedObject"]


@pytest.mark.parametrize(
    ("given", "kind"),
    [
        (event("failure-kubernetes-event", type="Normal", clusterName=""), "no failure"),
        (
            event("failure-kubernetes-event", type="Normal", involvedObject={**MACHINE_OBJECT, "labels": {}}),
            "no failure",
        ),
        (involved("failure-kubernetes-event", kind="Pod", apiVersion="v1"), "no failure"),
        (involved("failure-kubernetes-event", kind="Machine", apiVersion="v1"), "no failure"),
        (event("failure-kubernetes-pod", reason="Preempted"), "no failure"),
        (involved("failure-kubernetes-pod", kind="Pod", apiVersion="v2"), "no failure"),
        (involved("failure-kubernetes-event", kind="Cluster", apiVersion=CAPI), "no failure"),
        (launch_call(errorCode=None), "no failure"),
        (launch_call(errorCode="Client.DryRunOperation"), "no failure"),
        (launch_call(eventName="TerminateInstances"), "no failure"),
        (launch_call(eventSource="autoscaling.amazonaws.com"), "no failure"),
        (launch_call(eventName="CreateFleet", errorCode=None, responseElements=NO_FLEET_ERROR), "no failure"),
        (without_tags(), "unknown cluster"),
        (shift_call(errorCode="ConflictException", responseElements=None), "no failure"),
        (shift_call(eventName="CancelZonalShift"), "no failure"),
        (shift_call(requestParameters={"zonalShiftId": "1f2e3d4c", "comment": "x"}), "no failure"),
        (shift_call(requestParameters=None), "no failure"),
        *(
            (shift_call(requestParameters={"awayFrom": "euc1-az2", "expiresIn": end}), "no failure")
            for end in ("", "0m", "2d", 7, None, "1m2h")
        ),
        *(
            (event("failure-zone-practice-run") | {"detail-type": f"Practice Run {how}"}, "practice run")
            for how in ("Started", "Succeeded", "Interrupted", "Failed")
        ),
        (event("failure-spot-interruption"), "spot"),
        (event("failure-spot-rebalance"), "spot"),
        (None, "malformed"),
        ([], "malformed"),
        ("x", "malformed"),
        ({}, "unknown shape"),
        ({"source": "aws.ec2", "detail-type": "EC2 Instance State-change Notification"}, "unknown shape"),
        ({"source": "evenkeel.provisioning", "detail-type": "Machine Provisioning Failed"}, "malformed"),
        (event("failure", occurredAt="yesterday"), "malformed"),
        (event("failure", occurredAt="9999-12-31T23:59:59Z"), "malformed"),
        (event("failure", cluster="../../etc"), "malformed"),
        (event("failure-kubernetes-event", count=10**4000), "malformed"),
        (event("failure-auto-scaling", AutoScalingGroupName={"a": 1}), "malformed"),
    ],
)
def test_every_other_event_is_ignored_with_its_kind_and_one_line(given: Any, kind: str) -> None:
    answer = ignored(given)
    assert answer.kind == kind
    assert answer.reason == " ".join(answer.reason.split())
    assert 0 < len(answer.reason) <= 500


@pytest.mark.parametrize("zone", ["", "use1_az1", "x" * 40, "../a", 7, None])
def test_a_bad_zone_is_ignored_with_its_field(zone: Any) -> None:
    assert "awayFrom" in ignored(event("failure-zone-autoshift-started", metadata={"awayFrom": zone})).reason


@pytest.mark.parametrize("name", EVENTS)
def test_an_event_of_300_kb_is_not_read(name: str) -> None:
    found = ignored(event(name, padding="x" * 300_000))
    assert found.kind == "oversized"
    assert str(LARGEST_EVENT) in found.reason


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


def test_an_event_that_is_nested_too_deeply_is_not_read() -> None:
    assert ignored(event("failure", nested=nested(100_000))).kind == "malformed"


@pytest.mark.parametrize("name", EVENTS)
def test_tags_and_answers_as_deep_as_an_event_can_be_are_read(name: str) -> None:
    tags, answer = {"tagSpecificationSet": nested(200)}, {"CreateFleetResponse": nested(200)}
    assert read_event(event(name, requestParameters=tags, responseElements=answer), OURS) is not None


TEXT = st.text(st.characters(), max_size=20)  # half a character too
JSON = json_values(TEXT, keys=TEXT)
SOURCES = [*sources.ROWS, ("kubernetes-event-exporter", "x"), ("evenkeel.kubernetes.a", ""), ("aws.ec2", "x")]


def places(value: Any, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    return [path, *(place for key, below in inner for place in places(below, (*path, key)))]


PLACES = [(name, path) for name, one in EVENTS.items() for path in places(one) if path]


def harmless(given: Any) -> None:
    """Receive an event in a stack with the cluster. It raises no error and records nothing for other groups."""
    word = read_event(given, OURS)
    if isinstance(word, Ignored):
        word.reason.encode()  # a text that cannot be encoded would fail later, in the runtime
        return
    if isinstance(word, Failure):
        store = InMemoryStore()
        register(store, "demo-cluster-api", flavours=["cluster-api", "gardener", "openshift"])
        adopt(store, "demo-cluster-api", [GroupKey("cluster-api", "demo", "demo-workers-eu-central-1a")])
        received = RecordFailure(store=store, queue=FakeQueue(), clock=FakeClock())(word)
        received.message.encode()
        assert (received.result is EventResult.RECORDED) == bool(store.load("demo-cluster-api").state.groups)
        if received.result is EventResult.RECORDED:
            assert word.name is not None


@given(detail=JSON, key=st.sampled_from(SOURCES), time=st.just("2026-01-15T12:00:00Z") | JSON)
@example(detail={"metadata": {"awayFrom": "\ud800"}}, key=("aws.arc-zonal-shift", "Autoshift Completed"), time=0)
def test_arbitrary_details_never_raise_and_never_record(detail: Any, key: tuple[str, str], time: Any) -> None:
    given = {"source": key[0], "detail-type": key[1], "account": OURS, "id": "1", "time": time, "detail": detail}
    assert isinstance(read_event(given, OURS), Ignored) or key[1].startswith(("EC2 Instance Launch", "Autoshift"))
    harmless(given)


@given(event=JSON)
def test_arbitrary_events_never_raise_and_never_record(event: Any) -> None:
    assert isinstance(read_event(event, OURS), Ignored)


@given(place=st.sampled_from(PLACES), value=JSON)
def test_a_known_event_with_any_value_in_one_field_never_raises(place: tuple[str, Any], value: Any) -> None:
    name, path = place
    given = deepcopy(EVENTS[name])
    inner: Any = given
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    harmless(given)


PAGE = (ROOT / "docs" / "reference/events.md").read_text(encoding="utf-8")


def test_the_page_lists_every_kind_of_ignoring_and_every_reason_of_the_exporter() -> None:
    files = [Path(inbound.__file__), Path(events.__file__), *Path(sources.__file__).parent.glob("*.py")]
    code = "".join(path.read_text(encoding="utf-8") for path in files)
    kinds = set(re.findall(r'(?:ignored|_on_purpose)\(\s*"([a-z ]+)"', code))
    kinds |= set(re.findall(r'kind(?:: str)? ?= ?"([a-z ]+)"', code))
    table = PAGE.partition("## Ignored")[2]
    assert {kind for row in re.findall(r"^\| ([a-z ,]+) \|", table, re.M) for kind in row.split(", ")} == kinds
    (reasons,) = re.findall(r"^- Reasons: ([A-Za-z, ]+)\.", PAGE, re.M)
    assert set(reasons.split(", ")) == kubernetes_event_exporter.REASONS


def test_the_exporters_configuration_on_the_page_sends_readable_events() -> None:
    (text,) = re.findall(r"^```yaml exporter\n(.*?)^```", PAGE, re.S | re.M)
    config = yaml.safe_load(text)
    sink = config["receivers"][0]["eventbridge"]
    (rule,) = config["route"]["routes"][0]["match"]
    assert "details" not in sink  # the whole event
    assert rule["receiver"] == config["receivers"][0]["name"]
    given = event("failure-kubernetes-event", clusterName=config["clusterName"])
    given |= {"source": sink["source"], "detail-type": sink["detailType"]}
    assert failure(given).called == ("blue",)
    for kind in ("AWSMachine", "Machine", "MachineSet", "MachineDeployment"):
        assert re.search(rule["kind"], kind)
    assert re.search(rule["type"], given["detail"]["type"])
