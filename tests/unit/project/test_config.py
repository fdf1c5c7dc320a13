"""The environment, cluster records and state files: every bad value is named at once."""

import base64
import importlib
import json
import pkgutil
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, get_args

import pytest
import trustme
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel
from typer.testing import CliRunner

import evenkeel
from evenkeel.access_config import Access, EksAccess
from evenkeel.adapters.codec import dump_stored, read_as, read_stored
from evenkeel.application.fleet.records import record_json
from evenkeel.domain.model.choices import Level, OnFailure
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.similarity import GARDENER, Similarity
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.gep24 import BACKWARD_COMPATIBLE
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.domain.relief.model import SHOOT_RELIEF
from evenkeel.record import ClusterPolicy, ClusterRecord, Registration
from evenkeel.settings import Settings
from evenkeel.validation import REMOVED_FIELDS, ConfigError, read_json, read_model
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.main import app
from evenkeel_cli.state_file import StateFile
from tests.builders import json_values
from tests.fakes import NOW
from tests.fakes import record as record_with
from tests.stack import Stack

ENVIRONMENT = {
    "EVENKEEL_TABLE": "t",
    "EVENKEEL_REBALANCE_QUEUE_URL": "https://sqs/r.fifo",
    "EVENKEEL_CHECKS_QUEUE_URL": "https://sqs/l",
    "EVENKEEL_DEAD_LETTERS_URL": "https://sqs/d",
    "EVENKEEL_BUS": "b",
    "EVENKEEL_DRY_RUN": "true",
}
RECORD = {"id": "demo", "flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": "evenkeel/demo"}}
SEED = {**RECORD, "flavours": ["gardener"]}
EKS = {"kind": "eks", "name": "demo", "region": "eu-central-1"}


ROLE = "arn:aws:iam::210987654321:role/evenkeel-write"
AUTHORITY = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
OIDC = {"kind": "aws-oidc", "endpoint": "https://api.blue.example:6443", "ca_data": AUTHORITY}
ACCOUNT = {**OIDC, "kind": "service-account", "token": base64.b64encode(b"\x01\x02sealed").decode()}
JWT = "eyJhbGciOiJSUzI1NiJ9.eyJzdWIiOiJzM2NyM3QtdDBrZW4ifQ.c2lnbmF0dXJl"
SECRET = "s3cr3t-t0ken"


FIELDS = [*Registration.model_fields, *StateFile.__dataclass_fields__, "a/b/c", "kind"]


def faults(model: Any, data: object) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        read_model(model, data, "here")
    lines = caught.value.faults
    assert lines
    assert all(line.startswith("here: ") and "\n" not in line and len(line) < 400 for line in lines), lines
    return lines


def registration(**fields: Any) -> Registration:
    return read_model(Registration, {**RECORD, **fields}, "here")


def test_an_eks_cluster_of_another_account_is_accessed_by_a_role_of_that_account() -> None:
    access = registration(access={**EKS, "role_arn": ROLE, "external_id": "x1"}).access
    assert isinstance(access, EksAccess)
    assert (access.role(writes=True), access.role(writes=False)) == (ROLE, ROLE)
    reading = access.model_copy(update={"check_role_arn": f"{ROLE}-check"})
    assert (reading.role(writes=True), reading.role(writes=False)) == (ROLE, f"{ROLE}-check")


def test_the_authority_of_a_server_may_be_broken_into_lines() -> None:
    broken = "\n".join(AUTHORITY[start : start + 64] for start in range(0, len(AUTHORITY), 64))
    assert registration(access={**OIDC, "ca_data": broken}).access == registration(access=OIDC).access


def test_a_missing_kind_of_access_is_reported_with_all_kinds() -> None:
    (line,) = faults(Registration, {**RECORD, "access": {"token": SECRET}})
    kinds = [kind.model_fields["kind"].annotation.__args__[0] for kind in get_args(get_args(Access)[0])]
    assert line == f"here: access.kind is missing: it is one of {', '.join(kinds)}"


@pytest.mark.parametrize(
    "access",
    [
        {"kind": "aws-oid", "token": SECRET},
        {"token": SECRET},
        {**OIDC, "endpoint": f"https://admin:{SECRET}@api.blue.example"},
        {**OIDC, "endpoint": f"https://api.blue.example/?token={SECRET}"},
        {**OIDC, "endpoint": SECRET},
        {**OIDC, "ca_data": SECRET},
        {**OIDC, "ca_data": base64.b64encode(SECRET.encode()).decode()},
        {**OIDC, "ca_data": {"token": SECRET}},
        {**OIDC, "ca_data": SECRET * 10_000},
        {**OIDC, "token": SECRET},
        [SECRET],
    ],
)
def test_a_secret_in_a_wrong_field_of_access_is_not_quoted(access: Any) -> None:
    in_garden = {**SEED, "shoot_relief": {"garden": access}}
    for line in faults(Registration, {**RECORD, "access": access}) + faults(Registration, in_garden):
        assert SECRET not in line
        assert base64.b64encode(SECRET.encode()).decode() not in line


@pytest.mark.parametrize(
    ("record", "relief", "fault"),
    [
        (SEED, {"enabled": True}, "here: shoot_relief: garden is missing"),
        (SEED, SECRET, "here: shoot_relief"),
        (SEED, {"garden": {"kind": "kubeconfig"}}, "here: shoot_relief.garden.secret is missing"),
        (SEED, {"garden": {"kind": "ssh"}}, "here: shoot_relief.garden.kind is 'ssh'"),
        (RECORD, {"garden": RECORD["access"]}, "here: shoot_relief: flavours has no gardener"),
    ],
)
def test_bad_shoot_relief_is_one_line(record: dict[str, Any], relief: object, fault: str) -> None:
    (line,) = faults(Registration, {**record, "shoot_relief": relief})
    assert line.startswith(fault)
    assert SECRET not in line


GROUPS = {"kind": "auto-scaling", "region": "eu-central-1"}


def test_access_to_auto_scaling_groups_names_their_flavour_and_region() -> None:
    record = read_model(Registration, {"id": "blue", "access": GROUPS}, "here")
    assert (record.flavours, record.region, record.is_of_this_account) == (("auto-scaling",), "eu-central-1", True)
    again = read_model(ClusterRecord, record_json(record.record), "here")
    assert again == record.record
    role = "arn:aws:iam::210987654321:role/evenkeel"
    other = read_model(Registration, {"id": "blue", "access": {**GROUPS, "role_arn": role}}, "here")
    assert (other.is_of_this_account, other.checks_with_write_identity) == (False, False)


@pytest.mark.parametrize(
    ("fields", "fault"),
    [
        ({"flavours": ["openshift"]}, "access: it reads no openshift: set flavours: [auto-scaling]"),
        (
            {"flavours": ["openshift", "auto-scaling"]},
            "access: flavour auto-scaling goes with this kind of access only",
        ),
        ({"access": RECORD["access"], "flavours": ["auto-scaling"]}, "access: flavour auto-scaling goes with this"),
        ({"access": {"kind": "auto-scaling"}}, "access.region is missing"),
        ({"access": {**GROUPS, "region": "Frankfurt"}}, "access.region is 'Frankfurt'"),
        ({"access": {**GROUPS, "name": "blue"}}, "access.name is not a field of this record"),
        ({"namespaces": ["prod"]}, "namespaces is \"['prod']\": Auto Scaling groups have no namespace"),
        ({"discovery": ["mcm:k8s.io/cluster-autoscaler/blue"]}, "discovery is "),
        ({"discovery": ["asg:tag="]}, "discovery.0 is 'asg:tag=': write asg:tag=key,key=value"),
        ({"autoscaler_status": "kube-system"}, "workload is missing: autoscaler_status is set: say where"),
        ({"status_configmap": "evenkeel/status"}, "status_configmap is 'evenkeel/status': no ConfigMap is written"),
        ({"write_topology": True}, "write_topology is 'True': Auto Scaling groups have no topology: leave it out"),
        ({"node_pool_fence": True}, "node_pool_fence is 'True': Auto Scaling groups have no NodePool: leave it out"),
        ({"dry_run_events": True}, "dry_run_events is 'True': no Event is written"),
        ({"shoot_relief": {"garden": RECORD["access"]}}, "shoot_relief: flavours has no gardener"),
        ({"demand": "advise"}, "workload is missing: demand is advise: say where its pods are"),
        ({"workload": {"access": {"kind": "same"}}}, "workload is "),
    ],
)
def test_what_auto_scaling_groups_do_not_have_is_refused_in_one_line(fields: dict[str, Any], fault: str) -> None:
    (line,) = faults(Registration, {"id": "blue", "access": GROUPS, **fields})
    assert line.startswith(f"here: {fault}")


REMOVED = {
    "suspect_provision_time": (180, "is gone: set the autoscaler's --max-node-provision-time instead"),
    "share_offerings": (False, "is gone: clusters no longer share capacity reports; delete it"),
}
ROLES = {"role_arn": "arn:aws:iam::210987654321:role/evenkeel-write"}


@pytest.mark.parametrize("name", [name for name in REMOVED if name not in Registration.model_fields])
def test_a_record_with_a_removed_field_gets_one_line_that_says_what_to_do(name: str, tmp_path: Path) -> None:
    assert {*REMOVED} == {*REMOVED_FIELDS} - {"look_role_arn"}
    value, says = REMOVED[name]
    assert faults(Registration, {**RECORD, name: value}) == [f"here: {name} {says}"]
    assert faults(ClusterFile, {name: value}) == [f"here: {name} {says}"]
    assert faults(ClusterFile, {"pools": [{"name": "workers", name: value}]}) == [f"here: pools.0.{name} {says}"]
    with pytest.raises(ConfigError) as caught:
        Stack().ask("register", record={**RECORD, name: value})
    assert caught.value.faults == [f"record of cluster demo: {name} {says}"]
    (tmp_path / "record.yaml").write_text(f"{name}: {json.dumps(value)}")
    (tmp_path / "fleet.yaml").write_text(json.dumps({"clusters": [{**RECORD, name: value}]}))
    for words in (
        ["plan", "-f", "events", "--record", f"{tmp_path}/record.yaml"],
        ["apply", "--stack", "s", "-f", f"{tmp_path}/fleet.yaml"],
    ):
        result = CliRunner().invoke(app, words)
        assert (result.exit_code, result.output.count("\n")) == (2, 1), result.output
        assert result.output.endswith(f"{name} {says}\n")


def test_a_role_for_checks_by_its_former_name_gets_one_line_with_the_new_name() -> None:
    access = {"kind": "auto-scaling", "region": "eu-central-1", **ROLES, "look_role_arn": ROLES["role_arn"]}
    fields = {**RECORD, "flavours": ["auto-scaling"], "access": access}
    assert faults(Registration, fields) == ["here: access.look_role_arn is now check_role_arn: rename it"]


def test_switched_off_fields_of_other_flavours_are_accepted() -> None:
    off = {"write_topology": False, "node_pool_fence": False, "dry_run_events": False, "namespaces": []}
    assert read_model(Registration, {"id": "blue", "access": GROUPS, **off}, "here").flavours == ("auto-scaling",)


def test_shoot_relief_is_off_by_default_and_needs_no_garden_in_a_file() -> None:
    assert SHOOT_RELIEF.of(read_model(ClusterFile, {"shoot_relief": {}}, "here").policy().settings.own)
    garden = {"garden": RECORD["access"], "enabled": False}
    assert not SHOOT_RELIEF.of(registration(flavours=["gardener"], shoot_relief=garden).policy().settings.own)
    assert not SHOOT_RELIEF.of(registration().policy().settings.own)


@pytest.mark.parametrize("token", [JWT, f"{JWT}\n", base64.b64encode(JWT.encode()).decode(), SECRET, f"Bearer {JWT}"])
def test_a_token_in_clear_is_refused_and_not_quoted(token: str) -> None:
    says = "must be what aws kms encrypt made of it, in base64: a token itself is never stored"
    assert faults(Registration, {**RECORD, "access": {**ACCOUNT, "token": token}}) == [f"here: access.token: {says}"]


class TestSettings:
    @pytest.mark.parametrize(("text", "value"), [("true", True), ("false", False)])
    def test_every_variable_is_read(self, text: str, value: bool) -> None:
        given = {**ENVIRONMENT, "EVENKEEL_DRY_RUN": text, "EVENKEEL_ALLOW_LOOPBACK": text, "PATH": "/bin"}
        settings = Settings.from_env(given)
        assert (settings.table, settings.bus, settings.dry_run, settings.allow_loopback) == ("t", "b", value, value)
        assert Settings.from_env(ENVIRONMENT).allow_loopback is False

    def test_all_missing_or_empty_variables_are_named_at_once(self) -> None:
        with pytest.raises(ConfigError) as caught:
            Settings.from_env({"EVENKEEL_TABLE": "t", "EVENKEEL_BUS": ""})
        assert caught.value.faults == [
            f"environment variable {name} is missing" for name in ENVIRONMENT if name != "EVENKEEL_TABLE"
        ]

    def test_a_bad_variable_is_named_with_its_value(self) -> None:
        with pytest.raises(ConfigError, match="dry_run is 'perhaps'"):
            Settings.from_env({**ENVIRONMENT, "EVENKEEL_DRY_RUN": "perhaps"})


class TestClusterRecord:
    def test_the_smallest_record_has_the_documented_defaults(self) -> None:
        record = registration()
        assert (record.scan_interval, record.dry_run) == ("auto", None)
        policy = record.policy()
        assert (policy.settings.strategy, policy.settings.on_failure, policy.settings.backoff) == (
            BALANCED,
            OnFailure.RELEASE,
            BackoffPolicy(),
        )

    def test_a_saved_record_is_read_unchanged(self) -> None:
        full = {
            **RECORD,
            "access": EKS,
            "flavours": ["cluster-api", "gardener"],
            "namespaces": ["a", "b.c"],
            "discovery": ["clusterapi:namespace=a,clusterName=b,team=c", "mcm:k8s.io/cluster-autoscaler/demo"],
            "strategy": "equitable",
            "on_failure": "hold",
            "pools": [{"name": "p", "namespace": "a", "selector": {"x": "y"}, "max": 9, "strategy": "adaptive"}],
            "backoff": {"initial": 60, "longest": 600, "forget_after": 3600},
            "scan_interval": 120,
            "dry_run": False,
            "paused": True,
            "paused_until": "2026-01-15T13:00:00+01:00",
        }
        record = read_model(Registration, full, "here")
        assert read_json(Registration, record.model_dump_json(exclude_none=True), "here") == record
        assert record.strategy is BACKWARD_COMPATIBLE
        assert record.policy().settings.backoff.initial == timedelta(minutes=1)

    def test_a_discovery_string_selects_groups_of_one_of_several_flavours(self) -> None:
        fields = {"flavours": ["openshift", "gardener"], "discovery": ["clusterapi:a=b", "asg:tag=team"]}
        with pytest.raises(
            ConfigError, match="asg:tag=team selects no group of flavour openshift or gardener"
        ) as reported:
            read_model(Registration, {**RECORD, **fields}, "here")
        assert "label=value or mcm:k8s.io/cluster-autoscaler/<shoot>" in str(reported.value)
        assert read_model(Registration, {**RECORD, **fields, "discovery": ["clusterapi:a=b"]}, "here").discoveries

    @pytest.mark.parametrize(
        ("fields", "says"),
        [
            ({"id": "UPPER"}, "id is 'UPPER'"),
            ({"id": ""}, "id is ''"),
            ({"id": "a" * 101}, "id is 'aaa"),
            ({"id": "a/b"}, "id is 'a/b'"),
            ({"id": "a\n"}, "id is 'a\\n'"),
            ({"flavours": []}, "flavours is '[]'"),
            ({"pools": [{"name": "", "selector": {"a": "b"}}]}, ".name is '': empty: write a value"),
            (
                {"flavours": ["gardner"]},
                "flavours.0 is 'gardner': Input should be 'gardener', 'cluster-api', 'openshift' or 'auto-scaling'",
            ),
            ({"flavours": [5]}, "'gardener', 'cluster-api', 'openshift' or 'auto-scaling'"),
            ({"flavours": [None]}, "'gardener', 'cluster-api', 'openshift' or 'auto-scaling'"),
            ({"flavours": [["gardener"]]}, "'gardener', 'cluster-api', 'openshift' or 'auto-scaling'"),
            ({"flavours": "gardener"}, "flavours is 'gardener'"),
            ({"namespaces": ["Kube System"]}, "namespaces.0 is 'Kube System'"),
            ({"namespaces": ["a/../b"]}, "namespaces.0 is 'a/../b'"),
            (
                {"discovery": ["gce:x"]},
                "discovery.0 is 'gce:x': a discovery string starts with clusterapi:, mcm: or asg:",
            ),
            (
                {"discovery": ["mcm:k8s.io/cluster-autoscaler/blue"]},
                "mcm:k8s.io/cluster-autoscaler/blue selects no group of flavour cluster-api: write clusterapi:name",
            ),
            ({"strategy": "Greedy"}, "strategy is 'Greedy': no such strategy: choose one of"),
            ({"strategy": 5}, "strategy is '5'"),
            (
                {"on_failure": "evict"},
                "on_failure is 'evict': no such treatment of failures: choose one of release, move, hold",
            ),
            ({"pools": [{"name": "p", "min": 9, "max": 3}]}, "min 9 is larger than max 3"),
            ({"pools": [{"name": "p", "max": -1}]}, "pools.0.max is '-1'"),
            ({"pools": [{"name": "p", "max": "12"}]}, "pools.0.max is '12'"),
            ({"pools": [{"name": "p", "max": 1.0}]}, "pools.0.max is '1.0'"),
            ({"pools": [{"name": "p", "max": 2**31}]}, "pools.0.max is '2147483648'"),
            ({"pools": [{"name": ""}]}, "pools.0.name is ''"),
            ({"pools": [{"name": "p", "selector": {"a": 1}}]}, "pools.0.selector.a is '1'"),
            ({"pools": [7]}, "pools.0 is '7'"),
            ({"max_step": 0}, "max_step is '0': Input should be greater than or equal to 1"),
            ({"pools": [{"name": "p", "max_step": 0}]}, "pools.0.max_step is '0'"),
            ({"expander": "price"}, "expander is 'price': Input should be 'least-waste' or 'order'"),
            ({"expander": "order"}, "expander_order is missing: expander is order: name the pools"),
            ({"expander": "order", "expander_order": []}, "expander_order is '[]': empty: write one or more"),
            ({"expander": "order", "expander_order": ["a", "b", "a"]}, "it names 'a' twice: name each pool once"),
            ({"expander_order": ["a"]}, "it has no effect without expander: order"),
            ({"backoff": {"initial": 900, "longest": 600}}, "initial <= longest <= forget_after"),
            ({"backoff": {"initial": 29}}, "backoff.initial is '29'"),
            ({"scan_interval": 14}, "scan_interval is '14'"),
            ({"provision_timeout": 59}, "provision_timeout is '59'"),
            ({"provision_timeout": "soon"}, "provision_timeout is 'soon'"),
            ({"scan_interval": 3601}, "scan_interval is '3601'"),
            ({"scan_interval": 90}, "scan_interval is '90': an interval of a minute or more must be whole minutes"),
            ({"scan_interval": "often"}, "scan_interval is 'often'"),
            ({"paused_until": "soon"}, "paused_until is 'soon'"),
            ({"paused_until": "2026-01-15T12:00:00"}, "paused_until is '2026-01-15T12:00:00'"),
            ({"paused_until": "9999-12-31T23:59:59-12:00"}, "paused_until is '9999"),
            ({"access": None}, "access"),
            ({"access": {"kind": "ssh"}}, "access"),
            ({"access": {"kind": "kubeconfig"}}, "secret is missing"),
            ({"access": {"kind": "kubeconfig", "secret": ""}}, "secret is ''"),
            ({"access": {"kind": "kubeconfig", "secret": "s", "server": "https://x"}}, "server is not a field"),
            ({"access": {**EKS, "region": "eu-central-1.attacker.example/"}}, "region is "),
            ({"access": {**EKS, "region": "eu-central-1\n"}}, "region is "),
            ({"access": {**EKS, "name": "a b"}}, "name is 'a b'"),
            ({"access": {**EKS, "role_arn": "arn:aws:iam::1:role/x"}}, "access.role_arn is 'arn:aws:iam::1:role/x'"),
            (
                {"access": {**EKS, "external_id": "x1"}},
                "check_role_arn and external_id go with role_arn: name that too",
            ),
            ({"access": {**EKS, "role_arn": ROLE, "external_id": "ä1"}}, "access.external_id is 'ä1'"),
            (
                {"access": {"kind": "aws-odic"}},
                "access.kind is 'aws-odic': it is one of eks, aws-oidc, service-account, kubeconfig, auto-scaling; "
                "did you mean aws-oidc?",
            ),
            (
                {"access": {**OIDC, "endpoint": "http://api"}},
                "access.endpoint: must be https:// with a host, and no user, query or fragment",
            ),
            ({"access": {**OIDC, "endpoint": "https://a*"}}, "access.endpoint: must be https:// with a host"),
            ({"access": {**OIDC, "endpoint": "https://é.example"}}, "access.endpoint: must be https:// with a host"),
            ({"access": {**OIDC, "endpoint": None}}, "access.endpoint: must be https:// with a host"),
            ({"access": {**OIDC, "ca_data": "%"}}, "access.ca_data: must be the authority's PEM certificate in base64"),
            ({"access": {**OIDC, "ca_data": 7}}, "access.ca_data: must be the authority's PEM certificate in base64"),
            ({"access": {**OIDC, "audience": "prod"}}, "access.audience is 'prod'"),
            ({"access": {**OIDC, "audience": "evenkeel:прод"}}, "access.audience is 'evenkeel:прод'"),
            ({"access": {**OIDC, "audience": "evenkeel:*"}}, "access.audience is 'evenkeel:*'"),
            ({"access": {**OIDC, "audience": f"evenkeel:{OIDC['endpoint']}"}}, "access.audience is 'evenkeel:"),
            ({"access": {**EKS, "endpoint": "https://a.example"}}, "access.endpoint is not a field of this record"),
            ({"strategy": "x", "scan_interval": 1, "colour": 1}, "colour"),
            ({"access": {**OIDC, "audience": "evenkeel:prod\n"}}, "access.audience is 'evenkeel:prod"),
            ({"access": {**ACCOUNT, "token": ""}}, "access.token: must be what aws kms encrypt made of it, in base64"),
            ({"access": {**ACCOUNT, "token": 7}}, "access.token: must be what aws kms encrypt made of it, in base64"),
            ({"access": {**ACCOUNT, "namespace": "A b"}}, "access.namespace is 'A b'"),
            ({"access": {**OIDC, "role_arn": ROLE}}, "access.role_arn is not a field of this record"),
            ({"pools": {}}, "pools.discover is missing"),
            ({"pools": {"workers": {}}}, "write each pool as an entry with its name, such as {name: 'workers'}"),
            ({"pools": {"discover": "equal"}}, "pools.discover is 'equal'"),
            ({"pools": {"discover": "similar", "rules": [{"name": "p", "max": -1}]}}, "pools.rules.0.max is '-1'"),
            ({"pools": {"discover": "similar", "ratios": "azure"}}, "pools.ratios is 'azure'"),
            ({"pools": {"discover": "similar", "labels": [""]}}, "pools.labels.0 is ''"),
            ({"pools": {"discover": "similar", "nodes": "many"}}, "pools.nodes is 'many'"),
            ({"pools": {"discover": "similar", "labels": ["a"], "ignored_labels": ["b"]}}, "labels decide alone"),
            ({"pools": {"discover": "similar", "colour": 1}}, "pools.colour is not a field of this record"),
            ({"colour": "blue"}, "colour is not a field of this record: remove it or correct its name"),
        ],
    )
    def test_a_bad_field_is_named_with_its_value(self, fields: dict[str, Any], says: str) -> None:
        lines = faults(Registration, {**RECORD, **fields})
        assert any(says in line for line in lines), lines
        assert len(lines) == len(fields) or "expander" in fields or "kind" in str(fields)
        assert not any(line.endswith("did you mean ?") for line in lines)

    @pytest.mark.parametrize(
        "pools",
        [
            *(7, [7], {}, [{"name": "p", "max": -1}], {"discover": 7}, {"p": {"max": 9}, "q": {"max": 9}}),
            *({"discover": "similar", "rules": rules} for rules in (7, [7])),
        ],
        ids=str,
    )
    def test_a_bad_entry_of_either_form_of_pools_is_one_line(self, pools: object) -> None:
        (line,) = faults(Registration, {**RECORD, "pools": pools})
        assert faults(ClusterFile, {"pools": pools}) == [line]
        assert line.startswith("here: pools")
        assert "<" not in line  # the names of the forms are internal

    @pytest.mark.parametrize(
        ("discover", "similarity"),
        [("similar", Similarity()), ("off", None), pytest.param(False, None, id="off in YAML")],
    )
    def test_pools_have_the_same_rules_in_both_forms(self, discover: object, similarity: Similarity | None) -> None:
        rules = [{"name": "p", "min": 1, "max": 9}]
        listed = registration(pools=rules).policy()
        discovered = registration(pools={"discover": discover, "rules": rules})
        assert (listed.similarity, discovered.policy().similarity) == (None, similarity)
        assert listed.pools == discovered.policy().pools
        assert len(listed.pools) == 1
        assert read_json(Registration, discovered.model_dump_json(exclude_none=True), "here") == discovered

    @pytest.mark.parametrize(
        ("fields", "similarity"),
        [
            ({"ratios": "gardener"}, GARDENER),
            ({"ratios": "cluster-autoscaler"}, Similarity()),
            ({"labels": ["team", "size"]}, Similarity(labels=("team", "size"))),
            ({"ratios": "gardener", "ignored_labels": ["x"]}, replace(GARDENER, ignored_labels=frozenset("x"))),
        ],
    )
    def test_the_similarity_of_a_record_is_the_policys(self, fields: dict[str, Any], similarity: Similarity) -> None:
        record = read_model(ClusterFile, {"pools": {"discover": "similar", **fields}}, "here")
        assert record.policy().similarity == similarity

    @pytest.mark.parametrize("data", [None, [], "text", 7, True])
    def test_a_record_that_is_no_object_is_an_error(self, data: object) -> None:
        assert faults(Registration, data)

    @pytest.mark.parametrize("text", ["", "{", "[" * 100_000, '{"a": 1e400', "nul"])
    def test_a_text_that_is_no_json_is_an_error(self, text: str) -> None:
        with pytest.raises(ConfigError, match="here: not JSON"):
            read_json(Registration, text, "here")

    @given(json_values(keys=st.sampled_from(FIELDS)))
    def test_any_data_is_a_record_or_lines(self, data: object) -> None:
        readers: list[Callable[[], object]] = [
            lambda: read_model(Registration, data, "here"),
            lambda: read_model(ClusterFile, data, "here"),
            lambda: read_as(StateFile, data, "here", strict=True),
        ]
        for read in readers:
            try:
                read()
            except ConfigError as error:
                lines = error.faults
            else:
                lines = []
            assert all("\n" not in line for line in lines)


class TestState:
    def test_a_state_file_has_the_names_of_the_contract(self) -> None:
        failing = {
            "failures": 2,
            "backoff_until": "2026-01-15T13:10:00+01:00",
            "last_failure": "2026-01-15T12:00:00Z",
            "class": "capacity",
        }
        zones = {"eu-central-1a": {"impaired_until": "2026-01-15T13:00:00Z"}}
        text = json.dumps({"groups": {"gardener/ns/md-z1": failing}, "zones": zones})
        state = StateFile.read(text, "here").state()
        group = state.groups[GroupKey("gardener", "ns", "md-z1")]
        assert (group.failure.failures, group.failure.failure_class) == (2, FailureClass.CAPACITY)
        assert group.failure.backoff_until == datetime(2026, 1, 15, 12, 10, tzinfo=UTC)
        assert state.zones == {"eu-central-1a": datetime(2026, 1, 15, 13, tzinfo=UTC)}

    def test_a_state_file_needs_no_more_than_a_backoff(self) -> None:
        text = json.dumps({"groups": {"gardener/ns/md-z1": {"backoff_until": NOW.isoformat()}}})
        (state,) = StateFile.read(text, "here").state().groups.values()
        assert (state.failure.failures, state.is_failing) == (1, True)

    @given(ages=st.lists(st.integers(0, 300), min_size=1, max_size=8))
    def test_a_stored_backoff_is_read_unchanged(self, ages: list[int]) -> None:
        state = GroupState()
        for age in ages:
            at = NOW - timedelta(minutes=age)
            state = record_failure(state, at, FailureClass.QUOTA, f"{age} ünusual", BackoffPolicy())
        assert read_stored(GroupState, dump_stored(state), "here") == state


@pytest.mark.parametrize(
    ("fields", "on_failure"),
    [({}, "release"), ({"autoscaler": "none"}, "move"), ({"autoscaler": "none", "on_failure": "hold"}, "hold")],
)
def test_without_an_autoscaler_stuck_replicas_move_by_default(fields: dict[str, str], on_failure: str) -> None:
    assert ClusterPolicy.model_validate(fields).policy().settings.on_failure is OnFailure(on_failure)


def test_every_model_can_be_built() -> None:
    """They are built when first used, so that importing them proves nothing."""
    for module in pkgutil.walk_packages(evenkeel.__path__, "evenkeel."):
        importlib.import_module(module.name)
    models = [BaseModel]
    for model in models:
        models += model.__subclasses__()
    ours = [model for model in models if model.__module__.startswith(("evenkeel.", "evenkeel_cli."))]
    assert {ClusterFile, Registration} <= set(ours)
    for model in ours:
        model.model_rebuild()
        assert model.__pydantic_complete__, model


_PODS = {"workload": {"access": {"kind": "same"}}}


@pytest.mark.parametrize(
    ("fields", "misfits"),
    [
        ({}, []),
        ({"autoscaler": "none"}, []),
        ({"demand": "advise", **_PODS}, []),
        ({"demand": "advise", "level": "shrink", **_PODS}, []),
        ({"autoscaler": "none", "demand": "full", **_PODS}, []),
        ({"autoscaler": "none", "demand": "scale-up", "on_failure": "release", **_PODS}, []),
        ({"on_failure": "hold"}, []),
        ({"autoscaler": "none", "on_failure": "release"}, ["release-without-autoscaler"]),
        ({"autoscaler": "none", "pools": [{"name": "a", "level": "shrink"}]}, ["shrink-without-autoscaler"]),
        ({"level": "shrink"}, ["shrink-without-pods"]),
        ({"autoscaler": "none", "demand": "advise", **_PODS}, ["advice-without-autoscaler"]),
    ],
)
def test_settings_that_do_not_fit_together_are_named(fields: dict[str, Any], misfits: list[str]) -> None:
    assert [problem.kind.value for problem in record_with(**fields).misfits()] == misfits


def test_register_apply_and_validate_name_settings_that_do_not_fit() -> None:
    stack, says = Stack(), "level is shrink and demand is off: without pods, shrink helps little"
    given = stack.record.model_copy(update={"level": Level.SHRINK}).model_dump(mode="json", exclude_unset=True)
    assert says in stack.ask("apply", None, records={"demo": given}, verify=False)["clusters"][0]["message"]
    assert says in stack.ask("register", record=given)["message"]
    assert says in stack.ask("validate")["message"]
