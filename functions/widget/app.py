"""Answer requests that only read, from a CloudWatch custom widget or from the command line.

{"cluster": ..., "widgetContext": {...}} returns the status as HTML; {"describe": true} returns the widget's help.
{"action": "plan|status|...", "cluster": ...} returns the answer of an operator action that writes nothing.
"""

from typing import Any

from evenkeel.adapters.page.render import incident
from evenkeel.adapters.page.widget import DESCRIPTION, page_for, theme_of
from evenkeel.application.errors import EvenkeelError
from evenkeel.application.operate import answer_of_error
from evenkeel.bootstrap import container, make_logger, remaining_of
from evenkeel.validation import ConfigError

logger = make_logger()


@logger.inject_lambda_context(clear_state=True)
def handler(event: Any, context: Any) -> str | dict[str, Any]:
    """Return the widget's HTML or description, or the answer of an action that only reads."""
    params = event if isinstance(event, dict) else {}
    if params.get("describe"):
        return {"markdown": DESCRIPTION}
    if "action" in params and "widgetContext" not in params:
        try:
            return container(writes=False).operate.read(params, remaining_of(context))
        except (EvenkeelError, ConfigError) as error:
            return answer_of_error(error)
    cluster, theme = params.get("cluster") or "*", theme_of(params)
    question = {"action": "status", "cluster": cluster}
    try:
        answer = container(writes=False).operate.read(question, remaining_of(context))
        return page_for(answer, theme, container(writes=False).clock.now())
    except (EvenkeelError, ConfigError) as error:
        logger.info("nothing to show: %s", error)
        return incident(str(error), theme)
