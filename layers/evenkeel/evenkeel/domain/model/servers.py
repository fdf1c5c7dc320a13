"""Addresses of API servers as people write them, and the audience of a token that is good at one of them alone."""

import re

_SERVER = re.compile(r"https://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[!-~]*)?")
# An audience of AWS has at most 1,000 characters.
_LONGEST = 900


def read_server(text: object) -> str:
    """The address of an API server, without a slash at its end.

    Raises:
        ValueError: says what it must be, never what it is: a password could stand in it.
    """
    if (
        not isinstance(text, str)
        or not _SERVER.fullmatch(text)
        or len(text) > _LONGEST
        or any(character in text for character in "@?#*")
    ):
        raise ValueError("must be https:// with a host, and no user, query or fragment")
    return text.rstrip("/")


def own_audience(server: str) -> str:
    """The audience of tokens for this server and for no other.

    It is made from the address that a token is sent to and from nothing else: whoever gets one by registering an
    address of his own holds a token that no other server accepts.
    """
    return f"evenkeel:{server}"
