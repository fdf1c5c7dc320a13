"""Perform an on-call action. {"action": "pause|resume|...", "cluster": ...} returns {"ok": ..., "message": ...}.

The function refuses actions that register or unregister clusters, change the access to clusters, or turn writes on or
off.
"""

from typing import Any

from evenkeel.application.actions.call import Right
from evenkeel.application.errors import EvenkeelError
from evenkeel.application.operate import answer_of_error
from evenkeel.bootstrap import container, make_logger, remaining_of
from evenkeel.validation import ConfigError

logger = make_logger()


@logger.inject_lambda_context(clear_state=True)
def handler(event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Perform an action that on-call rights allow. Return its answer, or an answer for an expected error."""
    try:
        answer = container(writes=False).operate.within(Right.WRITE, event, remaining_of(context))
    except (EvenkeelError, ConfigError) as error:
        answer = answer_of_error(error)
    logger.info(answer["message"], extra={"action": answer.get("action"), "cluster": answer.get("cluster")})
    return answer
