"""Tokens of AWS's issuer and roles of other accounts, requested over HTTP as the functions do."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any, ClassVar
from urllib.parse import parse_qs, urlsplit

import boto3
import pytest

from evenkeel.adapters.aws_identity import AwsIdentity
from evenkeel.adapters.aws_session import AwsSession
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.application.errors import AccessError
from sandbox.identity import AwsIssuer, RefusedError
from tests.fakes import FakeClock, plenty, record
from tests.tls_server import CA_PEM

ACCOUNT = "123456789012"
WRITER, LOOKER = (f"arn:aws:iam::{ACCOUNT}:role/evenkeel-{name}" for name in ("RebalanceRole-1", "CheckRole-1"))
FOREIGN = "arn:aws:iam::210987654321:role/evenkeel-write"
FOREIGN_CHECK = "arn:aws:iam::210987654321:role/evenkeel-check"
SERVER = "https://api.blue.example:6443"
OIDC = {"kind": "aws-oidc", "endpoint": SERVER, "ca_data": base64.b64encode(CA_PEM.encode()).decode()}
SECRET = "s3cr3t-k3y"


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def sts(clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Iterator[AwsIssuer]:
    with AwsIssuer(roles={"AKIDWRITE": WRITER, "AKIDLOOK": LOOKER}, now=clock.now) as issuer:
        variables = {"ENDPOINT_URL_STS": issuer.sts_url, "REGION": "eu-central-1", "DEFAULT_REGION": "eu-central-1"}
        for name, value in {**variables, "ACCESS_KEY_ID": "AKIDWRITE", "SECRET_ACCESS_KEY": SECRET}.items():
            monkeypatch.setenv(f"AWS_{name}", value)
        monkeypatch.delenv("AWS_SESSION_TOKEN", raising=False)
        yield issuer


def clusters(clock: FakeClock, *, writes: bool = True) -> RecordedClusters:
    return RecordedClusters(session=AwsSession(), secret=lambda *_: "", clock=clock, writes=writes)


def token_for(opened: RecordedClusters, cluster: str = "demo", *, fresh: bool = False, **access: Any) -> str:
    given = access if "kind" in access else {**OIDC, **access}
    api: Any = opened.open(record(cluster, access=given), plenty)
    return str(api._api._credential.token(fresh=fresh))


def claims(token: str) -> dict[str, Any]:
    part = token.split(".")[1]
    return dict(json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4))))


def refusal(clock: FakeClock, **access: Any) -> str:
    with pytest.raises(AccessError) as caught:
        token_for(clusters(clock), **access)
    said = str(caught.value)
    assert "\n" not in said
    assert SECRET not in said
    return said


class TestTokens:
    @pytest.mark.parametrize(
        ("writes", "domain", "audience", "seconds"),
        [
            pytest.param(True, "evenkeel:prod", f"evenkeel:{SERVER}", 300, id="a write has its server alone"),
            pytest.param(False, "evenkeel:prod", "evenkeel:prod", 900, id="a check has its trust domain"),
            pytest.param(False, None, f"evenkeel:{SERVER}", 300, id="a check without a trust domain"),
        ],
    )
    def test_a_token_has_the_audience_of_its_purpose(
        self, sts: AwsIssuer, clock: FakeClock, writes: bool, domain: str | None, audience: str, seconds: int
    ) -> None:
        token = claims(token_for(clusters(clock, writes=writes), **({"audience": domain} if domain else {})))
        assert (token["aud"], token["sub"], token["exp"] - token["iat"]) == (audience, WRITER, seconds)
        assert sts.asked[-1]["SigningAlgorithm"] == "ES384"

    @pytest.mark.parametrize("writes", [True, False])
    def test_a_record_with_an_endpoint_of_its_own_gets_no_token_that_another_server_takes_a_write_by(
        self, sts: AwsIssuer, clock: FakeClock, writes: bool
    ) -> None:
        opened = clusters(clock, writes=writes)
        victim = token_for(opened, "blue", audience="evenkeel:prod")
        for place in ("https://attacker.example", "https://api.blue.example.attacker.example:6443", f"{SERVER}/x"):
            stolen = token_for(opened, "evil", endpoint=place, audience="evenkeel:prod")
            assert claims(stolen)["aud"] != f"evenkeel:{SERVER}"
            assert (stolen == victim) is not writes, "checks of a trust domain share theirs"

    @pytest.mark.parametrize("skew", [timedelta(0), timedelta(hours=-3), timedelta(hours=3)])
    def test_it_is_used_for_four_fifths_of_its_time_whatever_the_clock(
        self, sts: AwsIssuer, clock: FakeClock, skew: timedelta
    ) -> None:
        sts.now = lambda: clock.at + skew
        opened = clusters(clock)
        first = token_for(opened)
        clock.at += timedelta(seconds=239)
        assert token_for(opened) == first
        clock.at += timedelta(seconds=1)
        assert token_for(opened) != first
        assert len(sts.asked) == 2

    def test_one_that_was_refused_is_replaced(self, sts: AwsIssuer, clock: FakeClock) -> None:
        opened = clusters(clock)
        first = token_for(opened)
        assert token_for(opened, fresh=True) != first

    def test_a_role_whose_session_ends_soon_gets_a_shorter_one(self, sts: AwsIssuer, clock: FakeClock) -> None:
        sts.session_left = timedelta(minutes=2)
        found = claims(token_for(clusters(clock)))
        assert found["exp"] - found["iat"] == 60

    @pytest.mark.parametrize(
        ("code", "says"),
        [
            ("AccessDenied", "missing permission sts:GetWebIdentityToken for this audience"),
            ("JWTPayloadSizeExceededException", "the token would be too large: the function's role carries too many"),
            ("ExpiredToken", "it was refused: ExpiredToken"),
        ],
    )
    def test_a_refusal_of_sts_is_one_line(
        self, sts: AwsIssuer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, code: str, says: str
    ) -> None:
        def refuse() -> None:
            raise RefusedError(code)

        monkeypatch.setattr(sts, "before", refuse)
        assert says in refusal(clock)

    @pytest.mark.parametrize(
        ("cause", "says"),
        [
            (
                "session",
                f"audience evenkeel:{SERVER}: the role's own session ends sooner than any token would: try again",
            ),
            ("account", "account issues no tokens: run aws iam enable-outbound-web-identity-federation once"),
            ("away", "was not answered: EndpointConnectionError"),
            ("library", "botocore 1.41.0 or newer is needed"),
        ],
    )
    def test_without_a_token_one_line_says_what_to_do(
        self, sts: AwsIssuer, clock: FakeClock, monkeypatch: pytest.MonkeyPatch, cause: str, says: str
    ) -> None:
        if cause == "session":
            sts.session_left = timedelta(seconds=30)
        elif cause == "account":
            sts.enabled = False
        elif cause == "away":
            monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:1")
        else:
            monkeypatch.setattr(AwsIdentity, "client", lambda *_: object())
        assert says in refusal(clock)

    def test_loopback_is_refused_before_anything_is_sent(self, sts: AwsIssuer, clock: FakeClock) -> None:
        opened = clusters(clock).open(record(access={**OIDC, "endpoint": "https://127.0.0.1:6443"}), plenty)
        with pytest.raises(AccessError, match="loopback"):
            opened.observe()


class TestRoles:
    """A role of another account is assumed once for all of its clusters."""

    ACCESS: ClassVar = {
        **{"kind": "eks", "name": "blue", "region": "eu-central-1"},
        **{"role_arn": FOREIGN, "check_role_arn": FOREIGN_CHECK, "external_id": "x1"},
    }

    @pytest.fixture(autouse=True)
    def eks(self, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
        """Fake DescribeCluster, and return its calls with their credentials."""
        made: list[dict[str, Any]] = []
        create = boto3.Session.client

        class Eks:
            def describe_cluster(self, name: str) -> dict[str, Any]:
                return {"cluster": {"endpoint": SERVER, "certificateAuthority": {"data": OIDC["ca_data"]}}}

        def client(session: Any, service: str, **more: Any) -> Any:
            if service != "eks":
                return create(session, service, **more)
            made.append(more)
            return Eks()

        monkeypatch.setattr(boto3.Session, "client", client)
        return made

    @staticmethod
    def signer(token: str) -> str:
        encoded = token.partition(".")[2]
        url = base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()
        return parse_qs(urlsplit(url).query)["X-Amz-Credential"][0].partition("/")[0]

    @pytest.mark.parametrize(("writes", "arn"), [(True, FOREIGN), (False, FOREIGN_CHECK)])
    def test_the_cluster_is_described_and_its_token_signed_as_the_role_of_that_purpose(
        self, sts: AwsIssuer, clock: FakeClock, eks: list[dict[str, Any]], writes: bool, arn: str
    ) -> None:
        sts.trusts[arn, "x1"] = WRITER
        token = token_for(clusters(clock, writes=writes), **self.ACCESS)
        (described,) = eks
        assert sts.roles[self.signer(token)] == arn
        assert described["aws_access_key_id"] == self.signer(token)

    def test_fifty_clusters_of_an_account_share_a_role_that_is_assumed_once_in_45_minutes(
        self, sts: AwsIssuer, clock: FakeClock, eks: list[dict[str, Any]]
    ) -> None:
        sts.trusts[FOREIGN, "x1"] = WRITER
        opened = clusters(clock)

        def token(number: int) -> str:
            return self.signer(token_for(opened, f"c{number}", **{**self.ACCESS, "name": f"c{number}"}))

        with ThreadPoolExecutor(50) as threads:
            assert len(set(threads.map(token, range(50)))) == 1
        assert [one["Action"] for one in sts.asked] == ["AssumeRole"]
        assert len(eks) == 1
        clock.at += timedelta(minutes=45)
        token(0)
        assert [one["Action"] for one in sts.asked] == ["AssumeRole"] * 2

    def test_a_role_whose_sessions_were_revoked_is_assumed_anew(self, sts: AwsIssuer, clock: FakeClock) -> None:
        sts.trusts[FOREIGN, "x1"] = WRITER
        opened = clusters(clock)
        first = self.signer(token_for(opened, **self.ACCESS))
        assert self.signer(token_for(opened, fresh=True, **self.ACCESS)) != first
        assert len(sts.asked) == 2

    def test_a_role_is_not_shared_with_a_cluster_of_another_external_id(self, sts: AwsIssuer, clock: FakeClock) -> None:
        sts.trusts[FOREIGN, "x1"] = WRITER
        opened = clusters(clock)
        token_for(opened, **self.ACCESS)
        with pytest.raises(AccessError, match="it may not be assumed"):
            token_for(opened, "other", **{**self.ACCESS, "external_id": "x2"})

    @pytest.mark.parametrize("external_id", ["x2", None])
    def test_a_role_that_may_not_be_assumed_says_what_to_do(
        self, sts: AwsIssuer, clock: FakeClock, external_id: str | None
    ) -> None:
        sts.trusts[FOREIGN, "x1"] = WRITER
        assert refusal(clock, **{**self.ACCESS, "external_id": external_id}) == (
            f"role {FOREIGN}: it may not be assumed: name it in the stack's parameter WriteRoleArns or CheckRoleArns, "
            "and let its trust policy name the function's role and the record's external_id"
        )
