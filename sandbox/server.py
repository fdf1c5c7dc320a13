"""The HTTP server behind the sandbox's endpoints: a loopback port and one function that answers requests."""

from __future__ import annotations

import ssl
import threading
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class HttpRequest:
    """One request; header names are in lower case."""

    method: str
    target: str
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True, kw_only=True)
class Response:
    """The answer to a request. With `cut`, the connection ends in the middle of the body."""

    status: int
    body: bytes
    content_type: str = "application/json"
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


class LoopbackServer(AbstractContextManager["LoopbackServer"]):
    """A server on a free loopback port, with TLS if it has a TLS context.

    `respond` runs in the connection's own thread. If it returns None, the connection ends without an answer. A body of
    more than `max_body` bytes is answered with `too_large`.
    """

    def __init__(
        self,
        respond: Callable[[HttpRequest], Response | None],
        *,
        tls: ssl.SSLContext | None = None,
        max_body: int = 2**31,
        too_large: Response | None = None,
    ) -> None:
        self._server = _Server(("127.0.0.1", 0), _Handler)
        self._server.respond, self._server.tls = respond, tls
        self._server.max_body, self._server.too_large = max_body, too_large
        self.address = f"127.0.0.1:{self._server.server_port}"
        self.url = f"{'http' if tls is None else 'https'}://{self.address}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128
    respond: Callable[[HttpRequest], Response | None]
    tls: ssl.SSLContext | None
    max_body: int
    too_large: Response | None

    def get_request(self) -> tuple[Any, Any]:
        connection, address = super().get_request()
        if self.tls is not None:
            # The handshake happens at the first read, in the connection's thread, so a slow client blocks no other
            # client.
            connection = self.tls.wrap_socket(connection, server_side=True, do_handshake_on_connect=False)
        return connection, address

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Print nothing: tests have clients that hang up or that reject the certificate."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise, each request waits for the client's delayed acknowledgement
    wbufsize = -1  # head and body are sent in one segment
    timeout = 60
    server: _Server

    def _serve(self) -> None:
        length = self.headers.get("Content-Length") or "0"
        if length.isdigit() and int(length) <= self.server.max_body:
            headers = {name.lower(): value for name, value in self.headers.items()}
            body = self.rfile.read(int(length))
            response = self.server.respond(
                HttpRequest(method=self.command, target=self.path, headers=headers, body=body)
            )
        else:
            self.close_connection = True
            response = self.server.too_large
        if response is None:
            self.close_connection = True
            return
        self.send_response_only(response.status)
        headers = {"Content-Type": response.content_type, "Content-Length": str(len(response.body)), **response.headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(response.body[: len(response.body) // 2] if response.cut else response.body)
        self.close_connection = self.close_connection or response.cut
        self.wfile.flush()

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve  # noqa: N815 (the names that http.server calls)

    def log_message(self, format: str, *args: Any) -> None:
        """Print nothing: a request can carry a token."""
