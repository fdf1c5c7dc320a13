"""Features of the simulated API that a real one lacks: faults, a request log, and the same rules in process."""

from collections.abc import Iterator
from typing import Any

import pytest
from kubernetes import client
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
