"""Classifies errors of AWS's clients: AWS denies access, or AWS does not answer now."""

from collections.abc import Mapping
from typing import Any

from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from evenkeel.application.errors import AccessError, AccessUnavailableError

AWS_ERRORS = (BotoCoreError, ClientError, ResponseParserError, AttributeError, KeyError, TypeError, ValueError)
"""All errors that a client of AWS raises. botocore's parsers raise the last ones for answers that they cannot read."""

_THROTTLING = ("Throttl", "RequestLimitExceeded", "TooManyRequests", "ProvisionedThroughputExceeded")


def access_error(error: Exception) -> type[AccessError]:
    """Return the error type to raise instead of AWS's error. Missing credentials count as AccessUnavailableError."""
    if isinstance(error, ClientError):
        status = error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        away = status >= 500 or code_of(error).startswith(_THROTTLING)
        return AccessUnavailableError if away else AccessError
    return AccessUnavailableError


def code_of(error: Exception) -> str:
    """Return AWS's code for the error, or the name of botocore's error class where AWS did not answer."""
    if isinstance(error, ClientError):
        return str(error.response.get("Error", {}).get("Code", ""))
    return type(error).__name__


def text_of(error: Exception) -> str:
    """Return the error's text, without the answer that a parser's error quotes. The answer may contain a secret."""
    return str(error) if isinstance(error, BotoCoreError | ClientError | OSError) else UNREADABLE


UNREADABLE = "its answer cannot be read"


def part_of(answer: Mapping[str, Any] | None, name: str) -> Any:
    """Return a part of AWS's answer that every valid answer to the call has. Raises ResponseParserError without it."""
    if not isinstance(answer, Mapping) or answer.get(name) is None:
        raise ResponseParserError(UNREADABLE)
    return answer[name]
