"""On a schedule, write a page of all clusters to a bucket, for readers without the command line or AWS access."""

from dataclasses import replace
from typing import Any

import evenkeel.application.operate  # noqa: F401  imported at the function's start, not in its first call
from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import document, summary
from evenkeel.bootstrap import container, make_logger, remaining_of

logger = make_logger()


@logger.inject_lambda_context(clear_state=True)
def handler(_event: dict[str, Any], context: Any) -> dict[str, Any]:
    """Write the status page of all clusters to the bucket, with the runbooks."""
    answer = container(writes=False).operate.read({"action": "status", "cluster": "*"}, remaining_of(context))
    page = page_of_status(answer, "answer of this stack", container(writes=False).clock.now())
    container(writes=False).shelf.put(document(replace(page, has_runbooks=True)))
    logger.info(summary(page))
    return {"ok": True, "message": summary(page)}
