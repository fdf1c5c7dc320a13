"""The progress of converge in a pool, as a document for programs and as sentences for people."""

from collections.abc import Iterator

from evenkeel.application.plan_documents import LevelDocument, StepDocument
from evenkeel.domain.model.convergence import Converging, Draining, Step
from evenkeel.texts.english import counted, rfc3339, sentence, some_names


def pool_level(report: Converging | None) -> LevelDocument | None:
    """Return the report as a document; None: the pool neither uses converge nor has a step in progress."""
    if report is None:
        return None
    return LevelDocument(
        step=None if report.step is None else _step(report, report.step),
        waits=None if report.why is None else sentence(report.why),
        rule=None if report.why is None else report.why.rule.value,
        hangs_since=report.hangs_since,
        left=report.left,
        course=report.course,
        says=tuple(_says(report)),
    )


def _step(report: Converging, step: Step) -> StepDocument:
    return StepDocument(
        source=step.order.source,
        destination=step.order.destination,
        begun_at=step.order.begun_at,
        machine=None if report.machine is None else report.machine.name,
        delete_requested_at=step.delete_requested_at if isinstance(step, Draining) else None,
    )


def course_text(report: Converging) -> str:
    """Return text with the source and destination of each step that is left until the zones are level."""
    return some_names([f"{source} to {destination}" for source, destination in report.course])


def _says(report: Converging) -> Iterator[str]:
    if report.step is not None:
        begun = "starts now" if report.begins else f"is in progress since {rfc3339(report.step.order.begun_at)}"
        order = report.step.order
        yield f"A converge step {begun}, from {order.source} to {order.destination}."
    if report.why is not None:
        words = sentence(report.why)
        yield f"{words[:1].upper()}{words[1:]}."
    if report.hangs_since is not None:
        yield f"It should have ended at {rfc3339(report.hangs_since)}. No other step starts before it ends."
    if report.course:
        noun = "more step" if report.step is not None and not report.begins else "step"
        yield f"{counted(len(report.course), noun)} would bring the zones level: {course_text(report)}."
    if report.course or report.step is not None:
        yield f"The budget allows {counted(report.left, 'more step')} in this hour."
