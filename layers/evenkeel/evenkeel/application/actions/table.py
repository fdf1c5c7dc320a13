"""Every action of an operator, with its fields, the right that it needs, and who carries it out."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from evenkeel.application.actions.apply import ApplyFields, apply, apply_touches
from evenkeel.application.actions.call import Answer, Call, Fields, Right
from evenkeel.application.actions.dry_run import DryRunFields, dry_run, dry_run_touches
from evenkeel.application.actions.explain import ExplainFields, explain
from evenkeel.application.actions.export import ExportFields, export, export_all
from evenkeel.application.actions.fence_zone import FenceZoneFields, fence_zone, fence_zone_touches
from evenkeel.application.actions.history import HistoryFields, history
from evenkeel.application.actions.level import LevelFields, level
from evenkeel.application.actions.live import LiveFields, live, live_touches
from evenkeel.application.actions.overview import overview
from evenkeel.application.actions.pause import PauseFields, pause, pause_touches
from evenkeel.application.actions.plan import PlanFields, plan
from evenkeel.application.actions.readiness import ReadinessFields, readiness
from evenkeel.application.actions.record import RecordFields, record
from evenkeel.application.actions.register import RegisterFields, register
from evenkeel.application.actions.restore import RestoreFields, restore
from evenkeel.application.actions.resume import ResumeFields, resume, resume_touches
from evenkeel.application.actions.rollout import RolloutFields, rollout
from evenkeel.application.actions.scale import ScaleFields, scale_down, scale_up
from evenkeel.application.actions.status import StatusFields, status
from evenkeel.application.actions.unregister import UnregisterFields, unregister, unregister_touches
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
    overview: Callable[[Call, Any], Answer] | None = None  # which it does from what is remembered,
    looks_with: str = ""  # unless this field asks to look at each of them
    rights_with: Mapping[str, Right] = field(default_factory=dict)  # fields with which it needs another right
    # What it would do to a cluster, and None where that is nothing. An action that has it may be asked for several
    # clusters in one event, and (`list`) for what it would do.
    touches: Callable[[Call, Any], Answer | str | None] | None = None
    spares: str = ""  # why it would do nothing to those
    of_records: bool = False  # its clusters are those that its fields name
    of_stack: bool = False  # it is about no cluster of its own, and records by itself who asked

    @property
    def scopes(self) -> tuple[str, ...]:
        """The fields of an event by which clusters are meant, and the one that only lists them."""
        if self.of_stack:
            return ()
        if self.of_records:
            return ("list",)
        several = ("clusters", "selector") if self.of_all or self.touches else ()
        return ("cluster", *several, *(("all", "list") if self.touches else ()))

    def listed(self, call: Call, fields: Fields) -> Answer | None:
        """What it would do to a cluster; None: nothing."""
        found = self.touches(call, fields) if self.touches else None
        return {"message": found} if isinstance(found, str) else found

    def overview_for(self, event: Mapping[str, Any]) -> Callable[[Call, Any], Answer] | None:
        """What answers this event about all clusters; None: each of them is asked."""
        return None if event.get(self.looks_with) is True else self.overview

    def right_for(self, event: Mapping[str, Any]) -> Right:
        """What this event of it needs; also of a field that nobody could read."""
        rights = [right for name, right in self.rights_with.items() if event.get(name, False) not in (False, None)]
        return max([self.right, *rights], key=[*Right].index)


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
        rights_with={"apply": Right.ADMINISTER},
    ),
    Action(
        "register", "Store a cluster's record, and look at the cluster now.", RegisterFields, Right.ADMINISTER, register
    ),
    Action(
        "apply",
        "Store the records of a fleet, as its files have them; what differs is shown first.",
        ApplyFields,
        Right.ADMINISTER,
        apply,
        touches=apply_touches,
        of_records=True,
    ),
    Action(
        "unregister",
        "Forget a cluster's record; refused while bounds of ours stand there.",
        UnregisterFields,
        Right.ADMINISTER,
        unregister,
        touches=unregister_touches,
    ),
    Action(
        "export",
        "The records that are stored, as files that apply reads.",
        ExportFields,
        Right.READ,
        export,
        of_all=True,
        overview=export_all,
    ),
    Action(
        "pause",
        "Leave a cluster alone, or one pool of it.",
        PauseFields,
        Right.WRITE,
        pause,
        touches=pause_touches,
        spares="paused for longer",
    ),
    Action(
        "resume",
        "End a pause; or, for administrators, a restore and the pause that follows it.",
        ResumeFields,
        Right.WRITE,
        resume,
        rights_with={"restored": Right.ADMINISTER},
        touches=resume_touches,
        spares="nothing is held",
    ),
    Action(
        "readiness",
        "Whether a cluster in dry run may go live, and why not; exit 5 means that some may not.",
        ReadinessFields,
        Right.READ,
        readiness,
        of_all=True,
    ),
    Action(
        "live",
        "Have clusters written whose dry run has shown that they are ready; in waves, where that is asked for.",
        LiveFields,
        Right.ADMINISTER,
        live,
        touches=live_touches,
        spares="live already",
    ),
    Action(
        "dry-run",
        "Have nothing written to a cluster any more; what stands there stays.",
        DryRunFields,
        Right.WRITE,
        dry_run,
        touches=dry_run_touches,
        spares="in dry run already",
    ),
    Action(
        "rollout",
        "How far the waves are in which clusters go live; or halt them.",
        RolloutFields,
        Right.READ,
        rollout,
        rights_with={"clusters": Right.ADMINISTER, "abort": Right.WRITE},
        of_stack=True,
    ),
    Action(
        "restore",
        "Put back the bounds from before Evenkeel, take its annotations off, and pause; one pool, or all.",
        RestoreFields,
        Right.ADMINISTER,
        restore,
    ),
    Action(
        "fence-zone",
        "No growth in one zone until a moment.",
        FenceZoneFields,
        Right.WRITE,
        fence_zone,
        touches=fence_zone_touches,
        spares="no such zone",
    ),
    Action("scale-up", "Nodes for a pool, split evenly over its zones.", ScaleFields, Right.WRITE, scale_up),
    Action(
        "scale-down", "Give nodes of a pool back, from the largest zones first.", ScaleFields, Right.WRITE, scale_down
    ),
    Action(
        "level",
        "Bring a pool home once: its nodes are moved one by one until its zones are level.",
        LevelFields,
        Right.WRITE,
        level,
    ),
    Action(
        "history",
        "What people did to clusters, with who asked for it and why.",
        HistoryFields,
        Right.READ,
        history,
        of_all=True,
    ),
    Action("record", "The decisions of a cluster, the oldest first, as JSON.", RecordFields, Right.READ, record),
)
ACTIONS: Mapping[str, Action] = {action.name: action for action in _ROWS}


def right_needed(event: Mapping[str, Any]) -> Right:
    """What an event asks for. An action that does not exist does nothing."""
    name = event.get("action")
    action = ACTIONS.get(name) if isinstance(name, str) else None
    return Right.READ if action is None else action.right_for(event)
