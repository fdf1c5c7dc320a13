"""Sends one POST by HTTPS.

The client verifies certificates, follows no redirect, does not read the body of the answer, and ends within seconds. An
error names only the host of a URL, because other parts of the URL may be a secret.
"""

import ssl
from collections.abc import Mapping
from dataclasses import dataclass, field
from urllib.parse import urlsplit

import urllib3

from evenkeel.adapters.addresses import ForbiddenAddressError
from evenkeel.adapters.connections import connections
from evenkeel.application.incidents.alerting import ChannelError

_DEADLINE_SECONDS = 8.0
_LONGEST_RETRY_AFTER = 3600.0


@dataclass(frozen=True)
class HttpsPost:
    """Posts JSON."""

    context: ssl.SSLContext | None = None  # the certificates to trust; None: those that this machine trusts
    deadline: float = _DEADLINE_SECONDS  # for the whole request
    allow_loopback: bool = field(default=False, kw_only=True)  # the service may be on this machine, as in the sandbox

    def __call__(self, url: str, body: bytes, headers: Mapping[str, str], accepted: frozenset[int]) -> None:
        """Post a body. Raises ChannelError if the service does not answer, or answers with another status.

        ``accepted``: HTTP statuses outside 200 to 299 that do not count as errors.
        """
        host = _host(url)
        context = self.context or ssl.create_default_context()
        try:
            with connections(context, None, allow_loopback=self.allow_loopback) as pool:
                answer = pool.request(
                    "POST",
                    url,
                    body=body,
                    headers={"Content-Type": "application/json", **headers},
                    timeout=urllib3.Timeout(total=self.deadline),
                    redirect=False,
                    preload_content=False,
                )
                answer.close()
        except ForbiddenAddressError as error:  # the error names only the host and an address
            raise ChannelError(f"{error}: correct the URL", is_away=False) from None
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:  # its text may contain the path
            raise ChannelError(f"{host} gives no answer: {type(error).__name__}") from None
        status, pause = answer.status, _seconds(answer.headers.get("Retry-After"))
        if not (200 <= status < 300 or status in accepted):
            is_away = status >= 500 or status in (408, 429)
            raise ChannelError(f"{host} answers {status}", is_away=is_away, pause=pause if status == 429 else None)


def _host(url: str) -> str:
    """Return the host of an https:// URL. Raises ChannelError, which does not quote the URL."""
    try:
        parts = urlsplit(url)
        is_port = parts.port != 0  # raises ValueError for a port that is no number, or too large
    except ValueError:
        parts, is_port = urlsplit(""), False
    if (
        not is_port
        or parts.scheme != "https"
        or not parts.hostname
        or "@" in parts.netloc
        or not url.isprintable()
        or " " in url
    ):
        raise ChannelError("its address is no https:// URL with a port from 1 to 65535, or names a user", is_away=False)
    return parts.hostname


def _seconds(text: str | None) -> float | None:
    """Return the seconds in a Retry-After, as Slack and PagerDuty send them; None for a date or a missing header."""
    return min(float(text), _LONGEST_RETRY_AFTER) if text and text.isascii() and text.isdigit() else None
