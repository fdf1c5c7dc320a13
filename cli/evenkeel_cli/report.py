"""`evenkeel report`: one HTML file about a stack, a plan or a simulation."""

import os
from datetime import UTC, datetime
from typing import Annotated, Any

import typer

from evenkeel.adapters.page.reading import page_of_plan, page_of_simulation, page_of_status
from evenkeel.adapters.page.render import document, summary
from evenkeel.adapters.page.view import Page
from evenkeel.application.ports import PageStore
from evenkeel_cli.inputs import file_name, read_text
from evenkeel_cli.stack_client import ask_or_fail
from evenkeel_cli.terminal import fail, say, write_text


def report_command(  # noqa: PLR0913  one argument per option
    out: Annotated[str | None, typer.Option(help="The HTML file to write.")] = None,
    publish: Annotated[str | None, typer.Option(help="Store the page in a bucket: s3://BUCKET/KEY.")] = None,
    stack: Annotated[str | None, typer.Option(help="Show the status of this stack.")] = None,
    cluster: Annotated[str | None, typer.Option(help="With --stack: one cluster; default: all clusters.")] = None,
    live: Annotated[bool, typer.Option("--live", help="With --stack: check every cluster now.")] = False,
    plan: Annotated[str | None, typer.Option(help="Output of `evenkeel plan -o json`; - is standard input.")] = None,
    simulation: Annotated[
        str | None, typer.Option(help="Output of `evenkeel simulate -o json`; - is standard input.")
    ] = None,
) -> None:
    """Write one self-contained HTML file: incidents and what to do, pools, zones, decisions, and a timeline."""
    if out is None and publish is None:
        fail(["say where the page goes: --out FILE, --publish s3://BUCKET/KEY, or both"])
    shelf = None if publish is None else _shelf(publish)
    page = _page(stack, cluster, plan, simulation, live=live)
    html = document(page)
    if out is not None:
        write_text(out, html)
        say(f"{out}: {summary(page)}")
    if shelf is not None:
        shelf.put(html)
        say(f"{publish}: {summary(page)}")


def _shelf(place: str) -> PageStore:
    """Return the ``PageStore`` for an S3 bucket. It uses the caller's credentials and region. Raises ConfigError."""
    from evenkeel.adapters.aws.page_bucket import S3PageStore

    def s3() -> Any:
        import boto3  # takes a quarter of a second; a page in a file does not need it

        return boto3.Session(region_name=os.environ.get("AWS_REGION")).client("s3")

    return S3PageStore(s3, place)


def _page(stack: str | None, cluster: str | None, plan: str | None, simulation: str | None, *, live: bool) -> Page:
    if sum(source is not None for source in (stack, plan, simulation)) != 1:
        fail(["give one of --stack, --plan and --simulation"])
    if cluster is not None and stack is None:
        fail(["--cluster goes with --stack: a plan or a simulation has its own"])
    if live and (stack is None or cluster is not None):
        fail(["--live goes with --stack and all its clusters: one alone is always checked"])
    if plan is not None:
        return page_of_plan(read_text(plan), file_name(plan))
    if simulation is not None:
        return page_of_simulation(read_text(simulation), file_name(simulation))
    assert stack is not None
    answer = ask_or_fail("status", stack, cluster or "*", {"live": True if live else None})
    return page_of_status(answer, f"answer of stack {stack}", datetime.now(UTC))
