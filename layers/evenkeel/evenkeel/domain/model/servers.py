"""Addresses of API servers, and the audience of tokens that only one API server accepts."""

import re

_SERVER = re.compile(r"https://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::([0-9]{1,5}))?(?:/[!-~]*)?")
# An audience of AWS has at most 1,000 characters.
_LONGEST = 900
_LAST_PORT = 65535


def read_server(text: object) -> str:
    """Return the address of an API server, without a slash at its end.

    Raises:
        ValueError: The text has another form. The message omits the value, which could contain a password.
    """
    match = _SERVER.fullmatch(text) if isinstance(text, str) else None
    if match is None or len(match[0]) > _LONGEST or any(character in match[0] for character in "@?#*"):
        raise ValueError("must be https:// with a host, and no user, query or fragment")
    if match[1] is not None and not 1 <= int(match[1]) <= _LAST_PORT:
        raise ValueError(f"must have a port from 1 to {_LAST_PORT}")
    return match[0].rstrip("/")


def own_audience(server: str) -> str:
    """Return the audience of tokens that only this server accepts.

    The audience depends only on the address to which the token is sent. So if an attacker registers the address of
    their own server, that server receives only tokens that no other server accepts.
    """
    return f"evenkeel:{server}"
