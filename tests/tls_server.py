"""Local servers that are no API server. Each sends the answer of its test."""

import json
import socket
import ssl
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress

import trustme

from sandbox.kube.access import kubeconfig

AUTHORITY = trustme.CA()
CA_PEM = AUTHORITY.cert_pem.bytes().decode()
TOKEN = "very-secret"
#: called with the connection and the head of its first request
Answer = Callable[[socket.socket, bytes], None]


def kubeconfig_for(url: str, ca_pem: str = CA_PEM) -> str:
    return json.dumps(kubeconfig(url=url, ca_pem=ca_pem, user="evenkeel", token=TOKEN))


def response(status: int, body: bytes, headers: Mapping[str, str] = {}) -> bytes:
    fields = {"Content-Length": str(len(body)), "Connection": "close", **headers}
    lines = [f"HTTP/1.1 {status} -", *(f"{name}: {value}" for name, value in fields.items())]
    return "\r\n".join([*lines, "", ""]).encode() + body


@contextmanager
def serving(answer: Answer, *, tls: bool = True) -> Iterator[str]:
    """Yield the URL of a server that answers each connection's first request like this."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    AUTHORITY.issue_cert("127.0.0.1").configure_cert(context)
    listening = socket.create_server(("127.0.0.1", 0))

    def talk(plain: socket.socket) -> None:
        with suppress(OSError), plain:
            connection = context.wrap_socket(plain, server_side=True) if tls else plain
            with connection:
                head = connection.recv(65536)
                while tls and b"\r\n\r\n" not in head and (more := connection.recv(65536)):
                    head += more
                answer(connection, head)

    def accept() -> None:
        with suppress(OSError):
            while True:
                plain, _ = listening.accept()
                threading.Thread(target=talk, args=(plain,), daemon=True).start()

    threading.Thread(target=accept, daemon=True).start()
    try:
        yield f"https://127.0.0.1:{listening.getsockname()[1]}"
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        listening.close()
