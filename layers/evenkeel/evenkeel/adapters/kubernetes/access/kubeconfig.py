"""Reads a kubeconfig from a secret. Accepts only inline data.

A kubeconfig can also run programs (``exec``), name files and switch verification off. Such fields are refused.
"""

import re
from collections.abc import Callable, Mapping
from typing import Any

from evenkeel.adapters.documents import UnreadableError, read_document
from evenkeel.adapters.kubernetes.access.connection import Connection, checked_server, decoded, pem
from evenkeel.adapters.redacting import redacting
from evenkeel.application.errors import AccessError
from evenkeel.domain.model.values import quote

# The length of the longest token, in characters. It is the size of the largest secret in Secrets Manager.
_LONGEST_TOKEN = 65_536
_NAME = re.compile(r"[A-Za-z0-9._:-]{1,253}")
# The fields of a user entry that request another identity.
IMPERSONATION = ("as", "as-uid", "as-groups", "as-user-extra")
REFUSED = {
    "exec": "it would run a program",
    "auth-provider": "it would run a plug-in",
    "certificate-authority": "it names a file: use certificate-authority-data",
    "client-certificate": "it names a file: use client-certificate-data",
    "client-key": "it names a file: use client-key-data",
    "tokenFile": "it names a file: use token",
    "insecure-skip-tls-verify": "the server would not be verified: use certificate-authority-data",
    "proxy-url": "it would send the token through a proxy",
    **dict.fromkeys(IMPERSONATION, "Evenkeel impersonates no other user: use that user's own credentials"),
    "username": "basic authentication is gone from Kubernetes: use token",
    "password": "basic authentication is gone from Kubernetes: use token",
}


def read_kubeconfig(text: str, where: str, context: str | None = None) -> Connection:
    """Return the connection of a kubeconfig's context.

    Raises:
        AccessError: the kubeconfig is unreadable or incomplete, has a refused field, or its server is not https. The
            error never quotes the secret.
    """
    config = redacting(lambda: read_document(text), UnreadableError, lambda error: AccessError(f"{where}: {error}"))
    if not isinstance(config, Mapping):
        raise AccessError(f"{where}: not a kubeconfig: it has no fields")
    name = context or config.get("current-context")
    if not name:
        raise AccessError(f"{where}: current-context is missing, and the record names no context")
    description = f"of the name {quote(context)}" if context else "of the name in current-context"
    context_entry = _entry(config, "contexts", "context", name, description, where)
    cluster = _entry(config, "clusters", "cluster", context_entry.get("cluster"), "that the context names", where)
    user = _entry(config, "users", "user", context_entry.get("user"), "that the context names", where)
    for part, fields in (("cluster", cluster), ("user", user)):
        for field, reason in REFUSED.items():
            if fields.get(field):
                raise AccessError(f"{where}: {part}.{field} is refused: {reason}")
    server = checked_server(cluster.get("server"), f"{where}: cluster.server")
    tls_name = cluster.get("tls-server-name")
    if tls_name is not None and not (isinstance(tls_name, str) and _NAME.fullmatch(tls_name)):
        raise AccessError(f"{where}: cluster.tls-server-name must be the name of a host")
    ca = _data(cluster, "certificate-authority-data", where)
    ca_place = f"{where}: cluster.certificate-authority-data"
    if ca is None:
        raise AccessError(f"{ca_place} is missing")
    token = read_token(user.get("token"), f"{where}: user.token")
    certificate, key = _data(user, "client-certificate-data", where), _data(user, "client-key-data", where)
    if token is None and (certificate is None or key is None):
        raise AccessError(f"{where}: user has neither token nor client-certificate-data and client-key-data")
    return Connection(
        server=server,
        ca=pem(ca, ca_place),
        ca_place=ca_place,
        token=token,
        certificate=certificate,
        key=key,
        tls_server_name=tls_name,
    )


def read_token(value: object, where: str) -> str | None:
    """Return a bearer token for a header, without a newline at its end; None for a missing or empty value.

    Raises:
        AccessError: the token is not valid in a header. The error does not quote the token.
    """
    if value is None or value == "":
        return None
    if not isinstance(value, str):
        raise AccessError(f"{where} is no text: put it in quotes")
    token = value.removesuffix("\n").removesuffix("\r")
    if len(token) > _LONGEST_TOKEN:
        raise AccessError(f"{where} has {len(token)} characters: no token has more than {_LONGEST_TOKEN}")
    for place, character in enumerate(token, 1):
        if not "!" <= character <= "~":
            kind = "white space" if character.isspace() else "not a visible ASCII character"
            raise AccessError(f"{where}: character {place} of {len(token)} is {kind}: copy the token alone")
    if not token:
        raise AccessError(f"{where} is a line without a token")
    return token


def _entry(
    config: Mapping[str, Any], plural: str, singular: str, name: object, description: str, where: str
) -> Mapping[str, Any]:
    entries = config.get(plural)
    for entry in entries if isinstance(entries, list) else []:
        if isinstance(entry, Mapping) and entry.get("name") == name and isinstance(entry.get(singular), Mapping):
            fields: Mapping[str, Any] = entry[singular]
            return fields
    raise AccessError(f"{where}: {plural} has no entry {description}")


def _data(fields: Mapping[str, Any], name: str, where: str) -> bytes | None:
    value = fields.get(name)
    return None if value is None else decoded(value, f"{where}: {name}")


class KubeconfigCredential:
    """A static token. A request for a fresh token reads the kubeconfig again."""

    def __init__(self, token: str | None, read: Callable[[], str | None]) -> None:
        self._token = token
        self._read = read

    def token(self, *, fresh: bool) -> str | None:
        """Return the token. Raises AccessError where the kubeconfig cannot be read again."""
        if fresh:
            self._token = self._read()
        return self._token
