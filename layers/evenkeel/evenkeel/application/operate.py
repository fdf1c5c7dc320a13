"""Operator events: find the action in the table, read its fields, carry out the action, and record the caller."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from evenkeel.application.actions.call import Action, Answer, Call, Fields, Right, read_selector
from evenkeel.application.actions.ports import ActionPorts
from evenkeel.application.actions.table import ACTIONS, right_needed
from evenkeel.application.errors import (
    BadRequestError,
    EvenkeelError,
    StateConflictError,
    StateUnavailableError,
    UnknownClusterError,
)
from evenkeel.application.ports import Executor, Remaining, sequentially
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.values import near, quote
from evenkeel.texts.english import rfc3339, unknown_text
from evenkeel.validation import ConfigError, read_model

_LONGEST_ID = 100  # the limit of ClusterId
_LONGEST_ASKER = 2048
_LONGEST_REASON = 500
_MOST_NAMED = 10_000  # the most clusters that one event may name, which is a megabyte of ids
_FAILURES_NAMED = 20
_ACTIONS_KEPT = timedelta(days=30)  # Actions are stored as long as decisions.
# Limits for events about several clusters. A cluster that does not answer must not use up the time of the others.
# Lambda limits answers to 6 MB.
_SECONDS_PER_CLUSTER = 10
_LEAST_SECONDS = 3
_LARGEST_ANSWER = 4_000_000


@dataclass(frozen=True, kw_only=True)
class Operate(ActionPorts):
    """The use case with its ports. Every answer has ``ok`` and a ``message`` for people."""

    together: Executor = sequentially  # carries out an action on several clusters

    def read(self, event: Mapping[str, Any], remaining: Remaining) -> Answer:
        """Return the answer for a caller who may only read. Raises the same errors as ``within``."""
        return self.within(Right.READ, event, remaining)

    def within(self, right: Right, event: Mapping[str, Any], remaining: Remaining) -> Answer:
        """Return the answer for a caller with this right.

        Raises the same errors as ``__call__``, and BadRequestError if the event needs a higher right.
        """
        if not right.covers(needs := right_needed(event)):
            action = ACTIONS[event["action"]]
            fields = [name for name, needed in action.rights_with.items() if not right.covers(needed)]
            form = f"{action.name} with {' or '.join(fields)}" if right.covers(action.right) else action.name
            reason = "writes: this function only reads" if right is Right.READ else "is for administrators"
            function = "admin" if needs is Right.ADMINISTER else "operator"
            raise BadRequestError(f"action {form} {reason}; ask the {function} function")
        return self(event, remaining)

    def __call__(self, event: Mapping[str, Any], remaining: Remaining) -> Answer:
        """Return the answer to one operator event.

        Raises BadRequestError or ConfigError if the event is wrong, EvenkeelError if the action is not possible now.
        """
        action = _action_of(event)
        right = action.right_for(event)
        _refuse_unknown_fields(action, right, event)
        scope = _scope_of(action, event)
        given = {name: event[name] for name in action.fields.names() if name in event}
        fields = read_model(action.fields, given, action.name)
        call = Call(
            ports=self,
            cluster=event["cluster"] if scope == "cluster" else "",
            selector=read_selector(event["selector"]) if scope == "selector" else None,
            right=right,
            by=_text_of(event, "by", _LONGEST_ASKER, "name who asks, such as the ARN that STS calls the caller"),
            reason=_text_of(event, "reason", _LONGEST_REASON, "say in a few words why"),
            now=self.clock.now(),
            remaining=remaining,
            of_invocation=remaining,
        )
        answer = {"ok": True, "action": action.name, **self._answer(action, scope, call, fields, event)}
        if unknown := call.unknown():
            answer |= {"unknown": unknown, "message": f"{answer['message']}; {unknown_text(unknown)}"}
        return answer

    def _answer(self, action: Action, scope: str, call: Call, fields: Fields, event: Mapping[str, Any]) -> Answer:
        if scope == "cluster":
            return {"cluster": call.cluster, **self._answer_of_one(action, call, fields)}
        if scope in ("all", "selector") and (overview := action.overview_for(event)) is not None:
            return overview(call, fields)
        if scope == "records":
            clusters = fields.clusters
        else:
            clusters = _named(event["clusters"]) if scope == "clusters" else [id for id, _ in call.registrations()]
        answers = self._answer_of_many(action, call, fields, clusters, lists=event.get("list") is True)
        # What clusters share is stored with their last checks, which the reads of this answer do not replace.
        if scope in ("all", "selector") and action.overview is not None:
            answers["causes"] = action.overview(call, Fields())["causes"]
        return answers

    def _answer_of_one(self, action: Action, call: Call, fields: Fields) -> Answer:
        try:
            return self._carry_out(action, call, fields)
        except UnknownClusterError as error:
            registered = [id for id, _ in self.store.registrations()]
            advice = near(call.cluster, registered) or ": export names those that are"
            raise UnknownClusterError(f"{error}{advice}") from None

    def _carry_out(self, action: Action, call: Call, fields: Fields) -> Answer:
        """Carry out the action on one cluster, and store the action with its caller among the cluster's decisions."""
        answer = action.handler(call, fields)
        if call.right is Right.READ or not answer.get("done", True):
            return answer
        now = self.clock.now()
        id = ulid(now, self.random_bytes(10))
        entry = {"id": id, "at": rfc3339(now), "cluster": call.cluster, "cause": action.name, "by": call.by}
        entry |= {"reason": call.reason} if call.reason is not None else {}
        try:
            self.store.save_decision(call.cluster, id, {**entry, "what": answer["message"]}, now + _ACTIONS_KEPT)
        except StateUnavailableError as error:  # raise nothing, because the action is done and must not be repeated
            return {**answer, "message": f"{answer['message']}; who asked is not recorded: {error}"}
        return answer

    def _answer_of_many(
        self, action: Action, call: Call, fields: Fields, clusters: Sequence[str], *, lists: bool
    ) -> Answer:
        """Return one answer for each cluster. An error in one cluster does not affect the others.

        If ``lists`` is True, the answer only shows which clusters the action would affect. Its field ``left`` has
        the clusters for which there was no time or space. The caller can name these clusters in a second event.
        """
        answers: dict[str, Answer | None] = {}
        left: dict[str, str] = {}
        end = call.now + timedelta(seconds=call.remaining())
        unread = {id: record for id, record in call.registrations() if isinstance(record, str)} if action.of_all else {}
        size = [0]

        def answer_of(cluster: str) -> None:
            seconds = self._share(end)
            if size[0] > _LARGEST_ANSWER or seconds() < _LEAST_SECONDS:
                left[cluster] = "answer is too large" if size[0] > _LARGEST_ANSWER else "time is over"
                return
            call_of_one = replace(call, cluster=cluster, now=self.clock.now(), remaining=seconds)
            try:
                if cluster in unread:
                    answers[cluster] = {"ok": False, "message": unread[cluster]}
                    return
                of_one = fields.of(cluster)
                answer = action.listed(call_of_one, of_one) if lists else self._carry_out(action, call_of_one, of_one)
                answers[cluster] = None if answer is None else {"ok": True, **answer}
            except (EvenkeelError, ConfigError) as error:
                answers[cluster] = answer_of_error(error)
            size[0] += len(json.dumps(answers[cluster]))

        self.together([partial(answer_of, cluster) for cluster in clusters])
        for cluster, reason in left.items():
            answers[cluster] = {"ok": False, "message": f"{cluster}: the {reason}: ask for this cluster alone"}
        given = [{"cluster": id, **answer} for id in clusters if (answer := answers[id]) is not None]
        failed = [f"; {answer['cluster']}: {answer['message']}" for answer in given if not answer["ok"]]
        more = f"; and {len(failed) - _FAILURES_NAMED} more" if len(failed) > _FAILURES_NAMED else ""
        untouched = len(clusters) - len(given)
        return {
            "clusters": given,
            "left": [cluster for cluster in clusters if cluster in left],
            **({"untouched": untouched} if lists else {}),
            "message": f"clusters: {len(given)}{f', left as they are: {untouched}' if untouched else ''}, "
            f"without an answer: {len(failed)}{''.join(failed[:_FAILURES_NAMED])}{more}",
        }

    def _share(self, end: datetime) -> Remaining:
        until = min(end, self.clock.now() + timedelta(seconds=_SECONDS_PER_CLUSTER))
        return lambda: (until - self.clock.now()).total_seconds()


def answer_of_error(error: Exception) -> Answer:
    """Return the answer to an event that failed. ``retry`` is True if the same event may succeed later."""
    if isinstance(error, StateConflictError):
        return {
            "ok": False,
            "retry": True,
            "message": f"{error}: another writer changed it at the same time, try again",
        }
    return {"ok": False, "retry": not isinstance(error, BadRequestError | ConfigError), "message": str(error)}


def _action_of(event: Mapping[str, Any]) -> Action:
    if not isinstance(event, Mapping):
        raise BadRequestError('event is no object: send {"action": ..., "cluster": ...}')
    name = event.get("action")
    if isinstance(name, str) and name in ACTIONS:
        return ACTIONS[name]
    guess = near(name, ACTIONS) if isinstance(name, str) and len(name) <= _LONGEST_ID else ""
    raise BadRequestError(f"action is {quote(name)}{guess}: choose one of {', '.join(sorted(ACTIONS))}")


def _refuse_unknown_fields(action: Action, right: Right, event: Mapping[str, Any]) -> None:
    """Raise BadRequestError for an unknown field, because a pause without its mistyped `until` would not end."""
    asker = () if right is Right.READ else ("by", "reason")
    names = ("action", *action.scopes, *action.fields.names(), *asker)
    for field in event:
        if field not in names:
            guess = near(str(field), names)
            raise BadRequestError(f"{quote(field)} is no field of {action.name}: it takes {', '.join(names)}{guess}")


def _scope_of(action: Action, event: Mapping[str, Any]) -> str:
    """Return which field names the clusters (`cluster`, `clusters`, `selector`, `all` or `records`)."""
    if action.of_records:
        return "records"
    cluster = event.get("cluster")
    is_any = action.of_all and cluster in (None, "*")
    several = [name for name in ("clusters", "selector", "all") if event.get(name) not in (None, False)]
    if len(several) > 1 or (several and cluster is not None and not is_any):
        named = several if len(several) > 1 else ["cluster", *several]
        raise BadRequestError(f"{named[0]} and {named[1]} are there: name clusters by one of the two")
    if several:
        if several == ["all"] and event["all"] is not True:
            raise BadRequestError(f"all is {quote(event['all'])}: neither true nor false")
        return several[0]
    if is_any:
        return "all"
    if not isinstance(cluster, str) or not 0 < len(cluster) <= _LONGEST_ID:
        raise BadRequestError(f"cluster is {quote(cluster)}: name the cluster's id")
    if event.get("list"):
        raise BadRequestError("list goes with clusters, selector or all: leave it out")
    return "cluster"


def _named(clusters: object) -> list[str]:
    ids = clusters if isinstance(clusters, list) and len(clusters) <= _MOST_NAMED else []
    if ids and all(isinstance(id, str) and 0 < len(id) <= _LONGEST_ID for id in ids):
        return list(dict.fromkeys(ids))
    raise BadRequestError(f"clusters is {quote(clusters)}: list the clusters' ids, {_MOST_NAMED} at most")


def _text_of(event: Mapping[str, Any], name: str, longest: int, advice: str) -> str | None:
    """Return the caller or reason that the event states, or None. Raises BadRequestError for a bad text."""
    text = event.get(name)
    if text is None:
        return None
    if not isinstance(text, str) or not 0 < len(text) <= longest or not text.isprintable():
        raise BadRequestError(f"{name} is {quote(text)}: {advice}")
    if name == "by" and not text.isascii():
        raise BadRequestError(f"{name} is {quote(text)}: {advice}")
    return text
