"""Access to clusters: valid kubeconfigs, EKS tokens, and kept connections."""

from __future__ import annotations

import base64
import gc
import json
import ssl
import tempfile
import threading
import weakref
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import botocore.session
import pytest
import trustme
import yaml
from botocore.exceptions import ClientError, ConnectTimeoutError
from hypothesis import given
from hypothesis import strategies as st
from kubernetes.client import Configuration

from evenkeel.access_config import EksAccess
from evenkeel.adapters.aws_session import AwsSession
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.access.connection import Connection, api_client
from evenkeel.adapters.kubernetes.access.eks import EksCredential
from evenkeel.adapters.kubernetes.access.kubeconfig import read_kubeconfig
from evenkeel.application.errors import AccessError
from evenkeel.validation import ConfigError
from evenkeel_cli.live import _client
from tests.builders import json_values
from tests.fakes import FakeClock, plenty, record

AUTHORITY = trustme.CA()
PEM = AUTHORITY.cert_pem.bytes()
SECRET = "s3cr3t-t0ken"
BEGIN, END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"
PLACE = "cluster demo: secret evenkeel/demo: "
NO_AUTHORITY = f"{PLACE}cluster.certificate-authority-data is not a PEM certificate$"
KEYS = ("clusters", "users", "contexts", "current-context", "name", "cluster", "user", "server", "token")
#: 9 lines that expand to a hundred million values
BOMB = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8)
)


def b64(data: bytes | str) -> str:
    return base64.b64encode(data if isinstance(data, bytes) else data.encode()).decode()


def kubeconfig(cluster: dict[str, Any] | None = None, user: dict[str, Any] | None = None, **top: Any) -> dict[str, Any]:
    """Return a valid kubeconfig with fields replaced or, by None, removed."""

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
    """Return the one line with the reason that this kubeconfig is refused."""
    text = config if isinstance(config, str) else json.dumps(config)
    with pytest.raises(AccessError) as caught:
        read_kubeconfig(text, "secret evenkeel/demo", context)
    line = str(caught.value)
    assert line.startswith("secret evenkeel/demo: ")
    assert "\n" not in line
    assert SECRET not in line
    assert len(line) < 400
    return line


def read(config: object) -> Connection:
    return read_kubeconfig(json.dumps(config), "x")


def certified(certificate: bytes | str, key: bytes | str) -> dict[str, Any]:
    return {"token": None, "client-certificate-data": b64(certificate), "client-key-data": b64(key)}


class TestKubeconfig:
    def test_server_authority_and_token_are_read(self) -> None:
        config = kubeconfig()
        connection = read(config)
        assert (connection.server, connection.token) == ("https://api.demo:6443", SECRET)
        assert connection.ca == PEM.decode()
        assert read_kubeconfig(yaml.safe_dump(config), "x") == connection

    def test_a_client_certificate_replaces_a_token(self) -> None:
        connection = read(kubeconfig(user=certified("cert", "key")))
        assert (connection.token, connection.certificate, connection.key) == (None, b"cert", b"key")
        assert "key" not in repr(connection).partition("certificate=")[2].partition("tls_server_name")[0]

    def test_another_context_can_be_named(self) -> None:
        config = kubeconfig()
        config["contexts"].append({"name": "other", "context": {"cluster": "c2", "user": "u"}})
        other = {"server": "https://other", "certificate-authority-data": b64(PEM)}
        config["clusters"].append({"name": "c2", "cluster": other})
        assert read_kubeconfig(json.dumps(config), "x", "other").server == "https://other"
        assert "contexts has no entry of the name 'nowhere'" in refusal(config, "nowhere")

    @pytest.mark.parametrize(
        ("cluster", "user", "says"),
        [
            ({}, {"exec": {"command": "aws", "args": [SECRET]}}, "user.exec is refused: it would run a program"),
            ({}, {"as": SECRET}, "user.as is refused: Evenkeel impersonates no other user"),
            ({}, {"as-uid": SECRET}, "user.as-uid is refused: Evenkeel impersonates no other user"),
            ({}, {"as-groups": [SECRET]}, "user.as-groups is refused: Evenkeel impersonates no other user"),
            ({}, {"as-user-extra": {"reason": [SECRET]}}, "user.as-user-extra is refused: Evenkeel impersonates"),
            ({}, {"auth-provider": {"name": "gcp"}}, "user.auth-provider is refused"),
            ({}, {"tokenFile": "/var/run/token"}, "user.tokenFile is refused: it names a file"),
            ({}, {"client-certificate": "/etc/cert"}, "user.client-certificate is refused: it names a file"),
            ({}, {"client-key": "/etc/key"}, "user.client-key is refused: it names a file"),
            ({}, {"username": "admin", "password": SECRET}, "user.username is refused: basic authentication"),
            ({}, {"password": SECRET}, "user.password is refused: basic authentication"),
            ({"certificate-authority": "/etc/ca"}, {}, "cluster.certificate-authority is refused: it names a file"),
            ({"insecure-skip-tls-verify": True}, {}, "cluster.insecure-skip-tls-verify is refused"),
            ({"proxy-url": "http://proxy"}, {}, "cluster.proxy-url is refused"),
            ({"server": "http://api.demo"}, {}, "cluster.server must be https:// with a host"),
            ({"server": f"http://admin:{SECRET}@api.demo"}, {}, "cluster.server must be https://"),
            ({"server": f"https://admin:{SECRET}@api.demo"}, {}, "cluster.server must be https://"),
            ({"server": f"https://api.demo/?token={SECRET}"}, {}, "and no user, query or fragment"),
            ({"server": f"https://api.demo/{SECRET}\n"}, {}, "cluster.server must be https://"),
            ({"server": "https://"}, {}, "cluster.server must be https://"),
            ({"server": None}, {}, "cluster.server"),
            ({"server": 6443}, {}, "cluster.server must be https://"),
            ({"server": ["https://a"]}, {}, "cluster.server"),
            ({"certificate-authority-data": None}, {}, "cluster.certificate-authority-data is missing"),
            ({"certificate-authority-data": "%%%"}, {}, "certificate-authority-data is not base64"),
            ({"certificate-authority-data": b64("\u00e4")}, {}, "is not a PEM certificate"),
            ({"tls-server-name": {"a": 1}}, {}, "cluster.tls-server-name"),
            ({"tls-server-name": f"{SECRET}\n"}, {}, "cluster.tls-server-name must be the name of a host"),
            ({}, {"token": f"{SECRET} "}, "user.token: character 13 of 13 is white space: copy the token alone"),
            ({}, {"token": f"{SECRET}\nx"}, "user.token: character 13 of 14 is white space"),
            ({}, {"token": f"Bearer {SECRET}"}, "user.token: character 7 of 19 is white space"),
            ({}, {"token": f"\x1b[31m{SECRET}"}, "user.token: character 1 of 17 is not a visible ASCII character"),
            ({}, {"token": f"{SECRET}\u00e4"}, "user.token: character 13 of 13 is not a visible ASCII character"),
            ({}, {"token": "\n"}, "user.token is a line without a token"),
            ({}, {"token": SECRET * 10_000}, "user.token has 120000 characters: no token has more than 65536"),
            ({}, {"token": 4711}, "user.token is no text: put it in quotes"),
            ({}, {"token": None}, "user has neither token nor client-certificate-data and client-key-data"),
            ({}, {"token": ""}, "user has neither token"),
            ({}, {"token": None, "client-certificate-data": b64("cert")}, "user has neither token"),
            ({}, {"token": None, "client-certificate-data": "%", "client-key-data": "%"}, "is not base64"),
        ],
    )
    def test_unsafe_fields_are_refused(self, cluster: dict[str, Any], user: dict[str, Any], says: str) -> None:
        assert says in refusal(kubeconfig(cluster, user))

    def test_refused_fields_that_are_off_are_ignored(self) -> None:
        config = kubeconfig({"insecure-skip-tls-verify": False, "proxy-url": ""}, {"exec": {}})
        assert read(config).token == SECRET

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
            (kubeconfig(contexts=None), "contexts has no entry of the name in current-context"),
            (kubeconfig(contexts=5), "contexts has no entry of the name in current-context"),
            (kubeconfig(clusters=[{"name": "c"}]), "clusters has no entry that the context names"),
            (kubeconfig(users=[7, {"name": "u", "user": "text"}]), "users has no entry that the context names"),
            (BOMB, "its aliases expand to more than 10000 values: write them out"),
        ],
    )
    def test_a_file_that_is_no_kubeconfig_is_one_line(self, config: object, says: str) -> None:
        assert says in refusal(config)

    @given(json_values(keys=st.sampled_from(KEYS)).filter(lambda config: "NaN" not in json.dumps(config)))
    def test_any_secret_is_a_connection_or_one_line(self, config: object) -> None:
        try:
            read_kubeconfig(json.dumps(config), "x")
        except AccessError as error:
            line = str(error)
        else:
            line = ""
        assert "\n" not in line


class TestClient:
    def test_the_client_verifies_and_uses_no_proxy_and_no_retries(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("HTTPS_PROXY", "http://proxy.example:3128")
        client = api_client(read(kubeconfig()), "x")
        pool = client.pool_manager.connection_from_url(client.configuration.host)
        assert (pool.scheme, pool.host, pool.port) == ("https", "api.demo", 6443)
        assert (pool.proxy, pool.retries.total, pool.cert_reqs) == (None, False, ssl.CERT_REQUIRED)

    @pytest.mark.parametrize("usable", [True, False])
    def test_a_client_key_file_is_private_and_short_lived(
        self, usable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
        seen = []

        def load(context: ssl.SSLContext, certificate: str, key: str, password: Any) -> None:
            seen.append((Path(key).read_bytes(), Path(key).stat().st_mode & 0o777))
            real(context, certificate, key, password)

        real = ssl.SSLContext.load_cert_chain
        monkeypatch.setattr(ssl.SSLContext, "load_cert_chain", load)
        leaf = AUTHORITY.issue_cert("client.demo")
        key = leaf.private_key_pem.bytes() if usable else b"no key"
        connection = read(kubeconfig(user=certified(leaf.cert_chain_pems[0].bytes(), key)))
        refused = pytest.raises(AccessError, match="no PEM certificate with its open key")
        with nullcontext() if usable else refused:
            api_client(connection, "x")
        assert seen == [(key, 0o600)]
        assert list(tmp_path.iterdir()) == []


EKS = {"kind": "eks", "name": "Demo_1", "region": "eu-central-1"}


class FakeEks:
    """eks:DescribeCluster with these answers in turn; the last one is repeated."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def client(self, service: str, region_name: str, config: Any, **credentials: str) -> FakeEks:
        assert service == "eks"
        self.credentials = credentials
        return self

    def describe_cluster(self, name: str) -> dict[str, Any]:
        self.asked.append(name)
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return {"cluster": answer}


def described(endpoint: str | None = "https://ABC.gr7.eks.amazonaws.com", ca: str | None = None) -> dict[str, Any]:
    """Return DescribeCluster's answer as botocore does."""
    return {"endpoint": endpoint, "certificateAuthority": {"data": ca or b64(PEM)}, "status": "ACTIVE"}


def service_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": f"for {SECRET}"}}, "DescribeCluster")


class TestEksToken:
    @pytest.fixture
    def clock(self) -> FakeClock:
        return FakeClock()

    @pytest.fixture
    def credential(self, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> Callable[..., EksCredential]:
        keys = {"ACCESS_KEY_ID": "AKIDEXAMPLE", "SECRET_ACCESS_KEY": SECRET, "SESSION_TOKEN": "session-token"}
        misleading = {"ENDPOINT_URL": "http://127.0.0.1:4566", "ENDPOINT_URL_STS": "http://127.0.0.1:4567"}
        for name, value in {**keys, **misleading, "STS_REGIONAL_ENDPOINTS": "legacy", "REGION": "us-west-2"}.items():
            monkeypatch.setenv(f"AWS_{name}", value)

        def made(**fields: Any) -> EksCredential:
            access = EksAccess.model_validate({**EKS, **fields})
            return EksCredential(access, AwsSession(), clock.now)

        return made

    @staticmethod
    def url_of(credential: EksCredential) -> str:
        token = credential.token(fresh=False)
        prefix, _, encoded = token.partition(".")
        assert prefix == "k8s-aws-v1"
        assert "=" not in encoded
        return base64.urlsafe_b64decode(encoded + "=" * (-len(encoded) % 4)).decode()

    @pytest.mark.parametrize(("region", "suffix"), [("eu-central-1", ""), ("cn-north-1", ".cn")])
    def test_it_is_a_presigned_call_to_the_regional_sts_for_a_minute(
        self, credential: Callable[..., EksCredential], region: str, suffix: str
    ) -> None:
        url = self.url_of(credential(region=region))
        assert SECRET not in url
        parts = urlsplit(url)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        assert (parts.scheme, parts.netloc, parts.path) == ("https", f"sts.{region}.amazonaws.com{suffix}", "/")
        assert (query["Action"], query["Version"]) == ("GetCallerIdentity", "2011-06-15")
        assert query["X-Amz-Credential"].split("/")[2:] == [region, "sts", "aws4_request"]
        assert query["X-Amz-Security-Token"] == "session-token"
        assert (query["X-Amz-Expires"], len(query["X-Amz-Signature"])) == ("60", 64)

    def test_the_clusters_name_is_signed_into_it(self, credential: Callable[..., EksCredential]) -> None:
        queries = [parse_qs(urlsplit(self.url_of(credential(name=name))).query) for name in ("a", "b")]
        assert [query["X-Amz-SignedHeaders"] for query in queries] == [["host;x-k8s-aws-id"]] * 2
        assert queries[0]["X-Amz-Signature"] != queries[1]["X-Amz-Signature"]

    def test_it_is_kept_for_minutes_and_renewed_before_it_ends_or_when_refused(
        self, credential: Callable[..., EksCredential], clock: FakeClock, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        made, presigned = credential(), []
        presign = made._presign
        monkeypatch.setattr(made, "_presign", lambda refused: presigned.append(refused) or presign(refused))
        counts = []
        for minutes, fresh in ((0, False), (9, False), (1, False), (0, True)):
            clock.at += timedelta(minutes=minutes)
            made.token(fresh=fresh)
            counts.append(len(presigned))
        assert counts == [1, 1, 2, 3]

    def test_without_aws_credentials_it_is_an_error(self, clock: FakeClock) -> None:
        session = SimpleNamespace(get_credentials=lambda: None)
        with pytest.raises(AccessError, match="no AWS credentials"):
            EksCredential(EksAccess.model_validate(EKS), session, clock.now).token(fresh=False)


def opened(clusters: RecordedClusters, name: str = "demo", **fields: Any) -> Any:
    return clusters.open(record(name, **fields), plenty)._api  # type: ignore[attr-defined]


def host_of(api: Any) -> str:
    host: str = api._client.configuration.host
    return host


def kubeconfigs(secret: Callable[[str], object], clock: FakeClock | None = None, *, writes: bool = True) -> Any:
    """Return clusters whose secrets have these kubeconfigs."""
    return RecordedClusters(
        session=AwsSession(),
        secret=lambda name, fresh: json.dumps(secret(name)),
        clock=clock or FakeClock(),
        writes=writes,
    )


class TestEksClusters:
    """Endpoint and authority are read from AWS, so that no record can send Evenkeel's token elsewhere."""

    def clusters(self, eks: FakeEks) -> RecordedClusters:
        return RecordedClusters(session=eks, secret=lambda name, fresh: "", clock=FakeClock())

    def refused(self, *answers: dict[str, Any] | Exception) -> str:
        with pytest.raises(AccessError) as caught:
            self.clusters(FakeEks(*answers)).open(record(access=EKS), plenty)
        said = str(caught.value)
        assert said.startswith("cluster demo: EKS cluster Demo_1 in eu-central-1: ")
        assert SECRET not in said
        return said

    def test_the_endpoint_is_described_once_while_the_cluster_answers(self) -> None:
        eks = FakeEks(described(), described("https://anew.example"))
        clusters = self.clusters(eks)
        first, second = (opened(clusters, access=EKS) for _ in range(2))
        assert (first, host_of(first)) == (second, "https://ABC.gr7.eks.amazonaws.com")
        assert eks.asked == ["Demo_1"]
        first.reached = False  # it may have been created again
        assert host_of(opened(clusters, access=EKS)) == "https://anew.example"

    @pytest.mark.parametrize(
        ("answer", "says"),
        [
            (service_error("ResourceNotFoundException"), "there is none: correct access.name and access.region"),
            (service_error("AccessDeniedException"), "missing permission eks:DescribeCluster"),
            (service_error("ServerException"), "eks:DescribeCluster was refused: ServerException"),
            (ConnectTimeoutError(endpoint_url=SECRET), "eks:DescribeCluster was not answered: ConnectTimeoutError"),
            ({"status": "CREATING"}, "it has no endpoint yet: its status is CREATING"),
            (described("http://plain.example"), "its endpoint must be https:// with a host"),
            (described(ca="%%%"), "data is not base64"),
            (described(ca=b64("no pem")), "certificateAuthority.data is not a PEM certificate"),
        ],
    )
    def test_a_bad_answer_of_aws_is_one_line(self, answer: dict[str, Any] | Exception, says: str) -> None:
        assert says in self.refused(answer)

    def test_the_answers_fields_are_those_of_the_service(self) -> None:
        shape = botocore.session.Session().get_service_model("eks").operation_model("DescribeCluster").output_shape
        cluster = shape.members["cluster"].members
        assert {"endpoint", "status"} <= cluster.keys()
        assert "data" in cluster["certificateAuthority"].members


class TestRecordedClusters:
    def test_a_connection_is_kept_between_runs_of_a_warm_function(self) -> None:
        secrets: list[str] = []
        clusters = kubeconfigs(lambda name: secrets.append(name) or kubeconfig())
        first, second = (clusters.open(record(), plenty) for _ in range(2))
        assert first is not second, "a check belongs to one run"
        assert first._api is second._api
        assert set(secrets) == {"evenkeel/demo"}
        assert opened(clusters, access={"kind": "kubeconfig", "secret": "evenkeel/other"}) is not first._api

    def test_a_rotated_secret_with_a_new_server_gets_a_new_connection(self) -> None:
        config = kubeconfig()
        clusters = kubeconfigs(lambda _: config)
        first = opened(clusters)
        config["clusters"][0]["cluster"]["server"] = "https://moved.demo"
        second = opened(clusters)
        assert first is not second
        assert host_of(second) == "https://moved.demo"

    @pytest.mark.parametrize(
        ("cluster", "user", "fault"),
        [
            *(({"certificate-authority-data": b64(pem)}, {}, NO_AUTHORITY) for pem in ("no pem", PEM[:200], BEGIN)),
            ({"certificate-authority-data": b64(f"{BEGIN}\nAAAA\n{END}\n")}, {}, f"{PLACE}.*certificate"),
            ({}, {"exec": {"command": "x"}}, rf"{PLACE}user\.exec is refused"),
            ({}, certified("no cert", SECRET), "cluster demo: client-certificate-data"),
        ],
    )
    def test_a_bad_secret_is_named(self, cluster: dict[str, Any], user: dict[str, Any], fault: str) -> None:
        with pytest.raises(AccessError, match=f"^{fault}") as caught:
            opened(kubeconfigs(lambda _: kubeconfig(cluster, user)))
        assert SECRET not in str(caught.value)

    @pytest.mark.parametrize(("writes", "most"), [(True, 32), (False, 600)])
    def test_the_least_recently_used_connection_is_closed_beyond_the_limit(self, writes: bool, most: int) -> None:
        clusters = kubeconfigs(lambda _: kubeconfig(), writes=writes)
        gc.disable()  # they are closed with their last user, not by the garbage collector
        try:
            made = [weakref.ref(opened(clusters, f"c{n}")) for n in range(most)]
            opened(clusters, "c0")
            assert opened(clusters, "another") is not None
            assert [place for place, api in enumerate(made) if api() is None] == [1], "unused for longest"
            assert opened(clusters, "c2") is made[2]()
        finally:
            gc.enable()

    def test_fifty_threads_open_fifty_clusters(self) -> None:
        clusters = kubeconfigs(lambda _: kubeconfig())
        together = threading.Barrier(50)

        def named(number: int) -> str:
            together.wait(20)
            return str(opened(clusters, f"c{number}").name)

        with ThreadPoolExecutor(50) as threads:
            assert list(threads.map(named, range(50))) == [f"c{number}" for number in range(50)]


class TestOfTheCaller:
    """`evenkeel plan --kubeconfig`, which takes a kubeconfig as kubectl does."""

    def read(self, tmp_path: Path, *users: dict[str, Any], context: str | None = None) -> Configuration:
        config = kubeconfig()
        config["users"] = [{"name": f"u{place}", "user": {"token": SECRET, **user}} for place, user in enumerate(users)]
        of = config["contexts"][0]
        config["contexts"] = [
            {"name": f"c{place}", "context": {**of["context"], "user": f"u{place}"}} for place in range(len(users))
        ]
        config["current-context"] = "c0"
        file = tmp_path / "config"
        file.write_text(json.dumps(config))
        configuration: Configuration = _client(str(file), context, "config").configuration
        return configuration

    @pytest.mark.parametrize(
        "fields", [{"as": "jane"}, {"as-uid": "7"}, {"as-groups": ["a", "b"]}, {"as-user-extra": {"a": ["b"]}}]
    )
    def test_impersonation_is_refused(self, tmp_path: Path, fields: dict[str, Any]) -> None:
        (name,) = fields
        says = f"config: user.{name} is refused: Evenkeel impersonates no other user: read the objects with kubectl"
        with pytest.raises(ConfigError, match=says):
            self.read(tmp_path, fields)
        with pytest.raises(ConfigError, match=f"user.{name} is refused"):
            self.read(tmp_path, {}, fields, context="c1")

    def test_fields_of_another_user_and_empty_ones_are_ignored(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, {"as": "", "as-groups": []}, {"as": "jane"})
        assert SECRET in str(found.api_key)
