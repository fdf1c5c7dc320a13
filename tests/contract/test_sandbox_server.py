"""What the simulated API offers beyond a real one: faults, hooks, a request log, and the same rules in process."""

from __future__ import annotations

import http.client
import json
import ssl
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config_dict
from urllib3.exceptions import HTTPError

from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI
from sandbox.kube.errors import ApiError
from sandbox.kube.schema import load_crds
from sandbox.kube.world import World

SETS = "machinesets.machine.openshift.io"
WHERE = ("machine.openshift.io", "v1beta1", "default", "machinesets")


@pytest.fixture
def api() -> Iterator[KubernetesAPI]:
    with KubernetesAPI() as server:
        for index in range(5):
            server.store.create(SETS, {"metadata": {"name": f"ms-{index}"}, "spec": {"replicas": 2}})
        yield server


def custom_objects(api: KubernetesAPI, user: str = "evenkeel") -> client.CustomObjectsApi:
    made = new_client_from_config_dict(api.kubeconfig(user))
    made.configuration.retries = False
    made.rest_client.pool_manager.connection_pool_kw["retries"] = False
    made.user_agent = "evenkeel/1.0"
    return client.CustomObjectsApi(made)


@pytest.fixture
def custom(api: KubernetesAPI) -> client.CustomObjectsApi:
    return custom_objects(api)


def replicas(api: KubernetesAPI, name: str = "ms-0") -> int:
    return int(api.store.get(SETS, "default", name)["spec"]["replicas"])


def patch(custom: client.CustomObjectsApi, count: int, **metadata: Any) -> Callable[[], Any]:
    body = {"metadata": metadata, "spec": {"replicas": count}}
    return lambda: custom.patch_namespaced_custom_object(*WHERE, "ms-0", body)


class TestFaults:
    @pytest.mark.parametrize(
        ("status", "reason"), [(429, "TooManyRequests"), (503, "ServiceUnavailable"), (500, "InternalError")]
    )
    def test_an_error_comes_as_often_as_asked_and_nothing_is_written(
        self, api: KubernetesAPI, custom: Any, status: int, reason: str
    ) -> None:
        api.faults.add(method="PATCH", path_contains="machinesets/ms-0", status=status, retry_after=2, times=2)
        for _ in range(2):
            with pytest.raises(ApiException) as caught:
                patch(custom, 7)()
            assert caught.value.status == status
            assert json.loads(caught.value.body)["reason"] == reason
            assert caught.value.headers["Retry-After"] == "2"
        assert replicas(api) == 2
        assert patch(custom, 7)()["spec"]["replicas"] == 7

    def test_a_lost_answer_leaves_the_write_done(self, api: KubernetesAPI, custom: Any) -> None:
        api.faults.add(method="PATCH", stage="after")
        with pytest.raises((HTTPError, ConnectionError)):
            patch(custom, 7)()
        assert replicas(api) == 7
        assert api.requests.matching(method="PATCH")[0].status == 0

    def test_a_dropped_connection_leaves_the_write_undone(self, api: KubernetesAPI, custom: Any) -> None:
        api.faults.add(method="PATCH")
        with pytest.raises((HTTPError, ConnectionError)):
            patch(custom, 7)()
        assert replicas(api) == 2

    @pytest.mark.parametrize("status", [410, 500])
    def test_a_list_can_break_off_at_a_later_page(self, api: KubernetesAPI, custom: Any, status: int) -> None:
        api.faults.add(path_contains="machinesets", query_contains="continue=", status=status)
        first = custom.list_namespaced_custom_object(*WHERE, limit=3)
        with pytest.raises(ApiException) as caught:
            custom.list_namespaced_custom_object(*WHERE, limit=3, _continue=first["metadata"]["continue"])
        assert caught.value.status == status

    def test_a_body_can_break_off_in_the_middle(self, api: KubernetesAPI, custom: Any) -> None:
        api.faults.add(method="GET", cut_body=True)
        with pytest.raises((HTTPError, ConnectionError, ValueError)):
            custom.list_namespaced_custom_object(*WHERE)
        assert len(custom.list_namespaced_custom_object(*WHERE)["items"]) == 5

    def test_a_delay_outlasts_a_short_timeout(self, api: KubernetesAPI, custom: Any) -> None:
        api.faults.add(method="GET", delay=0.3)
        with pytest.raises(HTTPError):
            custom.list_namespaced_custom_object(*WHERE, _request_timeout=0.05)


class TestHooks:
    def test_an_autoscalers_write_slips_in_between_our_read_and_our_patch(
        self, api: KubernetesAPI, custom: Any
    ) -> None:
        seen = custom.get_namespaced_custom_object(*WHERE, "ms-0")
        api.before_next(
            lambda: api.store.scale(SETS, "default", "ms-0", 5, manager="cluster-autoscaler"), method="PATCH"
        )
        with pytest.raises(ApiException) as caught:
            patch(custom, 0, resourceVersion=seen["metadata"]["resourceVersion"])()
        assert caught.value.status == 409
        assert replicas(api) == 5

    def test_an_autoscalers_write_in_flight_lands_after_ours(self, api: KubernetesAPI, custom: Any) -> None:
        seen = custom.get_namespaced_custom_object(*WHERE, "ms-0")
        api.after_next(lambda: api.store.scale(SETS, "default", "ms-0", 5), method="PATCH")
        answer = patch(custom, 0, resourceVersion=seen["metadata"]["resourceVersion"])()
        assert answer["spec"]["replicas"] == 0
        assert replicas(api) == 5

    def test_a_hook_may_use_the_api_itself(self, api: KubernetesAPI, custom: Any) -> None:
        other = custom_objects(api)
        api.before_next(
            lambda: other.patch_namespaced_custom_object_scale(*WHERE, "ms-0", {"spec": {"replicas": 4}}),
            path_contains="machinesets",
            method="GET",
        )
        assert custom.get_namespaced_custom_object(*WHERE, "ms-0")["spec"]["replicas"] == 4


class TestRequestLog:
    def test_every_request_is_kept_with_who_what_and_how_it_ended(self, api: KubernetesAPI, custom: Any) -> None:
        patch(custom, 7)()
        custom.list_namespaced_custom_object(*WHERE, limit=2)
        with pytest.raises(ApiException):
            custom.get_namespaced_custom_object(*WHERE, "absent")
        first, second, third = api.requests
        assert (first.method, first.status, first.user, first.manager) == ("PATCH", 200, "evenkeel", "evenkeel")
        assert first.body == {"metadata": {}, "spec": {"replicas": 7}}
        assert (second.path.rsplit("/", 1)[1], second.query) == ("machinesets", {"limit": "2"})
        assert third.status == 404
        assert api.requests.count(method="GET") == 2
        assert api.requests.count(method="PATCH", path_contains="ms-0", status=200) == 1
        api.requests.clear()
        assert len(api.requests) == 0


class TestAccess:
    def test_a_renewed_token_makes_the_old_one_401(self, api: KubernetesAPI, custom: Any) -> None:
        api.renew_token("evenkeel")
        with pytest.raises(ApiException) as caught:
            custom.list_namespaced_custom_object(*WHERE)
        assert caught.value.status == 401
        assert len(custom_objects(api).list_namespaced_custom_object(*WHERE)["items"]) == 5

    def test_a_roles_manifest_is_obeyed(self) -> None:
        role = {
            "metadata": {"name": "r"},
            "rules": [
                {"apiGroups": ["machine.openshift.io"], "resources": ["machinesets"], "verbs": ["get", "list"]},
                {"nonResourceURLs": ["/version"], "verbs": ["get"]},
            ],
        }
        with KubernetesAPI(users={"evenkeel": Rule.of_role(role)}) as api:
            api.store.create(SETS, {"metadata": {"name": "ms-0"}})
            custom = custom_objects(api)
            assert custom.get_namespaced_custom_object(*WHERE, "ms-0")
            with pytest.raises(ApiException) as caught:
                patch(custom, 1)()
            assert caught.value.status == 403

    def test_a_stranger_to_the_certificate_authority_is_refused_by_the_client(self, api: KubernetesAPI) -> None:
        port = int(api.url.rsplit(":", 1)[1])
        with pytest.raises(ssl.SSLCertVerificationError):
            http.client.HTTPSConnection("127.0.0.1", port, context=ssl.create_default_context()).request(
                "GET", "/version"
            )

    def test_a_body_of_four_megabytes_is_413(self, api: KubernetesAPI) -> None:
        port = int(api.url.rsplit(":", 1)[1])
        context = ssl.create_default_context(cadata=api.ca_pem)
        connection = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=10)
        connection.putrequest("POST", "/apis/machine.openshift.io/v1beta1/namespaces/default/machinesets")
        connection.putheader("Content-Length", str(4 * 1024 * 1024))
        connection.endheaders()
        assert connection.getresponse().status == 413
        connection.close()


class TestStore:
    def test_in_process_writes_obey_the_same_rules(self, api: KubernetesAPI) -> None:
        stale = api.store.get(SETS, "default", "ms-0")
        api.store.patch(SETS, "default", "ms-0", {"spec": {"replicas": 3}}, manager="someone")
        with pytest.raises(ApiError) as conflict:
            api.store.put(SETS, stale)
        assert conflict.value.code == 409
        with pytest.raises(ApiError) as invalid:
            api.store.patch(SETS, "default", "ms-0", {"spec": {"replicas": "x"}})
        assert invalid.value.code == 422

    def test_what_is_read_can_be_changed_without_changing_the_store(self, api: KubernetesAPI) -> None:
        read = api.store.get(SETS, "default", "ms-0")
        read["spec"]["replicas"] = 99
        api.store.list(SETS)[0]["metadata"].clear()
        assert replicas(api) == 2

    def test_the_clock_dates_the_objects(self) -> None:
        moment = datetime(2026, 5, 4, 3, 2, 1, tzinfo=UTC)
        api = KubernetesAPI(clock=lambda: moment)
        made = api.store.create(SETS, {"metadata": {"name": "a"}})
        assert made["metadata"]["creationTimestamp"] == "2026-05-04T03:02:01Z"

    def test_an_older_cluster_api_serves_v1beta1_alone(self) -> None:
        with KubernetesAPI(crds=load_crds(cluster_api_versions=("v1beta1",))) as api:
            made = new_client_from_config_dict(api.kubeconfig())
            groups = client.ApisApi(made).get_api_versions().groups
            group = next(item for item in groups if item.name == "cluster.x-k8s.io")
            assert [version.version for version in group.versions] == ["v1beta1"]
            custom = client.CustomObjectsApi(made)
            assert custom.list_cluster_custom_object("cluster.x-k8s.io", "v1beta1", "machinedeployments")["items"] == []
            with pytest.raises(ApiException):
                custom.list_cluster_custom_object("cluster.x-k8s.io", "v1beta2", "machinedeployments")

    def test_a_version_that_does_not_exist_is_refused(self) -> None:
        with pytest.raises(ValueError, match="v9"):
            load_crds(cluster_api_versions=("v9",))


class TestWorld:
    def test_each_cluster_answers_on_a_port_of_its_own_with_its_own_objects(self) -> None:
        with World() as world:
            urls = {cluster.api.url for cluster in world.clusters.values()}
            assert len(urls) == 3
            for flavour, group, api_version, plural in (
                ("gardener", "machine.sapcloud.io", "v1alpha1", "machinedeployments"),
                ("cluster-api", "cluster.x-k8s.io", "v1beta2", "machinedeployments"),
                ("openshift", "machine.openshift.io", "v1beta1", "machinesets"),
            ):
                items = custom_objects(world.clusters[flavour].api).list_cluster_custom_object(
                    group, api_version, plural
                )["items"]
                assert {item["metadata"]["annotations"]["evenkeel.dev/pool-max"] for item in items} == {"12"}
                assert sum(item["status"]["readyReplicas"] for item in items) == 3

    def test_what_a_client_writes_is_what_controllers_and_table_see(self) -> None:
        with World(clusters=["openshift"]) as world:
            (first, *_) = world.groups()
            custom = custom_objects(world.clusters["openshift"].api)
            custom.patch_namespaced_custom_object(
                "machine.openshift.io", "v1beta1", first.namespace, "machinesets", first.name, {"spec": {"replicas": 2}}
            )
            world.set_demand("openshift", "worker", 4)
            world.run(timedelta(minutes=3))
            view = world.groups()[0]
            assert (view.requested, view.running) == (2, 2)
