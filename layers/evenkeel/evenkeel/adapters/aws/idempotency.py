"""Events are delivered at least once and handled once: Powertools' idempotency, in the one table."""

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.utilities.idempotency import DynamoDBPersistenceLayer, IdempotencyConfig, idempotent_function

from evenkeel.application.ports import Remaining

# A failure older than this has been forgotten by the backoff machine; a repeat of its event changes nothing anyway.
_REMEMBERED_SECONDS = 3 * 3600


class _Invocation:
    """As much of Lambda's context as Powertools asks for."""

    def __init__(self, remaining: Remaining) -> None:
        self._remaining = remaining

    def get_remaining_time_in_millis(self) -> int:
        return int(self._remaining() * 1000)


class DynamoIdempotency:
    """``Idempotent`` on DynamoDB.

    Work that raises is forgotten, so that the event can be tried again; work that was cut off half-way may begin again
    once the invocation that began it must have ended.
    """

    def __init__(self, client: Any, table: str, function: str) -> None:
        """``function`` stands in the partition key, so that each may write its own items only."""
        self._layer = DynamoDBPersistenceLayer(
            table_name=table,
            key_attr="pk",
            sort_key_attr="sk",
            static_pk_value=f"IDEMPOTENCY#{function}",
            expiry_attr="expires_at",
            boto3_client=client,
        )

    def __call__(self, key: str, remaining: Remaining, work: Callable[[], dict[str, str]]) -> dict[str, str]:
        """The answer of the work, or of the work that was done for the same key before."""

        def handle(*, key: str) -> dict[str, str]:  # noqa: ARG001  Powertools hashes it
            return work()

        config = IdempotencyConfig(expires_after_seconds=_REMEMBERED_SECONDS)
        config.register_lambda_context(_Invocation(remaining))  # type: ignore[arg-type]
        decorate = idempotent_function(data_keyword_argument="key", persistence_store=self._layer, config=config)
        answer: dict[str, str] = decorate(handle)(key=key)
        return answer
