"""The commands: what they import before they run, their options, examples, groups, and errors in one line or as JSON."""

import json
import shlex
import subprocess
import sys

import pytest
import yaml
from typer.main import get_command
from typer.testing import CliRunner, Result

from evenkeel.application.actions.table import ACTIONS
from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES
from evenkeel_cli import completion, stack_client
from evenkeel_cli.commands import PANELS, app
from evenkeel_cli.simulation.engine import ALONE, SERVERLESS, STATIC
from evenkeel_cli.stack_client import CannotAskError
from tests.unit.cli.test_asking import _LEAVES

COMMANDS = {
    name: command
    for name, command in get_command(app).commands.items()
    if name != "discover"  # type: ignore[attr-defined]
}
# Fields that no option sets: those of all actions with the same name in events only, and those that a command fills in.
FILLED_IN = {"before", "after", "records", "members", "clusters", "verify", "wave", "soak"}


def run(command: str, **settings: str) -> Result:
    return CliRunner().invoke(app, shlex.split(command), **settings)  # type: ignore[arg-type]


@pytest.mark.parametrize("arguments", ["['--version']", "['plan', '--help']", "['--nope', '-o', 'json']"])
def test_help_version_and_wrong_options_import_nothing_of_the_product(arguments: str) -> None:
    """The time to start is that of the imports: 0.1 s for typer and rich, 1.2 s for everything."""
    program = f"""
import atexit, sys
sys.argv = ["evenkeel", *{arguments}]
slow = ("evenkeel.validation", "boto3", "botocore", "yaml", "kubernetes", "jinja2", "evenkeel.domain.plan", "evenkeel.texts")
atexit.register(lambda: print([name for name in slow if name in sys.modules], len(sys.modules) < 400, file=sys.stderr))
from evenkeel_cli.start import main
main()
"""
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert ended.stderr.splitlines()[-1] == "[] True"


@pytest.mark.parametrize("name", ACTIONS)
def test_each_field_of_an_action_is_an_option_with_the_same_help(name: str) -> None:
    action, options = ACTIONS[name], {param.name: param for param in COMMANDS[name].params}
    by_option = {opt: param for param in COMMANDS[name].params for opt in param.opts}
    if name == "plan":  # it plans also without a stack
        return
    assert COMMANDS[name].callback.__doc__ == action.summary
    for alias, field in action.fields.names().items():
        if alias in FILLED_IN:
            continue
        param = by_option[f"--{alias.replace('_', '-')}"]
        if (name, alias) != ("record", "since"):
            assert param.help == action.fields.model_fields[field].description
            assert param.required == action.fields.model_fields[field].is_required()
    assert ("selector" in options) == bool(action.touches or action.of_all)
    assert ("yes" in options) == bool(action.touches or name == "restore")
    assert ("reason" in options) == (action.right != "read" or name == "rollout")
