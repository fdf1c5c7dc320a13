"""`evenkeel report`: one HTML file about a stack, a plan, a simulation or a forecast."""

from datetime import UTC, datetime

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import document, summary
from evenkeel.adapters.page.view import Page
from evenkeel.application.ports import PageStore
from evenkeel_cli.inputs import default_stack, file_name, read_text
from evenkeel_cli.printed_pages import page_of_forecast, page_of_plan, page_of_simulation
from evenkeel_cli.stack_client import ask_or_fail, session
from evenkeel_cli.terminal import fail, say, write_text


def report_command(  # noqa: PLR0913  one parameter per option
    out: str | None,
    publish: str | None,
    stack: str | None,
    cluster: str | None,
    plan: str | None,
    simulation: str | None,
    forecast: str | None,
    *,
    live: bool,
) -> None:
    """Write one self-contained HTML file: incidents and what to do, pools, zones, decisions, and a timeline."""
    if out is None and publish is None:
        fail(["say where the page goes: --out FILE, --publish s3://BUCKET/KEY, or both"])
    if stack is None and (plan, simulation, forecast) == (None, None, None):
        stack = default_stack()
    if sum(source is not None for source in (stack, plan, simulation, forecast)) != 1:
        fail(["give one of --stack, --plan, --simulation and --forecast"])
    if cluster is not None and stack is None:
        fail(["--cluster goes with --stack: a plan or a simulation has its own"])
    if live and (stack is None or cluster is not None):
        fail(["--live goes with --stack and all its clusters: one alone is always checked"])
    shelf = None if publish is None else _shelf(publish)
    page = _page_of_stack(stack, cluster, live=live) if stack is not None else None
    readers = ((plan, page_of_plan), (simulation, page_of_simulation), (forecast, page_of_forecast))
    for name, read in readers:
        if name is not None:
            page = read(read_text(name), file_name(name))
    assert page is not None
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

    return S3PageStore(lambda: session().client("s3"), place)


def _page_of_stack(stack: str, cluster: str | None, *, live: bool) -> Page:
    answer = ask_or_fail("status", stack, cluster or "*", {"live": True if live else None})
    return page_of_status(answer, f"answer of stack {stack}", datetime.now(UTC))
