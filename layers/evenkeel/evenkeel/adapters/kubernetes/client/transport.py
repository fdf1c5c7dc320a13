"""The transport to one API server, with limits of time and size.

A server that sends one byte a second never exceeds a timeout per read. So one timeout covers the whole request. The
limit of size applies to the decompressed answer.
"""

import socket
import ssl
import zlib
from time import monotonic
from typing import Any

import urllib3
from urllib3.connection import HTTPSConnection
from urllib3.connectionpool import HTTPSConnectionPool
from urllib3.exceptions import ConnectTimeoutError, NameResolutionError, NewConnectionError
from urllib3.util.ssl_ import create_urllib3_context, ssl_wrap_socket

from evenkeel.adapters.addresses import connect

# The limit for DNS, TCP and TLS together, in seconds.
CONNECT_SECONDS = 3.0
# The limit of all pages of a list, in bytes. It allows about 18,000 node groups of the sandbox, with 3.5 KB and 162
# values each.
MOST_BYTES = 64 * 2**20
# The limit of all lists of a cluster that is checked in parallel with up to fifty others, in bytes. It allows about 600
# node groups.
MOST_BYTES_BESIDE_OTHERS = 4 * 2**20
# The memory per byte of JSON varies by a factor of thirty, so the number of values has a limit, too. This number of
# values needs up to 300 MB of the function's 512 MB.
MOST_VALUES = 3_000_000
_CHUNK = 2**16
# The number of connections that are kept, so that parallel writes need only one TLS handshake each.
_MAX_CONNECTIONS = 16


class UnusableAnswerError(Exception):
    """An answer that is too large, or not compressed as requested."""


class TooMuchError(UnusableAnswerError):
    """An answer that exceeds its allowance."""


class Allowance:
    """The number of bytes and of values that may still be received, for one list or for several lists."""

    def __init__(self, size: int = MOST_BYTES, values: int = MOST_VALUES) -> None:
        self._size, self._values = size, values
        self.size_left, self._values_left = size, values
        # A value needs at least two bytes, one of them for a separator. So a low limit of bytes also limits the values.
        self._is_counted = size > 2 * values
        self._uncounted: list[bytes] = []  # the first pieces, which may not have enough bytes for too many values

    def take(self, piece: bytes) -> None:
        """Subtract a piece of an answer. Raises TooMuchError where the allowance is exceeded."""
        self.size_left -= len(piece)
        if self.size_left < 0:
            raise TooMuchError(f"it is larger than {self._size // 2**20} MiB")
        if not self._is_counted:
            return
        self._uncounted.append(piece)
        if self._size - self.size_left <= self._values:
            return
        # In JSON, one of these characters precedes each value or its name. Only the outermost value has no such
        # character.
        self._values_left -= sum(len(piece) - len(piece.translate(None, b",[{")) for piece in self._uncounted)
        self._uncounted.clear()
        if self._values_left < 0:
            raise TooMuchError(f"it holds more than {self._values} values")


def read_body(response: urllib3.BaseHTTPResponse, allowance: Allowance) -> bytes:
    """Return the body. It is decompressed piece by piece, and never beyond the allowance.

    Raises:
        UnusableAnswerError: the body is too large, or compressed by another method than gzip.
        urllib3.exceptions.HTTPError: the connection broke, or timed out.
    """
    pieces: list[bytes] = []
    try:
        packed = response.headers.get("Content-Encoding", "identity").strip().lower()
        if packed not in ("gzip", "identity", ""):
            raise UnusableAnswerError("it is packed otherwise than with gzip")
        unpack = zlib.decompressobj(16 + zlib.MAX_WBITS) if packed == "gzip" else None
        while chunk := response.read(_CHUNK, decode_content=False):
            while chunk:
                piece = chunk if unpack is None else unpack.decompress(chunk, _CHUNK)
                chunk = b"" if unpack is None else unpack.unconsumed_tail
                allowance.take(piece)
                pieces.append(piece)
        if unpack is not None and pieces and not unpack.eof:
            raise UnusableAnswerError("it breaks off")
        response.release_conn()
    except zlib.error:
        response.close()
        raise UnusableAnswerError("it is not packed as it says") from None
    except BaseException:
        response.close()
        raise
    return b"".join(pieces)


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


def tls_context(ca: str) -> ssl.SSLContext:
    """Return a TLS context that trusts only this authority. Raises ssl.SSLError or ValueError where it is not valid."""
    context = create_urllib3_context(cert_reqs=ssl.CERT_REQUIRED)
    context.sslsocket_class = _TimedSocket
    context.check_hostname = True
    context.load_verify_locations(cadata=ca)
    return context


class _Connection(HTTPSConnection):
    """Connects only to addresses that a cluster may have. The timeout of a request includes the time to connect."""

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
    """Return a pool of connections without proxy, retries and redirects."""
    manager = urllib3.PoolManager(
        ssl_context=context,
        cert_reqs=ssl.CERT_REQUIRED,
        server_hostname=server_name,
        retries=False,
        maxsize=_MAX_CONNECTIONS,
    )
    manager.pool_classes_by_scheme = {"https": _SandboxPool if allow_loopback else _Pool}
    return manager
