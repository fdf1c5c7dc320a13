"""A real API server gives a ServiceAccount tokens for itself, by the right that the shipped manifest grants."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import yaml

from evenkeel.adapters.aws.token_store import SealedTokens
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.application.errors import ClusterUnavailableError, RejectedError
from sandbox.aws import AwsEndpoints
from sandbox.kube.real import RealKubernetesAPI, find_assets
from sandbox.template import ROOT
from tests import objects
from tests.fakes import FakeClock, plenty, record

pytestmark = [
    pytest.mark.real_api,
    pytest.mark.skipif(find_assets() is None, reason="no real Kubernetes API: see CONTRIBUTING.md"),
]
PATH = "/apis/cluster.x-k8s.io/v1beta1/namespaces/default/machinedeployments"
PLURALS = {
    "Namespace": "/api/v1/namespaces",
    "ServiceAccount": "/api/v1/namespaces/evenkeel/serviceaccounts",
    "Role": "/apis/rbac.authorization.k8s.io/v1/namespaces/evenkeel/roles",
    "RoleBinding": "/apis/rbac.authorization.k8s.io/v1/namespaces/evenkeel/rolebindings",
    "ClusterRole": "/apis/rbac.authorization.k8s.io/v1/clusterroles",
    "ClusterRoleBinding": "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings",
}


@pytest.fixture(scope="module")
def server() -> Iterator[RealKubernetesAPI]:
    """Yield a server with the unchanged shipped manifests, and one node group."""
    with RealKubernetesAPI() as api:
        for file in ("rbac-service-account.yaml", "rbac.yaml", "rbac-readers.yaml"):
            for document in yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / file).read_text()):
                api.call("POST", PLURALS[document["kind"]], document)
        group = objects.cluster_api("a", 2)
        api.call("POST", PATH, {**group, "metadata": {**group["metadata"], "namespace": "default"}})
        yield api


@pytest.fixture(scope="module")
def vault() -> Iterator[SealedTokens]:
    with AwsEndpoints() as aws, aws.deploy(parameters={"WithTokenKey": "true"}) as made:
        yield SealedTokens(aws.client("dynamodb"), aws.client("kms"), made.table, made.physical("TokenKey", "Arn"))


class Opened:
    """The server as runs and checks open it, each in a separate function instance."""

    def __init__(self, server: RealKubernetesAPI, vault: SealedTokens, cluster: str) -> None:
        self.clock = FakeClock(at=datetime.now(UTC))
        self.server, self.vault = server, vault
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
        path = f"{PLURALS['ServiceAccount']}/evenkeel/token"
        first = server.call("POST", path, body)["status"]["token"]
        access = {
            "kind": "service-account",
            "endpoint": server.url,
            "ca_data": base64.b64encode(server.ca_pem.encode()).decode(),
            "token": vault.seal(first, server.url, writes=True),
        }
        self.record = record(cluster, access=access, namespaces=["default"])

    def __call__(self, *, writes: bool) -> Any:
        clusters = RecordedClusters(
            session=None, secret=lambda *_: "", clock=self.clock, writes=writes, allow_loopback=True, vault=self.vault
        )
        return clusters.open(self.record, plenty)

    def kept(self, *, writes: bool) -> Any:
        return self.vault.load(self.record.id, writes=writes)


@pytest.fixture
def opened(server: RealKubernetesAPI, vault: SealedTokens, request: pytest.FixtureRequest) -> Opened:
    return Opened(server, vault, f"c{abs(hash(request.node.name))}")


def test_a_run_renews_both_tokens_for_a_day_and_goes_on_with_the_new_one(opened: Opened) -> None:
    cluster = opened(writes=True)
    (group,) = cluster.observe().groups
    assert cluster._api.patch(f"{PATH}/{group.key.name}", {"spec": {"replicas": 3}}, plenty)["spec"]["replicas"] == 3
    for writes in (True, False):
        kept = opened.kept(writes=writes)
        assert timedelta(hours=23) < kept.expires - kept.issued <= timedelta(hours=25)
    first = opened.kept(writes=True)
    opened.clock.at += timedelta(hours=13)
    opened(writes=True).observe()
    assert opened.kept(writes=True).version == first.version + 1


def test_a_check_lists_with_its_own_token_and_is_refused_a_patch_and_a_token(opened: Opened) -> None:
    opened(writes=True)
    cluster = opened(writes=False)
    (group,) = cluster.observe().groups
    with pytest.raises(RejectedError, match=r"403 .*system:serviceaccount:evenkeel:evenkeel-readers.*patch"):
        cluster._api.patch(f"{PATH}/{group.key.name}", {"spec": {"replicas": 9}}, plenty)
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    for name in ("evenkeel", "evenkeel-readers"):
        with pytest.raises(RejectedError, match="403 "):
            cluster._api.create(f"{PLURALS['ServiceAccount']}/{name}/token", body, plenty)


def test_the_writer_may_request_tokens_of_these_two_accounts_alone(opened: Opened, server: RealKubernetesAPI) -> None:
    server.call("POST", PLURALS["ServiceAccount"], {"metadata": {"name": "another"}})
    body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {"expirationSeconds": 3600}}
    with pytest.raises(RejectedError, match="403 "):
        opened(writes=True)._api.create(f"{PLURALS['ServiceAccount']}/another/token", body, plenty)
    path, short = f"{PLURALS['ServiceAccount']}/evenkeel/token", {**body, "spec": {"expirationSeconds": 599}}
    with pytest.raises(RejectedError, match=r"422 .*less than 10 minutes"):
        opened(writes=True)._api.create(path, short, plenty)


def test_a_recreated_account_takes_no_earlier_token(
    opened: Opened, server: RealKubernetesAPI, vault: SealedTokens
) -> None:
    # The first token was not used before: the server caches a verification for ten seconds.
    server.call("DELETE", f"{PLURALS['ServiceAccount']}/evenkeel")
    server.call("POST", PLURALS["ServiceAccount"], {"metadata": {"name": "evenkeel"}})
    # Its own cache of accounts is a moment late: once it accepts a token of the new one, the old one is gone.
    newer = Opened(server, vault, "newer")
    deadline = time.monotonic() + 30
    while True:
        try:
            newer(writes=True).observe()
            break
        except ClusterUnavailableError:
            if time.monotonic() > deadline:
                raise
        threading.Event().wait(0.1)
    with pytest.raises(ClusterUnavailableError, match=r": 401 .*the credential is not accepted, also after a"):
        opened(writes=True).observe()
