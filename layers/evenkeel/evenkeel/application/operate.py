"""What an operator asks for by hand: one method per action."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from evenkeel.application.decisions import plan_json, pool_json
from evenkeel.application.errors import (
    AccessError,
    BadRequestError,
    ClusterUnavailableError,
    EvenkeelError,
    StateConflictError,
    StateUnavailableError,
    UnknownClusterError,
)
from evenkeel.application.explain import explain_group, explain_pool, history
from evenkeel.application.observing import observe_cluster
from evenkeel.application.ports import Clock, Clusters, Queue, Remaining, Remembered, Store
from evenkeel.application.preview import Preview, check_pool, find_group, find_pool, preview_of
from evenkeel.application.request_scale import RequestScale, ScaleRequestEvent
from evenkeel.application.status import status_json
from evenkeel.application.validate import Findings, validate, wishes, with_numbers
from evenkeel.application.words import rfc3339
from evenkeel.application.zones import OPERATOR, RecordZoneShift, ZoneShift, check_zone
from evenkeel.config import ConfigError, ControlRecord, Moment, Registration, ScaleRequestRecord, read_model
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.values import near, shown

_DECISIONS_SHOWN = 10
_DECISIONS_READ = 50  # for an explanation: most of them are of other pools
_LONGEST_ID = 100  # as ClusterId; a longer one would only make the answer long
_LONGEST_NAME = 600
_LONGEST_ASKER = 2048
_ACTIONS_KEPT = timedelta(days=30)  # as decisions
_OF_ALL = ("status", "validate")
# These write nothing, `validate` unless it is to apply what it proposes.
READING = ("plan", "status", "explain", "validate", "record")
# Of a look at all clusters: one that hangs must not use up the others' time, and Lambda answers with 6 MB at most.
_SECONDS_PER_CLUSTER = 10
_LEAST_SECONDS = 3
_SECONDS_TO_ANSWER = 2
_LARGEST_ANSWER = 4_000_000
_Action = Callable[[str, Mapping[str, Any], Remaining], dict[str, Any]]
# Beside action and cluster. An `until` with a typo would else be a pause without an end.
_FIELDS: Mapping[str, tuple[str, ...]] = {
    "register": ("record",),
    "plan": (),
    "status": (),
    "explain": ("group", "pool"),
    "validate": ("pool", "fix", "apply"),
    "record": ("since", "after"),
    "pause": ("pool", "until"),
    "resume": ("pool",),
    "fence-zone": ("zone", "until"),
    "scale-up": ("nodes", "pool", "group", "only", "id"),
    "scale-down": ("nodes", "pool", "group", "only", "id"),
    "restore": ("pool",),
}


def writes(event: Mapping[str, Any]) -> bool:
    """Whether an operator event asks for more than reading."""
    action = event.get("action")
    if not isinstance(action, str) or action not in _FIELDS:
        return False
    return action not in READING or event.get("apply", False) is not False


class _FenceZone(BaseModel):
    """What fence-zone needs beside the cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    zone: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    until: Moment


class _Pause(BaseModel):
    """When a pause ends."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    until: Moment | None = None  # None: when it is resumed


class _History(BaseModel):
    """Which decisions: from a moment on, or those after the last one of the page before."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    since: Moment | None = None
    after: Annotated[str, Field(pattern=r"^[0-9A-HJKMNP-TV-Z]{26}$")] | None = None


@dataclass(frozen=True, kw_only=True)
class Operate:
    """The use case with its ports. Every answer has ``ok`` and a ``message`` for people."""

    store: Store
    clusters: Clusters
    queue: Queue
    clock: Clock
    random_bytes: Callable[[int], bytes]
    dry_run: bool

    def read(self, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        """The same for somebody who may only read. Raises as calling, and BadRequestError for what would write."""
        if writes(event):
            action = event["action"] if event["action"] not in READING else f"{event['action']} with apply"
            raise BadRequestError(f"action {action} writes: this function only reads; ask the operator function")
        return self(event, remaining)

    def __call__(self, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        """Answer one operator event.

        Raises:
            BadRequestError, ConfigError: the event asks for something that does not exist, or says it wrongly.
            EvenkeelError: it could not be done now.
        """
        actions: dict[str, _Action] = {
            "register": self._register,
            "plan": self._plan,
            "status": self._status,
            "pause": self._pause,
            "restore": self._restore,
            "fence-zone": self._fence_zone,
            "resume": self._resume,
            "explain": self._explain,
            "validate": self._validate,
            "record": self._record,
            "scale-up": lambda *asked: self._scale(1, *asked),
            "scale-down": lambda *asked: self._scale(-1, *asked),
        }
        if not isinstance(event, Mapping):
            raise BadRequestError('event is no object: send {"action": ..., "cluster": ...}')
        action = event.get("action")
        if not isinstance(action, str) or action not in actions:
            guess = near(action, actions) if isinstance(action, str) and len(action) <= _LONGEST_ID else ""
            raise BadRequestError(f"action is {shown(action)}{guess}: choose one of {', '.join(sorted(actions))}")
        known = ("action", "cluster", *_FIELDS[action], *(("by",) if writes(event) else ()))
        for field in event:
            if field not in known:
                raise BadRequestError(
                    f"{shown(field)} is no field of {action}: it takes {', '.join(known)}{near(str(field), known)}"
                )
        cluster = event.get("cluster")
        if action in _OF_ALL and cluster in (None, "*"):
            return {"ok": True, "action": action, **self._of_all(actions[action], event, remaining)}
        if not isinstance(cluster, str) or not 0 < len(cluster) <= _LONGEST_ID:
            raise BadRequestError(f"cluster is {shown(cluster)}: name the cluster's id")
        try:
            answer = self._carry_out(actions[action], cluster, event, remaining)
        except UnknownClusterError as error:
            guess = near(cluster, [known for known, _ in self.store.due()])
            raise UnknownClusterError(f"{error}{guess}") from None
        return {"ok": True, "action": action, "cluster": cluster, **answer}

    def _carry_out(
        self, action: _Action, cluster: str, event: Mapping[str, Any], remaining: Remaining
    ) -> dict[str, Any]:
        """Do it, and write down beside the decisions who asked for it."""
        by = _asker(event)
        answer = action(cluster, event, remaining)
        if not writes(event):
            return answer
        now = self.clock.now()
        id = ulid(now, self.random_bytes(10))
        told = {"id": id, "at": rfc3339(now), "cluster": cluster, "cause": event["action"], "by": by}
        try:
            self.store.save_decision(cluster, id, {**told, "what": answer["message"]}, now + _ACTIONS_KEPT)
        except StateUnavailableError as error:  # it is done, and must not be asked for a second time
            return {**answer, "message": f"{answer['message']}; who asked is not recorded: {error}"}
        return answer

    def _of_all(self, answer: _Action, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        """One answer per registered cluster. What is wrong with one is said in its place, and the others go on."""
        answers: list[dict[str, Any]] = []
        size, end = 0, self.clock.now() + timedelta(seconds=remaining())
        for cluster, record in self.store.due():
            left = self._share(end)
            said: dict[str, Any]
            try:
                if isinstance(record, str):
                    said = {"ok": False, "message": record}
                elif size > _LARGEST_ANSWER or left() < _LEAST_SECONDS:
                    why = "answer is too large" if size > _LARGEST_ANSWER else "time is over"
                    said = {"ok": False, "message": f"{cluster}: the {why}: ask for this cluster alone"}
                else:
                    said = {"ok": True, **self._carry_out(answer, cluster, event, left)}
            except (EvenkeelError, ConfigError) as error:
                said = said_by(error)
            size += len(json.dumps(said))
            answers.append({"cluster": cluster, **said})
        failed = [f"; {answer['cluster']}: {answer['message']}" for answer in answers if not answer["ok"]]
        return {
            "clusters": answers,
            "message": f"clusters: {len(answers)}, without an answer: {len(failed)}{''.join(failed)}",
        }

    def _share(self, end: datetime) -> Remaining:
        until = min(end, self.clock.now() + timedelta(seconds=_SECONDS_PER_CLUSTER))
        return lambda: (until - self.clock.now()).total_seconds()

    def _register(self, cluster: str, event: Mapping[str, Any], _remaining: Remaining) -> dict[str, Any]:
        given = event.get("record")
        if not isinstance(given, Mapping):
            raise BadRequestError("record is missing: give the cluster's record as an object")
        registration = read_model(Registration, {"id": cluster, **given}, f"record of cluster {cluster}")
        if registration.id != cluster:
            raise BadRequestError(f"record.id is {registration.id!r}: it must be {cluster!r}, or left out")
        before, versions = self.store.registered(cluster) or (None, None)
        record, control = registration.record, registration.control(before)
        self.store.save_record(record, control, versions)
        now = self.clock.now()
        self.queue.request(cluster, "registered", f"registered-{cluster}-{now.timestamp()}")
        dry_run = record.is_dry(self.dry_run)
        return {
            "dryRun": dry_run,
            "message": f"{cluster} is {'updated' if before else 'registered'}"
            + (" in dry run: nothing is written to it, decisions are recorded" if dry_run else " and switched on")
            + _still_paused(control, now),
        }

    def _plan(self, cluster: str, _event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        look = self._look(cluster, remaining)
        invalid = sum(not pool.valid for pool in look.plan.pools)
        paused = f"; {cluster} is paused: none of this happens until it is resumed"
        return {
            "dryRun": look.record.is_dry(self.dry_run),
            "plan": plan_json(look.plan),
            "message": f"pools: {len(look.plan.pools)}, invalid: {invalid}; node groups that would change: "
            f"{len(look.plan.changes)}{paused if look.remembered.control.is_paused(look.now) else ''}",
        }

    def _status(self, cluster: str, _event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        now = self.clock.now()
        remembered = self.store.load(cluster)
        unread, look = None, None
        try:
            # A cluster that hangs must leave the time to tell what is remembered of it.
            look = preview_of(self.clusters, remembered, now, lambda: remaining() - _SECONDS_TO_ANSWER)
        except EvenkeelError as error:
            unread = str(error)
        decisions = self.store.decisions(cluster, _DECISIONS_SHOWN)
        return status_json(remembered, look, unread, decisions, now, dry_run=remembered.record.is_dry(self.dry_run))

    def _explain(self, cluster: str, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        group, pool = _name(event, "group"), _name(event, "pool")
        if (group is None) == (pool is None):
            raise BadRequestError("explain needs a group or a pool: name one of them")
        look = self._look(cluster, remaining)
        if group is not None:
            planned, one = find_group(look, group)
            plans = [one]
        else:
            planned = find_pool(look, str(pool))
            plans = list(planned.groups)
        about_pool = _held(look, look.record.is_dry(self.dry_run)) + explain_pool(look, planned)
        about_groups = {str(plan.group.key): explain_group(look, planned, plan) for plan in plans}
        told = history(self.store.decisions(cluster, _DECISIONS_READ), about_groups, look.now)
        sentences = [*about_pool, *(text for texts in about_groups.values() for text in texts)]
        return {
            "pool": pool_json(planned),
            "sentences": about_pool,
            "groups": about_groups,
            "history": told,
            "message": " ".join([*sentences, *told]),
        }

    def _validate(self, cluster: str, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        apply = _flag(event, "apply")
        fix = _flag(event, "fix") or apply
        look = self._look(cluster, remaining)
        name = _name(event, "pool")
        if name is not None:
            find_pool(look, name)
        findings = validate(look, name)
        message = (
            f"{cluster}: pools looked at: {len(look.pools) if name is None else 1}, invalid: {findings.invalid}, "
            f"with warnings: {len(findings.pools) - findings.invalid}"
        )
        if apply and findings.changes:
            message += f"; {self._agree(look, findings)}"
        elif fix:
            message += f"; changes proposed: {len(findings.changes)}"
        return {
            "dryRun": look.record.is_dry(self.dry_run),
            "pools": [pool if fix else {**pool, "fix": None} for pool in findings.pools],
            "diff": findings.diff if fix else [],
            "message": message,
        }

    def _agree(self, look: Preview, findings: Findings) -> str:
        """Save the record's own numbers, and leave those of objects to the next run, the only writer to a cluster."""
        cluster, dry_run = look.record.id, look.record.is_dry(self.dry_run)
        control = look.remembered.control
        record = look.record if dry_run else with_numbers(look.record, findings)
        wished = tuple(entry for entry in wishes(findings) if entry.group or dry_run)
        again = {(entry.pool, entry.group) for entry in wished}
        waiting = tuple(entry for entry in control.fixes if (entry.pool, entry.group) not in again)
        control = control.model_copy(update={"fixes": waiting + wished})
        self.store.save_record(record, control, look.remembered.versions)
        self.queue.request(cluster, "validate", f"validate-{cluster}-{look.now.timestamp()}")
        if dry_run:
            return f"{cluster} is in dry run: changes that the next look records, and does not write: {len(wished)}"
        return f"changes: {len(findings.changes)}, of which the next look writes to objects: {len(wished)}"

    def _record(self, cluster: str, event: Mapping[str, Any], _remaining: Remaining) -> dict[str, Any]:
        """Decisions, the oldest first, a page at a time: Lambda answers with 6 MB at most."""
        asked = read_model(_History, {key: event[key] for key in ("since", "after") if key in event}, "record")
        self.store.load(cluster)  # an unknown cluster is not one without decisions
        first = ulid(asked.since, bytes(10)) if asked.since else ""
        decisions, more = self.store.decisions_after(cluster, asked.after or first)
        return {
            "decisions": list(decisions),
            "next": decisions[-1]["id"] if more and decisions else None,
            "message": f"{cluster}: decisions: {len(decisions)}{', and there are more' if more else ''}",
        }

    def _pause(self, cluster: str, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        now = self.clock.now()
        remembered = self.store.load(cluster)
        end, pool = read_model(_Pause, {"until": event.get("until")}, "pause").until, _name(event, "pool")
        if end is not None and end <= now:
            raise BadRequestError(f"until is '{rfc3339(end)}': that is over; name a moment to come, or leave it out")
        if pool is None:
            control = _changed(remembered, {"paused": True, "paused_until": end})
        else:
            check_pool(self.clusters, remembered, pool, now, remaining)
            control = _changed(remembered, {"paused_pools": {**remembered.control.paused_pools, pool: end}})
        self.store.save_record(remembered.record, control, remembered.versions)
        how_long = f"until {rfc3339(end)}" if end else "until resumed"
        if pool is None:
            return {"message": f"{cluster} is paused {how_long}: nothing is read from it or written to it"}
        return {"message": f"pool {pool} of {cluster} is paused {how_long}: it is read and counted, and left alone"}

    def _resume(self, cluster: str, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        now = self.clock.now()
        remembered = self.store.load(cluster)
        pool, before = _name(event, "pool"), remembered.control
        if pool is None:
            control = _changed(remembered, {"paused": False, "paused_until": None, "restoring": False})
            what = f"{cluster} is"
        else:
            check_pool(self.clusters, remembered, pool, now, remaining)
            control = _changed(
                remembered,
                {
                    "paused_pools": {name: end for name, end in before.paused_pools.items() if name != pool},
                    "restoring_pools": tuple(name for name in before.restoring_pools if name != pool),
                },
            )
            what = f"pool {pool} of {cluster} is"
        self.store.save_record(remembered.record, control, remembered.versions)
        for key, group in remembered.state.groups.items():
            if group.contested_since is not None and pool is None:
                again = replace(group, contested_since=None, contested_by="", reverts=())
                self.store.save_group(cluster, key, again, remembered.versions)
        self.queue.request(cluster, "resumed", f"resumed-{cluster}-{now.timestamp()}")
        return {"message": f"{what} resumed and looked at now{_still_paused(control, now)}"}

    def _restore(self, cluster: str, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        now = self.clock.now()
        remembered = self.store.load(cluster)
        pool, before = _name(event, "pool"), remembered.control
        if pool is None:
            fields: dict[str, object] = {"restoring": True, "paused": False, "paused_until": None}
            what, then = "every group", "the cluster is paused"
        else:
            check_pool(self.clusters, remembered, pool, now, remaining)
            fields = {"restoring_pools": tuple(dict.fromkeys((*before.restoring_pools, pool)))}
            what, then = f"every group of pool {pool}", "the pool is paused for good"
        self.store.save_record(remembered.record, _changed(remembered, fields), remembered.versions)
        self.queue.request(cluster, "restore", f"restore-{cluster}-{now.timestamp()}")
        waits = before.is_paused(now) and pool is not None
        return {
            "message": f"{cluster}: {what} gets its bounds from before Evenkeel back and loses its annotations; "
            f"then {then}. Ask for its status to see it done; asking twice does no harm"
            + (". The cluster is paused: that happens once it is resumed" if waits else "")
        }

    def _fence_zone(self, cluster: str, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        now = self.clock.now()
        asked = read_model(_FenceZone, {key: event[key] for key in ("zone", "until") if key in event}, "fence-zone")
        remembered = self.store.load(cluster)
        doubt = check_zone(
            remembered, asked.zone, lambda: observe_cluster(self.clusters, remembered.record, remaining)[1]
        )
        shift = ZoneShift(
            zone=asked.zone, region="", impaired=asked.until > now, at=now, until=asked.until, by=OPERATOR, id="hand"
        )
        hear = RecordZoneShift(store=self.store, queue=self.queue, clock=self.clock)
        hear.tell(cluster, asked.zone, shift)
        if not shift.impaired and (others := hear.still_impaired(cluster, asked.zone)):
            return {
                "message": f"zone {asked.zone} of {cluster} is no longer fenced by hand (that moment is over); it is "
                f"still impaired, says {', '.join(others)}"
            }
        if not shift.impaired:
            return {"message": f"zone {asked.zone} of {cluster} is no longer fenced (that moment is over)"}
        return {
            "message": f"zone {asked.zone} of {cluster} is fenced until {rfc3339(asked.until)}: its groups get no "
            f"growth. To lift it, ask again with a moment that is over{doubt}"
        }

    def _scale(self, sign: int, cluster: str, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        """Nodes added to a pool, or given back, split evenly over its zones; written by the worker like all else."""
        asked = {key: value for key, value in event.items() if key in ("pool", "group", "only", "id")}
        now = self.clock.now()
        nodes = event.get("nodes")
        if isinstance(nodes, bool) or not isinstance(nodes, int) or nodes < 1:
            raise BadRequestError(f"nodes is {shown(nodes)}: ask for a whole number of nodes, 1 or more")
        pool, group = _name(event, "pool"), _name(event, "group")
        if (group is None) == (pool is None):
            raise BadRequestError(f"{event['action']} needs a pool or a group: name one of them")
        record = read_model(
            ScaleRequestRecord,
            {"id": f"hand-{now.timestamp()}", **asked, "nodes": sign * nodes, "at": now, "by": _asker(event) or ""},
            event["action"],
        )
        try:
            look = self._look(cluster, remaining)
        except (AccessError, ClusterUnavailableError):
            pass  # it is kept for an hour: whoever can read the cluster by then finds out
        else:
            find_pool(look, pool) if pool is not None else find_group(look, str(group))
        heard = RequestScale(store=self.store, queue=self.queue, clock=self.clock).ask(
            ScaleRequestEvent(cluster=cluster, record=record)
        )
        return {"request": record.id, "message": heard.message}

    def _look(self, cluster: str, remaining: Remaining) -> Preview:
        return preview_of(self.clusters, self.store.load(cluster), self.clock.now(), remaining)


def said_by(error: Exception) -> dict[str, Any]:
    """The answer to an event that failed, one sentence. ``retry``: the same event may succeed later."""
    if isinstance(error, StateConflictError):
        return {"ok": False, "retry": True, "message": f"{error}: somebody changed it at the same time, try again"}
    return {"ok": False, "retry": not isinstance(error, BadRequestError | ConfigError), "message": str(error)}


def _name(event: Mapping[str, Any], field: str) -> str | None:
    """A pool's or group's name as an event gives it; None where it is left out."""
    name = event.get(field)
    if name is not None and (not isinstance(name, str) or not 0 < len(name) <= _LONGEST_NAME):
        raise BadRequestError(f"{field} is {shown(name)}: name the {field}")
    return name


def _asker(event: Mapping[str, Any]) -> str | None:
    """Who asks, as the event says it; None where it does not. Nobody can check it here."""
    by = event.get("by")
    if by is None:
        return None
    if not isinstance(by, str) or not 0 < len(by) <= _LONGEST_ASKER or not (by.isascii() and by.isprintable()):
        raise BadRequestError(f"by is {shown(by)}: name who asks, such as the ARN that STS calls the caller")
    return by


def _flag(event: Mapping[str, Any], field: str) -> bool:
    flag = event.get(field, False)
    if not isinstance(flag, bool):
        raise BadRequestError(f"{field} is {shown(flag)}: neither true nor false")
    return flag


def _changed(remembered: Remembered, fields: Mapping[str, object]) -> ControlRecord:
    # Read again rather than copied, so that what an event brings in is checked like any other record.
    where = f"record of cluster {remembered.record.id}"
    return read_model(ControlRecord, {**remembered.control.model_dump(), **fields}, where)


def _still_paused(control: ControlRecord, now: datetime) -> str:
    """What must not be overlooked when a cluster is switched on: that it, or pools of it, stay as they are."""
    paused = control.pools_paused(now)
    restoring = [name for name in control.restoring_pools if name not in paused]
    told = "; it is still paused" if control.is_paused(now) else "; it is still being restored" * control.restoring
    told += f"; still paused: pool {', '.join(sorted(paused))}" if paused else ""
    return told + (f"; still being restored: pool {', '.join(sorted(restoring))}" if restoring else "")


def _held(look: Preview, dry_run: bool) -> list[str]:
    cluster, control = look.record.id, look.remembered.control
    if control.is_paused(look.now):
        return [f"Cluster {cluster} is paused: what follows would be so if it were not."]
    said = f"Cluster {cluster} is in dry run: nothing of this is written, and numbers stay as they are."
    return [said] if dry_run and not control.restoring else []
