"""Stores a cluster's tokens for writes and for checks in two items, encrypted with a KMS key of the stack.

A token is smaller than the 4 KB that KMS encrypts without a data key. The encryption context has the token's purpose
and server. KMS decrypts the token only with the same context, and an IAM policy can refer to purpose and server.
"""

import base64
import binascii
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta
from typing import Any

from botocore.exceptions import ClientError

from evenkeel.adapters.aws.table import key, number, text, whole
from evenkeel.adapters.aws_faults import AWS_ERRORS, access_error, code_of, part_of
from evenkeel.adapters.codec import dump_stored, read_stored
from evenkeel.application.errors import AccessError
from evenkeel.application.fleet.tokens import SealedToken
from evenkeel.validation import ConfigError

# The most bytes that KMS encrypts without a data key.
_LONGEST = 4096
# How long an item is kept after its token has expired. An expired token is useless.
_KEPT_BEYOND = timedelta(days=1)
_PROBLEMS = {
    "InvalidCiphertextException": "it was not encrypted for this endpoint under this stack's key: encrypt it again",
    "IncorrectKeyException": "it was encrypted under another key than this stack's: encrypt it again",
    "AccessDeniedException": "missing permission on the stack's key for this purpose",
    "KMSInvalidStateException": "the stack's key is disabled or going",
    "DisabledException": "the stack's key is disabled",
}


def _purpose(writes: bool) -> str:
    return "writes" if writes else "checks"


def encryption_context(server: str, *, writes: bool) -> dict[str, str]:
    """Return the encryption context of a token."""
    return {"purpose": _purpose(writes), "server": server}


class SealedTokens:
    """Implements ``TokenVault`` with DynamoDB and KMS. ``table`` is the table's name, ``key`` the key's ARN."""

    def __init__(self, dynamodb: Any, kms: Any, table: str, key: str) -> None:
        self._dynamodb = dynamodb
        self._kms = kms
        self._table = table
        self._key = key

    def load(self, cluster: str, *, writes: bool) -> SealedToken | None:
        """Return the sealed token of a cluster, or None if none is stored. Raises AccessError."""
        pk, sk = self._names(cluster, writes)
        answer = self._call(
            "the kept token cannot be read",
            self._dynamodb.query,
            TableName=self._table,
            KeyConditionExpression="pk = :pk AND sk = :sk",
            ExpressionAttributeValues={":pk": {"S": pk}, ":sk": {"S": sk}},
            ConsistentRead=True,
            part="Items",
        )
        item: dict[str, Any] = next(iter(answer), {})
        if not item.keys() & {"record", "version"}:
            return None
        try:
            token = read_stored(SealedToken, text(item, "record"), f"{pk} {sk}")
            return replace(token, version=whole(item, "version"))
        except ConfigError as error:
            problem = str(error)
        raise AccessError(f"the kept token cannot be read: {problem}")

    def save(self, cluster: str, token: SealedToken, *, writes: bool) -> None:
        """Store a renewed token. If another run has stored its token first, keep that token. Raises AccessError."""
        pk, sk = self._names(cluster, writes)
        self._call(
            "the renewed token cannot be stored",
            self._dynamodb.put_item,
            ignored_code="ConditionalCheckFailedException",  # another run has stored a token first, which is as good
            TableName=self._table,
            Item={
                **key(pk, sk),
                "record": {"S": dump_stored(replace(token, version=0))},
                "version": number(token.version + 1),
                "expires_at": number(int((token.expires + _KEPT_BEYOND).timestamp())),
            },
            ConditionExpression="attribute_not_exists(version) OR version = :seen",
            ExpressionAttributeValues={":seen": number(token.version)},
        )

    def seal(self, token: str, server: str, *, writes: bool) -> str:
        """Return the token in base64, encrypted for this server and purpose. Raises AccessError."""
        if len(token) > _LONGEST:
            raise AccessError(f"a token of {len(token)} characters is too long to be encrypted: {_LONGEST} at most")
        answer = self._call(
            "the token cannot be encrypted",
            self._kms.encrypt,
            KeyId=self._key,
            Plaintext=token.encode(),
            EncryptionContext=encryption_context(server, writes=writes),
            part="CiphertextBlob",
        )
        return base64.b64encode(answer).decode()

    def unseal(self, sealed: str, server: str, *, writes: bool) -> str:
        """Return the decrypted token. Raises AccessError, also if it was encrypted for another server or purpose."""
        try:
            ciphertext = base64.b64decode(sealed)
        except ValueError:
            ciphertext = b""
        if not ciphertext:
            raise AccessError("the token cannot be decrypted: it is no base64: encrypt it again")
        answer = self._call(
            "the token cannot be decrypted",
            self._kms.decrypt,
            KeyId=self._key,
            CiphertextBlob=ciphertext,
            EncryptionContext=encryption_context(server, writes=writes),
            part="Plaintext",
        )
        try:
            return str(answer.decode("ascii")).strip()
        except (UnicodeDecodeError, binascii.Error):
            pass
        raise AccessError("what was encrypted is no token")

    @staticmethod
    def _names(cluster: str, writes: bool) -> tuple[str, str]:
        """Return the item's keys. The sort key sorts before "E", so that the query of a check skips the item."""
        return f"CLUSTER#{cluster}", f"ACCESS#{_purpose(writes)}"

    @staticmethod
    def _call(what: str, call: Callable[..., Any], *, ignored_code: str = "", part: str = "", **given: Any) -> Any:
        """Return the answer or its part ``part``; None if the error code is ``ignored_code``. Raises AccessError."""
        try:
            answer = call(**given)
            return part_of(answer, part) if part else answer
        except ClientError as error:
            code = code_of(error)
            kind, problem = access_error(error), _PROBLEMS.get(code, f"it was refused: {code}")
        except AWS_ERRORS as error:
            kind, code, problem = access_error(error), "", f"no answer: {code_of(error)}"
        if ignored_code and code == ignored_code:
            return None
        raise kind(f"{what}: {problem}")
