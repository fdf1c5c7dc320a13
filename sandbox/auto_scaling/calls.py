"""What the simulated services share: operations with boto3's names and arguments, errors, paging and throttling."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from functools import wraps
from typing import Any, Concatenate

from botocore.exceptions import ClientError

from sandbox.auto_scaling.clock import VirtualClock

Json = dict[str, Any]


class AwsError(Exception):
    """The error of an operation. The caller of the operation gets botocore's ClientError."""

    def __init__(self, code: str, message: str, status: int = 400) -> None:
        super().__init__(f"{code}: {message}")
        self.code, self.message, self.status = code, message, status

    def for_client(self, operation: str) -> ClientError:
        """Return the error as boto3 raises it."""
        answer = {
            "Error": {"Code": self.code, "Message": self.message},
            "ResponseMetadata": {"HTTPStatusCode": self.status},
        }
        return ClientError(answer, operation)


class TokenBucket:
    """AWS's throttle of an account in a Region: `size` calls at once, then `per_second` calls."""

    def __init__(self, clock: VirtualClock, *, size: float, per_second: float) -> None:
        self._clock = clock
        self.size, self.per_second = size, per_second
        self.tokens, self._filled = size, clock.now

    def take(self) -> bool:
        """Take a token. Return False if there is none."""
        gained = (self._clock.now - self._filled).total_seconds() * self.per_second
        self.tokens, self._filled = min(self.size, self.tokens + gained), self._clock.now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Service:
    """A simulated service. Each operation is a method with the name, arguments, answer and errors of boto3's client."""

    #: codes of a throttled call and of a request that is not valid
    throttled, invalid = "Throttling", "ValidationError"

    def __init__(self, clock: VirtualClock) -> None:
        self.clock = clock
        self.bucket: TokenBucket | None = None
        self.calls: list[tuple[str, Json]] = []  # every operation with its arguments, in order, also refused ones
        #: called before each operation; may change the world or raise AwsError
        self.before: Callable[[str, Json], None] = lambda _operation, _request: None


def operation(implement: Callable[Concatenate[Any, Json, ...], Json | None]) -> Callable[..., Json]:
    """Return an operation of a service, implemented by a method that takes the request and returns the answer."""
    name = implement.__name__.title().replace("_", "")

    @wraps(implement)
    def call(service: Service, **request: Any) -> Json:
        service.calls.append((name, request))
        try:
            service.before(name, request)
            if service.bucket is not None and not service.bucket.take():
                raise AwsError(service.throttled, "Rate exceeded")
            return implement(service, request) or {}
        except AwsError as error:
            raise error.for_client(name) from None

    return call


def page(names: Sequence[str], token: str | None, size: int) -> tuple[Sequence[str], str | None]:
    """Return one page of names, and the token of the next page. Raises AwsError for a token of another list."""
    try:
        start = int(base64.b64decode(token or "MA==", validate=True))
    except ValueError:
        start = -1
    if not 0 <= start <= len(names):
        raise AwsError("InvalidNextToken", "The NextToken value is not valid.")
    end = start + size
    return names[start:end], base64.b64encode(str(end).encode()).decode() if end < len(names) else None


def page_size(request: Mapping[str, Any], default: int) -> int:
    """Return the MaxRecords of a request. Raises AwsError above 100."""
    size: int = request.get("MaxRecords", default)
    if not 1 <= size <= 100:
        raise AwsError("ValidationError", f"MaxRecords must be between 1 and 100, inclusive: {size}")
    return size
