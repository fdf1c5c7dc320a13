"""Perform any action. {"action": "register|plan|pause|...", "cluster": ...} returns {"ok": ..., "message": ...}."""

from typing import Any

from evenkeel.application.errors import EvenkeelError
from evenkeel.application.operate import answer_of_error
from evenkeel.bootstrap import container, make_logger, remaining_of
from evenkeel.validation import ConfigError

logger = make_logger()


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Perform any action. Return its answer, or an answer for an expected error."""
    try:
        answer = container(writes=False).operate(event, remaining_of(context))
    except (EvenkeelError, ConfigError) as error:
        answer = answer_of_error(error)
    logger.info(answer["message"], extra={"action": answer.get("action"), "cluster": answer.get("cluster")})
    return answer
