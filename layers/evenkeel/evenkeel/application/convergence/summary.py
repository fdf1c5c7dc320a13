"""What converge makes of a pool: for programs, and in sentences for people."""

from collections.abc import Iterator

from evenkeel.application.plan_documents import LevelDocument, StepDocument
from evenkeel.domain.model.convergence import Converging, Step
from evenkeel.texts.english import counted, rfc3339, sentence
from evenkeel.texts.pool_numbers import MOST_NAMED


def pool_level(told: Converging | None) -> LevelDocument | None:
    """None: nobody wants its nodes moved."""
    if told is None:
        return None
    return LevelDocument(
        step=None if told.step is None else _step(told.step),
        waits=None if told.why is None else sentence(told.why),
        rule=None if told.why is None else told.why.rule.value,
        hangs_since=told.hangs_since,
        left=told.left,
        course=told.course,
        says=tuple(_says(told)),
    )


def _step(step: Step) -> StepDocument:
    return StepDocument(
        source=step.source,
        destination=step.destination,
        begun_at=step.begun_at,
        machine=None if step.machine is None else step.machine.name,
        delete_requested_at=step.delete_requested_at,
    )


def course_words(told: Converging) -> str:
    """The steps that would follow, source and destination of each."""
    ways = [f"{source} to {destination}" for source, destination in told.course]
    more = f" and {len(ways) - MOST_NAMED} more" if len(ways) > MOST_NAMED else ""
    return ", ".join(ways[:MOST_NAMED]) + more


def _noun(told: Converging) -> str:
    return "more step" if told.step is not None and not told.begins else "step"


def _says(told: Converging) -> Iterator[str]:
    if told.step is not None:
        begun = "begins now" if told.begins else f"is under way since {rfc3339(told.step.begun_at)}"
        yield f"A step of levelling {begun}, from {told.step.source} to {told.step.destination}."
    if told.why is not None:
        words = sentence(told.why)
        yield f"{words[:1].upper()}{words[1:]}."
    if told.hangs_since is not None:
        yield f"It should have ended at {rfc3339(told.hangs_since)}, and no other begins before it has."
    if told.course:
        yield f"{counted(len(told.course), _noun(told))} would bring the zones level: {course_words(told)}."
    if told.course or told.step is not None:
        yield f"The budget leaves {counted(told.left, 'step')} within this hour."
