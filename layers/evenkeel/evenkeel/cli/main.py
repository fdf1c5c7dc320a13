"""`evenkeel plan`: what Evenkeel would do, from files or read-only from a cluster.

Exit codes: 0 planned; 1 the cluster could not be read; 2 bad input, one line per fault; 3 some pool is invalid.
"""

import json
import sys
from datetime import UTC, datetime
from enum import StrEnum
from io import TextIOWrapper
from pathlib import Path
from typing import Annotated, NoReturn

import typer
import yaml

from evenkeel.application.decisions import plan_json
from evenkeel.application.errors import EvenkeelError
from evenkeel.cli.objects import read_objects
from evenkeel.cli.table import print_plan
from evenkeel.config import ClusterFile, ConfigError, StateFile, read_json, read_model
from evenkeel.domain.model import Observation
from evenkeel.domain.plan import ClusterState, plan
from evenkeel.domain.values import shown

CANNOT_READ, BAD_INPUT, INVALID_POOL = 1, 2, 3

app = typer.Typer(
    name="evenkeel",
    help="Keeps the zones of Kubernetes node pools even and whole.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # errors as plain lines
)


class Output(StrEnum):
    """How a plan is printed."""

    TABLE = "table"
    JSON = "json"


def fail(faults: list[str], code: int = BAD_INPUT) -> NoReturn:
    """One line per fault on standard error, and the exit code."""
    for fault in faults:
        typer.echo(f"evenkeel: {' '.join(fault.split())}", err=True)
    raise typer.Exit(code)


@app.callback()
def evenkeel() -> None:
    """Keeps the zones of Kubernetes node pools even and whole."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, TextIOWrapper):  # a character that the terminal lacks is no reason to fail
            stream.reconfigure(errors="backslashreplace")


@app.command("plan")
def plan_command(
    file: Annotated[
        list[str] | None,
        typer.Option("-f", "--file", help="Objects as `kubectl get -o yaml|json` prints them; - reads standard input."),
    ] = None,
    state: Annotated[str | None, typer.Option(help="Backoffs and impaired zones, JSON.")] = None,
    now: Annotated[str | None, typer.Option(help="The moment to plan for, RFC 3339; default: now.")] = None,
    cluster: Annotated[str | None, typer.Option(help="The cluster's record, YAML: pools, strategy, discovery.")] = None,
    output: Annotated[Output, typer.Option("-o", "--output")] = Output.TABLE,
    kubeconfig: Annotated[str | None, typer.Option(help="Read the cluster itself, with this kubeconfig.")] = None,
    context: Annotated[str | None, typer.Option(help="Read the cluster itself, with this context.")] = None,
) -> None:
    """What Evenkeel would write, and why. Reads only; exit 3 means that some pool is invalid."""
    try:
        policy = read_model(ClusterFile, _yaml(cluster) if cluster else {}, cluster or "record")
        remembered = read_json(StateFile, _text(state), state).state() if state else ClusterState()
        at = _moment(now)
        observation = _observe(file or [], policy, kubeconfig, context)
    except ConfigError as error:
        fail(error.faults)
    except EvenkeelError as error:
        fail([str(error)], CANNOT_READ)
    planned = plan(observation, remembered, policy.policy(), at)
    if output is Output.JSON:
        typer.echo(json.dumps(plan_json(planned), indent=2, ensure_ascii=False))
    else:
        print_plan(planned)
    if any(not pool.valid for pool in planned.pools):
        raise typer.Exit(INVALID_POOL)


def _observe(files: list[str], policy: ClusterFile, kubeconfig: str | None, context: str | None) -> Observation:
    live = kubeconfig is not None or context is not None
    if bool(files) == live:
        raise ConfigError(["give either -f with objects, or --kubeconfig or --context to read a cluster"])
    if live:
        from evenkeel.cli.live import open_cluster

        return open_cluster(policy, kubeconfig, context).observe()
    return read_objects([(name, _text(name)) for name in files], policy)


def _text(name: str) -> str:
    try:
        return sys.stdin.read() if name == "-" else Path(name).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigError([f"{name}: cannot be read: {error.strerror or error}"]) from None
    except UnicodeDecodeError:
        raise ConfigError([f"{name}: not UTF-8 text"]) from None


def _yaml(name: str) -> object:
    try:
        return yaml.safe_load(_text(name)) or {}
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        raise ConfigError([f"{name}: not YAML: {' '.join(str(error).split())[:300]}"]) from None


def _moment(text: str | None) -> datetime:
    if text is None:
        return datetime.now(UTC)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ConfigError([f"--now is {shown(text)}: write RFC 3339, such as 2026-01-31T12:00:00Z"]) from None
    if moment.tzinfo is None:
        raise ConfigError([f"--now is {shown(text)}: it has no time zone; end it with Z or an offset"])
    if not 2000 <= moment.year < 2200:
        raise ConfigError([f"--now is {shown(text)}: choose a moment from 2000 to 2199"])
    return moment.astimezone(UTC)


def main() -> None:
    """The console script."""
    try:
        app()
    except BrokenPipeError:
        sys.exit(0)  # the reader of a pipe has seen enough


if __name__ == "__main__":
    main()
