"""Hostile local API servers: each costs a check at most its time limit, and no memory."""

import gzip
import json
import resource
import socket
import time
import zlib
from collections.abc import Iterator

import pytest

from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
from evenkeel.application.errors import AccessError, ClusterUnavailableError
from evenkeel.application.rebalancing import observe
from evenkeel.application.rebalancing.observe import observe_cluster
from evenkeel.bootstrap import SystemClock
from tests.fakes import record
from tests.tls_server import TOKEN, Answer, kubeconfig_for, serving

#: seconds of a check in these tests, instead of eight, and the extra time allowed on a busy machine
SECONDS, SLACK = 0.6, 2.0
OK = b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\n"


def drip(connection: socket.socket, pieces: Iterator[bytes]) -> None:
    """Send a piece every 50 ms, so that no single read times out."""
    for piece in pieces:
        connection.sendall(piece)
        time.sleep(0.05)


def flood(connection: socket.socket, head: bytes) -> None:
    connection.sendall(head)
    while True:
        connection.sendall(b" " * 2**20)


def without_end(piece: bytes) -> Iterator[bytes]:
    while True:
        yield piece


def gigabytes() -> bytes:
    """Return two gigabytes of zeros, compressed to two megabytes."""
    packer = zlib.compressobj(9, wbits=31)
    first, again = (packer.compress(bytes(2**20)) + packer.flush(zlib.Z_FULL_FLUSH) for _ in range(2))
    return first + again * 2047


def page(number: int) -> bytes:
    item = {"metadata": {"name": f"m{number}", "namespace": "n", "annotations": {"a": "x" * 1000}}}
    body = {"kind": "MachineSetList", "items": [item] * 100, "metadata": {"continue": f"p{number}"}}
    text = gzip.compress(json.dumps(body).encode(), 1)
    return OK + b"Content-Encoding: gzip\r\nContent-Length: %d\r\n\r\n" % len(text) + text


def pages(connection: socket.socket, _: bytes) -> None:
    """Send a page every 50 ms: the check's time limit comes before its limit of bytes, however fast it reads."""
    drip(connection, (page(number) for number in range(100_000) if not number or connection.recv(65536)))


SERVERS: dict[str, Answer] = {
    "headers, a letter at a time": lambda connection, _: drip(
        connection, iter([OK, *[b"X: y\r\n"] * 10, *[b"z"] * 10_000])
    ),
    "headers without end": lambda connection, _: drip(
        connection, iter([OK, *[b"HTTP/1.1 100 Continue\r\n\r\n"] * 10_000])
    ),
    "only interim answers": lambda connection, _: drip(connection, without_end(b"HTTP/1.1 100 Continue\r\n\r\n")),
    "a body, a letter at a time": lambda connection, _: drip(
        connection, iter([OK + b"Content-Length: 100000\r\n\r\n{", *[b" "] * 100_000])
    ),
    "chunks of a letter": lambda connection, _: drip(
        connection, iter([OK + b"Transfer-Encoding: chunked\r\n\r\n", *[b"1\r\n \r\n"] * 100_000])
    ),
    "silence": lambda connection, _: drip(connection, without_end(b"")),
    "pages without end": pages,
}
BOMBS: dict[str, Answer] = {
    "gigabytes in a gzip": lambda connection, _: connection.sendall(
        OK + b"Content-Encoding: gzip\r\n\r\n" + gigabytes()
    ),
    "small JSON that grows": lambda connection, _: connection.sendall(OK + b"\r\n[" + b"[]," * 5_000_000),
    "a body without end": lambda connection, _: flood(connection, OK + b"\r\n"),
}


def preview_of(url: str, *, allow_loopback: bool = True, **how: bool) -> tuple[str, float]:
    """Return why the cluster there is not checked, and after how many seconds."""
    text = kubeconfig_for(url)
    clusters = RecordedClusters(
        session=None, secret=lambda *_: text, clock=SystemClock(), allow_loopback=allow_loopback
    )
    begun = time.monotonic()
    with pytest.raises((ClusterUnavailableError, AccessError)) as caught:
        observe_cluster(clusters, record(flavours=["openshift"]), lambda: begun + 60 - time.monotonic(), **how)
    said = str(caught.value)
    assert "demo" in said
    assert "\n" not in said
    assert TOKEN not in said
    return said, time.monotonic() - begun


@pytest.fixture(autouse=True)
def _short_checks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "CHECK_SECONDS", SECONDS)


@pytest.mark.parametrize("handle", SERVERS.values(), ids=SERVERS)
def test_an_endless_answer_costs_one_check_and_no_more(handle: Answer) -> None:
    with serving(handle) as url:
        said, seconds = preview_of(url)
    assert "does not answer: not within" in said or "no time left" in said
    assert SECONDS * 0.9 <= seconds < SECONDS + SLACK


def test_an_endless_handshake_is_not_waited_for() -> None:
    hello = b"\x16\x03\x03\x40\x00"  # a record of 16 KB begins
    with serving(lambda connection, _: drip(connection, iter([hello, *[b"x"] * 16_000])), tls=False) as url:
        said, seconds = preview_of(url)
    assert "does not answer" in said
    assert seconds < SECONDS + SLACK


@pytest.mark.parametrize("handle", BOMBS.values(), ids=BOMBS)
def test_an_answer_that_would_fill_the_memory_is_cut_off(handle: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "CHECK_SECONDS", 8.0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    with serving(handle) as url:
        said, seconds = preview_of(url)
    assert "it is larger than 64 MiB" in said or "it holds more than 3000000 values" in said
    assert seconds < 8 + SLACK
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 250 * 1024, "KiB"


@pytest.mark.parametrize("handle", [*BOMBS.values(), pages], ids=[*BOMBS, "pages without end"])
def test_beside_others_it_is_cut_off_after_four_mebibytes(handle: Answer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(observe, "CHECK_SECONDS", 8.0)
    with serving(handle) as url:
        said, seconds = preview_of(url, consistent=False, alone=False)
    assert "it is larger than 4 MiB" in said
    assert seconds < 8 + SLACK


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "0x7f.1", "0177.0.0.1", "127.1", "0", "[::1]", "[::ffff:7f00:1]"]
)
def test_a_cluster_on_this_machine_is_refused_in_any_notation(host: str) -> None:
    with serving(lambda connection, _: connection.sendall(b"")) as url:
        said, _ = preview_of(url.replace("127.0.0.1", host), allow_loopback=False)
    assert "no cluster is there" in said


@pytest.mark.parametrize(
    "host",
    [
        "169.254.169.254",
        "0xa9fea9fe",
        "2852039166",
        "0251.0376.0251.0376",
        "[fd00:ec2::254]",
        "[::ffff:169.254.169.254]",
    ],
)
def test_the_metadata_service_of_a_cloud_is_refused_also_by_the_sandbox(host: str) -> None:
    said, _ = preview_of(f"https://{host}", allow_loopback=True)
    assert "no cluster is there" in said
