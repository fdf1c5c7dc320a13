"""What an operator asks for by hand: register, plan, status, pause, resume, restore, fence-zone."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field

from evenkeel.application.decisions import plan_json, rfc3339
from evenkeel.application.errors import BadRequestError, StateConflictError
from evenkeel.application.ports import Clock, Clusters, Queue, Remaining, Store
from evenkeel.application.rebalance import is_paused
from evenkeel.application.zones import HearZoneShift, ZoneShift
from evenkeel.config import ClusterRecord, Moment, read_model
from evenkeel.domain.backoff import state_at
from evenkeel.domain.plan import plan
from evenkeel.domain.values import shown

_DECISIONS_SHOWN = 10
_LONGEST_ID = 100  # as ClusterId; a longer one would only make the answer long


class _FenceZone(BaseModel):
    """What fence-zone needs beside the cluster."""

    model_config = ConfigDict(frozen=True, extra="forbid")
    zone: Annotated[str, Field(min_length=1, max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$")]
    until: Moment


@dataclass(frozen=True, kw_only=True)
class Operate:
    """The use case with its ports. Every answer has ``ok`` and a ``message`` for people."""

    store: Store
    clusters: Clusters
    queue: Queue
    clock: Clock
    dry_run: bool

    def __call__(self, event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        """Answer one operator event.

        Raises:
            BadRequestError, ConfigError: the event asks for something that does not exist, or says it wrongly.
            EvenkeelError: it could not be done now.
        """
        actions: dict[str, Callable[[str, Mapping[str, Any], Remaining], dict[str, Any]]] = {
            "register": self._register,
            "plan": self._plan,
            "status": self._status,
            "pause": self._pause,
            "restore": self._restore,
            "fence-zone": self._fence_zone,
            "resume": self._resume,
        }
        if not isinstance(event, Mapping):
            raise BadRequestError('event is no object: send {"action": ..., "cluster": ...}')
        action = event.get("action")
        if not isinstance(action, str) or action not in actions:
            raise BadRequestError(f"action is {shown(action)}: choose one of {', '.join(sorted(actions))}")
        cluster = event.get("cluster")
        if not isinstance(cluster, str) or not 0 < len(cluster) <= _LONGEST_ID:
            raise BadRequestError(f"cluster is {shown(cluster)}: name the cluster's id")
        return {"ok": True, "action": action, "cluster": cluster, **actions[action](cluster, event, remaining)}

    def _register(self, cluster: str, event: Mapping[str, Any], _remaining: Remaining) -> dict[str, Any]:
        given = event.get("record")
        if not isinstance(given, Mapping):
            raise BadRequestError("record is missing: give the cluster's record as an object")
        record = read_model(ClusterRecord, {"id": cluster, **given}, f"record of cluster {cluster}")
        if record.id != cluster:
            raise BadRequestError(f"record.id is {record.id!r}: it must be {cluster!r}, or left out")
        version = self.store.record_version(cluster)
        self.store.save_record(record, version)
        self.queue.request(cluster, "registered", f"registered-{cluster}-{self.clock.now().timestamp()}")
        dry_run = self._dry_run(record)
        return {
            "dryRun": dry_run,
            "message": f"{cluster} is {'updated' if version else 'registered'}"
            + (" in dry run: nothing is written to it, decisions are recorded" if dry_run else " and switched on"),
        }

    def _plan(self, cluster: str, _event: Mapping[str, Any], remaining: Remaining) -> dict[str, Any]:
        remembered = self.store.load(cluster)
        observation = self.clusters.open(remembered.record, remaining).observe()
        planned = plan(observation, remembered.state, remembered.record.policy(), self.clock.now())
        invalid = sum(not pool.valid for pool in planned.pools)
        return {
            "dryRun": self._dry_run(remembered.record),
            "plan": plan_json(planned),
            "message": f"{len(planned.pools)} pools, {invalid} invalid; {len(planned.changes)} groups would change",
        }

    def _status(self, cluster: str, _event: Mapping[str, Any], _remaining: Remaining) -> dict[str, Any]:
        now = self.clock.now()
        remembered = self.store.load(cluster)
        record = remembered.record
        groups = {
            str(key): {
                "state": state_at(group, now, None, record.policy().backoff).value,
                "class": group.failure_class.value,
                "failures": group.failures,
                "backoffUntil": rfc3339(group.backoff_until) if group.backoff_until else None,
                "lastFailure": rfc3339(group.last_failure) if group.last_failure else None,
                "message": group.message,
                "contestedBy": group.contested_by or None,
            }
            for key, group in remembered.state.groups.items()
        }
        paused = is_paused(record, now)
        return {
            "dryRun": self._dry_run(record),
            "paused": paused,
            "leaving": record.leaving,
            "pausedUntil": rfc3339(record.paused_until) if paused and record.paused_until else None,
            "groups": groups,
            "zones": {
                zone: {
                    "impairedUntil": rfc3339(told.impaired_until),
                    "impaired": told.impaired_until > now,
                    "by": told.by,
                }
                for zone, told in remembered.zones.items()
            },
            "decisions": list(self.store.decisions(cluster, _DECISIONS_SHOWN)),
            "message": f"{cluster}: {'paused' if paused else 'dry run' if self._dry_run(record) else 'on'}, "
            f"{sum(group['state'] != 'healthy' for group in groups.values())} node groups in trouble",
        }

    def _pause(self, cluster: str, event: Mapping[str, Any], _remaining: Remaining) -> dict[str, Any]:
        remembered = self.store.load(cluster)
        record = self._changed(remembered.record, {"paused": True, "paused_until": event.get("until")})
        now = self.clock.now()
        if record.paused_until is not None and record.paused_until <= now:
            raise BadRequestError(
                f"until is {shown(event.get('until'))}: that is over; name a moment to come, or leave it out"
            )
        self.store.save_record(record, remembered.versions["META"])
        until = f"until {rfc3339(record.paused_until)}" if record.paused_until else "until resumed"
        return {"message": f"{cluster} is paused {until}: nothing is read from it or written to it"}

    def _resume(self, cluster: str, _event: Mapping[str, Any], _remaining: Remaining) -> dict[str, Any]:
        remembered = self.store.load(cluster)
        record = self._changed(remembered.record, {"paused": False, "paused_until": None, "leaving": False})
        self.store.save_record(record, remembered.versions["META"])
        for key, group in remembered.state.groups.items():
            if group.contested_since is not None:
                again = replace(group, contested_since=None, contested_by="", reverts=())
                self.store.save_group(cluster, key, again, remembered.versions.get(f"GROUP#{key}"))
        self.queue.request(cluster, "resumed", f"resumed-{cluster}-{self.clock.now().timestamp()}")
        return {"message": f"{cluster} is resumed and looked at now"}

    def _restore(self, cluster: str, _event: Mapping[str, Any], _remaining: Remaining) -> dict[str, Any]:
        remembered = self.store.load(cluster)
        record = self._changed(remembered.record, {"leaving": True, "paused": False, "paused_until": None})
        self.store.save_record(record, remembered.versions["META"])
        self.queue.request(cluster, "restore", f"restore-{cluster}-{self.clock.now().timestamp()}")
        return {
            "message": f"{cluster}: every group gets its bounds from before Evenkeel back and loses its annotations; "
            "then the cluster is paused. Ask for its status to see it done; asking twice does no harm"
        }

    def _fence_zone(self, cluster: str, event: Mapping[str, Any], _remaining: Remaining) -> dict[str, Any]:
        now = self.clock.now()
        asked = read_model(_FenceZone, {key: event.get(key) for key in ("zone", "until")}, "fence-zone")
        shift = ZoneShift(
            zone=asked.zone, region="", impaired=asked.until > now, at=now, until=asked.until, by="operator", id="hand"
        )
        HearZoneShift(store=self.store, queue=self.queue, clock=self.clock).tell(cluster, asked.zone, shift)
        if not shift.impaired:
            return {"message": f"zone {asked.zone} of {cluster} is no longer fenced (that moment is over)"}
        return {
            "message": f"zone {asked.zone} of {cluster} is fenced until {rfc3339(asked.until)}: its groups get no "
            "growth. To lift it, ask again with a moment that is over"
        }

    def _changed(self, record: ClusterRecord, fields: dict[str, object]) -> ClusterRecord:
        # Read again rather than copied, so that what an event brings in is checked like any other record.
        return read_model(ClusterRecord, {**record.model_dump(), **fields}, f"record of cluster {record.id}")

    def _dry_run(self, record: ClusterRecord) -> bool:
        return self.dry_run if record.dry_run is None else record.dry_run


def said_by(error: Exception) -> dict[str, Any]:
    """The answer to an event that failed, one sentence."""
    if isinstance(error, StateConflictError):
        return {"ok": False, "message": f"{error}: somebody changed it at the same time, try again"}
    return {"ok": False, "message": str(error)}
