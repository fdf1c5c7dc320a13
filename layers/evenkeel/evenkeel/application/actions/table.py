"""Every action of an operator, with its fields, the right that it needs, and who carries it out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from evenkeel.application.actions.call import Answer, Call, Fields, Right
from evenkeel.application.actions.explain import ExplainFields, explain
from evenkeel.application.actions.fence_zone import FenceZoneFields, fence_zone
from evenkeel.application.actions.overview import overview
from evenkeel.application.actions.pause import PauseFields, pause
from evenkeel.application.actions.plan import PlanFields, plan
from evenkeel.application.actions.record import RecordFields, record
from evenkeel.application.actions.register import RegisterFields, register
from evenkeel.application.actions.restore import RestoreFields, restore
from evenkeel.application.actions.resume import ResumeFields, resume
from evenkeel.application.actions.scale import ScaleFields, scale_down, scale_up
from evenkeel.application.actions.status import StatusFields, status
from evenkeel.application.actions.validate import ValidateFields, validate


@dataclass(frozen=True)
class Action:
    """What an operator can ask for."""

    name: str
    summary: str  # the help of its command
    fields: type[Fields]
    right: Right
    handler: Callable[[Call, Any], Answer]
    of_all: bool = False  # without a cluster it answers for all that are registered
    overview: Callable[[Call], Answer] | None = None  # which it does from what is remembered,
    looks_with: str = ""  # unless this field asks to look at each of them
    writes_with: str = ""  # the field with which an action that reads asks to write

    def overview_for(self, event: Mapping[str, Any]) -> Callable[[Call], Answer] | None:
        """What answers this event about all clusters; None: each of them is asked."""
        return None if event.get(self.looks_with) is True else self.overview

    def right_for(self, event: Mapping[str, Any]) -> Right:
        """What this event of it needs; also of a field that nobody could read."""
        writes = self.writes_with and event.get(self.writes_with, False) is not False
        return Right.WRITE if writes else self.right


_ROWS = (
    Action("plan", "What the next look would write.", PlanFields, Right.READ, plan),
    Action(
        "status",
        "Of all clusters what is in trouble; of one its pools and zones, who is held and why, and the last decisions.",
        StatusFields,
        Right.READ,
        status,
        of_all=True,
        overview=overview,
        looks_with="live",
    ),
    Action(
        "explain",
        "What is in trouble and what to do; or why a group's or a pool's bounds and replicas are what they are.",
        ExplainFields,
        Right.READ,
        explain,
    ),
    Action(
        "validate",
        "Pools whose numbers break a rule; exit 3 means that some pool is invalid.",
        ValidateFields,
        Right.READ,
        validate,
        of_all=True,
        writes_with="apply",
    ),
    Action("register", "Store a cluster's record, and look at the cluster now.", RegisterFields, Right.WRITE, register),
    Action("pause", "Leave a cluster alone, or one pool of it.", PauseFields, Right.WRITE, pause),
    Action("resume", "End a pause, or a restore that is still under way.", ResumeFields, Right.WRITE, resume),
    Action(
        "restore",
        "Put back the bounds from before Evenkeel, take its annotations off, and pause; one pool, or all.",
        RestoreFields,
        Right.WRITE,
        restore,
    ),
    Action("fence-zone", "No growth in one zone until a moment.", FenceZoneFields, Right.WRITE, fence_zone),
    Action("scale-up", "Nodes for a pool, split evenly over its zones.", ScaleFields, Right.WRITE, scale_up),
    Action(
        "scale-down", "Give nodes of a pool back, from the largest zones first.", ScaleFields, Right.WRITE, scale_down
    ),
    Action("record", "The decisions of a cluster, the oldest first, as JSON.", RecordFields, Right.READ, record),
)
ACTIONS: Mapping[str, Action] = {action.name: action for action in _ROWS}


def writes(event: Mapping[str, Any]) -> bool:
    """Whether an event asks for more than reading. An action that does not exist writes nothing."""
    name = event.get("action")
    action = ACTIONS.get(name) if isinstance(name, str) else None
    return action is not None and action.right_for(event) is Right.WRITE
