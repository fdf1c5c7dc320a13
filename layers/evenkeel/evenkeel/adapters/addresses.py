"""The addresses that Evenkeel may connect to, for clusters and notification channels.

Evenkeel resolves a name once, checks all its addresses, and connects to one of them.
"""

import ipaddress
import queue
import socket
import threading
from time import monotonic
from typing import Any

_NEVER = {
    "0.0.0.0/8": "this machine",
    "100.100.100.200/32": "the cloud's own, where it answers with credentials",
    "127.0.0.0/8": "loopback",
    "168.63.129.16/32": "the cloud's own",
    "169.254.0.0/16": "link-local, where clouds answer with credentials",
    "192.0.0.170/31": "the resolver's own, by which NAT64 is found",
    "192.0.0.192/32": "the cloud's own, where it answers with credentials",
    "198.18.0.0/15": "for benchmarks of network devices",
    "224.0.0.0/4": "multicast",
    "240.0.0.0/4": "reserved",
    "::/128": "this machine",
    "::1/128": "loopback",
    "::ffff:0:0:0/96": "translated to one of IPv4",
    "64:ff9b:1::/48": "translated to one of IPv4",
    "2001::/32": "a tunnel to one of IPv4",
    "fd00:42::42/128": "the cloud's own, where it answers with credentials",
    "fd00:c1::a9fe:a9fe/128": "the cloud's own, where it answers with credentials",
    "fd00:ec2::/32": "the cloud's own, where it answers with credentials",
    "fd20:ce::254/128": "the cloud's own, where it answers with credentials",
    "fe80::/10": "link-local",
    "fec0::/10": "site-local, which is retired",
    "ff00::/8": "multicast",
}
_FORBIDDEN = [(ipaddress.ip_network(network), purpose) for network, purpose in _NEVER.items()]
_LOOPBACK = ("loopback",)
# IPv6 networks whose addresses contain an IPv4 address (compatible, mapped, NAT64, 6to4). Each entry has the network,
# and the number of bits that follow the IPv4 address.
_EMBEDDED = [
    (ipaddress.IPv6Network(network), follow)
    for network, follow in (("::/96", 0), ("::ffff:0:0/96", 0), ("64:ff9b::/96", 0), ("2002::/16", 80))
]
# An ISATAP address consists of any prefix, one of these two numbers (32 bits), and the IPv4 address.
_ISATAP = (0x00005EFE, 0x02005EFE)


class ForbiddenAddressError(Exception):
    """A name resolves to an address that neither a cluster nor a notification channel may have."""


def connect(host: str, port: int, seconds: float, *, allow_loopback: bool) -> socket.socket:
    """Check all addresses of the host, and return a connection to one of them. The name is resolved only once.

    Raises:
        ForbiddenAddressError: an address of the host is forbidden.
        OSError: within ``seconds``, the name does not resolve or no address accepts a connection.
    """
    until = monotonic() + seconds
    addresses = _resolve(host, port, seconds)
    for *_, address in addresses:
        check_address(host, address[0], allow_loopback=allow_loopback)
    failed: OSError = OSError("its name has no address")
    for family, kind, protocol, _, address in addresses:
        sock = socket.socket(family, kind, protocol)
        try:
            sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            sock.settimeout(max(0.001, until - monotonic()))
            sock.connect(address)
            sock.settimeout(max(0.001, until - monotonic()))  # the TLS handshake gets the remaining time
            return sock
        except OSError as error:
            sock.close()
            failed = error
    raise failed


def _resolve(host: str, port: int, seconds: float) -> list[Any]:
    """Return all addresses of a name, as ``socket.getaddrinfo`` does.

    The resolver has no deadline, so it runs in a thread, which is abandoned after ``seconds``.
    """
    answer: queue.SimpleQueue[list[Any] | Exception] = queue.SimpleQueue()

    def ask() -> None:
        try:
            answer.put(socket.getaddrinfo(host, port, type=socket.SOCK_STREAM))
        except UnicodeError:
            answer.put(socket.gaierror(socket.EAI_NONAME, "no name of a host"))
        except Exception as error:
            answer.put(error)

    threading.Thread(target=ask, daemon=True, name="resolve").start()
    try:
        addresses = answer.get(timeout=seconds)
    except queue.Empty:
        raise TimeoutError("its name was not resolved in time") from None
    if isinstance(addresses, Exception):
        raise addresses
    return addresses


def check_address(host: str, address: str, *, allow_loopback: bool) -> None:
    """Raise ForbiddenAddressError for a forbidden address. Private networks are allowed, because clusters use them."""
    parsed = ipaddress.ip_address(address.partition("%")[0])  # without the zone id of a link-local address
    for candidate in (parsed, *_within(parsed)):
        for network, purpose in _FORBIDDEN:
            if candidate in network and not (allow_loopback and purpose in _LOOPBACK):
                raise ForbiddenAddressError(f"{host} leads to {address} ({purpose})")


def _within(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> list[ipaddress.IPv4Address]:
    """Return the IPv4 addresses inside an IPv6 address."""
    if address.version == 4 or int(address) <= 1:
        return []
    follows = [follow for network, follow in _EMBEDDED if address in network]
    follows += [0] if int(address) >> 32 & 0xFFFFFFFF in _ISATAP else []
    return [ipaddress.IPv4Address(int(address) >> follow & 0xFFFFFFFF) for follow in follows]
