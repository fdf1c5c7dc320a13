"""What the simulated services share: operations with boto3's names and arguments, errors, paging and throttling."""

from __future__ import annotations

import base64
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import wraps
from math import inf
from typing import Any, Concatenate

from botocore.exceptions import ClientError, ReadTimeoutError

from sandbox.auto_scaling.behavior import Behavior, Rate
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
    """AWS's throttle of an account in a Region, full at first."""

    def __init__(self, clock: VirtualClock) -> None:
        self._clock = clock
        self.tokens, self._filled = inf, clock.now

    def take(self, rate: Rate) -> bool:
        """Take a token. Return False if there is none."""
        gained = (self._clock.now - self._filled).total_seconds() * rate.per_second
        self.tokens, self._filled = min(rate.size, self.tokens + gained), self._clock.now
        if self.tokens < 1:
            return False
        self.tokens -= 1
        return True


class Service:
    """A simulated service. Each operation is a method with the name, arguments, answer and errors of boto3's client."""

    #: code of a request that is not valid
    invalid = "ValidationError"

    def __init__(self, clock: VirtualClock, behavior: Behavior) -> None:
        self.clock, self.behavior = clock, behavior
        self.bucket = TokenBucket(clock)
        #: every call is throttled until then
        self.throttled_until: datetime | None = None
        self.calls: list[tuple[str, Json]] = []  # every operation with its arguments, in order, also refused ones
        #: called before each operation; may change the world or raise AwsError
        self.before: Callable[[str, Json], None] = lambda _operation, _request: None

    def throttle(self, duration: timedelta) -> None:
        """Throttle every call from now on, for so long."""
        self.throttled_until = self.clock.now + duration

    @property
    def rate(self) -> Rate | None:
        """Return the rate of the token bucket; None: calls are not throttled."""
        return self.behavior.auto_scaling_rate

    def latency(self, _operation: str, _request: Json) -> timedelta:
        """Return how long AWS takes for a call."""
        return self.behavior.latency

    def throttled(self) -> AwsError:
        """Return the error of a throttled call."""
        if self.behavior.throttled == "RequestLimitExceeded":
            return AwsError("RequestLimitExceeded", "Request limit exceeded.", 503)
        return AwsError("Throttling", "Rate exceeded")

    def admit(self, operation: str, request: Json) -> None:
        """Note a call, and raise AwsError if it is throttled."""
        if not operation.startswith(("Describe", "List")):
            self.clock.change()
        self.calls.append((operation, request))
        self.before(operation, request)
        stopped = self.throttled_until is not None and self.clock.now < self.throttled_until
        if stopped or (self.rate is not None and not self.bucket.take(self.rate)):
            raise self.throttled()


def operation(implement: Callable[Concatenate[Any, Json, ...], Json | None]) -> Callable[..., Json]:
    """Return an operation of a service, implemented by a method that takes the request and returns the answer."""
    name = implement.__name__.title().replace("_", "")

    @wraps(implement)
    def call(service: Service, **request: Any) -> Json:
        latency = service.latency(name, request)
        service.clock.wait(latency, service.behavior.parallel)
        with service.clock.lock:
            try:
                service.admit(name, request)
                answer = implement(service, request) or {}
            except AwsError as error:
                raise error.for_client(name) from None
            if latency > service.behavior.read_timeout:
                raise ReadTimeoutError(endpoint_url=f"https://{service.__class__.__name__.lower()}")
            return answer

    return call


def page(
    names: Sequence[str], token: str | None, size: int, *, short: bool = False
) -> tuple[Sequence[str], str | None]:
    """Return one page of names, and the token of the next page. Raises AwsError for a token of another list.

    ``short``: the page has fewer names than it may have, as AWS documents.
    """
    try:
        start = int(base64.b64decode(token or "MA==", validate=True))
    except ValueError:
        start = -1
    if not 0 <= start <= len(names):
        raise AwsError("InvalidNextToken", "The NextToken value is not valid.")
    end = start + (size if not short else max(1, size * 2 // 3))
    return names[start:end], base64.b64encode(str(end).encode()).decode() if end < len(names) else None


def page_size(request: Mapping[str, Any], default: int) -> int:
    """Return the MaxRecords of a request. Raises AwsError above 100."""
    size: int = request.get("MaxRecords", default)
    if not 1 <= size <= 100:
        raise AwsError("ValidationError", f"MaxRecords must be between 1 and 100, inclusive: {size}")
    return size
