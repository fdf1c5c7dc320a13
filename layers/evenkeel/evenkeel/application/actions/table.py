"""The table of operator actions, in the order of the command line's help. Each row is next to its handler."""

from collections.abc import Mapping
from typing import Any

from evenkeel.application.actions.apply import APPLY
from evenkeel.application.actions.call import Action, Right
from evenkeel.application.actions.explain import EXPLAIN
from evenkeel.application.actions.fence_zone import FENCE_ZONE
from evenkeel.application.actions.history import HISTORY, RECORD
from evenkeel.application.actions.live import DRY_RUN, LIVE
from evenkeel.application.actions.pause import PAUSE, RESTORE, RESUME
from evenkeel.application.actions.plan import PLAN
from evenkeel.application.actions.readiness import READINESS
from evenkeel.application.actions.register import EXPORT, REGISTER
from evenkeel.application.actions.rollout import ROLLOUT
from evenkeel.application.actions.scale import LEVEL, SCALE_DOWN, SCALE_UP
from evenkeel.application.actions.status import STATUS
from evenkeel.application.actions.unregister import UNREGISTER
from evenkeel.application.actions.validate import VALIDATE

_ROWS = (
    *(PLAN, STATUS, EXPLAIN, VALIDATE, REGISTER, APPLY, UNREGISTER, EXPORT, PAUSE, RESUME, READINESS, LIVE, DRY_RUN),
    *(ROLLOUT, RESTORE, FENCE_ZONE, SCALE_UP, SCALE_DOWN, LEVEL, HISTORY, RECORD),
)
ACTIONS: Mapping[str, Action] = {action.name: action for action in _ROWS}


def right_needed(event: Mapping[str, Any]) -> Right:
    """Return the right that an event needs. An unknown action does nothing."""
    name = event.get("action")
    action = ACTIONS.get(name) if isinstance(name, str) else None
    return Right.READ if action is None else action.right_for(event)
