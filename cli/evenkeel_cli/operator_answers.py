"""A stack's answers, however many events it takes to get them; and a person's."""

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import typer

from evenkeel.application.actions.call import Right
from evenkeel.application.actions.table import right_needed
from evenkeel.texts.pool_numbers import unknown_words
from evenkeel_cli.stack_client import CannotAskError, ask
from evenkeel_cli.terminal import BAD_INPUT, CANNOT_READ, INTERRUPTED, Interrupted, fail, say

# Lambda takes 6 MB, and DynamoDB's transactions their time: of a fleet's records several hundred.
_LARGEST_EVENT = 200_000


def ask_or_fail(
    action: str, stack: str, cluster: str | None, fields: Mapping[str, Any] | None = None
) -> dict[str, Any]:
    """The stack's answer; where there is none, or it says that something went wrong, the command ends here."""
    values = {name: value for name, value in (fields or {}).items() if value not in (None, [])}
    if values.get("selector") is not None and cluster == "*":
        cluster = None
    event = {"action": action, **({} if cluster is None else {"cluster": cluster}), **values}
    try:
        answer = ask(stack, event)
    except CannotAskError as error:
        fail([str(error)], error.code)
    except KeyboardInterrupt:
        if right_needed(event) is Right.READ or values.get("list"):
            raise
        told = f"evenkeel history --stack {stack} tells"
        say(f"evenkeel: interrupted: the stack goes on with what it was asked for by then: {told}", err=True)
        raise Interrupted(INTERRUPTED) from None
    if not answer.get("ok"):
        fail([answer["message"]], CANNOT_READ if answer.get("retry") else BAD_INPUT)
    if answer.get("unknown") and "after" not in values:  # with the first page of several
        say(f"evenkeel: {unknown_words(answer['unknown'])}", err=True)
    return answer


def ask_of_all(action: str, stack: str, fields: Mapping[str, Any]) -> dict[str, Any]:
    """The same; what there was no time or room for in one answer is asked for again, until an answer brings nothing."""
    given = dict(fields)
    answer = ask_or_fail(action, stack, given.pop("cluster", None), given)
    left = answer.get("left") or []
    while left:
        if "records" in given:
            given["records"] = {id: given["records"][id] for id in left}
        else:
            given = {name: value for name, value in given.items() if name not in ("all", "selector")}
            given["clusters"] = left
        rest = ask_or_fail(action, stack, None, given)
        others = [found for found in answer["clusters"] if found["cluster"] not in left]
        untouched = answer.get("untouched", 0) + rest.get("untouched", 0)
        answer = {**answer, "clusters": others + rest["clusters"], "left": rest["left"], "untouched": untouched}
        if len(rest["left"]) == len(left):
            break
        left = rest["left"]
    return answer


def as_shown(listed: Iterable[Mapping[str, Any]]) -> dict[str, Any]:
    """The field with which a record that has changed since it was shown is left, for actions that tell digests."""
    before = {found["cluster"]: found["before"] for found in listed if "before" in found}
    return {"before": before} if before else {}


def in_parts(records: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Records, as many together as an event may hold."""
    part: dict[str, Any] = {}
    size = 0
    for id, record in records.items():
        length = len(json.dumps({id: record}))
        if part and size + length > _LARGEST_EVENT:
            yield part
            part, size = {}, 0
        part[id] = record
        size += length
    if part:
        yield part


def confirm(what: str, *, yes: bool) -> None:
    """Whoever does not agree leaves here. Who cannot be asked has to say so beforehand."""
    if yes:
        return
    try:
        agreed = typer.confirm(f"{what}. Go on?", err=True)
    except typer.Abort:
        say("", err=True)  # what follows is no part of the question
        fail([f"{what}: nobody agreed, nothing is done: say --yes"])
    if not agreed:
        fail(["nothing is done"])
