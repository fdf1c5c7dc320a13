"""The layer's part of the Kubernetes client still authenticates itself, and still verifies servers."""

import base64
import json
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import trustme

from sandbox.lambda_runtime import HostBuild, RuntimeProcess

AUTHORITY = trustme.CA()
# A function that reads one object as the functions do, and answers with it or with the line of its error.
READER = """
from evenkeel.adapters.kubernetes.access.connection import api_client
from evenkeel.adapters.kubernetes.access.kubeconfig import read_kubeconfig
from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.application.errors import EvenkeelError
from evenkeel.bootstrap import SystemClock


def handler(kubeconfig, context):
    try:
        client = api_client(read_kubeconfig(kubeconfig, "cluster demo"), "cluster demo", allow_loopback=True)
        return KubernetesApi("demo", client, None, SystemClock()).get("/version", lambda: 10.0)
    except EvenkeelError as error:
        return str(error)
"""


class Handler(BaseHTTPRequestHandler):
    """Answers with the name in the client's certificate."""

    def do_GET(self) -> None:
        quote = self.connection.getpeercert()  # type: ignore[attr-defined]
        names = [value for kind, value in quote["subjectAltName"] if kind == "DNS"]
        body = json.dumps({"user": names}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing."""


class Server(ThreadingHTTPServer):
    def handle_error(self, request: object, client_address: object) -> None:
        """Ignore the error: tests have refused clients."""


@pytest.fixture
def url() -> Iterator[str]:
    """Yield the URL of a server that refuses clients without a certificate of the authority."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.verify_mode = ssl.CERT_REQUIRED
    AUTHORITY.configure_trust(context)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    server = Server(("127.0.0.1", 0), Handler)
    server.socket = context.wrap_socket(server.socket, server_side=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"https://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


@pytest.fixture
def reader(twin: HostBuild, tmp_path: Path) -> Iterator[RuntimeProcess]:
    (tmp_path / "app.py").write_text(READER)
    with RuntimeProcess(function=tmp_path, python=twin.python, layers=twin.layers, runtime=twin.runtime) as runtime:
        yield runtime


def packed(data: bytes) -> str:
    return base64.b64encode(data).decode()


def kubeconfig(url: str, authority: trustme.CA = AUTHORITY, **user: object) -> str:
    leaf = AUTHORITY.issue_cert("evenkeel.example")
    certificate = {
        "client-certificate-data": packed(leaf.cert_chain_pems[0].bytes()),
        "client-key-data": packed(leaf.private_key_pem.bytes()),
    }
    cluster = {"server": url, "certificate-authority-data": packed(authority.cert_pem.bytes())}
    return json.dumps(
        {
            "current-context": "demo",
            "contexts": [{"name": "demo", "context": {"cluster": "demo", "user": "demo"}}],
            "clusters": [{"name": "demo", "cluster": cluster}],
            "users": [{"name": "demo", "user": user or certificate}],
        }
    )


def test_a_client_certificate_is_shown(reader: RuntimeProcess, url: str) -> None:
    assert reader.invoke(kubeconfig(url)) == {"user": ["evenkeel.example"]}


@pytest.mark.parametrize("refused", ["no certificate", "another authority"])
def test_a_refusal_on_either_side_is_one_line(reader: RuntimeProcess, url: str, refused: str) -> None:
    token = {"token": "very-secret"} if refused == "no certificate" else {}
    answer = reader.invoke(kubeconfig(url, AUTHORITY if token else trustme.CA(), **token))
    assert isinstance(answer, str)
    assert answer.startswith("demo") if token else "certificate verify failed" in answer
    assert "\n" not in answer
    assert "very-secret" not in answer


def test_a_plug_in_is_refused(reader: RuntimeProcess, url: str) -> None:
    answer = reader.invoke(kubeconfig(url, exec={"command": "aws-iam-authenticator"}))
    assert answer == "cluster demo: user.exec is refused: it would run a program"
