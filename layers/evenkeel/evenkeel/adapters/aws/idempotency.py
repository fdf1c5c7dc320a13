"""Events are delivered at least once and handled once: Powertools' idempotency, in the one table."""

from collections.abc import Callable
from typing import Any

from aws_lambda_powertools.utilities.idempotency import (
    DynamoDBPersistenceLayer,
    IdempotencyConfig,
    idempotent_function,
)

# A failure older than this has been forgotten by the backoff machine; a repeat of its event changes nothing anyway.
_REMEMBERED_SECONDS = 3 * 3600


def handled_once(
    client: Any, table: str, function: str, context: Any
) -> Callable[[str, Callable[[], dict[str, Any]]], dict[str, Any]]:
    """A caller for work that must be done once per key: a repeat gets the first answer.

    Work that raises is forgotten, so that the event can be tried again; work that was cut off half-way may begin again
    once the invocation that began it must have ended.
    """
    layer = DynamoDBPersistenceLayer(
        table_name=table,
        key_attr="pk",
        sort_key_attr="sk",
        static_pk_value=f"IDEMPOTENCY#{function}",
        expiry_attr="expires_at",
        boto3_client=client,
    )
    config = IdempotencyConfig(expires_after_seconds=_REMEMBERED_SECONDS)
    if context is not None:
        config.register_lambda_context(context)

    def once(key: str, work: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        def handle(*, key: str) -> dict[str, Any]:  # noqa: ARG001  Powertools hashes it
            return work()

        decorate = idempotent_function(data_keyword_argument="key", persistence_store=layer, config=config)
        answer: dict[str, Any] = decorate(handle)(key=key)
        return answer

    return once
