"""How a cluster is reached: what is taken from a kubeconfig, what is refused, and what an EKS token says."""

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
from datetime import timedelta
from pathlib import Path
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
from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.adapters.kubernetes.access.connection import api_client
from evenkeel.adapters.kubernetes.access.eks import EksCredential
from evenkeel.adapters.kubernetes.access.kubeconfig import read_kubeconfig
from evenkeel.application.errors import AccessError
from evenkeel.validation import ConfigError
from evenkeel_cli.live import _configuration
from tests.builders import json_values
from tests.fakes import FakeClock, plenty, record

AUTHORITY = trustme.CA()
PEM = AUTHORITY.cert_pem.bytes()
SECRET = "s3cr3t-t0ken"
KEYS = ("clusters", "users", "contexts", "current-context", "name", "cluster", "user", "server", "token")
#: 9 lines that stand for a hundred million values
BOMB = "a: &a0 [x, x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"b{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]\n" for n in range(1, 8)
)


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
            (kubeconfig(contexts=None), "contexts has no entry of the name in current-context"),
            (kubeconfig(contexts=5), "contexts has no entry of the name in current-context"),
            (kubeconfig(clusters=[{"name": "c"}]), "clusters has no entry that the context names"),
            (kubeconfig(users=[7, {"name": "u", "user": "text"}]), "users has no entry that the context names"),
            (BOMB, "its aliases stand for more than 10000 values: write them out"),
        ],
    )
    def test_a_file_that_is_no_kubeconfig_is_one_line(self, config: object, says: str) -> None:
        assert says in refusal(config)

    def test_a_context_that_is_not_there_is_named(self) -> None:
        assert "contexts has no entry of the name 'nowhere'" in refusal(kubeconfig(), "nowhere")

    @given(json_values(keys=st.sampled_from(KEYS)).filter(lambda config: "NaN" not in json.dumps(config)))
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

    @pytest.mark.parametrize("usable", [True, False])
    def test_a_client_key_lies_in_a_file_that_only_we_can_read_and_not_for_long(
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
        user = {
            "token": None,
            "client-certificate-data": b64(leaf.cert_chain_pems[0].bytes()),
            "client-key-data": b64(key),
        }
        connection = read_kubeconfig(json.dumps(kubeconfig(user=user)), "x")
        if usable:
            api_client(connection, "x")
        else:
            with pytest.raises(AccessError, match="no PEM certificate with its open key"):
                api_client(connection, "x")
        assert seen == [(key, 0o600)]
        assert list(tmp_path.iterdir()) == []


EKS = {"kind": "eks", "name": "Demo_1", "region": "eu-central-1"}


class FakeEks:
    """What eks:DescribeCluster says: of ``answers`` the first, until only the last is left."""

    def __init__(self, *answers: dict[str, Any] | Exception) -> None:
        self.answers = list(answers)
        self.asked: list[str] = []

    def create_client(self, service: str, region_name: str, config: Any, **credentials: str) -> FakeEks:
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
    """As botocore reads DescribeCluster's answer."""
    return {"endpoint": endpoint, "certificateAuthority": {"data": ca or b64(PEM)}, "status": "ACTIVE"}


def service_error(code: str) -> ClientError:
    return ClientError({"Error": {"Code": code, "Message": f"for {SECRET}"}}, "DescribeCluster")


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
            access = EksAccess.model_validate({**EKS, **fields})
            return EksCredential(access, botocore.session.Session(), clock.now)

        return made

    @staticmethod
    def url_of(credential: EksCredential) -> str:
        token = credential.token(fresh=False)
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

        def counted(refused: Any) -> str:
            nonlocal count
            count += 1
            return presign(refused)

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

        access = EksAccess.model_validate(EKS)
        with pytest.raises(AccessError, match="no AWS credentials"):
            EksCredential(access, Nobody(), clock.now).token(fresh=False)


def host_of(cluster: Any) -> str:
    host: str = cluster._api._client.configuration.host
    return host


class TestEksClusters:
    """Endpoint and authority come from AWS, so that no record can have our token sent elsewhere."""

    def clusters(self, eks: FakeEks) -> RecordedClusters:
        session = botocore.session.Session()
        session.create_client = eks.create_client
        return RecordedClusters(session=lambda: session, secret=lambda name, fresh: "", clock=FakeClock())

    def refused(self, *answers: dict[str, Any] | Exception) -> str:
        with pytest.raises(AccessError) as caught:
            self.clusters(FakeEks(*answers)).open(record(access=EKS), plenty)
        said = str(caught.value)
        assert said.startswith("cluster demo: EKS cluster Demo_1 in eu-central-1: ")
        assert SECRET not in said
        return said

    def test_the_endpoint_is_what_aws_says(self) -> None:
        eks = FakeEks(described())
        assert host_of(self.clusters(eks).open(record(access=EKS), plenty)) == "https://ABC.gr7.eks.amazonaws.com"
        assert eks.asked == ["Demo_1"]

    def test_it_is_asked_once_while_the_function_lives_and_the_cluster_answers(self) -> None:
        eks = FakeEks(described())
        clusters = self.clusters(eks)
        first, second = (clusters.open(record(access=EKS), plenty) for _ in range(2))
        assert first._api is second._api  # type: ignore[attr-defined]
        assert eks.asked == ["Demo_1"]

    def test_a_cluster_that_did_not_answer_is_asked_for_again_as_it_may_have_been_made_anew(self) -> None:
        eks = FakeEks(described(), described("https://anew.example"))
        clusters = self.clusters(eks)
        first: Any = clusters.open(record(access=EKS), plenty)
        first._api.reached = False
        assert host_of(clusters.open(record(access=EKS), plenty)) == "https://anew.example"

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
    def test_what_aws_cannot_say_is_one_line(self, answer: dict[str, Any] | Exception, says: str) -> None:
        assert says in self.refused(answer)

    def test_the_answers_fields_are_those_of_the_service(self) -> None:
        shape = botocore.session.Session().get_service_model("eks").operation_model("DescribeCluster").output_shape
        cluster = shape.members["cluster"].members
        assert {"endpoint", "status"} <= cluster.keys()
        assert "data" in cluster["certificateAuthority"].members


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

    @pytest.mark.parametrize("authority", ["no pem", PEM.decode()[:200], "-----BEGIN CERTIFICATE-----"])
    def test_an_authority_that_is_none_is_told_by_where_it_stands(self, authority: str) -> None:
        config = json.dumps(kubeconfig({"certificate-authority-data": b64(authority)}))
        with pytest.raises(AccessError) as caught:
            self.clusters(lambda *_: config).open(record(), plenty)
        where = "cluster demo: secret evenkeel/demo: cluster.certificate-authority-data"
        assert str(caught.value) == f"{where} is not a PEM certificate"

    @pytest.mark.parametrize(("writes", "most"), [(True, 32), (False, 600)])
    def test_no_more_connections_are_kept_than_a_function_may_have_files_open(self, writes: bool, most: int) -> None:
        config, clock = json.dumps(kubeconfig()), FakeClock()
        clusters = RecordedClusters(
            session=botocore.session.Session, secret=lambda *_: config, clock=clock, writes=writes
        )

        def opened(name: str) -> weakref.ref[Any]:
            return weakref.ref(clusters.open(record(name), plenty)._api)  # type: ignore[attr-defined]

        gc.disable()  # they are closed with their last user, not when somebody looks for garbage
        try:
            made = [opened(f"c{n}") for n in range(most)]
            clock.sleep(10 * 60)
            opened("c0")
            assert opened("another")() is not None
            assert [place for place, api in enumerate(made) if api() is None] == [1], "unused for longest"
            assert opened("c2")() is made[2]()
        finally:
            gc.enable()

    def test_clusters_that_come_round_in_turn_find_their_connections_as_far_as_there_is_room(self) -> None:
        config, clock = json.dumps(kubeconfig()), FakeClock()
        clusters = RecordedClusters(session=botocore.session.Session, secret=lambda *_: config, clock=clock)

        def one_round() -> list[Any]:
            clock.sleep(1 * 60)
            return [clusters.open(record(f"c{n}"), plenty)._api for n in range(64)]  # type: ignore[attr-defined]

        first = one_round()
        for _ in range(3):
            assert [api is before for api, before in zip(one_round(), first, strict=True)] == [True] * 32 + [False] * 32

    def test_what_a_server_serves_is_known_to_whoever_reaches_the_same_server_by_the_same_authority(self) -> None:
        other = b64(trustme.CA().cert_pem.bytes())
        configs = {
            "evenkeel/demo": kubeconfig(),
            "evenkeel/again": kubeconfig(user={"token": "another"}),
            "evenkeel/server": kubeconfig({"server": "https://api.other:6443"}),
            "evenkeel/authority": kubeconfig({"certificate-authority-data": other}),
        }
        clusters = self.clusters(lambda name, fresh: json.dumps(configs[name]))

        def served(secret: str) -> Any:
            access = {"kind": "kubeconfig", "secret": secret}
            return clusters.open(record(secret.partition("/")[2], access=access), plenty)._api._served  # type: ignore[attr-defined]

        first = served("evenkeel/demo")
        assert served("evenkeel/again") is first
        assert served("evenkeel/server") is not first
        assert served("evenkeel/authority") is not first

    def test_fifty_threads_open_fifty_clusters(self) -> None:
        config = json.dumps(kubeconfig())
        clusters = self.clusters(lambda name, fresh: config)
        together = threading.Barrier(50)

        def opened(number: int) -> str:
            together.wait(20)
            return str(clusters.open(record(f"c{number}"), plenty)._api.name)  # type: ignore[attr-defined]

        with ThreadPoolExecutor(50) as threads:
            assert list(threads.map(opened, range(50))) == [f"c{number}" for number in range(50)]

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
        assert host_of(second) == "https://moved.demo"

    def test_a_bad_secret_names_cluster_and_secret(self) -> None:
        with pytest.raises(AccessError, match=r"cluster demo: secret evenkeel/demo: user\.exec is refused"):
            self.clusters(lambda name, fresh: json.dumps(kubeconfig(user={"exec": {"command": "x"}}))).open(
                record(), plenty
            )

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
        return _configuration(str(file), context, "config")

    @pytest.mark.parametrize(
        "fields", [{"as": "jane"}, {"as-uid": "7"}, {"as-groups": ["a", "b"]}, {"as-user-extra": {"a": ["b"]}}]
    )
    def test_one_that_impersonates_is_refused_and_read_as_nobody_else(
        self, tmp_path: Path, fields: dict[str, Any]
    ) -> None:
        (name,) = fields
        with pytest.raises(ConfigError) as caught:
            self.read(tmp_path, fields)
        assert str(caught.value) == (
            f"config: user.{name} is refused: Evenkeel impersonates no other user: "
            "read the objects with kubectl, and plan with -f"
        )
        with pytest.raises(ConfigError, match=f"user.{name} is refused"):
            self.read(tmp_path, {}, fields, context="c1")

    def test_another_users_fields_and_empty_ones_are_nobodys_business(self, tmp_path: Path) -> None:
        found = self.read(tmp_path, {"as": "", "as-groups": []}, {"as": "jane"})
        assert SECRET in str(found.api_key)
