"""CloudWatch custom widget: {"cluster": ..., "widgetContext": {...}} -> HTML; {"describe": true} -> how to use it.

Reads only: whatever the parameters say, the question is always for the status.
"""

from typing import Any

from evenkeel.adapters.page.render import trouble
from evenkeel.adapters.page.widget import DESCRIPTION, page_for, theme_of
from evenkeel.application.errors import EvenkeelError
from evenkeel.bootstrap import make_logger, parts, remaining_of
from evenkeel.config import ConfigError

logger = make_logger()


@logger.inject_lambda_context(clear_state=True)
def handler(event: Any, context: Any) -> str | dict[str, str]:
    params = event if isinstance(event, dict) else {}
    if params.get("describe"):
        return {"markdown": DESCRIPTION}
    cluster, theme = params.get("cluster") or "*", theme_of(params)
    try:
        answer = parts().operate({"action": "status", "cluster": cluster}, remaining_of(context))
        return page_for(answer, theme, parts().clock.now())
    except (EvenkeelError, ConfigError) as error:
        logger.info("nothing to show: %s", error)
        return trouble(str(error), theme)
