"""What an operator asks for by hand: finds the action in the table, reads its fields, has it done, and records it."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from evenkeel.application.actions.call import Answer, Call, Fields, Right
from evenkeel.application.actions.table import ACTIONS, Action, writes
from evenkeel.application.errors import (
    BadRequestError,
    EvenkeelError,
    StateConflictError,
    StateUnavailableError,
    UnknownClusterError,
)
from evenkeel.application.ports import Clock, Clusters, Queue, Remaining, Store
from evenkeel.application.words import rfc3339
from evenkeel.config import ConfigError, read_model
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.values import near, shown

_LONGEST_ID = 100  # as ClusterId; a longer one would only make the answer long
_LONGEST_ASKER = 2048
_ACTIONS_KEPT = timedelta(days=30)  # as decisions
# Of a look at all clusters: one that hangs must not use up the others' time, and Lambda answers with 6 MB at most.
_SECONDS_PER_CLUSTER = 10
_LEAST_SECONDS = 3
_LARGEST_ANSWER = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Operate:
    """The use case with its ports. Every answer has ``ok`` and a ``message`` for people."""

    store: Store
    clusters: Clusters
    queue: Queue
    clock: Clock
    random_bytes: Callable[[int], bytes]
    dry_run: bool

    def read(self, event: Mapping[str, Any], remaining: Remaining) -> Answer:
        """The same for somebody who may only read. Raises as calling, and BadRequestError for what would write."""
        if writes(event):
            action = ACTIONS[event["action"]]
            form = action.name if action.right is Right.WRITE else f"{action.name} with {action.writes_with}"
            raise BadRequestError(f"action {form} writes: this function only reads; ask the operator function")
        return self(event, remaining)

    def __call__(self, event: Mapping[str, Any], remaining: Remaining) -> Answer:
        """Answer one operator event.

        Raises:
            BadRequestError, ConfigError: the event asks for something that does not exist, or says it wrongly.
            EvenkeelError: it could not be done now.
        """
        action = _action_of(event)
        right = action.right_for(event)
        _refuse_unknown_fields(action, right, event)
        cluster = event.get("cluster")
        of_all = action.of_all and cluster in (None, "*")
        if not of_all and (not isinstance(cluster, str) or not 0 < len(cluster) <= _LONGEST_ID):
            raise BadRequestError(f"cluster is {shown(cluster)}: name the cluster's id")
        fields = read_model(
            action.fields, {name: event[name] for name in action.fields.model_fields if name in event}, action.name
        )
        call = Call(
            store=self.store,
            clusters=self.clusters,
            queue=self.queue,
            clock=self.clock,
            stack_dry_run=self.dry_run,
            cluster=str(cluster),
            right=right,
            by=_asker(event),
            now=self.clock.now(),
            remaining=remaining,
        )
        if of_all and (overview := action.overview_for(event)) is not None:
            return {"ok": True, "action": action.name, **overview(call)}
        if of_all:
            return {"ok": True, "action": action.name, **self._answer_of_all(action, call, fields)}
        try:
            answer = self._carry_out(action, call, fields)
        except UnknownClusterError as error:
            registered = [id for id, _ in self.store.registrations()]
            raise UnknownClusterError(f"{error}{near(call.cluster, registered)}") from None
        return {"ok": True, "action": action.name, "cluster": cluster, **answer}

    def _carry_out(self, action: Action, call: Call, fields: Fields) -> Answer:
        """Do it, and write down beside the decisions who asked for it."""
        answer = action.handler(call, fields)
        if call.right is Right.READ:
            return answer
        now = self.clock.now()
        id = ulid(now, self.random_bytes(10))
        entry = {"id": id, "at": rfc3339(now), "cluster": call.cluster, "cause": action.name, "by": call.by}
        try:
            self.store.save_decision(call.cluster, id, {**entry, "what": answer["message"]}, now + _ACTIONS_KEPT)
        except StateUnavailableError as error:  # it is done, and must not be asked for a second time
            return {**answer, "message": f"{answer['message']}; who asked is not recorded: {error}"}
        return answer

    def _answer_of_all(self, action: Action, call: Call, fields: Fields) -> Answer:
        """One answer per registered cluster. What is wrong with one is said in its place, and the others go on."""
        answers: list[dict[str, Any]] = []
        size, end = 0, call.now + timedelta(seconds=call.remaining())
        for cluster, record in self.store.registrations():
            seconds = self._share(end)
            answer: dict[str, Any]
            try:
                if isinstance(record, str):
                    answer = {"ok": False, "message": record}
                elif size > _LARGEST_ANSWER or seconds() < _LEAST_SECONDS:
                    why = "answer is too large" if size > _LARGEST_ANSWER else "time is over"
                    answer = {"ok": False, "message": f"{cluster}: the {why}: ask for this cluster alone"}
                else:
                    call_of_one = replace(call, cluster=cluster, now=self.clock.now(), remaining=seconds)
                    answer = {"ok": True, **self._carry_out(action, call_of_one, fields)}
            except (EvenkeelError, ConfigError) as error:
                answer = answer_of_error(error)
            size += len(json.dumps(answer))
            answers.append({"cluster": cluster, **answer})
        failed = [f"; {answer['cluster']}: {answer['message']}" for answer in answers if not answer["ok"]]
        return {
            "clusters": answers,
            "message": f"clusters: {len(answers)}, without an answer: {len(failed)}{''.join(failed)}",
        }

    def _share(self, end: datetime) -> Remaining:
        until = min(end, self.clock.now() + timedelta(seconds=_SECONDS_PER_CLUSTER))
        return lambda: (until - self.clock.now()).total_seconds()


def answer_of_error(error: Exception) -> Answer:
    """The answer to an event that failed, one sentence. ``retry``: the same event may succeed later."""
    if isinstance(error, StateConflictError):
        return {"ok": False, "retry": True, "message": f"{error}: somebody changed it at the same time, try again"}
    return {"ok": False, "retry": not isinstance(error, BadRequestError | ConfigError), "message": str(error)}


def _action_of(event: Mapping[str, Any]) -> Action:
    if not isinstance(event, Mapping):
        raise BadRequestError('event is no object: send {"action": ..., "cluster": ...}')
    name = event.get("action")
    if isinstance(name, str) and name in ACTIONS:
        return ACTIONS[name]
    guess = near(name, ACTIONS) if isinstance(name, str) and len(name) <= _LONGEST_ID else ""
    raise BadRequestError(f"action is {shown(name)}{guess}: choose one of {', '.join(sorted(ACTIONS))}")


def _refuse_unknown_fields(action: Action, right: Right, event: Mapping[str, Any]) -> None:
    """An `until` with a typo would else be a pause without an end."""
    names = ("action", "cluster", *action.fields.model_fields, *(("by",) if right is Right.WRITE else ()))
    for field in event:
        if field not in names:
            guess = near(str(field), names)
            raise BadRequestError(f"{shown(field)} is no field of {action.name}: it takes {', '.join(names)}{guess}")


def _asker(event: Mapping[str, Any]) -> str | None:
    """Who asks, as the event says it; None where it does not. Nobody can check it here."""
    by = event.get("by")
    if by is None:
        return None
    if not isinstance(by, str) or not 0 < len(by) <= _LONGEST_ASKER or not (by.isascii() and by.isprintable()):
        raise BadRequestError(f"by is {shown(by)}: name who asks, such as the ARN that STS calls the caller")
    return by
