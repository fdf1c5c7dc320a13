"""A plan's texts about failures: the provider's message, and the reason that can end."""

import json
import unicodedata
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import UNNAMED_BY_AWS, Bounds, MachineFailure, NodeGroup, PublishedBounds, State
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import provider_words
from evenkeel.texts.english import sentences
from evenkeel_cli.main import app
from tests.builders import (
    MINUTE,
    NOW,
    group,
    in_backoff,
    key,
    machines,
    numbers,
    pool_plan,
    problems_of,
    reasons,
    zones,
)
from tests.objects import ZONES, Object, cluster_api, gardener, machine, node, worker
from tests.parts import replace

SIZE = {"cpu": "4", "memory": "16Gi", "pods": "110"}
AT = "2026-01-15T12:00:00Z"
DENIED = "machine codes error: code = [Unauthenticated] message = [the given credentials are not valid any more]"


def plan_files(folder: Path, items: list[Object], record: Object, *more: str) -> str:
    for item in items:
        item["metadata"].setdefault("namespace", "demo")
        item["metadata"].setdefault("creationTimestamp", "2026-01-15T11:50:00Z")
    objects, cluster = folder / "objects.json", folder / "record.json"
    objects.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
    cluster.write_text(json.dumps(record), encoding="utf-8")
    arguments = ["plan", "-f", str(objects), "--record", str(cluster), "--now", AT, "-o", "wide", *more]
    return CliRunner().invoke(app, arguments).output


def denied(group: Object, number: int, description: str = DENIED) -> Object:
    made = machine(group, number, node=False)
    made["status"]["lastOperation"] = {
        "type": "Create",
        "state": "Failed",
        "errorCode": "Unauthenticated",
        "description": f"Cloud provider message - {description}",
        "lastUpdateTime": "2026-01-15T11:59:00Z",
    }
    made["status"]["currentStatus"] = {"phase": "CrashLoopBackOff"}
    return made


def test_credentials_that_are_invalid_in_all_zones_are_the_cause(tmp_path: Path) -> None:
    groups = [gardener(zone, 2, 1, bounds=None) for zone in ZONES]
    nodes = [machine(group, 1, node=True) for group in groups]
    failed = [denied(group, 2) for group in groups]
    printed = plan_files(tmp_path, [worker(3, 9), *groups, *nodes, *failed], {"flavours": ["gardener"]})
    words = 'configuration failure no. 1 ("Unauthenticated: the given credentials are not valid any more")'
    assert printed.count(words) == 3, printed
    assert "no healthy zone has room" not in printed
    assert "! starved: 3 nodes missing: any zone would refuse them: configuration failure" in printed


def with_failure(kind: FailureClass, message: str) -> Any:
    return replace(in_backoff(kind), message=message)


def test_a_used_up_quota_of_one_zone_is_the_cause_where_all_missing_nodes_lack_it() -> None:
    found = pool_plan(
        zones((3, 2), running=(1, 2)),
        numbers(0, 12),
        states={key("a"): with_failure(FailureClass.QUOTA, "VcpuLimitExceeded: more than 64")},
    )
    (problem,) = problems_of(found.report.problems)
    assert problem == (
        'starved: 2 nodes missing: any zone would refuse them: quota failure ("VcpuLimitExceeded: more than 64")'
    )


def test_zones_without_capacity_beside_one_without_quota_have_no_room() -> None:
    states = {key("a"): with_failure(FailureClass.QUOTA, "VcpuLimitExceeded: more"), key("b"): in_backoff()}
    found = pool_plan(zones((3, 3), running=(1, 1)), numbers(0, 12), states=states)
    assert problems_of(found.report.problems) == ("starved: no healthy zone has room for 4 nodes",)


def test_a_minimum_that_every_zone_refuses_has_the_cause_of_the_refusal() -> None:
    states = {key(zone): with_failure(FailureClass.CONFIGURATION, "AuthFailure: denied") for zone in "ab"}
    found = pool_plan(zones((1, 1)), numbers(6, 12), states=states)
    assert any('configuration failure ("AuthFailure: denied")' in text for text in problems_of(found.report.problems))


def test_a_healthy_zone_with_machines_over_quota_names_the_quota() -> None:
    (a, b) = zones((2, 1), running=(1, 1))
    failure = MachineFailure(code="VcpuLimitExceeded", message="64 are allowed", at=NOW - 5 * MINUTE)
    (*ran, failed) = machines(a, 5 * MINUTE).machines or ()
    found = pool_plan([replace(a, machines=(*ran, replace(failed, failure=failure))), b], numbers(0, 12))
    assert 'quota failure no. 1 ("VcpuLimitExceeded: 64 are allowed")' in reasons(found, "a")


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        ("Unauthenticated: Cloud provider message - " + DENIED, "Unauthenticated: the given credentials are not valid"),
        ("AuthFailure: \x1b[31mnot\x1b[0m\x07 allowed\n\t\u202eat all", "AuthFailure: not allowed at all"),
        (": no code", "no code"),
        ("request id: 00000015-0000-4000-8000-000000000015", "request id: …"),
        ("GET https://bob:pw@api.example.com/v2?sig=ab%2F1&n=3: 403", "GET https://…api.example.com/v2?…&n=3: 403"),
        ("failed to refresh token: oauth2: invalid_grant", "failed to refresh token: oauth2: invalid_grant"),
        ('{"access_token": "abc.def", "hint": "x"}', '{"…", "hint": "x"}'),
        ("Authorization: Bearer abc.def is expired", "Authorization: … is expired"),
        ("key AKIAIOSFODNN7EXAMPLE is unknown", "key … is unknown"),
        ("Encoded authorization failure message: " + "Ab1" * 200, "Encoded authorization failure message: …"),
        ("shoot--core--main-worker-1-z1-7f5b9-abcde: no room", "shoot--core--main-worker-1-z1-7f5b9-abcde: no room"),
    ],
)
def test_words_of_a_provider_are_printable_and_without_secrets(message: str, shown: str) -> None:
    assert provider_words(message).startswith(shown)


@given(st.text(max_size=300), st.sampled_from((1, 400)))
def test_words_of_a_provider_are_one_short_line(text: str, times: int) -> None:
    words = provider_words(text * times)
    assert len(words) <= 140
    assert not {"Cc", "Cf", "Cs", "Zl", "Zp"} & {unicodedata.category(character) for character in words}


def test_a_message_of_100_kb_is_one_short_line_of_the_plan(tmp_path: Path) -> None:
    groups = [gardener(zone, 1, 0, bounds=None) for zone in ZONES]
    failed = [denied(group, 1, "\x1b[2J\x00broken " * 10_000) for group in groups]
    printed = plan_files(tmp_path, [worker(0, 9), *groups, *failed], {"flavours": ["gardener"]})
    assert '("Unauthenticated: broken broken' in printed
    assert "\x1b" not in printed
    assert max(map(len, printed.splitlines())) < 1000


def test_a_taint_that_each_new_node_loses_is_named_with_its_field_and_ignored_there(tmp_path: Path) -> None:
    """Nodes that are tainted to be replaced look like a taint of the pool, as cluster-autoscaler's --startup-taint."""
    groups = [described(zone) for zone in ZONES]
    machines = [machine(group, number, node=True) for number, group in enumerate(groups)]
    nodes = [recycled(f"ip-{number}", zone) for number, zone in enumerate(ZONES)]
    record = {"autoscaler": "none", "demand": "scale-up", "flavours": ["cluster-api"]}
    running = [a_pod(f"old-{number}", on=f"ip-{number}") for number in range(3)]
    items = [*groups, *machines, *nodes, *running, *(a_pod(f"web-{number}") for number in range(3))]
    printed = plan_files(tmp_path, items, record)
    assert "add recycle to ignored_taints of the record" in printed.splitlines()[-2]
    printed = plan_files(tmp_path, items, {**record, "ignored_taints": ["recycle"]})
    assert "This plan requests 3 nodes" in printed


def described(zone: str) -> Object:
    capacity = {f"capacity.cluster-autoscaler.kubernetes.io/{name}": amount for name, amount in SIZE.items()}
    return cluster_api(zone, 1, bounds=(0, 10), annotations=capacity)


def recycled(name: str, zone: str) -> Object:
    made = node(name, **{"topology.kubernetes.io/zone": zone})
    made["status"] |= {"capacity": SIZE, "allocatable": SIZE}
    return {**made, "spec": {**made["spec"], "taints": [{"key": "recycle", "value": "true", "effect": "NoSchedule"}]}}


def a_pod(name: str, on: str = "") -> Object:
    at = "2026-01-15T11:50:00Z"
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": at}
    containers = [{"name": "c", "image": "i", "resources": {"requests": {"cpu": "3"}}}]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "creationTimestamp": at},
        "spec": {"containers": containers, **({"nodeName": on} if on else {})},
        "status": {"phase": "Running"} if on else {"phase": "Pending", "conditions": [condition]},
    }


def below(found: NodeGroup, **fields: Any) -> list[str]:
    (planned, *_) = pool_plan([replace(found, **fields), group("b", 2)], numbers(0, 12)).groups
    flavour = found.key.flavour
    return [text for text in sentences(planned.reasons, flavour) if "more than requested" in text]


def test_replicas_that_others_lower_below_what_runs_are_noted() -> None:
    lowered = group("a", 2, running=5, bounds=(0, 6))
    assert below(lowered) == ["3 running nodes more than requested: the machine controller removes 3"]
    by = "3 running nodes more than requested (replicas last set by kubectl): the machine controller removes 3"
    assert below(lowered, replicas_by="kubectl") == [by]
    ours = PublishedBounds(at=NOW, bounds=Bounds(0, 6), state=State.HEALTHY, requested=2)
    assert below(lowered, published=ours) == [], "Evenkeel has lowered them itself"
    assert below(lowered, replicas_by="cluster-autoscaler") == [], "its scale-down"
    assert below(lowered, frozen_because=Reason.of(Rule.ROLLING_SETS, sets=2)) == []
    assert below(group("a", 5, running=5, bounds=(0, 6))) == []


def test_a_desired_capacity_below_the_instances_is_noted_in_the_words_of_aws() -> None:
    named = key("a", flavour=AUTO_SCALING)
    lowered = group("a", 1, running=2, bounds=(0, 6), key=named, kind="AutoScalingGroup", replicas_by=UNNAMED_BY_AWS)
    (planned,) = pool_plan([lowered], numbers(0, 12)).groups
    texts = sentences(planned.reasons, AUTO_SCALING)
    assert "1 running node more than requested: AWS removes 1" in texts
