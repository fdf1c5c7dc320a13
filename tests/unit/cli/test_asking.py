"""Commands for several clusters of one stack: listed, confirmed and unchanged clusters, and missing credentials."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner, Result

from evenkeel_cli import stack_client, terminal
from evenkeel_cli.main import app
from sandbox.template import ROOT


class Stack:
    """Four clusters. Each call has time for two."""

    def __init__(self, touched: Mapping[str, str | None]) -> None:
        self.touched = touched
        self.done: list[str] = []

    def ask(self, _stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
        asked = event.get("clusters") or list(self.touched)
        now, left = asked[:2], asked[2:]
        if not event.get("list"):
            self.done += now
        reported = [{"cluster": name, "ok": True, "message": self.touched[name]} for name in now if self.touched[name]]
        reported += [{"cluster": name, "ok": False, "message": f"{name}: the time is over"} for name in left]
        untouched = sum(self.touched[name] is None for name in now)
        more = {"untouched": untouched} if event.get("list") else {}
        return {"ok": True, "action": event["action"], "message": "", "clusters": reported, "left": left, **more}


def type_(monkeypatch: pytest.MonkeyPatch, stack: Stack, command: str, answer: str = "") -> Result:
    monkeypatch.setattr(stack_client, "ask", stack.ask)
    return CliRunner().invoke(app, [*command.split(), "--stack", "s"], input=answer)


MIXED = {"a": "a: zone z", "b": None, "c": "c: zone z", "d": None}


@pytest.mark.parametrize("answer", [{}, {"clusters": [{}]}, {"clusters": [1]}, {"clusters": 1}])
@pytest.mark.parametrize("command", ["status", "explain", "readiness", "export", "record --cluster blue --out -"])
def test_an_answer_without_its_fields_is_one_line(
    command: str, answer: Mapping[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    payload = json.dumps({"ok": True, "message": "x", **answer}).encode()
    aws = SimpleNamespace(
        describe_stack_resource=lambda **_: {"StackResourceDetail": {"PhysicalResourceId": "f"}},
        invoke=lambda **_: {"Payload": BytesIO(payload)},
    )
    monkeypatch.setattr(stack_client, "session", lambda: SimpleNamespace(client=lambda *_, **__: aws))
    ran = CliRunner().invoke(app, [*command.split(), "--stack", "s"])
    assert (ran.exit_code, ran.stdout, ran.stderr.count("\n"), ran.stderr[:10]) == (1, "", 1, "evenkeel: "), ran.output


def test_unchanged_clusters_are_counted_over_all_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(MIXED)
    ran = type_(monkeypatch, stack, "fence-zone --zone z --for 2h --all --yes")
    assert "left as they are: 2 clusters (no such zone)\n" in ran.stdout
    assert stack.done == ["a", "c"]


def test_a_zone_of_no_cluster_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = type_(monkeypatch, Stack(dict.fromkeys("abcd")), "fence-zone --zone-id euc9-az2 --for 2h --all --yes")
    assert ran.exit_code == 2
    assert ran.stdout == "left as they are: 4 clusters (no such zone)\n"
    assert ran.stderr == "evenkeel: fence-zone touches none of these clusters: nothing is done\n"


def test_a_selector_of_no_cluster_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    ran = type_(monkeypatch, Stack({}), "fence-zone --zone z --for 2h -l env=nope --yes")
    assert ran.exit_code == 2
    assert ran.stderr == "evenkeel: selector is 'env=nope': no registered cluster has such labels\n"


@pytest.mark.parametrize(("options", "named"), [("", ["a", "b"]), ("--unhealthy", ["a"])])
def test_names_of_unhealthy_clusters_are_without_the_others(
    options: str, named: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"ok": True, "action": "status", "message": "", "incident": True, "counts": {"clusters": 2}}
    answer |= {"clusters": [{"cluster": "a", "ok": True}], "others": {"well": ["b"], "paused": []}}
    monkeypatch.setattr(stack_client, "ask", lambda *_: answer)
    ran = CliRunner().invoke(app, ["status", "--stack", "s", "-o", "name", *options.split()])
    assert (ran.exit_code, ran.stdout.split()) == (4, named)


WEB = [{"flavour": "cluster-api", "namespace": "prod", "name": "web-a\nprod/web-b"}]


@pytest.mark.parametrize(
    ("command", "answer", "names"),
    [
        ("explain", {"counts": {}, "incidents": [{"cluster": name} for name in "aba"]}, "a\nb\n"),
        ("status --cluster a", {"cluster": "a", "pools": [{"groups": WEB}]}, "prod/web-a prod/web-b\n"),
    ],
    ids=["the clusters with incidents once each", "each name stays on one line"],
)
def test_names_are_printed_one_a_line(
    command: str, answer: dict[str, Any], names: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"ok": True, "action": command.split()[0], "message": "", **answer}
    monkeypatch.setattr(stack_client, "ask", lambda *_: answer)
    ran = CliRunner().invoke(app, [*command.split(), "--stack", "s", "-o", "name"])
    assert (ran.exit_code, ran.stdout) == (0, names)


def test_an_option_with_a_value_that_it_does_not_take_names_the_command() -> None:
    ran = CliRunner().invoke(app, ["status", "--stack", "s", "--watch=1"], prog_name="evenkeel")
    assert (ran.exit_code, ran.stderr) == (
        2,
        "evenkeel: option '--watch' does not take a value: see evenkeel status -h\n",
    )


def test_a_cluster_that_does_not_answer_is_in_the_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    """In an outage, a script must know that a cluster may keep growing in the zone."""

    class Doubtful(Stack):
        def ask(self, stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
            answer = super().ask(stack, event)
            others = [found for found in answer["clusters"] if found["cluster"] != "c"]
            dark = {"cluster": "c", "ok": False, "message": "c does not answer"}
            return {**answer, "left": [], "clusters": [*others[:1], *([dark] if event.get("list") else [])]}

    stack = Doubtful(MIXED)
    ran = type_(monkeypatch, stack, "fence-zone --zone z --for 2h --all --yes")
    assert (ran.exit_code, stack.done) == (1, ["a"])
    assert "left out: c does not answer\n" in ran.stdout


def test_without_a_terminal_a_command_needs_yes(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack(MIXED)
    ran = type_(monkeypatch, stack, "pause --all")
    assert ran.exit_code == 2
    assert ran.stderr.splitlines()[-1] == "evenkeel: pause: 2 clusters: not confirmed, nothing is done: say --yes"
    assert stack.done == []


def _leaves(command: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not hasattr(command, "commands"):
        yield path, command
        return
    for name, inner in command.commands.items():
        yield from _leaves(inner, (*path, name))


_LEAVES = {
    " ".join(path): [name for parameter in command.params for name in parameter.opts]
    for path, command in _leaves(typer.main.get_command(app))
}
_OF_AWS = {name: options for name, options in _LEAVES.items() if "--stack" in options}


@pytest.mark.parametrize("name", _OF_AWS)
def test_commands_without_credentials_are_exit_one(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record, fleet = tmp_path / "record.yaml", tmp_path / "fleet.yaml"
    fields = "flavours: [gardener], access: {kind: kubeconfig, secret: a}"
    record.write_text(f"{{{fields}}}", encoding="utf-8")
    fleet.write_text(f"clusters: [{{id: blue, {fields}}}]", encoding="utf-8")
    known = {"--stack": "s", "--cluster": "blue", "--pool": "p", "--nodes": "1", "--zone": "a", "--for": "1h"}
    known |= {"--record": str(record), "--file": str(fleet), "--tag": "a=b", "--out": str(tmp_path / "out")}
    known |= {"--output": "json"} if name not in ("record", "report") else {}
    given = [word for option, value in known.items() if option in _OF_AWS[name] for word in (option, value)]
    given += ["--yes"] if name == "restore" else ["--reason", "a test"] if name == "drill" else []
    if name in ("plan", "forecast"):  # commands that also work without a stack
        given = ["--stack", "s", "--cluster", "blue", "-o", "json", *(["--zone", "a"] if name == "forecast" else [])]
    given += [str(ROOT / "events" / "scan-schedule.json")] if name == "send" else []
    for variable in [each for each in os.environ if each.startswith("AWS_")]:
        monkeypatch.delenv(variable)
    nowhere = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_REGION": "eu-central-1", "HOME": str(tmp_path)}
    ran = CliRunner().invoke(app, [*name.split(), *given], env=nowhere)
    assert ran.exit_code == 1
    if "json" in given:
        (fault,) = json.loads(ran.stdout)["error"]["messages"]
        assert (fault[:20], ran.stderr) == ("no AWS credentials: ", "")
    else:
        assert (ran.stdout, ran.stderr[:30], ran.stderr.count("\n")) == ("", "evenkeel: no AWS credentials: ", 1)
    assert not (tmp_path / "out").exists()


def test_the_command_line_imports_no_package_that_the_plugin_lacks() -> None:
    """Its separate lock reduces it to a third of the size. Only `simulate --plot` needs more, and says so."""
    pins = {name: _pins(f"requirements/{name}.txt") for name in ("cli", "dev")}
    missing = pins["dev"] - pins["cli"]
    assert {"matplotlib", "numpy", "aiohttp"} <= missing
    modules = {
        module
        for module, owners in packages_distributions().items()
        if {re.sub(r"[-_.]+", "-", owner).lower() for owner in owners} <= missing
    }
    program = f"""
import pkgutil, sys
sys.modules.update(dict.fromkeys({sorted(modules | {"kubernetes.aio"})!r}))
import evenkeel_cli
for found in pkgutil.walk_packages(evenkeel_cli.__path__, "evenkeel_cli."):
    __import__(found.name)
sys.argv = ["evenkeel", "simulate", "scenarios/two-zones-out.yaml", "--plot", "a.svg"]
from evenkeel_cli.main import main
main()
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=ROOT)
    says = f"evenkeel: --plot needs matplotlib: {shlex.quote(sys.executable)} -m pip install matplotlib\n"
    assert (ran.returncode, ran.stderr) == (2, says)


def _pins(file: str) -> set[str]:
    return set(re.findall(r"^([a-z0-9-]+)==", (ROOT / file).read_text(encoding="utf-8"), re.M))


def test_a_stacks_plan_without_a_pool_exits_as_any_other(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = {"now": "2026-01-31T12:00:00Z", "pools": [], "skipped": []}
    answer = {"ok": True, "action": "plan", "message": "blue: no pools", "cluster": "blue", "plan": plan}
    monkeypatch.setattr(stack_client, "ask", lambda *_: answer)
    words = ["plan", "--stack", "s", "--cluster", "blue"]
    assert [CliRunner().invoke(app, [*words, "-o", form]).exit_code for form in ("table", "json")] == [4, 4]


@pytest.mark.parametrize(("end", "code"), [(KeyboardInterrupt, 130), (EOFError, 2)])
def test_an_interrupt_at_a_question_is_no_answer(
    end: type[BaseException], code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    def interrupted(*_: object, **__: object) -> bool:
        try:
            raise end
        except end:
            raise typer.Abort from None

    monkeypatch.setattr(terminal, "has_terminal", lambda: True)
    monkeypatch.setattr(typer, "confirm", interrupted)
    ran = CliRunner().invoke(app, ["restore", "--stack", "s", "--cluster", "blue"])
    assert ran.exit_code == code
    assert ("nothing is done" in ran.stderr) == (code == 2)
