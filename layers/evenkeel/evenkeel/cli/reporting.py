"""`evenkeel report`: one HTML file to look at, from a live stack, a plan or a simulation."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from evenkeel.adapters.page.reading import page_of_plan, page_of_simulation, page_of_status
from evenkeel.adapters.page.render import document, summary
from evenkeel.adapters.page.view import Page
from evenkeel.cli.asking import ask_or_fail
from evenkeel.cli.inputs import fail, hint, read_text
from evenkeel.cli.terminal import say
from evenkeel.config import ConfigError


def report_command(
    out: Annotated[str | None, typer.Option(help="The HTML file to write.")] = None,
    stack: Annotated[str | None, typer.Option(help="Ask this stack for its status.")] = None,
    cluster: Annotated[str | None, typer.Option(help="With --stack: one cluster; left out: all of them.")] = None,
    plan: Annotated[str | None, typer.Option(help="What `evenkeel plan -o json` printed; - is standard input.")] = None,
    simulation: Annotated[
        str | None, typer.Option(help="What `evenkeel simulate -o json` printed; - is standard input.")
    ] = None,
    old_out: Annotated[str | None, typer.Option("-o", "--output", hidden=True)] = None,
) -> None:
    """One self-contained HTML file: pools, zones, fences, decisions, and a timeline."""
    if old_out is not None:
        hint("-o with a file", "--out FILE")
    out = out or old_out
    if out is None:
        fail(["--out is missing: name the HTML file to write"])
    try:
        page = _page(stack, cluster, plan, simulation)
        _write(out, document(page))
    except ConfigError as error:
        fail(error.faults)
    say(f"{out}: {summary(page)}")


def _page(stack: str | None, cluster: str | None, plan: str | None, simulation: str | None) -> Page:
    if sum(source is not None for source in (stack, plan, simulation)) != 1:
        raise ConfigError(["give one of --stack, --plan and --simulation"])
    if cluster is not None and stack is None:
        raise ConfigError(["--cluster goes with --stack: a plan or a simulation has its own"])
    if plan is not None:
        return page_of_plan(read_text(plan), plan)
    if simulation is not None:
        return page_of_simulation(read_text(simulation), simulation)
    assert stack is not None
    answer = ask_or_fail("status", stack, cluster or "*", {"live": True if cluster is None else None})
    return page_of_status(answer, f"answer of stack {stack}", datetime.now(UTC))


def _write(name: str, text: str) -> None:
    try:
        # Half a surrogate pair, which JSON can say and UTF-8 cannot, becomes a question mark.
        Path(name).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError([f"{name}: cannot be written: {error.strerror or error}"]) from None
