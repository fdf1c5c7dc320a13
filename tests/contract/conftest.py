"""Every test here runs against the simulated API and against a real kube-apiserver."""

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from kubernetes import client
from kubernetes.config import new_client_from_config_dict

from sandbox.kube.api import KubernetesAPI
from sandbox.kube.real import RealKubernetesAPI, find_assets

Api = KubernetesAPI | RealKubernetesAPI

_names = itertools.count(1)


# without the binaries, one skipped test says how to get them, instead of each of these
_SERVERS = ["sandbox", *([pytest.param("real", marks=pytest.mark.real_api)] if find_assets() else [])]


@pytest.fixture(scope="session", params=_SERVERS)
def kube_api(request: pytest.FixtureRequest) -> Iterator[Api]:
    """Yield a running API server with all CRDs. User `evenkeel` has no rights until a test grants them."""
    if request.param == "sandbox":
        with KubernetesAPI(users={"evenkeel": [], "nobody": []}) as api:
            yield api
    else:
        with RealKubernetesAPI() as api:
            yield api


@pytest.fixture
def connect(kube_api: Api) -> Iterator[Callable[..., client.ApiClient]]:
    """Yield a function that makes a client of the real library for a user. `manager` becomes its User-Agent."""
    clients: list[client.ApiClient] = []

    def connected(user: str = "admin", *, manager: str = "test", token: str | None = None) -> client.ApiClient:
        kubeconfig = kube_api.kubeconfig(user)
        if token is not None:
            kubeconfig["users"][0]["user"]["token"] = token
        made = new_client_from_config_dict(kubeconfig)
        made.user_agent = f"{manager}/1.0"
        made.configuration.retries = False
        clients.append(made)
        return made

    yield connected
    for made in clients:
        made.close()


@pytest.fixture
def namespace(connect: Callable[..., client.ApiClient]) -> str:
    name = f"case-{next(_names)}"
    client.CoreV1Api(connect()).create_namespace({"metadata": {"name": name}})
    return name


class Kind:
    """CustomObjectsApi for one kind in one namespace."""

    def __init__(self, api: client.ApiClient, group: str, version: str, plural: str, namespace: str) -> None:
        self.custom = client.CustomObjectsApi(api)
        self.group, self.version, self.plural, self.namespace = group, version, plural, namespace
        self.where = (group, version, namespace, plural)

    def create(self, body: dict[str, Any], **more: Any) -> dict[str, Any]:
        return dict(self.custom.create_namespaced_custom_object(*self.where, body, **more))

    def get(self, name: str) -> dict[str, Any]:
        return dict(self.custom.get_namespaced_custom_object(*self.where, name))

    def list(self, **more: Any) -> dict[str, Any]:
        return dict(self.custom.list_namespaced_custom_object(*self.where, **more))

    def merge(self, name: str, patch: Any, **more: Any) -> dict[str, Any]:
        return dict(self.custom.patch_namespaced_custom_object(*self.where, name, patch, **more))

    def status(self, name: str, patch: Any) -> dict[str, Any]:
        return dict(self.custom.patch_namespaced_custom_object_status(*self.where, name, patch))

    def scale(self, name: str, replicas: Any, **metadata: str) -> dict[str, Any]:
        body = {"spec": {"replicas": replicas}} | ({"metadata": metadata} if metadata else {})
        return dict(self.custom.patch_namespaced_custom_object_scale(*self.where, name, body))

    def get_scale(self, name: str) -> dict[str, Any]:
        return dict(self.custom.get_namespaced_custom_object_scale(*self.where, name))

    def put(self, name: str, body: Any) -> dict[str, Any]:
        return dict(self.custom.replace_namespaced_custom_object(*self.where, name, body))

    def delete(self, name: str, **more: Any) -> dict[str, Any]:
        return dict(self.custom.delete_namespaced_custom_object(*self.where, name, **more))


@pytest.fixture
def machine_sets(connect: Callable[..., client.ApiClient], namespace: str) -> Kind:
    return Kind(connect(), "machine.openshift.io", "v1beta1", "machinesets", namespace)


@pytest.fixture
def kind_of(connect: Callable[..., client.ApiClient], namespace: str) -> Callable[..., Kind]:

    def made(group: str, version: str, plural: str, *, user: str = "admin", manager: str = "test") -> Kind:
        return Kind(connect(user, manager=manager), group, version, plural, namespace)

    return made
