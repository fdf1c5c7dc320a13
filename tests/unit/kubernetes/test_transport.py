"""Connections lead to allowed addresses only, and their time and size are bounded."""

import gzip
import io
import socket
import ssl
import threading
from typing import Any
from unittest.mock import MagicMock

import pytest
import urllib3
from hypothesis import given
from hypothesis import strategies as st

from evenkeel.adapters import connections
from evenkeel.adapters.addresses import ForbiddenAddressError, check_address, connect
from evenkeel.adapters.kubernetes.client.lists import read_json
from evenkeel.adapters.kubernetes.client.transport import Allowance, TooMuchError, UnusableAnswerError, read_body

FORBIDDEN = [
    *("127.0.0.1", "127.255.1.1", "0.0.0.0", "0.1.2.3", "169.254.169.254", "169.254.170.2"),
    *("224.0.0.1", "239.1.1.1", "240.0.0.1", "255.255.255.255"),
    *("::", "::1", "fe80::1", "fe80::1%eth0", "fd00:ec2::254", "fd00:ec2::23", "ff02::1"),
    *("::ffff:127.0.0.1", "::ffff:169.254.169.254", "::ffff:a9fe:a9fe", "::127.0.0.1"),
    *("64:ff9b::169.254.169.254", "2002:a9fe:a9fe::1", "2002:7f00:1::"),
    *("64:ff9b:1::a9fe:a9fe", "64:ff9b:1:a9fe:a9:fe00::", "::ffff:0:169.254.169.254", "::ffff:0:10.0.0.1"),
    *("2001:0:4136:e378:8000:63bf:3fff:fdd2", "100.100.100.200", "::ffff:100.100.100.200", "168.63.129.16"),
    *("192.0.0.170", "192.0.0.171", "198.18.0.1", "198.19.255.255", "::ffff:198.18.0.1"),
    *("2001:db8::5efe:169.254.169.254", "2a05:d014::200:5efe:127.0.0.1", "fd12::5efe:a9fe:a9fe"),
    *("192.0.0.192", "64:ff9b::192.0.0.192", "fec0::1", "feff::1", "fd20:ce::254", "fd00:c1::a9fe:a9fe", "fd00:42::42"),
]
ALLOWED = [
    *("10.0.0.1", "172.16.3.4", "192.168.1.1", "100.64.0.1", "3.120.1.1"),
    *("100.100.100.201", "168.63.129.17", "192.0.0.193", "2001:db8::1", "64:ff9b:2::1", "fd20:ce::1"),
    *("fd12:3456::1", "2a05:d014::1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1"),
    *("192.0.0.169", "192.0.0.172", "198.17.255.255", "198.20.0.0", "2001:db8::5efe:10.0.0.1"),
]


class TestAddresses:
    @pytest.mark.parametrize("address", FORBIDDEN)
    def test_addresses_of_this_machine_and_the_cloud_are_forbidden(self, address: str) -> None:
        with pytest.raises(ForbiddenAddressError, match=r"api\.demo leads to"):
            check_address("api.demo", address, allow_loopback=False)

    @pytest.mark.parametrize("address", ALLOWED)
    def test_private_networks_are_allowed(self, address: str) -> None:
        check_address("api.demo", address, allow_loopback=False)

    def test_the_sandboxes_setting_allows_only_loopback(self) -> None:
        for address in ("127.0.0.1", "::1", "::ffff:127.0.0.1"):
            check_address("localhost", address, allow_loopback=True)
        for address in ("169.254.169.254", "0.0.0.0", "::", "fe80::1", "fd00:ec2::254", "::ffff:169.254.169.254"):
            with pytest.raises(ForbiddenAddressError):
                check_address("localhost", address, allow_loopback=True)

    @given(st.ip_addresses(network="169.254.0.0/16") | st.ip_addresses(network="127.0.0.0/8"))
    def test_a_forbidden_address_is_forbidden_in_every_ipv6_form(self, address: Any) -> None:
        number = int(address)
        for form in (f"::ffff:{address}", f"64:ff9b::{address}", f"2002:{number >> 16:x}:{number & 0xFFFF:x}::1"):
            with pytest.raises(ForbiddenAddressError):
                check_address("api.demo", form, allow_loopback=False)


class Network:
    """The answers of the resolver, and the addresses of connections."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *answers: list[str]) -> None:
        self.answers = list(answers)
        self.connected: list[str] = []
        connection = MagicMock()
        connection.connect.side_effect = lambda address: self.connected.append(address[0])

        def resolve(host: str, port: int, **_: Any) -> list[Any]:
            addresses = self.answers.pop(0)
            return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (address, port)) for address in addresses]

        monkeypatch.setattr(socket, "getaddrinfo", resolve)
        monkeypatch.setattr(socket, "socket", lambda *_: connection)


class TestNames:
    def test_a_name_is_resolved_once_and_connected_to_the_checked_address(
        self, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        network = Network(monkeypatch, ["10.0.0.7"], ["169.254.169.254"])
        connect("rebinding.example", 443, 3, allow_loopback=False)
        assert network.connected == ["10.0.0.7"]
        assert network.answers == [["169.254.169.254"]], "a second question could have another answer"

    def test_one_forbidden_address_among_others_is_refused(self, monkeypatch: pytest.MonkeyPatch) -> None:
        network = Network(monkeypatch, ["10.0.0.7", "127.0.0.1"])
        with pytest.raises(ForbiddenAddressError):
            connect("mixed.example", 443, 3, allow_loopback=False)
        assert network.connected == []

    def test_an_invalid_name_is_not_found(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(socket, "getaddrinfo", lambda host, *_, **__: host.encode("idna"))
        with pytest.raises(socket.gaierror, match="no name of a host"):
            connect("a" * 64 + ".example", 443, 3, allow_loopback=False)

    def test_a_late_resolver_is_not_awaited(self, monkeypatch: pytest.MonkeyPatch) -> None:
        never = threading.Event()
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_, **__: never.wait())
        with pytest.raises(TimeoutError, match="not resolved in time"):
            connect("dark.example", 443, 0.01, allow_loopback=False)
        never.set()


def answer(body: bytes, **headers: str) -> urllib3.HTTPResponse:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return urllib3.HTTPResponse(io.BytesIO(body), headers=named, preload_content=False)


class TestBodies:
    @given(st.binary(max_size=3000).map(lambda data: data * 50))
    def test_a_body_is_unpacked(self, body: bytes) -> None:
        assert read_body(answer(body), Allowance()) == body
        assert read_body(answer(gzip.compress(body), content_encoding="gzip"), Allowance()) == body

    def test_plain_bodies_and_pages_count_together(self) -> None:
        allowance = Allowance(size=2**20)
        read_body(answer(b" " * 600_000), allowance)
        with pytest.raises(UnusableAnswerError, match="it is larger than 1 MiB"):
            read_body(answer(b" " * 600_000), allowance)

    def test_json_with_too_many_values_is_refused_before_it_is_parsed(self) -> None:
        with pytest.raises(UnusableAnswerError, match="it holds more than 3000000 values"):
            read_body(answer(b"[" + b"[]," * 2_000_000 + b"[]]"), Allowance())

    def test_values_are_counted_only_where_they_may_be_too_many(self) -> None:
        smallest = b"[" + b"0," * 500 + b"0]"
        read_body(answer(smallest), Allowance(size=len(smallest), values=len(smallest) // 2 + 1))
        with pytest.raises(TooMuchError, match="it holds more than 400 values"):
            read_body(answer(smallest), Allowance(size=len(smallest), values=400))

    def test_the_values_of_several_bodies_count_together(self) -> None:
        body, allowance = b"[" + b"0," * 99 + b"0]", Allowance(size=10_000, values=350)  # 100 values in 201 bytes
        for _ in range(3):
            read_body(answer(body), allowance)
        with pytest.raises(TooMuchError, match="it holds more than 350 values"):
            read_body(answer(body), allowance)

    @pytest.mark.parametrize(
        ("body", "encoding", "says"),
        [
            (b"{}", "gzip", "not packed as it says"),
            (gzip.compress(b"{}" * 500, mtime=0)[:-9], "gzip", "it breaks off"),
            (b"{}", "br", "packed otherwise than with gzip"),
            (b"{}", "gzip, gzip", "packed otherwise than with gzip"),
        ],
    )
    def test_another_encoding_is_refused(self, body: bytes, encoding: str, says: str) -> None:
        with pytest.raises(UnusableAnswerError, match=says):
            read_body(answer(body, content_encoding=encoding), Allowance())


def test_a_sockets_timeout_is_for_all_its_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    at = 100.0
    given: list[float | None] = []
    monkeypatch.setattr(connections, "monotonic", lambda: at)
    monkeypatch.setattr(ssl.SSLSocket, "settimeout", lambda _, value: given.append(value), raising=False)
    monkeypatch.setattr(ssl.SSLSocket, "recv_into", lambda *_, **__: 1)
    connection = connections._TimedSocket.__new__(connections._TimedSocket)
    connection.settimeout(8.0)
    for _ in range(7):
        assert connection.recv_into(bytearray(1)) == 1
        at += 1.0
    assert given == [8.0, 8.0, 7.0, 6.0, 5.0, 4.0, 3.0, 2.0]
    at += 1.0
    with pytest.raises(TimeoutError):
        connection.recv_into(bytearray(1))


def test_half_a_character_in_an_answer_is_replaced() -> None:
    answer = read_json(b'{"message": ["a\\ud800b", "\\ud83d\\ude00"]}')
    assert answer == {"message": ["a?b", "\U0001f600"]}
