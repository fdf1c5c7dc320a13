"""The connection to a cluster, and its client. Each kind of access results in a connection.

A library's error can quote a secret. So an AccessError quotes no value, and has no reference to the library's error.
"""

import base64
import os
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import TypeVar

from kubernetes.client.configuration import Configuration
from kubernetes.client.rest import RESTClientObject

from evenkeel.adapters.connections import connections
from evenkeel.adapters.kubernetes.client.transport import tls_context
from evenkeel.adapters.redacting import redacting
from evenkeel.application.errors import AccessError
from evenkeel.domain.model.servers import read_server

_T = TypeVar("_T")


@dataclass(frozen=True, kw_only=True)
class Connection:
    """An API server, its certificate authority, and static credentials."""

    server: str
    ca: str = field(repr=False)  # PEM; ``api_client`` verifies it
    ca_place: str  # the field that an error about ``ca`` names
    token: str | None = field(default=None, repr=False)
    certificate: bytes | None = field(default=None, repr=False)  # PEM
    key: bytes | None = field(default=None, repr=False)
    tls_server_name: str | None = None


def checked_server(value: object, where: str) -> str:
    """Return the URL of a server. Raises AccessError."""
    return redacting(lambda: read_server(value), ValueError, lambda error: AccessError(f"{where} {error}"))


def decoded(value: object, where: str) -> bytes:
    """Return the bytes of a base64 text. Raises AccessError."""
    return redacting(lambda: base64.b64decode(str(value), validate=True), ValueError, f"{where} is not base64")


def pem(data: bytes, where: str) -> str:
    """Return a PEM certificate as text. Raises AccessError."""
    return redacting(lambda: data.decode("ascii"), ValueError, f"{where} is not a PEM certificate")


def api_client(connection: Connection, where: str, *, allow_loopback: bool = False) -> RESTClientObject:
    """Return the client of a connection: with verified TLS, without a proxy of the environment, and without retries.

    Raises:
        AccessError: the authority, or the client certificate with its key, cannot be used.
    """
    problem = f"{connection.ca_place} is not a PEM certificate"
    context = redacting(lambda: tls_context(connection.ca), (ssl.SSLError, ValueError), problem)
    if connection.certificate is not None and connection.key is not None:
        _load_certificate(context, connection.certificate, connection.key, where)
    client = RESTClientObject(Configuration(host=connection.server, proxy=""))  # "": no proxy of the environment
    # The library's own pool would connect to any address.
    client.pool_manager = connections(context, connection.tls_server_name, allow_loopback=allow_loopback)
    return client


def _load_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes, where: str) -> None:
    """Load a client certificate. The ssl module reads only files, so private files are written and then deleted."""
    files = [_write_file(certificate), _write_file(key)]
    problem = f"{where}: client-certificate-data and client-key-data are no PEM certificate with its open key"
    try:
        redacting(
            lambda: context.load_cert_chain(files[0], files[1], password=lambda: ""),
            (ssl.SSLError, ValueError),
            problem,
        )
    finally:
        for file in files:
            Path(file).unlink()


def _write_file(data: bytes) -> str:
    handle, path = tempfile.mkstemp(prefix="evenkeel-")  # creates the file with mode 0600
    with os.fdopen(handle, "wb") as file:
        file.write(data)
    return path
