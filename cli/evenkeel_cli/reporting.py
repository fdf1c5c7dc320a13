"""`evenkeel report`: one HTML file to look at, from a live stack, a plan or a simulation."""

import os
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated, Any

import typer

from evenkeel.adapters.page.reading import page_of_plan, page_of_simulation, page_of_status
from evenkeel.adapters.page.render import document, summary
from evenkeel.adapters.page.view import Page
from evenkeel.application.errors import AccessError
from evenkeel.application.ports import Shelf
from evenkeel.validation import ConfigError
from evenkeel_cli.inputs import called, hint, read_text
from evenkeel_cli.stack_client import ask_or_fail
from evenkeel_cli.terminal import CANNOT_READ, fail, say


def report_command(  # noqa: PLR0913  one argument per option
    out: Annotated[str | None, typer.Option(help="The HTML file to write.")] = None,
    publish: Annotated[str | None, typer.Option(help="Where to put it as well, or instead: s3://BUCKET/KEY.")] = None,
    stack: Annotated[str | None, typer.Option(help="Ask this stack for its status.")] = None,
    cluster: Annotated[str | None, typer.Option(help="With --stack: one cluster; left out: all of them.")] = None,
    live: Annotated[
        bool, typer.Option("--live", help="With --stack: look at every cluster now, one after the other.")
    ] = False,
    plan: Annotated[str | None, typer.Option(help="What `evenkeel plan -o json` printed; - is standard input.")] = None,
    simulation: Annotated[
        str | None, typer.Option(help="What `evenkeel simulate -o json` printed; - is standard input.")
    ] = None,
    old_out: Annotated[str | None, typer.Option("-o", "--output", hidden=True)] = None,
) -> None:
    """One self-contained HTML file: what is in trouble and what to do, pools, zones, decisions, and a timeline."""
    if old_out is not None:
        hint("-o with a file", "--out FILE")
    out = out or old_out
    try:
        if out is None and publish is None:
            raise ConfigError(["say where the page goes: --out FILE, --publish s3://BUCKET/KEY, or both"])
        shelf = None if publish is None else _shelf(publish)
        page = _page(stack, cluster, plan, simulation, live=live)
        html = document(page)
        if out is not None:
            _write(out, html)
            say(f"{out}: {summary(page)}")
        if shelf is not None:
            shelf.put(html)
            say(f"{publish}: {summary(page)}")
    except ConfigError as error:
        fail(error.faults)
    except AccessError as error:
        fail([str(error)], CANNOT_READ)


def _shelf(place: str) -> Shelf:
    """With the caller's own credentials and region. Raises ConfigError."""
    from evenkeel.adapters.aws.page_bucket import BucketShelf

    def s3() -> Any:
        import boto3  # a quarter of a second that a page for a file need not wait for

        return boto3.Session(region_name=os.environ.get("AWS_REGION")).client("s3")

    return BucketShelf(s3, place)


def _page(stack: str | None, cluster: str | None, plan: str | None, simulation: str | None, *, live: bool) -> Page:
    if sum(source is not None for source in (stack, plan, simulation)) != 1:
        raise ConfigError(["give one of --stack, --plan and --simulation"])
    if cluster is not None and stack is None:
        raise ConfigError(["--cluster goes with --stack: a plan or a simulation has its own"])
    if live and (stack is None or cluster is not None):
        raise ConfigError(["--live goes with --stack and all its clusters: one alone is always looked at"])
    if plan is not None:
        return page_of_plan(read_text(plan), called(plan))
    if simulation is not None:
        return page_of_simulation(read_text(simulation), called(simulation))
    assert stack is not None
    answer = ask_or_fail("status", stack, cluster or "*", {"live": True if live else None})
    return page_of_status(answer, f"answer of stack {stack}", datetime.now(UTC))


def _write(name: str, text: str) -> None:
    try:
        # Half a surrogate pair, which JSON can say and UTF-8 cannot, becomes a question mark.
        Path(name).write_text(text, encoding="utf-8", errors="replace")
    except OSError as error:
        raise ConfigError([f"{name}: cannot be written: {error.strerror or error}"]) from None
