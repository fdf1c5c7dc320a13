"""HTTPS connections to clusters and to notification channels: to allowed addresses only, and with a limit of time.

A server that sends one byte a second never exceeds a timeout per read. So one timeout covers the whole request.
"""

import socket
import ssl
from time import monotonic
from typing import Any

import urllib3
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.ssl_ import ssl_wrap_socket

from evenkeel.adapters.addresses import connect

# The limit for DNS, TCP and TLS together, in seconds.
CONNECT_SECONDS = 3.0
# The number of connections that are kept, so that parallel writes need only one TLS handshake each.
_MAX_CONNECTIONS = 16


class _TimedSocket(ssl.SSLSocket):
    """A socket whose timeout limits all reads and writes together, until a new timeout is set."""

    _until: float | None = None

    def settimeout(self, value: float | None) -> None:
        self._until = None if value is None else monotonic() + value
        super().settimeout(value)

    def recv_into(self, *arguments: Any, **named: Any) -> int:
        self._check_time()
        return super().recv_into(*arguments, **named)

    def send(self, *arguments: Any, **named: Any) -> int:
        self._check_time()
        return super().send(*arguments, **named)

    def _check_time(self) -> None:
        if self._until is not None:
            seconds_left = self._until - monotonic()
            if seconds_left <= 0:
                raise TimeoutError("timed out")
            super().settimeout(seconds_left)


class _Connection(HTTPSConnection):
    """Connects only to allowed addresses. The timeout of a request includes the time to connect."""

    to_loopback = False

    def connect(self) -> None:
        begun, host = monotonic(), self.host.strip("[]")
        self.sock = ssl_wrap_socket(
            self._connected(host), ssl_context=self.ssl_context, server_hostname=self.server_hostname or host
        )
        self.is_verified = True  # the context always verifies
        # The request gets the time that remains after connecting.
        if self.timeout is not None:
            self.timeout = max(0.001, self.timeout - (monotonic() - begun))

    def _connected(self, host: str) -> socket.socket:
        seconds = min(CONNECT_SECONDS, self.timeout or CONNECT_SECONDS)
        try:
            return connect(host, self.port, seconds, allow_loopback=self.to_loopback)
        except socket.gaierror as error:
            raise NameResolutionError(self.host, self, error) from None
        except TimeoutError:
            raise ConnectTimeoutError(self, f"no connection within {seconds:.0f} s") from None
        except OSError as error:
            raise NewConnectionError(self, str(error)) from None


class _SandboxConnection(_Connection):
    to_loopback = True


class _Pool(HTTPSConnectionPool):
    ConnectionCls = _Connection


class _SandboxPool(HTTPSConnectionPool):
    ConnectionCls = _SandboxConnection


def connections(context: ssl.SSLContext, server_name: str | None, *, allow_loopback: bool) -> urllib3.PoolManager:
    """Return a pool of connections without proxy and retries. ``context`` must verify certificates."""
    context.sslsocket_class = _TimedSocket
    manager = urllib3.PoolManager(
        ssl_context=context,
        cert_reqs=ssl.CERT_REQUIRED,
        server_hostname=server_name,
        retries=False,
        maxsize=_MAX_CONNECTIONS,
    )
    manager.pool_classes_by_scheme = {"https": _SandboxPool if allow_loopback else _Pool}
    return manager
