"""What the simulated API offers beyond a real one: faults, a request log, and the same rules in process."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client
from kubernetes.client.exceptions import ApiException
from kubernetes.config import new_client_from_config_dict
from urllib3.exceptions import HTTPError

from sandbox.kube.api import KubernetesAPI

SETS = "machinesets.machine.openshift.io"
WHERE = ("machine.openshift.io", "v1beta1", "default", "machinesets")


@pytest.fixture
def api() -> Iterator[KubernetesAPI]:
    with KubernetesAPI() as server:
        for index in range(5):
            server.store.create(SETS, {"metadata": {"name": f"ms-{index}"}, "spec": {"replicas": 2}})
        yield server


@pytest.fixture
def custom(api: KubernetesAPI) -> client.CustomObjectsApi:
    made = new_client_from_config_dict(api.kubeconfig("evenkeel"))
    made.configuration.retries = False
    made.rest_client.pool_manager.connection_pool_kw["retries"] = False
    made.user_agent = "evenkeel/1.0"
    return client.CustomObjectsApi(made)


def replicas(api: KubernetesAPI, name: str = "ms-0") -> int:
    return int(api.store.get(SETS, "default", name)["spec"]["replicas"])


def patch(custom: client.CustomObjectsApi, count: int) -> Any:
    return custom.patch_namespaced_custom_object(*WHERE, "ms-0", {"spec": {"replicas": count}})


class TestFaults:
    @pytest.mark.parametrize(("stage", "left"), [("before", 2), ("after", 7)])
    def test_a_write_is_done_before_its_answer_is_lost_and_not_where_the_connection_drops(
        self, api: KubernetesAPI, custom: Any, stage: str, left: int
    ) -> None:
        api.faults.add(method="PATCH", stage=stage)
        with pytest.raises((HTTPError, ConnectionError)):
            patch(custom, 7)
        assert replicas(api) == left

    def test_a_delay_outlasts_a_short_timeout(self, api: KubernetesAPI, custom: Any) -> None:
        api.faults.add(method="GET", delay=0.3)
        with pytest.raises(HTTPError):
            custom.list_namespaced_custom_object(*WHERE, _request_timeout=0.05)


class TestRequests:
    def test_every_request_is_kept_with_user_body_and_status(self, api: KubernetesAPI, custom: Any) -> None:
        patch(custom, 7)
        custom.list_namespaced_custom_object(*WHERE, limit=2)
        with pytest.raises(ApiException):
            custom.get_namespaced_custom_object(*WHERE, "absent")
        first, second, third = api.requests
        assert (first.method, first.status, first.user, first.manager) == ("PATCH", 200, "evenkeel", "evenkeel")
        assert first.body == {"spec": {"replicas": 7}}
        assert (second.path.rsplit("/", 1)[1], second.query) == ("machinesets", {"limit": "2"})
        assert third.status == 404
        assert api.requests.count(method="GET") == 2
        assert api.requests.count(method="PATCH", path_contains="ms-0", status=200) == 1
        api.requests.clear()
        assert len(api.requests) == 0
