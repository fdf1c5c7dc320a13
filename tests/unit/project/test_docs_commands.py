"""Every command that the docs show with its output prints that; other files test the pages in ELSEWHERE.

tests/integration/test_docs_scripts.py runs the scripts, and the commands in sentences.
"""

import re
import shlex
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from evenkeel.adapters.aws.page_bucket import S3PageStore
from evenkeel.application.errors import ClusterUnavailableError, EvenkeelError
from evenkeel.application.operate import answer_of_error
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import GroupState
from evenkeel.domain.rebalancing.health.backoff import record_failure
from evenkeel.validation import ConfigError
from evenkeel_cli import auto_scaling, live, stack_client
from evenkeel_cli import main as cli
from tests.builders import group, key
from tests.fakes import FakeClock, FakeCluster, FakeClusters, InMemoryStore, plenty, register
from tests.parts import make, replace
from tests.stack import RECORD, Stack
from tests.unit.project.test_docs import PAGES, ROOT, blocks, by_name

NOON = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)
ELSEWHERE = {"simulate.md", "night.md", "test-events.md"}
# Files that a page expects, and the commands that write them.
MADE_BY = {"plan.json": "plan -f objects.yaml -o json", "sim.json": "simulate scenarios/two-zones-out.yaml -o json"}


def commands(page: Path) -> list[list[tuple[str, str]]]:
    """Return the command lines of each block with their output."""
    found = []
    for _, text in blocks(page, "console"):
        parted = [quote.partition("\n") for quote in re.split(r"^\$ ", text, flags=re.M)[1:]]
        found.append([(command, printed.rstrip("\n")) for command, _, printed in parted])
    return [block for block in found if block]


SHOWN = {page: commands(page) for page in PAGES if page.name not in ELSEWHERE and commands(page)}


def members(counts: Mapping[str, tuple[int, int]], **fields: Any) -> list[NodeGroup]:
    """Return groups of pool workers with these requested and running nodes, PoolMinimum 3 and PoolMaximum 12."""
    first, *others = [
        group(zone, wanted, running=running, key=key(zone, namespace="prod"), **{"bounds": (1, 4), **fields})
        for zone, (wanted, running) in counts.items()
    ]
    return [replace(first, pool_min=3, pool_max=12), *others]


def outage() -> list[NodeGroup]:
    """Return three zones of pool workers, of which b has no machines."""
    groups = members({"a": (4, 4), "b": (3, 1), "c": (2, 2)})
    return [replace(member, zone=f"eu-central-1{member.identity.zone}") for member in groups]


def state_of(minutes: float, text: str) -> GroupState:
    """Return a group whose launches failed for lack of capacity so many minutes ago."""
    at = NOON - timedelta(minutes=minutes)
    return record_failure(GroupState(), at, FailureClass.CAPACITY, text, BackoffPolicy())


def too_small() -> list[NodeGroup]:
    """Return pool gpu, whose PoolMaximum is smaller than the number of its zones."""
    made = [group(zone, 1, pool="gpu", key=key(zone, pool="gpu", namespace="prod")) for zone in "abc"]
    return [replace(made[0], pool_max=2), *made[1:]]


class AskedStack:
    """The stack `evenkeel` with clusters blue and green registered in dry run. Its worker runs after every call."""

    def __init__(self) -> None:
        self.clock, self.store = FakeClock(NOON), InMemoryStore()
        clusters = FakeClusters({"blue": FakeCluster(outage()), "green": FakeCluster(too_small())})
        self.real = Stack(store=self.store, clusters=clusters, clock=self.clock, stack_dry_run=True)
        for cluster in clusters.by_id:
            register(self.store, cluster, dry_run=None)
        self.store.save_group("blue", key("b", namespace="prod"), state_of(2, "no room"), None)
        self.real.rebalance("blue", "scan", plenty)

    def ask(self, stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
        assert stack == "evenkeel"
        try:
            answer = self.real.operate(event, plenty)
        except (EvenkeelError, ConfigError) as error:
            return answer_of_error(error)
        if self.real.queue.requests:
            asked = dict.fromkeys(self.real.queue.clusters)
            self.real.queue.requests.clear()
            for cluster in asked:
                self.real.rebalance(cluster, str(event["action"]), plenty)
        return answer


class Night(AskedStack):
    """Forty clusters: blue gets no machines, dark-1 does not answer, bare has a bad record, one is paused."""

    def __init__(self) -> None:
        super().__init__()
        names = [f"well-{number}" for number in range(35)]
        for name in (*names, "dark-1", "bare", "quiet"):
            self.real.register_another(name, FakeCluster(too_small()))
        self.real.clusters.by_id["green"] = FakeCluster(too_small())
        self.real.clusters.by_id["dark-1"] = ClusterUnavailableError("dark-1 does not answer: not within 8 s")
        self.store.plant("bare", "{}")
        self.real.ask("pause", "quiet")
        self.at(-34, "dark-1")
        self.fail()
        self.at(-12, "blue")
        self.at(0, "dark-1", "blue", "bare")
        self.real.check((*names, "green", "blue"), plenty)
        self.real.queue.requests.clear()

    def fail(self) -> None:
        """Let all zones of blue have no machines. Six of nine nodes run."""
        text = "InsufficientInstanceCapacity: We currently do not have sufficient m5.large capacity"
        blue, versions = self.real.clusters.by_id["blue"], self.store.load("blue").versions
        for zone, (wanted, nodes) in {"a": (4, 2), "b": (3, 2), "c": (2, 2)}.items():
            name = key(zone, namespace="prod")
            blue.change(name, requested=wanted, running=nodes)
            self.store.save_group("blue", name, state_of(12, text), versions)

    def at(self, minute: int, *names: str) -> None:
        self.clock.at = NOON + timedelta(minutes=minute)
        for name in names:
            self.real.rebalance(name, "scan", plenty)


class Week(AskedStack):
    """Four clusters after a week of dry run: argocd applies the bounds of green, and red is one day old."""

    def __init__(self) -> None:
        super().__init__()
        even = members(dict.fromkeys("abc", (2, 2)), bounds=(1, 9))
        self.real.clusters.by_id = {name: FakeCluster(even) for name in ("blue", "green", "red", "amber")}
        self.store.remove_record("blue", self.store.load("blue").versions)
        for day, names in ((-7, ("blue", "green", "amber")), (-1, ("red",)), (0, ())):
            self.clock.at = NOON + timedelta(days=day)
            for name in names:
                found = self.store.registered(name)
                if found is not None:
                    self.store.remove_record(name, found.versions)
                self.real.ask("register", name, record=RECORD)
                self.real.rebalance(name, "scan", plenty)
        self.store.save_group("green", key("a", namespace="prod"), make(GroupState, bounds_applied_by="argocd"), None)
        self.store.save_checked_at(list(self.real.clusters.by_id), NOON)
        self.real.queue.requests.clear()


STACKS = {"status.md": Night, "go-live.md": Week}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a folder like the repository's, without access to a real cluster."""
    for name in ("scenarios", "events"):
        if (ROOT / name).exists():
            (tmp_path / name).symlink_to(ROOT / name)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(live, "observe", lambda *_: (FakeCluster(outage()).observe(), lambda found: found))
    monkeypatch.setattr(auto_scaling, "own_session", lambda _: SimpleNamespace(region_name="eu-central-1"))
    monkeypatch.setattr(auto_scaling, "observe", lambda *_: FakeCluster(outage()).observe())
    return tmp_path


def files_of(page: Path) -> dict[str, str]:
    titled = [block for language in ("yaml", "json") for block in blocks(page, language)]
    return {title: text for title, text in titled if "." in title}


def write_files(page: Path, folder: Path) -> None:
    """Write the files that a page shows or expects."""
    start = [ROOT / "docs" / "start" / name for name in ("first-plan.md", "first-cluster.md")]
    for name, text in {k: v for of in (*start, page) for k, v in files_of(of).items()}.items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "state.json").write_text("{}")
    (folder / "record.yaml").write_text((folder / "blue.yaml").read_text())
    for name, made_by in MADE_BY.items():
        if name in page.read_text(encoding="utf-8"):
            (folder / name).write_text(CliRunner().invoke(cli.app, made_by.split()).stdout)


@pytest.mark.parametrize("page", SHOWN, ids=by_name)
def test_every_command_shown_prints_what_is_shown(page: Path, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_files(page, folder)
    for block in SHOWN[page]:
        stack = STACKS.get(page.name, AskedStack)()
        monkeypatch.setattr(stack_client, "ask", stack.ask)
        monkeypatch.setattr(S3PageStore, "put", lambda *_: None)
        for command, printed in block:
            words = shlex.split(command.rpartition("|")[2])
            assert Path(words[0]).name == "evenkeel", command
            piped = (folder / "objects.yaml").read_text() if "|" in command else None
            result = CliRunner().invoke(cli.app, words[1:], input=piped, env={"COLUMNS": "110"})
            assert result.exit_code in (0, 3, 4, 5), f"{command}\n{result.output}"
            quote = [line.rstrip() for line in result.output.splitlines()]
            if printed:
                assert quote == printed.splitlines(), f"{command}\n{result.output}"


def test_no_command_is_in_a_block_that_is_not_run() -> None:
    for page in PAGES:
        text = page.read_text(encoding="utf-8")
        for language, body in re.findall(r"^```(\w*)[^\n]*\n(.*?)^```", text, re.S | re.M):
            if language not in ("console", "sh"):
                assert not re.search(r"^(\$ ?)?([\w./]*/)?evenkeel [a-z]", body, re.M), page.name


def unknown_of(known: TyperGroup, name: str, rest: str) -> set[str]:
    """Return the options that a command does not have, or the command where it does not exist."""
    command: Any = known.commands.get(name)
    if isinstance(command, TyperGroup):
        command = command.commands.get(rest.split()[0])
    if command is None:
        return {name}
    options = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
    return set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest)) - options


def test_a_command_named_in_a_sentence_exists_with_its_options() -> None:
    known = get_command(cli.app)
    assert isinstance(known, TyperGroup)
    prose = {by_name(page): re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M) for page in PAGES}
    quotes = re.compile(r"`(?:\.venv/bin/)?evenkeel ([a-z][a-z-]*)([^`]*)`")
    named = [(page, name, rest) for page, text in prose.items() for name, rest in quotes.findall(text)]
    assert len(named) > 50
    assert [(page, name, rest) for page, name, rest in named if unknown_of(known, name, rest)] == []
