"""`evenkeel lookback`: what did outages cost in the last weeks, and what would Evenkeel have changed? Read-only."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

import typer

from evenkeel.domain.model.values import quote
from evenkeel_cli.auto_scaling import own_session
from evenkeel_cli.console import progress, terminal
from evenkeel_cli.inputs import file_name, read_moment, read_text, refuse_two_standard_inputs
from evenkeel_cli.lookback.auto_scaling import LONGEST, Answers, read_history
from evenkeel_cli.lookback.history import History
from evenkeel_cli.lookback.live import SlowReader, read_live
from evenkeel_cli.lookback.metrics import read_history as read_metrics
from evenkeel_cli.lookback.outages import Window, outages_of, windows_of
from evenkeel_cli.lookback.prometheus import EXPORTERS, is_answer, print_queries, read_samples
from evenkeel_cli.lookback.replay import Answer, answer, unplayed
from evenkeel_cli.lookback.report import Report
from evenkeel_cli.simulate import check_plot, write_plot
from evenkeel_cli.terminal import LookbackForm, Output, fail, say, say_document

_NO_VERDICT = 4
_MOST_PLAYED = 750 * 3600  # seconds of a pool that less than two minutes of CPU are enough for


@dataclass(frozen=True, kw_only=True)
class Inputs:
    """The options of the command that say what is read."""

    file: Sequence[str]
    auto_scaling: bool
    role_arn: str | None
    days: int
    now: str | None
    cache: str | None
    rate: float


def lookback_command(inputs: Inputs, row: int | None, output: LookbackForm, plot: str | None) -> None:
    """Print the answer about a history. Exit with 4 if there is no verdict about some outage."""
    check_plot(plot)
    history = _read(inputs)
    outages = outages_of(history)
    report = Report(history, outages, _answers(history, windows_of(history, outages)))
    chosen = report.chosen(row)
    if row is not None and chosen is None:
        fail([f"--row is {row}: the table has {len(report.answers)} rows"])
    why = chosen.missing[0] if chosen is not None and chosen.missing else "no launch was refused"
    if plot is not None:
        if chosen is None or not chosen.records:
            fail([f"--plot: there is nothing to draw: {why}"], _NO_VERDICT)
        write_plot(chosen.records, plot)
    match output:
        case LookbackForm.JSON:
            say_document(report.json(), Output.JSON)
        case LookbackForm.SCENARIO:
            if chosen is None or chosen.scenario is None:
                fail([f"-o scenario: there is no scenario: {why}"], _NO_VERDICT)
            say_document(chosen.scenario, Output.YAML)
        case _:
            report.print(terminal(Output.TABLE))
    if not report.has_verdict:
        raise typer.Exit(_NO_VERDICT)


def queries_command(source: str, days: int, now: str | None) -> None:
    """Print the queries for a source."""
    if source not in EXPORTERS:
        fail([f"--print-queries is {quote(source)}: choose {', '.join(EXPORTERS)}"])
    if not 1 <= days <= LONGEST:
        fail([f"--days is {days}: choose 1 to {LONGEST}"])
    for line in print_queries(source, days, read_moment(now)):
        say(line)


def _read(inputs: Inputs) -> History:
    if bool(inputs.file) == inputs.auto_scaling:
        fail(["give answers of the AWS command line or of Prometheus with -f, or --auto-scaling to read AWS itself"])
    if not 1 <= inputs.days <= LONGEST:
        fail([f"--days is {inputs.days}: choose 1 to {LONGEST}, since AWS keeps activities for six weeks"])
    if inputs.rate <= 0:
        fail([f"--calls-per-second is {inputs.rate:g}: choose more than 0"])
    if inputs.file and (inputs.cache or inputs.role_arn):
        fail(["--cache and --role-arn go with --auto-scaling: leave them out with -f"])
    now = read_moment(inputs.now) if inputs.now is not None else None
    if inputs.auto_scaling:
        now = now or datetime.now(UTC)
        reader = SlowReader(own_session(inputs.role_arn), inputs.rate)
        cache = Path(inputs.cache) if inputs.cache else None
        return read_history(read_live(reader, inputs.days, cache, now), inputs.days, now)
    refuse_two_standard_inputs(*inputs.file)
    files = [(file_name(file), read_text(file)) for file in inputs.file]
    if of_prometheus := [file for file in files if is_answer(file[1])]:
        objects = [file for file in files if file not in of_prometheus]
        return read_metrics(read_samples(of_prometheus), objects, inputs.days, now)
    answers = Answers()
    answers.read_files(files)
    return read_history(answers, inputs.days, now)


def _answers(history: History, windows: Sequence[Window]) -> list[Answer]:
    """Return the answers about windows in order of time. Those with the most waiting are played first."""
    found: dict[Window, Answer] = {}
    left = _MOST_PLAYED
    order = sorted(windows, key=lambda window: -sum(outage.refused for outage in window.outages))
    with progress("replay", "outages", len(windows)) as report:
        for number, window in enumerate(order, 1):
            left -= (window.until - window.since) * len(window.pools)
            found[window] = answer(history, window) if left >= 0 else unplayed(history, window)
            report(number)
    return [found[window] for window in windows]
