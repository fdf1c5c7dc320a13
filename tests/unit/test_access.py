"""How a cluster is reached: what is taken from a kubeconfig, what is refused, and what an EKS token says."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import botocore.session
import pytest
import trustme
import yaml
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters.kubernetes.access import (
    EksCredential,
    RecordedClusters,
    api_client,
    read_kubeconfig,
)
from evenkeel.application.errors import AccessError
from evenkeel.config import EksAccess
from tests.fakes import FakeClock, plenty, record

AUTHORITY = trustme.CA()
PEM = AUTHORITY.cert_pem.bytes()
SECRET = "s3cr3t-t0ken"


def b64(data: bytes | str) -> str:
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    """A good one, with fields replaced or, by None, taken away."""

    def merged(good: dict[str, Any], more: dict[str, Any] | None) -> dict[str, Any]:
        return {key: value for key, value in {**good, **(more or {})}.items() if value is not None}

    good = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "c",
                "cluster": merged({"server": "https://api.demo:6443", "certificate-authority-data": b64(PEM)}, cluster),
            }
        ],
        "users": [{"name": "u", "user": merged({"token": SECRET}, user)}],
        "contexts": [{"name": "main", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "main",
    }
    return merged(good, top)


def refusal(config: object, context: str | None = None) -> str:
    """The one line that says why this kubeconfig is not used."""
    text = config if isinstance(config, str) else json.dumps(config)
    with pytest.raises(AccessError) as caught:
        read_kubeconfig(text, "secret evenkeel/demo", context)
    said = str(caught.value)
    assert said.startswith("secret evenkeel/demo: ")
    assert "\n" not in said
    assert SECRET not in said
    assert len(said) < 400
    return said


class TestKubeconfig:
    def test_server_authority_and_token_are_taken(self) -> None:
        found = read_kubeconfig(json.dumps(kubeconfig()), "x")
        assert (found.server, found.token) == ("https://api.demo:6443", SECRET)
        assert found.ca == PEM.decode()

    def test_yaml_is_read_like_json(self) -> None:
        config = kubeconfig()
        assert read_kubeconfig(yaml.safe_dump(config), "x") == read_kubeconfig(json.dumps(config), "x")

    def test_a_client_certificate_does_instead_of_a_token(self) -> None:
        user = {"token": None, "client-certificate-data": b64("cert"), "client-key-data": b64("key")}
        found = read_kubeconfig(json.dumps(kubeconfig(user=user)), "x")
        assert (found.token, found.certificate, found.key) == (None, b"cert", b"key")
        assert "key" not in repr(found).partition("certificate=")[2].partition("tls_server_name")[0]

    def test_another_context_than_the_current_one_can_be_named(self) -> None:
        config = kubeconfig()
        config["contexts"].append({"name": "other", "context": {"cluster": "c2", "user": "u"}})
        other = {"server": "https://other", "certificate-authority-data": b64(PEM)}
        config["clusters"].append({"name": "c2", "cluster": other})
        assert read_kubeconfig(json.dumps(config), "x", "other").server == "https://other"

    @pytest.mark.parametrize(
        ("cluster", "user", "says"),
        [
            ({}, {"exec": {"command": "aws", "args": [SECRET]}}, "user.exec is refused: it would run a program"),
            ({}, {"auth-provider": {"name": "gcp"}}, "user.auth-provider is refused"),
            ({}, {"tokenFile": "/var/run/token"}, "user.tokenFile is refused: it names a file"),
            ({}, {"client-certificate": "/etc/cert"}, "user.client-certificate is refused: it names a file"),
            ({}, {"client-key": "/etc/key"}, "user.client-key is refused: it names a file"),
            ({}, {"username": "admin", "password": SECRET}, "user.username is refused: basic authentication"),
            ({}, {"password": SECRET}, "user.password is refused: basic authentication"),
            ({"certificate-authority": "/etc/ca"}, {}, "cluster.certificate-authority is refused: it names a file"),
            ({"insecure-skip-tls-verify": True}, {}, "cluster.insecure-skip-tls-verify is refused"),
            ({"proxy-url": "http://proxy"}, {}, "cluster.proxy-url is refused"),
            ({"server": "http://api.demo"}, {}, "cluster.server is 'http://api.demo': it must start with https://"),
            ({"server": f"http://admin:{SECRET}@api.demo"}, {}, "it must start with https://"),
            ({"server": "https://"}, {}, "cluster.server is 'https://'"),
            ({"server": None}, {}, "cluster.server"),
            ({"server": 6443}, {}, "cluster.server is '6443'"),
            ({"server": ["https://a"]}, {}, "cluster.server"),
            ({"certificate-authority-data": None}, {}, "cluster.certificate-authority-data is missing"),
            ({"certificate-authority-data": "%%%"}, {}, "certificate-authority-data is not base64"),
            ({"certificate-authority-data": b64("no pem")}, {}, "is not a PEM certificate"),
            ({"tls-server-name": {"a": 1}}, {}, "cluster.tls-server-name"),
            ({}, {"token": None}, "user has neither token nor client-certificate-data and client-key-data"),
            ({}, {"token": ""}, "user has neither token"),
            ({}, {"token": None, "client-certificate-data": b64("cert")}, "user has neither token"),
            ({}, {"token": None, "client-certificate-data": "%", "client-key-data": "%"}, "is not base64"),
        ],
    )
    def test_what_is_not_inline_and_verified_is_refused_with_a_reason(
        self, cluster: dict[str, Any], user: dict[str, Any], says: str
    ) -> None:
        assert says in refusal(kubeconfig(cluster, user))

    def test_switched_off_fields_are_no_reason_to_refuse(self) -> None:
        config = kubeconfig({"insecure-skip-tls-verify": False, "proxy-url": ""}, {"exec": {}})
        assert read_kubeconfig(json.dumps(config), "x").token == SECRET

    @pytest.mark.parametrize(
        ("config", "says"),
        [
            ("", "not a kubeconfig"),
            ("just text", "not a kubeconfig"),
            ("[1, 2]", "not a kubeconfig"),
            ("{", "not YAML or JSON"),
            ("\t- a: [", "not YAML or JSON"),
            ("a: 2026-99-99", "not YAML or JSON"),
            ("!!python/object/apply:os.system ['true']", "not YAML or JSON"),
            ("? [a]\n: b", "not YAML or JSON"),
            ({}, "current-context is missing"),
            (kubeconfig(**{"current-context": None}), "current-context is missing"),
            (kubeconfig(contexts=None), "contexts has no entry 'main'"),
            (kubeconfig(contexts=5), "contexts has no entry 'main'"),
            (kubeconfig(clusters=[{"name": "c"}]), "clusters has no entry 'c'"),
            (kubeconfig(users=[7, {"name": "u", "user": "text"}]), "users has no entry 'u'"),
        ],
    )
    def test_a_file_that_is_no_kubeconfig_is_one_line(self, config: object, says: str) -> None:
        assert says in refusal(config)

    def test_a_context_that_is_not_there_is_named(self) -> None:
        assert "contexts has no entry 'nowhere'" in refusal(kubeconfig(), "nowhere")

    @given(
        st.recursive(
            st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=8),
            lambda inner: (
                st.lists(inner, max_size=3)
                | st.dictionaries(
                    st.sampled_from(
                        [
                            "clusters",
                            "users",
                            "contexts",
                            "current-context",
                            "name",
                            "cluster",
                            "user",
                            "server",
                            "token",
                        ]
                    ),
                    inner,
                    max_size=4,
                )
            ),
            max_leaves=12,
        )
    )
    def test_whatever_the_secret_holds_the_answer_is_a_connection_or_one_line(self, config: object) -> None:
        try:
            read_kubeconfig(json.dumps(config), "x")
        except AccessError as error:
            said = str(error)
        else:
            said = ""
        assert "\n" not in said


class TestClient:
    def test_the_client_verifies_uses_no_proxy_and_does_not_retry_by_itself(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
        configuration = api_client(read_kubeconfig(json.dumps(kubeconfig()), "x"), "x").configuration
        assert configuration.verify_ssl is True
        assert configuration.proxy is None
        assert configuration.retries is False
        assert configuration.host == "https://api.demo:6443"

    def test_a_client_key_lies_in_a_file_that_only_we_can_read(self) -> None:
        leaf = AUTHORITY.issue_cert("client.demo")
        user = {
            "token": None,
            "client-certificate-data": b64(leaf.cert_chain_pems[0].bytes()),
            "client-key-data": b64(leaf.private_key_pem.bytes()),
        }
        configuration = api_client(read_kubeconfig(json.dumps(kubeconfig(user=user)), "x"), "x").configuration
        key = Path(configuration.key_file)
        assert key.read_bytes() == leaf.private_key_pem.bytes()
        assert key.stat().st_mode & 0o777 == 0o600
        for file in (configuration.key_file, configuration.cert_file):
            Path(file).unlink()


EKS = {"kind": "eks", "name": "Demo_1", "region": "eu-central-1", "endpoint": "https://ABC.gr7.eks.amazonaws.com"}


class TestEksToken:
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def credential(self, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EksCredential]:
        monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:4566")
        monkeypatch.setenv("AWS_ENDPOINT_URL_STS", "http://127.0.0.1:4567")
        monkeypatch.setenv("AWS_STS_REGIONAL_ENDPOINTS", "legacy")
        monkeypatch.setenv("AWS_REGION", "us-west-2")
        monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIDEXAMPLE")
        monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
        monkeypatch.setenv("AWS_SESSION_TOKEN", "session-token")

        def made(**fields: Any) -> EksCredential:
            access = EksAccess.model_validate({**EKS, "ca_data": b64(PEM), **fields})
            return EksCredential(access, botocore.session.Session(), clock.now)

        return made

    @staticmethod
    def url_of(credential: EksCredential) -> str:
        token = credential.token(fresh=False)
        assert token is not None
        prefix, _, encoded = token.partition(".")
        assert prefix == "k8s-aws-v1"
        assert "=" not in encoded
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()

    def test_it_is_a_presigned_call_to_the_regional_sts_whatever_the_environment_says(
        self, credential: Callable[..., EksCredential]
    ) -> None:
        parts = urlsplit(self.url_of(credential()))
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert (parts.scheme, parts.netloc, parts.path) == ("https", "sts.eu-central-1.amazonaws.com", "/")
        assert (query["Action"], query["Version"]) == ("GetCallerIdentity", "2011-06-15")
        assert query["X-Amz-Credential"].split("/")[2:] == ["eu-central-1", "sts", "aws4_request"]
        assert query["X-Amz-Security-Token"] == "session-token"

    def test_the_clusters_name_is_signed_into_it_and_it_expires_within_a_minute(
        self, credential: Callable[..., EksCredential]
    ) -> None:
        query = parse_qs(urlsplit(self.url_of(credential())).query)
        assert query["X-Amz-SignedHeaders"] == ["host;x-k8s-aws-id"]
        assert query["X-Amz-Expires"] == ["60"]
        assert len(query["X-Amz-Signature"][0]) == 64

    def test_another_clusters_name_gives_another_signature(self, credential: Callable[..., EksCredential]) -> None:
        signatures = {
            parse_qs(urlsplit(self.url_of(credential(name=name))).query)["X-Amz-Signature"][0] for name in ("a", "b")
        }
        assert len(signatures) == 2

    def test_china_has_a_suffix_of_its_own(self, credential: Callable[..., EksCredential]) -> None:
        assert urlsplit(self.url_of(credential(region="cn-north-1"))).netloc == "sts.cn-north-1.amazonaws.com.cn"

    def test_the_secret_key_is_not_in_it(self, credential: Callable[..., EksCredential]) -> None:
        assert SECRET not in self.url_of(credential())

    def test_it_is_kept_for_minutes_and_made_anew_before_it_ends_or_when_it_was_refused(
        self, credential: Callable[..., EksCredential], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made = credential()
        count = 0
        presign = made._presign

        def counted() -> str:
            nonlocal count
            count += 1
            return presign()

        monkeypatch.setattr(made, "_presign", counted)
        made.token(fresh=False)
        clock.at += timedelta(minutes=9)
        made.token(fresh=False)
        assert count == 1
        clock.at += timedelta(minutes=1)
        made.token(fresh=False)
        assert count == 2
        made.token(fresh=True)
        assert count == 3

    def test_without_aws_credentials_it_is_one_line(self, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
        class Nobody:
            def get_credentials(self) -> None:
                return None

        access = EksAccess.model_validate({**EKS, "ca_data": b64(PEM)})
        with pytest.raises(AccessError, match="no AWS credentials"):
            EksCredential(access, Nobody(), clock.now).token(fresh=False)


class TestRecordedClusters:
    def clusters(self, secret: Callable[[str, bool], str]) -> RecordedClusters:
        return RecordedClusters(session=botocore.session.Session, secret=secret, clock=FakeClock())

    def test_a_connection_is_kept_between_runs_of_a_warm_function(self) -> None:
        asked: list[str] = []

        def secret(name: str, fresh: bool) -> str:
            asked.append(name)
            return json.dumps(kubeconfig())

        clusters = self.clusters(secret)
        first, second = (clusters.open(record(), plenty) for _ in range(2))
        assert first is not second, "a look belongs to one run"
        assert first._api is second._api  # type: ignore[attr-defined]
        assert set(asked) == {"evenkeel/demo"}

    def test_a_record_with_another_access_gets_another_connection(self) -> None:
        clusters = self.clusters(lambda name, fresh: json.dumps(kubeconfig()))
        first = clusters.open(record(), plenty)
        second = clusters.open(record(access={"kind": "kubeconfig", "secret": "evenkeel/other"}), plenty)
        assert first._api is not second._api  # type: ignore[attr-defined]

    def test_a_rotated_secret_with_a_new_server_or_certificate_gets_a_new_connection(self) -> None:
        config = kubeconfig()
        clusters = self.clusters(lambda name, fresh: json.dumps(config))
        first = clusters.open(record(), plenty)
        config["clusters"][0]["cluster"]["server"] = "https://moved.demo"
        second = clusters.open(record(), plenty)
        assert first._api is not second._api  # type: ignore[attr-defined]
        assert second._api._client.configuration.host == "https://moved.demo"  # type: ignore[attr-defined]

    def test_a_bad_secret_names_cluster_and_secret(self) -> None:
        with pytest.raises(AccessError, match=r"cluster demo: secret evenkeel/demo: user\.exec is refused"):
            self.clusters(lambda name, fresh: json.dumps(kubeconfig(user={"exec": {"command": "x"}}))).open(
                record(), plenty
            )

    def test_a_bad_authority_of_an_eks_cluster_names_its_field(self) -> None:
        for data, says in (("%%%", "not base64"), (b64("no pem"), "is not a PEM certificate")):
            with pytest.raises(AccessError, match=r"cluster demo: access\.ca_data.*" + says):
                self.clusters(lambda name, fresh: "").open(record(access={**EKS, "ca_data": data}), plenty)

    def test_a_certificate_that_only_looks_like_one_is_one_line(self) -> None:
        fake = b64("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n")
        with pytest.raises(AccessError, match=r"cluster demo: secret evenkeel/demo: .*certificate"):
            self.clusters(lambda name, fresh: json.dumps(kubeconfig({"certificate-authority-data": fake}))).open(
                record(), plenty
            )

    def test_a_client_certificate_that_is_none_is_one_line(self) -> None:
        user = {"token": None, "client-certificate-data": b64("no cert"), "client-key-data": b64(SECRET)}
        with pytest.raises(AccessError, match="cluster demo: client-certificate-data") as caught:
            self.clusters(lambda name, fresh: json.dumps(kubeconfig(user=user))).open(record(), plenty)
        assert SECRET not in str(caught.value)
