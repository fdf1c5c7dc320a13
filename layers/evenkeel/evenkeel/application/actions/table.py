"""The table of operator actions, in the order of the command line's help. Each row is in its handler's module."""

from collections.abc import Mapping
from typing import Any

from evenkeel.application.actions.apply import apply
from evenkeel.application.actions.call import Action, Right
from evenkeel.application.actions.explain import explain
from evenkeel.application.actions.fence_zone import fence_zone
from evenkeel.application.actions.history import history, record
from evenkeel.application.actions.live import dry_run, live, readiness
from evenkeel.application.actions.pause import pause, restore, resume
from evenkeel.application.actions.plan import plan
from evenkeel.application.actions.register import export, register
from evenkeel.application.actions.rollout import rollout
from evenkeel.application.actions.scale import level, scale_down, scale_up
from evenkeel.application.actions.status import status
from evenkeel.application.actions.unregister import unregister
from evenkeel.application.actions.validate import validate

_ROWS = (
    *(plan, status, explain, validate, register, apply, unregister, export, pause, resume, readiness, live, dry_run),
    *(rollout, restore, fence_zone, scale_up, scale_down, level, history, record),
)
ACTIONS: Mapping[str, Action] = {action.name: action for action in _ROWS}


def right_needed(event: Mapping[str, Any]) -> Right:
    """Return the right that an event needs. An unknown action needs only READ, because it does nothing."""
    name = event.get("action")
    action = ACTIONS.get(name) if isinstance(name, str) else None
    return Right.READ if action is None else action.right_for(event)
