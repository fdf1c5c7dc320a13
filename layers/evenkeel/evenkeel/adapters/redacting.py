"""Replaces a library's error, which could quote a secret, by an AccessError."""

from collections.abc import Callable
from typing import Any, TypeVar

from evenkeel.application.errors import AccessError

_T = TypeVar("_T")


def redacting(
    call: Callable[[], _T],
    errors: type[Exception] | tuple[type[Exception], ...],
    failure: str | Callable[[Any], AccessError],
) -> _T:
    """Return the call's result. For one of these errors, raise ``failure`` without a reference to the error."""
    try:
        return call()
    except errors as error:
        problem = AccessError(failure) if isinstance(failure, str) else failure(error)
    raise problem  # raised outside of the except block, so that its ``__context__`` is not the library's error
