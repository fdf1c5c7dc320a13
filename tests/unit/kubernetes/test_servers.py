"""Addresses of API servers, and their audiences."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.access_config import AwsOidcAccess
from evenkeel.domain.model.servers import own_audience, read_server

HOSTS = st.from_regex(r"[a-z0-9]([a-z0-9.-]{0,20}[a-z0-9])?", fullmatch=True)
SERVERS = st.builds(
    lambda host, port, path: f"https://{host}{port}{path}",
    HOSTS | st.sampled_from(["[2001:db8::1]", "10.0.0.1", "2130706433"]),
    st.integers(1, 65535).map(lambda number: f":{number}") | st.just(""),
    st.from_regex(r"(/[a-z0-9.-]{0,10}){0,3}", fullmatch=True),
)
(AUDIENCE,) = (part.pattern for part in AwsOidcAccess.model_fields["audience"].metadata if hasattr(part, "pattern"))


@given(SERVERS)
def test_an_address_is_read_without_trailing_slashes(text: str) -> None:
    assert read_server(text) == text.rstrip("/")
    assert read_server(f"{text}/") == read_server(text)


@given(SERVERS, SERVERS)
def test_each_server_has_its_own_audience(one: str, other: str) -> None:
    same = read_server(one) == read_server(other)
    assert (own_audience(read_server(one)) == own_audience(read_server(other))) is same


@given(SERVERS)
def test_no_record_can_name_a_servers_own_audience(text: str) -> None:
    assert not re.search(AUDIENCE, own_audience(read_server(text)))
    assert len(own_audience(read_server(text))) <= 1000


@pytest.mark.parametrize("port", ["0", "00", "65536", "99999"])
def test_a_port_that_does_not_exist_is_refused(port: str) -> None:
    for path in ("", "/", "/k8s/clusters/c-1"):
        with pytest.raises(ValueError, match=r"^must have a port from 1 to 65535$"):
            read_server(f"https://10.0.0.1:{port}{path}")
    with pytest.raises(ValueError, match=r"(?s)endpoint.*must have a port from 1 to 65535"):
        AwsOidcAccess(kind="aws-oidc", endpoint=f"https://[2001:db8::1]:{port}", ca_data="")


@pytest.mark.parametrize(
    "text",
    [
        *("", "https://", "http://a", "HTTPS://a", "https://a b", "https://a\n", "https://a@b", "https://a/?x"),
        *("https://a#b", "https://a/\u00e9", "https://\u043fрод.example", "https://a:123456", "https://*.example"),
        "https://a/" + "x" * 900,
        *(None, 7, ["https://a"], b"https://a"),
    ],
)
def test_an_invalid_address_is_refused_without_quoting_it(text: object) -> None:
    with pytest.raises(ValueError, match=r"^must be https:// with a host, and no user, query or fragment$"):
        read_server(text)
