"""``TokenVault``: a KMS key of the stack, and two items of the cluster.

A token is smaller than the 4 KB that KMS encrypts by itself, so that no data key is needed. What a token is for, and
where it may be sent, is its encryption context: KMS decrypts it for nothing else, and a policy can name it.
"""

import base64
import binascii
from collections.abc import Callable
from datetime import timedelta
from typing import Any

from botocore.exceptions import ClientError

from evenkeel.adapters.aws.items import text, whole
from evenkeel.adapters.aws_faults import AWS_ERRORS, access_error, code_of, part_of
from evenkeel.adapters.stored import read_stored
from evenkeel.application.errors import AccessError
from evenkeel.application.fleet.tokens import SealedToken
from evenkeel.validation import ConfigError, Moment, Strict

# KMS encrypts no more by itself.
_LONGEST = 4096
# An item that nobody renews is of use to nobody once its token has ended.
_KEPT_BEYOND = timedelta(days=1)
_PROBLEMS = {
    "InvalidCiphertextException": "it was not encrypted for this endpoint under this stack's key: encrypt it again",
    "IncorrectKeyException": "it was encrypted under another key than this stack's: encrypt it again",
    "AccessDeniedException": "missing permission on the stack's key for this purpose",
    "KMSInvalidStateException": "the stack's key is disabled or going",
    "DisabledException": "the stack's key is disabled",
}


def _purpose(writes: bool) -> str:
    return "writes" if writes else "looks"


def encryption_context(server: str, *, writes: bool) -> dict[str, str]:
    """What a token is encrypted with besides the key."""
    return {"purpose": _purpose(writes), "server": server}


class _TokenRecord(Strict):
    """A token as it is stored."""

    sealed: str
    seed: str
    issued: Moment
    expires: Moment


class SealedTokens:
    """Args: clients of DynamoDB and KMS, the table's name, and the key's ARN."""

    def __init__(self, dynamodb: Any, kms: Any, table: str, key: str) -> None:
        self._dynamodb = dynamodb
        self._kms = kms
        self._table = table
        self._key = key

    def load(self, cluster: str, *, writes: bool) -> SealedToken | None:
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
            record = read_stored(_TokenRecord, text(item, "record"), f"{pk} {sk}")[0]
            return SealedToken(**dict(record), version=whole(item, "version"))
        except ConfigError as error:
            problem = str(error)
        raise AccessError(f"the kept token cannot be read: {problem}")

    def save(self, cluster: str, token: SealedToken, *, writes: bool) -> None:
        pk, sk = self._names(cluster, writes)
        record = _TokenRecord(**{name: value for name, value in vars(token).items() if name != "version"})
        self._call(
            "the renewed token cannot be stored",
            self._dynamodb.put_item,
            passed_by="ConditionalCheckFailedException",  # another run was faster: its token is as good
            TableName=self._table,
            Item={
                "pk": {"S": pk},
                "sk": {"S": sk},
                "record": {"S": record.model_dump_json()},
                "version": {"N": str(token.version + 1)},
                "expires_at": {"N": str(int((token.expires + _KEPT_BEYOND).timestamp()))},
            },
            ConditionExpression="attribute_not_exists(version) OR version = :seen",
            ExpressionAttributeValues={":seen": {"N": str(token.version)}},
        )

    def seal(self, token: str, server: str, *, writes: bool) -> str:
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
        """Before "G", so that the query of a look does not read them."""
        return f"CLUSTER#{cluster}", f"ACCESS#{_purpose(writes)}"

    @staticmethod
    def _call(what: str, call: Callable[..., Any], *, passed_by: str = "", part: str = "", **given: Any) -> Any:
        """The answer, or that part of it. Raises AccessError."""
        try:
            answer = call(**given)
            return part_of(answer, part) if part else answer
        except ClientError as error:
            code = str(error.response.get("Error", {}).get("Code", ""))
            kind, problem = access_error(error), _PROBLEMS.get(code, f"it was refused: {code}")
        except AWS_ERRORS as error:
            kind, code, problem = access_error(error), "", f"no answer: {code_of(error)}"
        if passed_by and code == passed_by:
            return None
        raise kind(f"{what}: {problem}")
