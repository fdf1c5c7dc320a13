"""The behavior of the Kubernetes API on which Evenkeel relies, on the simulated one and on a real one."""

import contextlib
import http.client
import json
import ssl
import time
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException

from evenkeel.adapters.kubernetes.client.lists import ReceivedList, versions_of
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.real import HOW_TO_GET_THEM, RealKubernetesAPI, find_assets
from tests.objects import writers

Api = KubernetesAPI | RealKubernetesAPI
Json = dict[str, Any]
MACHINE_SETS = ("machine.openshift.io", "v1beta1", "machinesets")
SETS = "machinesets.machine.openshift.io"
WRONG_KIND = 'Invalid value: "Machine": must be MachineSet'
CONFLICT = f'Operation cannot be fulfilled on {SETS} "a": '


def machine_set(name: str, **spec: Any) -> Json:
    return {
        "apiVersion": "machine.openshift.io/v1beta1",
        "kind": "MachineSet",
        "metadata": {"name": name, "labels": {"pool": "main", "name": name}},
        "spec": {"replicas": 2, **spec},
    }


def machine_deployment(**spec: Any) -> Json:
    return {
        "apiVersion": "cluster.x-k8s.io/v1beta1",
        "kind": "MachineDeployment",
        "metadata": {"name": "a"},
        "spec": {"clusterName": "c", "selector": {}, "template": {}, **spec},
    }


def refused(call: Callable[[], Any]) -> tuple[int, Json]:
    """Return the code and the Status of a call that must fail."""
    with pytest.raises(ApiException) as caught:
        call()
    try:
        status = json.loads(caught.value.body)
    except ValueError:
        status = {"message": caught.value.body}
    return int(caught.value.status), status


def version(item: Json) -> str:
    return str(item["metadata"]["resourceVersion"])


@pytest.mark.real_api
@pytest.mark.skipif(find_assets() is None, reason=HOW_TO_GET_THEM)
def test_every_test_here_runs_against_a_real_api_server_as_well(request: pytest.FixtureRequest) -> None:
    mine = [item for item in request.session.items if item.path == request.path]
    assert any("[real" in item.name for item in mine)


@pytest.fixture
def made(machine_sets: Any) -> Json:
    return dict(machine_sets.create(machine_set("a")))


def elsewhere(sets: Any) -> Any:
    return sets.custom.create_namespaced_custom_object(*MACHINE_SETS[:2], "none", "machinesets", machine_set("b"))


def patched_as(content_type: str) -> Callable[[Any], Any]:
    return lambda sets: sets.merge("a", {"spec": {}}, _content_type=content_type)


def stale(**body: Any) -> Json:
    return {"metadata": {"resourceVersion": "1"}, **body}


def named(name: str, resource_version: str | None = "1") -> Json:
    body = machine_set(name)
    return {**body, "metadata": {**body["metadata"], "resourceVersion": resource_version}}


#: a call on MachineSets, of which `a` exists -> code and reason, and a part of the message
REFUSED: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "a garbled continue token": (lambda sets: sets.list(limit=2, _continue="garbled"), "400 BadRequest", ""),
    "a malformed label selector": (lambda sets: sets.list(label_selector="name in ms-1)"), "400 BadRequest", ""),
    "a field selector": (
        lambda sets: sets.list(field_selector="spec.replicas=2"),
        "400 BadRequest",
        "field label not supported: spec.replicas",
    ),
    "no such namespace": (elsewhere, "404 NotFound", 'namespaces "none" not found'),
    "a bad name": (lambda sets: sets.create(machine_set("Not_a_name")), "422 Invalid", "metadata.name: "),
    "a wrong kind": (lambda sets: sets.create(machine_set("b") | {"kind": "Machine"}), "422 Invalid", WRONG_KIND),
    "the same name twice": (lambda sets: sets.create(machine_set("a")), "409 AlreadyExists", f'{SETS} "a" already'),
    "a patch against the schema": (lambda sets: sets.merge("a", {"spec": {"replicas": "x"}}), "422 Invalid", ""),
    "a number for an annotation": (
        lambda sets: sets.merge("a", {"metadata": {"annotations": {"k": 2}}}),
        "422 Invalid",
        "",
    ),
    "another uid": (lambda sets: sets.merge("a", {"metadata": {"uid": "another"}}), "422 Invalid", ""),
    "another name in the patch": (
        lambda sets: sets.merge("a", {"metadata": {"name": "b"}}),
        "400 BadRequest",
        "the name of the object (b) does not match the name on the URL (a)",
    ),
    "an unknown object": (lambda sets: sets.merge("absent", {"spec": {}}), "404 NotFound", f'{SETS} "absent" not'),
    "a stale patch": (lambda sets: sets.merge("a", stale(spec={"replicas": 9})), "409 Conflict", CONFLICT),
    "a stale patch against the schema": (
        lambda sets: sets.merge("a", stale(spec={"replicas": "x"})),
        "409 Conflict",
        "",
    ),
    "a stale status": (lambda sets: sets.status("a", stale(status={"replicas": 1})), "409 Conflict", ""),
    "a stale scale": (lambda sets: sets.scale("a", 4, resourceVersion="1"), "409 Conflict", ""),
    "a stale object": (lambda sets: sets.put("a", named("a")), "409 Conflict", ""),
    "an object without a version": (lambda sets: sets.put("a", named("a", None)), "422 Invalid", "resourceVersion"),
    "another name in the object": (lambda sets: sets.put("a", named("b")), "400 BadRequest", ""),
    "a stale deletion": (lambda sets: sets.delete("a", body={"preconditions": {"resourceVersion": "1"}}), "409 C", ""),
    "a deletion of another uid": (lambda sets: sets.delete("a", body={"preconditions": {"uid": "b"}}), "409 C", ""),
    "a version that is no number": (lambda sets: sets.merge("a", {"metadata": {"resourceVersion": "abc"}}), "500 ", ""),
    "a patch of plain JSON": (patched_as("application/json"), "415 UnsupportedMediaType", ""),
    "a strategic merge patch": (patched_as("application/strategic-merge-patch+json"), "415 UnsupportedMediaType", ""),
    "a negative scale": (lambda sets: sets.scale("a", -1), "422 Invalid", "-1: should be a non-negative integer"),
    "a scale that is no number": (lambda sets: sets.scale("a", "many"), "422 ", ""),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_makes_no_sense_is_refused_with_its_code_and_changes_nothing(
    machine_sets: Any, made: Json, what: str
) -> None:
    call, code_and_reason, message = REFUSED[what]
    code, status = refused(lambda: call(machine_sets))
    assert f"{code} {status.get('reason')}".startswith(code_and_reason)
    assert message in status["message"]
    assert machine_sets.get("a") == made


class TestDiscovery:
    def test_the_served_versions_of_a_group_are_found_and_the_newest_is_preferred(self, connect: Any) -> None:
        group = next(g for g in client.ApisApi(connect()).get_api_versions().groups if g.name == "cluster.x-k8s.io")
        assert [v.version for v in group.versions] == ["v1beta2", "v1beta1"]
        assert group.preferred_version.version == "v1beta2"

    def test_a_version_lists_its_resources_with_their_subresources(self, connect: Any) -> None:
        listed = client.CustomObjectsApi(connect()).get_api_resources("cluster.x-k8s.io", "v1beta1")
        by_name = {resource.name: resource for resource in listed.resources}
        assert {"machinedeployments", "machinedeployments/status", "machinedeployments/scale"} <= set(by_name)
        assert by_name["machinedeployments"].kind == "MachineDeployment"
        assert by_name["machinedeployments"].namespaced is True
        assert by_name["machinedeployments/scale"].kind == "Scale"

    def test_an_unknown_group_version_and_resource_are_404(self, connect: Any, namespace: str) -> None:
        custom = client.CustomObjectsApi(connect())
        for group, api_version, plural in (
            ("unknown.example", "v1", "things"),
            ("machine.openshift.io", "v9", "machinesets"),
            ("machine.openshift.io", "v1beta1", "unknowns"),
        ):
            code, status = refused(partial(custom.list_namespaced_custom_object, group, api_version, namespace, plural))
            assert (code, status["message"]) == (404, "404 page not found\n")


class TestLists:
    @pytest.fixture
    def seven(self, machine_sets: Any) -> Any:
        for index in range(7):
            machine_sets.create(machine_set(f"ms-{index}"))
        return machine_sets

    @staticmethod
    def raw(kube_api: Api, sets: Any, query: str, accept: str = "application/json") -> bytes:
        path = f"{kube_api.url}/apis/machine.openshift.io/v1beta1/namespaces/{sets.namespace}/machinesets"
        headers = {"Authorization": f"Bearer {kube_api.token('admin')}", "Accept": accept}
        answer = sets.custom.api_client.call_api("GET", f"{path}?{query}", header_params=headers)
        return bytes(answer.response.data)

    @pytest.mark.parametrize(
        ("selector", "names", "left"), [("", "0123456", 4), ("name notin (ms-0,ms-2)", "13456", None)]
    )
    def test_pages_together_hold_each_object_once_in_order(
        self, seven: Any, selector: str, names: str, left: int | None
    ) -> None:
        pages = [seven.list(limit=3, label_selector=selector)]
        while token := pages[-1]["metadata"].get("continue"):
            pages.append(seven.list(limit=3, label_selector=selector, _continue=token))
        assert [item["metadata"]["name"] for page in pages for item in page["items"]] == [
            f"ms-{name}" for name in names
        ]
        assert len(pages) == (len(names) + 2) // 3
        assert pages[0]["metadata"].get("remainingItemCount") == left
        everywhere = seven.custom.list_cluster_custom_object(*MACHINE_SETS)["items"]
        assert len([item for item in everywhere if item["metadata"]["namespace"] == seven.namespace]) == 7

    def test_later_pages_show_the_moment_of_the_first(self, seven: Any) -> None:
        first = seven.list(limit=5)
        seven.delete("ms-5")
        seven.merge("ms-6", {"spec": {"replicas": 9}})
        second = seven.list(limit=5, _continue=first["metadata"]["continue"])
        assert [(i["metadata"]["name"], i["spec"]["replicas"]) for i in second["items"]] == [("ms-5", 2), ("ms-6", 2)]
        assert version(second) == version(first)

    def test_a_continue_token_that_is_too_old_is_410_expired(self, kube_api: Api, seven: Any) -> None:
        token = seven.list(limit=2)["metadata"]["continue"]
        kube_api.expire_continue_tokens()
        code, status = refused(lambda: seven.list(limit=2, _continue=token))
        assert (code, status["reason"]) == (410, "Expired")
        rest = seven.list(_continue=status["metadata"]["continue"])
        assert [item["metadata"]["name"] for item in rest["items"]] == [f"ms-{index}" for index in range(2, 7)]

    def test_the_watch_cache_answers_with_the_whole_list_whatever_its_limit(self, seven: Any) -> None:
        """The answer may be slightly stale, and in any order. Otherwise it is equal."""
        deadline = time.monotonic() + 10
        while len((cached := seven.list(limit=3, resource_version="0"))["items"]) < 7:
            assert time.monotonic() < deadline
        assert not cached["metadata"].get("continue")
        assert sorted(cached["items"], key=lambda item: str(item["metadata"]["name"])) == seven.list()["items"]

    @pytest.mark.parametrize("query", ["limit=500", "limit=500&resourceVersion=0"])
    def test_a_list_of_metadata_alone_has_the_same_objects_in_the_same_versions(
        self, kube_api: Api, seven: Any, query: str
    ) -> None:
        listed = partial(self.raw, kube_api, seven)
        deadline = time.monotonic() + 10  # the watch cache may be slightly stale
        while len(json.loads(listed(query))["items"]) < 7:
            assert time.monotonic() < deadline
        metadata = listed(query, "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1,application/json")
        own = json.loads(metadata)
        assert (own["kind"], own["apiVersion"]) == ("PartialObjectMetadataList", "meta.k8s.io/v1")
        assert all(item.keys() == {"kind", "apiVersion", "metadata"} for item in own["items"])
        before = {versions_of([ReceivedList("x", (page,))]) for page in (metadata, listed(query))}
        assert len(before - {None}) == 1
        seven.merge("ms-3", {"metadata": {"annotations": {"touched": "1"}}})
        assert versions_of([ReceivedList("x", (listed("limit=500"),))]) not in before

    def test_a_later_page_takes_no_version_but_that_of_the_first(self, seven: Any) -> None:
        first = seven.list(limit=5)
        token = first["metadata"]["continue"]
        code, status = refused(lambda: seven.list(limit=5, _continue=token, resource_version=version(first)))
        assert code == 400
        assert "not allowed when using continue" in status["message"]

    @pytest.mark.parametrize("query", ["limit=3", "limit=500&resourceVersion=0"])
    def test_the_metadata_of_a_list_comes_after_its_items(self, kube_api: Api, seven: Any, query: str) -> None:
        objects, own = self.raw(kube_api, seven, query).rsplit(b'],"kind":', 1)
        assert json.loads(objects + b"]}").keys() == {"apiVersion", "items"}
        assert json.loads(b'{"kind":' + own).keys() == {"kind", "metadata"}

    @pytest.mark.parametrize(
        ("selector", "expected"),
        [
            *(("name=ms-1", "1"), ("name==ms-1", "1"), ("name!=ms-1", "023456"), ("name in (ms-1, ms-2)", "12")),
            *(("name notin (ms-0,ms-1,ms-2,ms-3),pool=main", "456"), ("pool,name=ms-3", "3"), ("!pool", "")),
            ("absent!=x,name=ms-0", "0"),
        ],
    )
    def test_label_selectors_choose(self, seven: Any, selector: str, expected: str) -> None:
        items = seven.list(label_selector=selector)["items"]
        assert {item["metadata"]["name"] for item in items} == {f"ms-{name}" for name in expected}
        assert len(seven.list(field_selector="metadata.name=ms-2")["items"]) == 1

    def test_a_list_carries_a_version_that_rises_with_every_write(self, seven: Any) -> None:
        before = int(version(seven.list()))
        seven.merge("ms-0", {"spec": {"replicas": 5}})
        assert int(version(seven.list())) > before


class TestCreate:
    def test_a_new_object_gets_identity_version_and_generation_and_no_status(self, machine_sets: Any) -> None:
        made = machine_sets.create(machine_set("a") | {"status": {"replicas": 7}})
        metadata = made["metadata"]
        assert (metadata["namespace"], metadata["generation"]) == (machine_sets.namespace, 1)
        assert metadata["uid"]
        assert metadata["creationTimestamp"].endswith("Z")
        assert "status" not in made
        assert machine_sets.get("a") == made

    def test_defaults_of_the_schema_are_filled_in(self, machine_sets: Any) -> None:
        body = machine_set("a")
        del body["spec"]["replicas"]
        assert machine_sets.create(body)["spec"] == {"replicas": 1, "authoritativeAPI": "MachineAPI"}

    def test_unknown_fields_are_pruned_and_free_form_fields_are_kept(self, machine_sets: Any) -> None:
        free = {"placement": {"availabilityZone": "eu-central-1a"}, "anything": [1, {"a": None}]}
        body = machine_set("a", unknown=1, template={"spec": {"providerSpec": {"value": free, "nope": 1}}})
        body["alien"] = {}
        made = machine_sets.create(body)
        assert "alien" not in made
        assert "unknown" not in made["spec"]
        assert made["spec"]["template"]["spec"]["providerSpec"] == {"value": free}

    @pytest.mark.parametrize(
        ("spec", "field", "message"),
        [
            ({"replicas": "three"}, "spec.replicas", 'Invalid value: "string": spec.replicas in body must be of'),
            ({"deletePolicy": "Foo"}, "spec.deletePolicy", 'Unsupported value: "Foo": supported values: "Random", "N'),
            ({"replicas": -1}, ".spec.replicas", "Invalid value: -1: should be a non-negative integer"),
        ],
    )
    def test_a_schema_error_is_422_with_the_field_and_the_reason(
        self, machine_sets: Any, spec: Json, field: str, message: str
    ) -> None:
        code, status = refused(lambda: machine_sets.create(machine_set("a", **spec)))
        assert (code, status["reason"]) == (422, "Invalid")
        assert status["message"].startswith('MachineSet.machine.openshift.io "a" is invalid: ')
        causes = [cause["message"] for cause in status["details"]["causes"] if cause["field"] == field]
        assert any(cause.startswith(message) for cause in causes)

    @pytest.mark.parametrize("served", ["v1beta1", "v1beta2"])
    def test_a_machine_pool_has_the_shape_of_cluster_apis_own(self, kind_of: Any, served: str) -> None:
        pools = kind_of("cluster.x-k8s.io", served, "machinepools")
        spec = {"clusterName": "c", "failureDomains": ["z"], "template": {"spec": {"clusterName": "c"}}}
        kind = {"apiVersion": f"cluster.x-k8s.io/{served}", "kind": "MachinePool"}
        body = {**kind, "metadata": {"name": "a"}, "spec": spec}
        rule = "spec.failureDomains in body should have at most 100 items"
        for field, value, fault in (
            ("failureDomains", ["z"] * 101, f"Invalid value: 101: {rule}"),
            ("providerIDList", [""], "in body should be at least 1 chars long"),
        ):
            faulty = {**body, "spec": {**spec, field: value}}
            code, status = refused(partial(pools.create, faulty))
            assert code == 422
            # Servers before 1.25 do not name the entry of a list.
            causes = [(cause["field"].partition("[")[0], cause["message"]) for cause in status["details"]["causes"]]
            assert [found for found, message in causes if message.endswith(fault)] == [f"spec.{field}"]
        assert "replicas" not in pools.create(body)["spec"], "its webhook sets them, and not the API"
        assert pools.scale("a", 3)["spec"]["replicas"] == 3
        pools.status("a", {"status": {"replicas": 2, "nodeRefs": [{"kind": "Node", "name": "ip-1"}]}})
        assert pools.get("a")["status"]["nodeRefs"][0]["name"] == "ip-1"


class TestMergePatch:
    def test_bounds_replicas_and_decision_change_together_under_the_version_read(
        self, machine_sets: Any, made: Json
    ) -> None:
        metadata = {"resourceVersion": version(made), "annotations": {"x/min": "1", "x/max": "5"}}
        new = machine_sets.merge("a", {"metadata": metadata, "spec": {"replicas": 4}})
        assert new["metadata"]["annotations"] == {"x/min": "1", "x/max": "5"}
        assert new["spec"]["replicas"] == 4
        assert int(version(new)) > int(version(made))
        assert machine_sets.get("a") == new
        without = machine_sets.merge("a", {"metadata": {"annotations": {"x/min": None}}})
        assert without["metadata"]["annotations"] == {"x/max": "5"}

    @pytest.mark.parametrize("patch", [{}, {"spec": {"replicas": 2}}, {"spec": {"unknown": 1}}], ids=str)
    def test_a_patch_that_changes_nothing_keeps_the_version(self, machine_sets: Any, made: Json, patch: Json) -> None:
        assert version(machine_sets.merge("a", patch)) == version(made)
        assert machine_sets.get("a") == made

    def test_without_a_version_the_last_writer_wins(self, machine_sets: Any, made: Json) -> None:
        machine_sets.merge("a", {"spec": {"replicas": 3}})
        assert machine_sets.merge("a", {"spec": {"replicas": 4}})["spec"]["replicas"] == 4

    def test_generation_rises_with_the_spec_only(self, machine_sets: Any, made: Json) -> None:
        annotated = machine_sets.merge("a", {"metadata": {"annotations": {"k": "1"}, "labels": {"l": "2"}}})
        assert annotated["metadata"]["generation"] == 1
        assert machine_sets.status("a", {"status": {"replicas": 2}})["metadata"]["generation"] == 1
        assert machine_sets.merge("a", {"spec": {"replicas": 3}})["metadata"]["generation"] == 2

    def test_status_is_not_reached_through_the_object(self, machine_sets: Any, made: Json) -> None:
        machine_sets.status("a", {"status": {"replicas": 2}})
        new = machine_sets.merge("a", {"status": {"replicas": 9}, "spec": {"replicas": 3}})
        assert new["status"]["replicas"] == 2
        assert new["spec"]["replicas"] == 3

    def test_a_dry_run_answers_and_stores_nothing(self, machine_sets: Any, made: Json) -> None:
        assert machine_sets.merge("a", {"spec": {"replicas": 9}}, dry_run="All")["spec"]["replicas"] == 9
        assert machine_sets.get("a") == made


class TestStatus:
    def test_the_subresource_writes_status_and_nothing_else(self, machine_sets: Any, made: Json) -> None:
        patch = {"status": {"replicas": 1, "kept": 1}, "spec": {"replicas": 9}}
        new = machine_sets.status("a", {**patch, "metadata": {"annotations": {"k": "v"}}})
        assert new["status"] == {"replicas": 1, "kept": 1}
        assert new["spec"]["replicas"] == 2
        assert "annotations" not in new["metadata"]


class TestScale:
    def test_it_shows_wanted_and_present_replicas(self, machine_sets: Any, made: Json) -> None:
        machine_sets.status("a", {"status": {"replicas": 1, "labelSelector": "pool=main"}})
        scale = machine_sets.get_scale("a")
        assert (scale["apiVersion"], scale["kind"]) == ("autoscaling/v1", "Scale")
        assert scale["spec"] == {"replicas": 2}
        assert scale["status"] == {"replicas": 1, "selector": "pool=main"}
        assert version(scale) == version(machine_sets.get("a"))

    def test_a_write_without_a_version_always_lands(self, machine_sets: Any, made: Json) -> None:
        machine_sets.merge("a", {"metadata": {"annotations": {"k": "1"}}, "spec": {"replicas": 0}})
        assert machine_sets.scale("a", 3)["spec"]["replicas"] == 3
        new = machine_sets.get("a")
        assert new["spec"]["replicas"] == 3
        assert new["metadata"]["annotations"] == {"k": "1"}
        assert new["metadata"]["generation"] == 3

    def test_absent_replicas_are_an_error_to_read_and_can_be_written(self, kind_of: Any) -> None:
        deployments = kind_of("cluster.x-k8s.io", "v1beta1", "machinedeployments")
        deployments.create(machine_deployment())
        code, status = refused(lambda: deployments.get_scale("a"))
        assert code == 500
        assert 'the spec replicas field ".spec.replicas" does not exist' in status["message"]
        assert deployments.scale("a", 2)["spec"]["replicas"] == 2

    def test_a_kind_without_it_is_404(self, kind_of: Any) -> None:
        machines = kind_of("machine.openshift.io", "v1beta1", "machines")
        machines.create(
            {"apiVersion": "machine.openshift.io/v1beta1", "kind": "Machine", "metadata": {"name": "m"}, "spec": {}}
        )
        assert refused(lambda: machines.get_scale("m"))[0] == 404


def held(machine_sets: Any) -> None:
    """Delete the MachineSet `a`, which a finalizer holds."""
    body = machine_set("a")
    body["metadata"]["finalizers"] = ["example.com/hold"]
    machine_sets.create(body)
    machine_sets.delete("a")


class TestDelete:
    def test_an_object_without_finalizers_is_gone_at_once(self, machine_sets: Any, made: Json) -> None:
        answer = machine_sets.delete("a")
        assert (answer["kind"], answer["status"]) == ("Status", "Success")
        assert answer["details"]["uid"] == made["metadata"]["uid"]
        assert refused(lambda: machine_sets.get("a"))[0] == 404
        assert refused(lambda: machine_sets.delete("a"))[0] == 404

    def test_a_finalizer_holds_it_until_it_is_taken_off(self, machine_sets: Any) -> None:
        held(machine_sets)
        marked = machine_sets.get("a")
        assert marked["metadata"]["deletionTimestamp"].endswith("Z")
        assert marked["metadata"]["generation"] == 2
        machine_sets.delete("a")
        assert machine_sets.get("a") == marked
        assert machine_sets.merge("a", {"spec": {"replicas": 5}})["spec"]["replicas"] == 5
        machine_sets.merge("a", {"metadata": {"finalizers": []}})
        assert refused(lambda: machine_sets.get("a"))[0] == 404


class TestAccess:
    def test_a_wrong_token_is_401(self, connect: Any) -> None:
        code, status = refused(
            lambda: client.CustomObjectsApi(connect(token="wrong")).list_cluster_custom_object(*MACHINE_SETS)
        )
        assert (code, status["reason"], status["message"]) == (401, "Unauthorized", "Unauthorized")

    @pytest.mark.parametrize("prefix", ["", "Basic "])
    def test_a_token_that_is_not_sent_as_bearer_is_401(self, kube_api: Api, prefix: str) -> None:
        port = int(kube_api.url.rsplit(":", 1)[1])
        context = ssl.create_default_context(cadata=kube_api.ca_pem)
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
        connection.request("GET", "/api/v1/nodes", headers={"Authorization": prefix + kube_api.token("admin")})
        assert connection.getresponse().status == 401
        connection.close()

    def test_a_user_without_rights_is_403_with_the_missing_right(
        self, kind_of: Any, machine_sets: Any, made: Json
    ) -> None:
        user = kind_of(*MACHINE_SETS, user="nobody")
        where = f'the namespace "{machine_sets.namespace}"'
        resource = 'resource "machinesets" in API group "machine.openshift.io"'
        code, status = refused(lambda: user.custom.list_cluster_custom_object(*MACHINE_SETS))
        assert (code, status["reason"]) == (403, "Forbidden")
        assert status["message"] == f'{SETS} is forbidden: User "nobody" cannot list {resource} at the cluster scope'
        assert refused(lambda: user.merge("a", {}))[1]["message"] == (
            f'{SETS} "a" is forbidden: User "nobody" cannot patch {resource} in {where}'
        )
        assert 'resource "machinesets/scale"' in refused(lambda: user.scale("a", 1))[1]["message"]
        assert refused(lambda: kind_of("unknown.example", "v1", "things", user="nobody").list())[0] == 403

    def test_granted_verbs_are_allowed_and_the_others_are_not(self, kube_api: Api, kind_of: Any, made: Json) -> None:
        rule = Rule(verbs=("get", "list", "patch"), groups=("machine.openshift.io",), resources=("machinesets",))
        kube_api.grant("evenkeel", [rule])
        evenkeel = kind_of(*MACHINE_SETS, user="evenkeel")
        # the real server uses a new binding a moment later
        for _ in range(200):
            with contextlib.suppress(ApiException):
                evenkeel.list()
                break
        assert evenkeel.merge("a", {"spec": {"replicas": 3}})["spec"]["replicas"] == 3
        for call in (partial(evenkeel.scale, "a", 3), partial(evenkeel.delete, "a")):
            assert refused(call)[0] == 403
        assert refused(lambda: evenkeel.create(machine_set("b")))[0] == 403


class TestManagedFields:
    def test_each_field_has_its_last_writer_with_operation_version_and_time(self, kind_of: Any) -> None:
        kubectl, evenkeel = (kind_of(*MACHINE_SETS, manager=manager) for manager in ("kubectl", "evenkeel"))
        (entry,) = kubectl.create(machine_set("a"))["metadata"]["managedFields"]
        assert (entry["manager"], entry["operation"]) == ("kubectl", "Update")
        assert (entry["apiVersion"], entry["fieldsType"]) == ("machine.openshift.io/v1beta1", "FieldsV1")
        assert entry["time"].endswith("Z")
        replicas, maximum = ("f:spec", "f:replicas"), ("f:metadata", "f:annotations", "f:x/max")
        assert writers(evenkeel.merge("a", {"spec": {"replicas": 2}}), *replicas) == {"kubectl: Update"}, "unchanged"
        new = evenkeel.merge("a", {"metadata": {"annotations": {"x/max": "5", "k": "1"}}, "spec": {"replicas": 4}})
        assert writers(new, *replicas) == writers(new, *maximum) == {"evenkeel: Update"}
        assert writers(new, "f:metadata", "f:labels", "f:pool") == {"kubectl: Update"}
        taken = kubectl.merge("a", {"metadata": {"annotations": {"x/max": "9", "k": None}}})
        assert writers(taken, *maximum) == {"kubectl: Update"}
        assert writers(taken, *replicas) == {"evenkeel: Update"}
        assert writers(taken, "f:metadata", "f:annotations", "f:k") == set(), "removed"
        named = kubectl.merge("a", {"spec": {"replicas": 5}}, field_manager="argocd")
        assert writers(named, *replicas) == {"argocd: Update"}


class TestVersions:
    def test_one_object_is_read_and_written_through_both_served_versions(self, kind_of: Any) -> None:
        old = kind_of("cluster.x-k8s.io", "v1beta1", "machinedeployments")
        new = kind_of("cluster.x-k8s.io", "v1beta2", "machinedeployments")
        old.create(machine_deployment(replicas=1, template={"spec": {"failureDomain": "z"}}))
        seen = new.get("a")
        assert seen["apiVersion"] == "cluster.x-k8s.io/v1beta2"
        assert seen["spec"]["template"]["spec"]["failureDomain"] == "z"
        new.merge("a", {"spec": {"replicas": 3}})
        again = old.get("a")
        assert again["apiVersion"] == "cluster.x-k8s.io/v1beta1"
        assert again["spec"]["replicas"] == 3
        assert version(again) == version(new.get("a"))


class TestCore:
    def test_nodes_and_events_are_served(self, connect: Any, namespace: str) -> None:
        core = client.CoreV1Api(connect())
        core.create_node({"metadata": {"name": f"node-{namespace}", "labels": {"case": namespace}}})
        (node,) = core.list_node(label_selector=f"case={namespace}").items
        assert node.metadata.name == f"node-{namespace}"
        involved = {"kind": "Machine", "namespace": namespace, "name": "m"}
        body = {"reason": "FailedCreate", "type": "Warning", "message": "no room"}
        core.create_namespaced_event(namespace, {"metadata": {"name": "e"}, "involvedObject": involved, **body})
        (event,) = core.list_namespaced_event(namespace, field_selector="involvedObject.name=m").items
        assert (event.reason, event.message) == ("FailedCreate", "no room")

    def test_a_config_map_can_be_patched(self, connect: Any, namespace: str) -> None:
        core = client.CoreV1Api(connect())
        core.create_namespaced_config_map(namespace, {"metadata": {"name": "c"}, "data": {"a": "1"}})
        patched = core.patch_namespaced_config_map("c", namespace, {"data": {"b": "2"}})
        assert patched.data == {"a": "1", "b": "2"}
