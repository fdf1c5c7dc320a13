"""A real API server that trusts AWS's issuer by its OIDC flags, reached as the functions reach it."""

from __future__ import annotations

import base64
import threading
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from evenkeel.adapters.aws_session import AwsSession
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.application.errors import AccessError, ClusterUnavailableError, RejectedError
from evenkeel.bootstrap import SystemClock
from evenkeel.domain.model.servers import own_audience
from sandbox.identity import AwsIssuer
from sandbox.kube.real import RealKubernetesAPI, find_assets
from sandbox.template import ROOT
from tests import objects
from tests.fakes import plenty, record

pytestmark = [
    pytest.mark.real_api,
    pytest.mark.skipif(find_assets() is None, reason="no real Kubernetes API: see CONTRIBUTING.md"),
]
ACCOUNT = "arn:aws:iam::123456789012:role/evenkeel"
ROLES = {name: f"{ACCOUNT}-{name}" for name in ("RebalanceRole", "CheckRole", "OtherRole")}
RBAC = "/apis/rbac.authorization.k8s.io/v1"
PATH = "/apis/cluster.x-k8s.io/v1beta1/namespaces/default/machinedeployments"
GROUP = objects.cluster_api("a", 2)


@pytest.fixture(scope="module")
def issuer() -> Iterator[AwsIssuer]:
    with AwsIssuer(roles=ROLES) as made:
        yield made


def trusting(issuer: AwsIssuer, folder: Path) -> Callable[[str], list[str]]:
    (folder / "issuer.pem").write_text(issuer.ca_pem)
    return lambda url: [
        f"--oidc-issuer-url={issuer.url}",
        f"--oidc-client-id={own_audience(url)}",
        "--oidc-username-claim=sub",
        "--oidc-username-prefix=evenkeel:",
        "--oidc-signing-algs=ES384",
        f"--oidc-ca-file={folder / 'issuer.pem'}",
    ]


@pytest.fixture(scope="module")
def server(issuer: AwsIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealKubernetesAPI]:
    """Yield a server with the manifests bound to the roles' names. It accepts tokens for its own address."""
    with RealKubernetesAPI(flags=trusting(issuer, tmp_path_factory.mktemp("oidc"))) as api:
        for file, role in (("rbac.yaml", "RebalanceRole"), ("rbac-readers.yaml", "CheckRole")):
            documents = list(yaml.safe_load_all((ROOT / "deploy" / "kubernetes" / file).read_text()))
            cluster_role = next(one for one in documents if one["kind"] == "ClusterRole")
            api.call("POST", f"{RBAC}/clusterroles", cluster_role)
            name = cluster_role["metadata"]["name"]
            reference = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name}
            user = {"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": f"evenkeel:{ROLES[role]}"}
            binding = {"metadata": {"name": f"{name}-aws"}, "roleRef": reference, "subjects": [user]}
            api.call("POST", f"{RBAC}/clusterrolebindings", binding)
        api.call("POST", PATH, {**GROUP, "metadata": {**GROUP["metadata"], "namespace": "default"}})
        yield api


@pytest.fixture
def opened(issuer: AwsIssuer, server: RealKubernetesAPI, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Any]:
    """Return a function that opens the server as a role, for checks or for writes."""
    variables = {"ENDPOINT_URL_STS": issuer.sts_url, "DEFAULT_REGION": "eu-central-1", "SECRET_ACCESS_KEY": "x"}
    for name, value in variables.items():
        monkeypatch.setenv(f"AWS_{name}", value)
    monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)

    def made(role: str, *, writes: bool = False, audience: str | None = None) -> Any:
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", role)
        clusters = RecordedClusters(
            session=AwsSession(), secret=lambda *_: "", clock=SystemClock(), writes=writes, allow_loopback=True
        )
        access = {
            "kind": "aws-oidc",
            "endpoint": server.url,
            "ca_data": base64.b64encode(server.ca_pem.encode()).decode(),
            **({"audience": audience} if audience else {}),
        }
        return clusters.open(record(access=access, namespaces=["default"]), plenty)

    # The server asks for the issuer's document ten seconds after it has started (oidc.go: newAsyncIDTokenVerifier).
    deadline = time.monotonic() + 60
    while True:
        try:
            made("CheckRole").observe()
            return made
        except ClusterUnavailableError as error:
            if time.monotonic() > deadline or "401" not in str(error):
                raise
        threading.Event().wait(0.2)


def first(cluster: Any) -> Any:
    return cluster.observe().groups[0]


def test_a_check_may_list_and_is_refused_a_patch(opened: Callable[..., Any]) -> None:
    cluster = opened("CheckRole")
    name = first(cluster).key.name
    with pytest.raises(RejectedError, match=r"403 .*evenkeel:arn:aws:iam::123456789012:role/evenkeel-CheckRole.*patch"):
        cluster._api.patch(f"{PATH}/{name}", {"spec": {"replicas": 7}}, plenty)


def test_a_run_may_patch(opened: Callable[..., Any]) -> None:
    cluster = opened("RebalanceRole", writes=True)
    name = first(cluster).key.name
    assert cluster._api.patch(f"{PATH}/{name}", {"spec": {"replicas": 7}}, plenty)["spec"]["replicas"] == 7


@pytest.mark.parametrize("audience", ["evenkeel:prod", "evenkeel:https://api.attacker.example"])
@pytest.mark.parametrize("role", ["CheckRole", "RebalanceRole"])
def test_a_token_for_another_audience_is_not_accepted(opened: Callable[..., Any], role: str, audience: str) -> None:
    cluster = opened(role)
    cluster._api._credential._audience = audience
    with pytest.raises(
        ClusterUnavailableError, match=r": 401 .*the credential is not accepted, also after a fresh one"
    ):
        cluster.observe()


def test_another_role_of_the_account_has_no_rights(opened: Callable[..., Any]) -> None:
    with pytest.raises(ClusterUnavailableError, match=r"403 .*role/evenkeel-OtherRole"):
        opened("OtherRole").observe()


def test_an_expired_token_is_not_accepted(
    issuer: AwsIssuer, opened: Callable[..., Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(issuer, "now", lambda: datetime.now(UTC) - timedelta(hours=1))
    with pytest.raises(ClusterUnavailableError, match=": 401 "):
        opened("CheckRole").observe()


def test_a_token_that_expires_within_a_check_is_renewed_in_it(opened: Callable[..., Any], issuer: AwsIssuer) -> None:
    cluster = opened("CheckRole")
    name = first(cluster).key.name
    credential = cluster._api._credential
    credential._last = None
    good = credential._identity.token
    given: list[str] = []

    def token(audience: str, seconds: int, refused: str | None = None) -> str:
        over = issuer.token(ROLES["CheckRole"], [audience], -60)
        given.append("over" if refused is None else "fresh")
        return over if refused is None else good(audience, seconds, refused)

    credential._identity.token = token
    assert name in {group.key.name for group in cluster.observe().groups}
    assert given[:2] == ["over", "fresh"]


def test_keys_that_the_issuer_has_replaced_are_fetched_by_the_server(
    issuer: AwsIssuer, opened: Callable[..., Any]
) -> None:
    issuer.rotate()
    assert first(opened("CheckRole"))


def test_without_the_issuer_nothing_is_sent(issuer: AwsIssuer, opened: Callable[..., Any]) -> None:
    issuer.enabled = False
    try:
        with pytest.raises(AccessError, match="this account issues no tokens"):
            opened("CheckRole").observe()
    finally:
        issuer.enabled = True
