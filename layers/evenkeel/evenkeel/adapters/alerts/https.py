"""Sends one POST by HTTPS, with the standard library.

The client verifies certificates, follows no redirect, does not read the body of the answer, and ends within seconds. An
error names only the host of a URL, because other parts of the URL may be a secret.
"""

import socket
import ssl
from collections.abc import Mapping
from contextlib import suppress
from http.client import HTTPException, HTTPSConnection
from threading import Event, Timer
from urllib.parse import SplitResult, urlsplit

from evenkeel.adapters.addresses import ForbiddenAddressError, connect
from evenkeel.application.incidents.alerting import ChannelError

# The timeouts of one read or write, and of the whole request, in seconds. The second timeout also ends a request whose
# answer arrives one byte every four seconds.
_SILENCE_SECONDS = 5.0
_DEADLINE_SECONDS = 8.0
_LONGEST_RETRY_AFTER = 3600.0


class _Connection(HTTPSConnection):
    """A connection that refuses forbidden addresses."""

    def __init__(self, host: str, port: int, seconds: float, tls: ssl.SSLContext, *, to_loopback: bool) -> None:
        super().__init__(host, port, timeout=seconds, context=tls)
        self.seconds, self.tls, self.to_loopback = seconds, tls, to_loopback

    def connect(self) -> None:
        self.sock = connect(self.host, self.port, self.seconds, allow_loopback=self.to_loopback)
        self.sock.settimeout(self.seconds)
        self.sock = self.tls.wrap_socket(self.sock, server_hostname=self.host)


class HttpsPost:
    """Posts JSON.

    Args:
        context: The certificates to trust. None: the certificates that this machine trusts.
        deadline: Seconds for the whole request.
        allow_loopback: True: the service may be on this machine. Only the sandbox sets this.
    """

    def __init__(
        self,
        context: ssl.SSLContext | None = None,
        deadline: float = _DEADLINE_SECONDS,
        *,
        allow_loopback: bool = False,
    ) -> None:
        self._context = context
        self._deadline = deadline
        self._allow_loopback = allow_loopback

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str], accepted: frozenset[int]) -> None:
        """Post a body.

        Args:
            accepted: HTTP statuses outside 200 to 299 that do not count as errors.

        Raises:
            ChannelError: The service did not answer, or answered with another status.
        """
        parts, port = _parts(url)
        host = str(parts.hostname)
        path = f"{parts.path or '/'}{'?' + parts.query if parts.query else ''}"
        timeout = min(_SILENCE_SECONDS, self._deadline)
        context = self._context or ssl.create_default_context()
        connection = _Connection(host, port, timeout, context, to_loopback=self._allow_loopback)
        cut = Event()
        watchdog = Timer(self._deadline, _cut, [connection, cut])
        watchdog.daemon = True
        watchdog.start()
        try:
            connection.request("POST", path, body, {"Content-Type": "application/json", **headers})
            answer = connection.getresponse()
            status, pause = answer.status, _seconds(answer.getheader("Retry-After"))
            # If ``_cut`` has ended the connection, the library still treats the received headers as complete.
            if cut.is_set():
                raise TimeoutError
        except ForbiddenAddressError as error:  # the error names only the host and an address
            raise ChannelError(f"{error}: correct the URL", is_away=False) from None
        except (OSError, HTTPException, ValueError) as error:  # the text of the error may contain the path
            raise ChannelError(f"{host} gives no answer: {type(error).__name__}") from None
        finally:
            watchdog.cancel()
            connection.close()
        if not (200 <= status < 300 or status in accepted):
            is_away = status >= 500 or status in (408, 429)
            raise ChannelError(f"{host} answers {status}", is_away=is_away, pause=pause if status == 429 else None)


def _parts(url: str) -> tuple[SplitResult, int]:
    """Return the parts of an https:// URL and its port. Raises ChannelError, which does not quote the URL."""
    try:
        parts = urlsplit(url)
        port = parts.port or 443
    except ValueError:
        parts, port = urlsplit(""), 443
    if parts.scheme != "https" or not parts.hostname or "@" in parts.netloc or not url.isprintable() or " " in url:
        raise ChannelError("its address is no https:// URL, or names a user", is_away=False)
    return parts, port


def _cut(connection: HTTPSConnection, cut: Event) -> None:
    """Shut the connection down, which ends a pending read or write."""
    cut.set()
    with suppress(OSError, AttributeError):
        connection.sock.shutdown(socket.SHUT_RDWR)


def _seconds(text: str | None) -> float | None:
    """Return the seconds in a Retry-After, as Slack and PagerDuty send them; None for a date or a missing header."""
    return min(float(text), _LONGEST_RETRY_AFTER) if text and text.isascii() and text.isdigit() else None
