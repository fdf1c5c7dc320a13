"""`evenkeel simulate`: play a scenario with each strategy in virtual time. It reads no cluster and writes nothing."""

import shlex
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from rich.console import Console
from rich.text import Text

from evenkeel.domain.model.values import BadValueError, near, quote
from evenkeel.validation import parse_json
from evenkeel_cli.completion import CHOICES
from evenkeel_cli.console import Table, print_line, print_table, progress, terminal
from evenkeel_cli.inputs import file_name, read_text, read_yaml
from evenkeel_cli.simulation.engine import (
    ALONE,
    SERVERLESS,
    Record,
    Run,
    Variant,
    play,
    variants_of,
)
from evenkeel_cli.simulation.history import is_history, scenario_of
from evenkeel_cli.simulation.measures import measure, simulation_json
from evenkeel_cli.simulation.plot import draw
from evenkeel_cli.simulation.scenario import Scenario, read_scenario, write_duration
from evenkeel_cli.terminal import Output, fail, say_document, say_json, say_lines

_PICTURES = (".png", ".svg")
_HEADINGS = ("met in", "waiting", "over", "skew", "after", "moved", "failed", "hours", "patches")
_HEADINGS_OF_PODS = ("met in", "waiting", "ordered", "over", "skew", "after", "moved", "hours", "evicted", "patches")
_NOTHING = "-"  # a column that contains only this text is not printed
_LEGEND = (
    "",
    "met in: the longest from a rise of demand to its nodes; waiting: node-hours that pods waited for",
    "over: most requested and most running beyond PoolMaximum; failed: launches without a machine; hours: node-hours",
    "skew: nodes in the fullest zone less those in the emptiest, mean and worst",
)
_LEGEND_WHERE_SHOWN = {
    "after": "after: mean skew since all zones were well",
    "moved": "moved: running nodes brought home by converge",
}
_LEGEND_OF_PODS = (
    "",
    "met in: the longest from a rise of a kind of pods until none waited; waiting: pod-minutes without a node",
    "ordered: nodes, in all and at most in one wave; over: most requested and most running beyond PoolMaximum",
    "skew: nodes in the fullest zone less those in the emptiest, mean and worst; hours: node-hours",
    "evicted: pods of nodes that went, and such of them as left too few for their budget",
)


def simulate_command(file: str, strategy: Sequence[str], output: Output, plot: str | None) -> None:
    """Play a scenario in virtual time. The same scenario and seed give the same output."""
    check_plot(plot)
    scenario = _read(file)
    variants = [variant for name in strategy or ["own"] for variant in _variants(scenario, name)]
    variants.sort(key=lambda variant: not variant.evenkeel)  # the baseline is last
    records = list(_run_all(scenario, variants))
    if plot is not None:
        write_plot(records, plot)
    match output:
        case Output.JSON:
            say_json(simulation_json(records))
        case Output.YAML:
            say_document(simulation_json(records), output)
        case Output.NAME:
            say_lines("\n".join(record.variant.name for record in records))
        case _:
            print_measures(scenario, records, terminal(output))


def check_plot(plot: str | None) -> None:
    """Exit if a picture could not be drawn into this file."""
    if plot is not None and Path(plot).suffix.lower() not in _PICTURES:
        fail([f"--plot is {quote(plot)}: name a file that ends in {' or '.join(_PICTURES)}"])
    if plot is not None and find_spec("matplotlib") is None:  # the kubectl plugin does not contain matplotlib
        fail([f"--plot needs matplotlib: {shlex.quote(sys.executable)} -m pip install matplotlib"])


def write_plot(records: Sequence[Record], plot: str) -> None:
    """Draw runs into a file, or exit if it cannot be written."""
    try:
        draw(records, Path(plot))
    except OSError as error:
        fail([f"{plot}: cannot be written: {error.strerror or error}"])


def _read(file: str) -> Scenario:
    # For a long history, the JSON parser is many times faster than the YAML parser.
    data = parse_json(read_text(file), file) if file.endswith(".json") else read_yaml(file)
    return scenario_of(data, file_name(file)) if is_history(data) else read_scenario(data, file_name(file))


def _variants(scenario: Scenario, strategy: str) -> list[Variant]:
    try:
        variants = variants_of(scenario, strategy)
    except BadValueError:
        fault = f"no such strategy: choose one of {', '.join(CHOICES)}{near(strategy, CHOICES)}"
        fail([f"--strategy is {quote(strategy)}: {fault}"])
    if not variants:
        lacks = "pods" if strategy == SERVERLESS else "autoscaler"
        if strategy == ALONE and scenario.pods:
            lacks = "demand in numbers"
        fail([f"--strategy is {quote(strategy)}: {scenario.name} has no {lacks}: leave --strategy out"])
    return variants


def _run_all(scenario: Scenario, variants: Sequence[Variant]) -> Iterator[Record]:
    with progress("simulate", "minutes", len(variants) * scenario.duration // 60) as report:
        for index, variant in enumerate(variants):
            before = index * scenario.duration

            def report_all(second: int, before: int = before) -> None:
                report((before + second) // 60)

            yield play(Run(scenario, variant), report_all)
            report((index + 1) * scenario.duration // 60)


def print_measures(scenario: Scenario, records: Sequence[Record], console: Console | None = None) -> None:
    """Print one row per run, and a legend."""
    console = console or terminal()
    print_line(console, f"{scenario.name}, {write_duration(scenario.duration)}", "italic")
    headings = _HEADINGS_OF_PODS if scenario.pods else _HEADINGS
    rows = [_cells(record) for record in records]
    shown = [heading for heading in headings if any(str(cells[heading]) != _NOTHING for cells in rows)]
    runs = Table(["strategy", *shown], right=shown)
    for record, cells in zip(records, rows, strict=True):
        runs.add_row(record.variant.name, *(cells[heading] for heading in shown))
    print_table(console, runs)
    optional = "; ".join(_LEGEND_WHERE_SHOWN[heading] for heading in shown if heading in _LEGEND_WHERE_SHOWN)
    for line in (*(_LEGEND_OF_PODS if scenario.pods else _LEGEND), *filter(None, [optional])):
        print_line(console, line, "dim")


def _cells(record: Record) -> dict[str, str | Text]:
    """Return the cells of a row by heading. Unmet demand and exceeded limits are red."""
    measures = measure(record)
    never = f"{measures.unmet} never"
    within = _NOTHING if measures.worst_seconds is None else write_duration(measures.worst_seconds)
    over = f"{measures.over_requested} {measures.over_running}"
    cells: dict[str, str | Text] = {
        "met in": Text(never, style="bold red") if measures.unmet else within,
        "waiting": f"{measures.waiting_node_hours:.2f}",
        "over": Text(over, style="bold red" if measures.over_requested or measures.over_running else ""),
        "skew": f"{measures.skew_mean:.2f} {measures.skew_worst}",
        "after": _NOTHING if measures.skew_recovered is None else f"{measures.skew_recovered:.2f}",
        "moved": str(measures.moved) if record.scenario.converges else _NOTHING,
        "failed": str(measures.failed_launches),
        "hours": f"{measures.node_hours:.1f}",
        "patches": str(measures.patches),
    }
    if (pods := measures.pods) is not None:
        evicted = f"{pods.evicted} {pods.against_budget}"
        cells |= {
            "waiting": f"{pods.waiting_pod_minutes:.0f}",
            "ordered": f"{pods.ordered} {max((wave.ordered for wave in pods.waves), default=0)}",
            "evicted": Text(evicted, style="bold red" if pods.against_budget else ""),
        }
    return cells
