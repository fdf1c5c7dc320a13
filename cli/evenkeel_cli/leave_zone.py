"""`evenkeel leave-zone`: show the forecast, ask, and leave the zone; or end that."""

from collections.abc import Mapping
from typing import Any

import typer

from evenkeel_cli.answers import print_in_form
from evenkeel_cli.stack_client import ask_or_fail
from evenkeel_cli.terminal import NOT_READY, Output, confirm, say


def leave_zone_command(
    stack: str, cluster: str, fields: Mapping[str, Any], *, dry_run: bool, yes: bool, output: Output
) -> None:
    """Leave a zone after a confirmation, or end that without one."""
    if not dry_run and not fields["back"]:
        forecast = ask_or_fail("leave-zone", stack, cluster, {**fields, "dry_run": True})
        if not yes:
            say(forecast["message"], err=True)
        confirm(f"leave-zone: leave zone {forecast['leave']['zone']} of {cluster}", yes=yes)
    answer = ask_or_fail("leave-zone", stack, cluster, {**fields, "dry_run": dry_run or None})
    print_in_form(output, answer, answer)
    if "plannedOnly" in answer:
        raise typer.Exit(NOT_READY)
