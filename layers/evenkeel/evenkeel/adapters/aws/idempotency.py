"""Handles each event once, even if it is delivered again. Powertools stores the handled events in the table."""

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent_function

from evenkeel.application.ports import Remaining

# How long a handled event is remembered. By default, the backoff forgets a failure after the same time. A repeat of the
# failure's event then changes nothing.
_REMEMBERED_SECONDS = 3 * 3600


class _Invocation:
    """The part of Lambda's context that Powertools uses."""

    def __init__(self, remaining: Remaining) -> None:
        self._remaining = remaining

    def get_remaining_time_in_millis(self) -> int:
        return int(self._remaining() * 1000)


class DynamoIdempotency:
    """Implements ``Idempotent`` with DynamoDB.

    If the work raises an error, the event's item is deleted, so that the event can be retried. If the invocation is
    killed, the event can be retried from the time at which the invocation would have timed out.
    """

    def __init__(self, client: Any, table: str, function: str) -> None:
        """``function`` is part of the partition key, so that a policy can limit each function to its own items."""
        self._layer = DynamoDBPersistenceLayer(
            table_name=table,
            key_attr="pk",
            sort_key_attr="sk",
            static_pk_value=f"IDEMPOTENCY#{function}",
            expiry_attr="expires_at",
            boto3_client=client,
        )

    def __call__(self, key: str, remaining: Remaining, work: Callable[[], dict[str, str]]) -> dict[str, str]:
        """Return the answer of the work, or the answer of earlier work for the same key."""

        def handle(*, key: str) -> dict[str, str]:  # noqa: ARG001  Powertools hashes it
            return work()

        config = IdempotencyConfig(expires_after_seconds=_REMEMBERED_SECONDS)
        config.register_lambda_context(_Invocation(remaining))  # type: ignore[arg-type]
        decorate = idempotent_function(data_keyword_argument="key", persistence_store=self._layer, config=config)
        answer: dict[str, str] = decorate(handle)(key=key)
        return answer
