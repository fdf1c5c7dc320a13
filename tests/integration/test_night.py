"""A bad night: forty simulated clusters on one stack, and their operator's screens at three in the morning.

The command `python -m tests.integration.test_night` plays it and writes docs/operate/night.md and its pictures. The
test plays it again and compares.

The clusters are the sandbox's: machine controllers, autoscalers, pods and API servers, read and written by the real
adapter without a network in between. The functions are the real use cases, the command line is the real one. Time is
virtual, and random names have a fixed seed.
"""

from __future__ import annotations

import json
import logging
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import chdir
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

from typer.testing import CliRunner

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import Theme, document, fragment
from evenkeel.application.actions.call import Right
from evenkeel.application.actions.table import right_needed
from evenkeel.application.errors import AccessError, ClusterUnavailableError, EvenkeelError, TooLargeError
from evenkeel.application.operate import answer_of_error
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.ports import Cluster as OpenCluster
from evenkeel.application.rebalancing.ports import WorkloadCluster
from evenkeel.domain.model.incidents import IncidentKind, Severity
from evenkeel.record import ClusterRecord
from evenkeel.validation import ConfigError
from evenkeel_cli import stack_client
from evenkeel_cli.main import app
from evenkeel_cli.simulation.autoscaler_model import Flags
from evenkeel_cli.terminal import IN_TROUBLE
from sandbox.chromium import Chromium
from sandbox.kube.controllers.machine_controller import Timing
from sandbox.kube.errors import ApiError
from sandbox.kube.world import ZONES, Pool, World
from sandbox.stack import CALLER
from sandbox.template import ROOT
from tests.cluster_objects import ClusterObjects
from tests.crashing import Life, WirelessClusters
from tests.fakes import FakeClock, InMemoryStore, plenty, register
from tests.pages import picture
from tests.stack import Stack
from tests.timed import Timetable

STACK = "evenkeel"
THREE = datetime(2026, 1, 31, 3, 0, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
COLUMNS = 80
#: lets rich treat standard output as a terminal of 80 columns without colours
_TERMINAL = {"FORCE_COLOR": "1", "TERM": "dumb", "COLUMNS": str(COLUMNS)}
_BEGIN = THREE - 40 * MINUTE
_OUT = "euc1-az2"
POOL = "workers"
_APP = {"app": "shop"}


def _zone_ids(first: int) -> dict[str, str]:
    """Return AWS's zone ids by zone of one account: each account has the names in another order."""
    return {f"euc1-az{1 + (first + place) % 3}": zone for place, zone in enumerate(ZONES)}


Act = Callable[["Member"], None]


@dataclass(frozen=True, kw_only=True)
class Setup:
    """The setup of one cluster. ``acts`` are by minute, ``always`` acts at every step."""

    ecosystem: str = "cluster-api"  # a key of ECOSYSTEMS
    replicas: tuple[int, int, int] = (2, 2, 2)
    maximum: int = 12
    record: Mapping[str, Any] = field(default_factory=dict)
    timing: Timing = field(default_factory=Timing)
    acts: Mapping[int, Act] = field(default_factory=dict)
    always: Act | None = None
    lives: bool = False  # it changes without an act


class Member(ClusterObjects):
    """One of the forty clusters."""

    def __init__(self, name: str, account: int, clock: FakeClock, about: Setup) -> None:
        pool = Pool(name=POOL, minimum=3, maximum=about.maximum, replicas=about.replicas)
        world = World(
            clusters=[about.ecosystem],
            pools={about.ecosystem: [pool]},
            clock=clock.now,
            timing=about.timing,
            settings=Flags(scale_down=False),
            seed=int(name[-2:]),
        )
        self.cluster, self.clock = world.clusters[about.ecosystem], clock
        super().__init__(self.cluster)
        self.name, self.account, self.about = name, account, about
        self.lives = about.lives or bool(about.acts or about.always)
        self.error: EvenkeelError | None = None  # instead of an answer

    @property
    def zone(self) -> str:
        """Return the failing zone, by its name in the account."""
        return _zone_ids(self.account)[_OUT]

    def step(self) -> None:
        if self.about.always is not None:
            self.about.always(self)
        self.cluster.step(self.clock.at)


# ---------------------------------------------------------------- events of clusters


def _want(pods: int, zone: str | None = None) -> Callable[[Member], None]:
    return lambda one: one.cluster.set_demand(POOL, pods, zone)


def _exhaust(one: Member) -> None:
    """Exhaust the machine type in all zones. The failing zone is the first to recover."""
    for zone in ZONES:
        one.cloud.exhaust_zone(zone)
    _want(20)(one)


def _quota(one: Member) -> None:
    one.cloud.quota = 9
    _want(14)(one)


def _bound(one: Member) -> None:
    """Create pods whose volumes are in the failing zone."""
    one.cloud.exhaust_zone(one.zone)
    _want(5, one.zone)(one)


def _unauthorized(one: Member) -> None:
    for zone in ZONES:
        said = "You are not authorized to perform this operation."
        one.cloud.refuse(zone, code="UnauthorizedOperation", message=said, status=403)
    _want(8)(one)


def _never_join(one: Member) -> None:
    for zone in ZONES:
        one.cloud.never_join(zone, 9)
    _want(9)(one)


def _dark(one: Member) -> None:
    one.error = ClusterUnavailableError(f"{one.name} does not answer: not within 8 s")


def _without_secret(one: Member) -> None:
    one.error = AccessError(f"secret evenkeel/{one.name} cannot be read: it does not exist")


def _large(one: Member) -> None:
    one.error = TooLargeError(f"GET /apis of {one.name}: the answer is not usable: more than 64 MiB")


def _misspell(one: Member) -> None:
    one.annotate(ZONES[0], {"evenkeel.dev/pool-max": "many"}, "kubectl-edit")


def _argocd(one: Member) -> None:
    if one.bounds(ZONES[1]) != (1, 3):
        one.set_bounds(ZONES[1], 1, 3, "argocd-controller")


def _by_hand(one: Member) -> None:
    for zone in ZONES:
        one.change(zone, {"spec": {"replicas": 3}}, "kubectl-scale")


def _refuse(one: Member) -> None:
    said = 'admission webhook "freeze.platform.example" denied the request: changes are frozen until Monday'
    one.api.faults.add(method="PATCH", status=403, times=10_000, message=said)
    one.set_bounds(ZONES[0], 1, 2, "kubectl-edit")


def _deploy(
    pods: int, budget: int | None = None, selector: Mapping[str, str] | None = None
) -> Callable[[Member], None]:
    """Create a Deployment whose pods fill a node by threes, and its disruption budget."""

    def deploy(one: Member) -> None:
        container = {"name": "shop", "image": "registry.example/shop", "resources": {"requests": {"cpu": "1200m"}}}
        own = {"containers": [container], **({"nodeSelector": dict(selector)} if selector else {})}
        template = {"metadata": {"labels": _APP}, "spec": own}
        spec: dict[str, Any] = {"replicas": pods, "selector": {"matchLabels": _APP}, "template": template}
        one.objects.create("deployments.apps", {"metadata": {"name": "shop"}, "spec": spec}, manager="kubectl")
        if budget is not None:
            spec = {"maxUnavailable": budget, "selector": {"matchLabels": _APP}}
            body = {"metadata": {"name": "shop", "namespace": "default"}, "spec": spec}
            one.objects.create("poddisruptionbudgets.policy", body, manager="kubectl")

    return deploy


def _label_by_hand(one: Member) -> None:
    """Give one node a label that no other node gets, and create pods that select it."""
    nodes = one.objects.list("nodes")
    node = next(each["metadata"] for each in nodes if each["metadata"]["labels"][_ZONE] != one.zone)
    one.objects.patch("nodes", "", node["name"], {"metadata": {"labels": _FAST}}, manager="kubectl")
    _deploy(4, selector=_FAST)(one)


def _renew(one: Member) -> None:
    """Start a cluster-autoscaler next to Evenkeel."""
    at = one.clock.at.strftime("%Y-%m-%d %H:%M:%S.000000 +0000 UTC")
    metadata = {"annotations": {"cluster-autoscaler.kubernetes.io/last-updated": at}}
    store, where = one.objects, ("configmaps", "kube-system", "cluster-autoscaler-status")
    try:
        store.patch(*where, {"metadata": metadata}, manager="cluster-autoscaler")
    except ApiError:
        metadata |= {"name": where[2], "namespace": where[1]}
        store.create(where[0], {"metadata": metadata}, manager="cluster-autoscaler")


def _break(*zones: str) -> Callable[[Member], None]:
    """Return an act: the nodes of these zones become not Ready."""

    def nodes_break(one: Member) -> None:
        for zone in zones:
            one.cloud.break_nodes(zone)

    return nodes_break


def _delete_a_machine(one: Member) -> None:
    one.objects.delete(one.machine_resource, one.namespace, next(iter(one.machines())))


_ZONE, _FAST = "topology.kubernetes.io/zone", {"disk": "fast"}
_HOLD = {"on_failure": "hold"}  # its pods cannot run elsewhere
_PODS = {"autoscaler": "none", "workload": {"access": {"kind": "same"}}}
_ACTS: Mapping[str, Mapping[str, Any]] = {
    # caused by the zone's outage
    "shop-3": {"replicas": (4, 4, 4), "maximum": 24, "acts": {-25: _exhaust}},
    "data-2": {"record": _HOLD, "acts": {-22: _bound}},
    "pay-4": {"ecosystem": "gardener", "record": _HOLD, "acts": {-24: _bound}},
    "web-5": {"ecosystem": "openshift", "record": _HOLD, "acts": {-19: _bound}},
    # not caused by it
    "ml-1": {"replicas": (3, 3, 3), "maximum": 18, "acts": {-37: _quota}},
    "web-1": {"acts": {-16: _unauthorized}},
    "data-6": {"record": {"provision_timeout": 600}, "acts": {-21: _never_join}},
    "pay-1": {"acts": {-34: _dark}},
    "shop-5": {"acts": {-31: _dark}},
    "ml-4": {"acts": {-9: _dark}},
    "web-3": {"acts": {-12: _without_secret}},
    "data-3": {"acts": {-6: _large}},
    "shop-1": {"acts": {-39: _misspell}},
    "pay-2": {"always": _argocd},
    "data-5": {"maximum": 6, "timing": Timing(provision=timedelta(seconds=5)), "acts": {-14: _by_hand}},
    "web-6": {"acts": {-8: _refuse}},
    "ml-2": {
        "ecosystem": "self-managed",
        "record": {**_PODS, "demand": "scale-up"},
        "acts": {-39: _deploy(24)},
        "always": _renew,
    },
    "shop-2": {
        "ecosystem": "self-managed",
        "record": {**_PODS, "demand": "full"},
        "acts": {-39: _deploy(12, 0), -35: _delete_a_machine},
    },
    "web-7": {
        "ecosystem": "self-managed",
        "replicas": (1, 1, 1),
        "record": {**_PODS, "demand": "full"},
        "acts": {-29: _label_by_hand},
    },
    "ml-3": {
        "ecosystem": "self-managed",
        "record": {**_PODS, "demand": "full"},
        "acts": {-39: _deploy(18), -18: _break(ZONES[1])},
    },
    "web-2": {
        "ecosystem": "self-managed",
        "record": {**_PODS, "demand": "full"},
        "acts": {-39: _deploy(18), -17: _break(*ZONES)},
    },
    "data-7": {
        "ecosystem": "self-managed",
        "record": {**_PODS, "demand": "full"},
        "acts": {-39: _deploy(4, selector={"disk": "huge"})},
    },
    "pay-5": {
        "replicas": (4, 1, 1),
        "record": {"level": "converge", "converge": {"blind": True}},
        "timing": Timing(deletion=timedelta(hours=9)),
        "lives": True,
    },
    "web-8": {"record": {"paused": True}},
    "ml-7": {"record": {"dry_run": True}},
    "data-8": {"record": {"dry_run": True}},
}
_EXHAUSTED, _BARE, _FORGOTTEN, _NEW = "shop-3", "ml-6", "pay-6", "shop-8"


def _members(clock: FakeClock) -> dict[str, Member]:
    found = {}
    for team in ("data", "ml", "pay", "shop", "web"):
        for number in range(1, 9):
            name = f"{team}-{number}"
            found[name] = Member(name, 2 if team in ("data", "ml") else 1, clock, Setup(**_ACTS.get(name, {})))
    return found


# ---------------------------------------------------------------- the stack


@dataclass(frozen=True)
class _Clusters:
    """Opens all clusters."""

    members: Mapping[str, Member]

    def _of(self, record: ClusterRecord) -> WirelessClusters:
        one = self.members[record.id]
        if one.error is not None:
            raise one.error
        return WirelessClusters(one.api, Life(), one.clock)

    def open(self, record: ClusterRecord, remaining: Remaining, **more: Any) -> OpenCluster:
        return self._of(record).open(record, remaining, **more)

    def open_workload(self, record: ClusterRecord, remaining: Remaining, **more: Any) -> WorkloadCluster:
        return self._of(record).open_workload(record, remaining, **more)

    def zone_ids(self, record: ClusterRecord, remaining: Remaining) -> Mapping[str, str]:
        found: Any = self._of(record).open(record, remaining)
        found.observe()
        ids: Mapping[str, str] = found.zone_ids()
        return ids

    def needs_run(self, record: ClusterRecord) -> bool:
        return False


class Night:
    """The forty clusters and their stack, minute by minute, up to three o'clock."""

    def __init__(self) -> None:
        self.clock = FakeClock(_BEGIN)
        self.members, self.timetable = _members(self.clock), Timetable()
        self.store = InMemoryStore(clock=self.clock)
        clusters: Any = _Clusters(self.members)
        self.stack = Stack(store=self.store, clock=self.clock, clusters=clusters)
        self.stack.operate = replace(self.stack.operate, stack=STACK)
        for name, one in self.members.items():
            for minute, act in one.about.acts.items():
                self.timetable.at(minute, partial(act, one))
            if name != _NEW:
                self.register(one)
        self.timetable.at(-11, lambda: self.store.plant(_BARE, "{}"))
        while self.clock.at < THREE:
            self.minute()
        self.register(self.members[_NEW])

    def register(self, one: Member) -> None:
        env = "test" if one.name.endswith(("7", "8")) else "prod"
        labels = {"env": env, "team": one.name.partition("-")[0]}
        fields = {"flavours": [one.flavour], "region": "eu-central-1", "labels": labels, **one.about.record}
        register(self.store, one.name, zone_ids=_zone_ids(one.account), **fields)

    def minute(self) -> None:
        """Play a minute of the clusters that change, then the schedule, then the requests in the queues."""
        at = round((self.clock.at - THREE) / MINUTE)
        self.timetable.happen(at)
        for _ in range(3):
            self.clock.at += timedelta(seconds=20)
            for one in self.members.values():
                if one.lives:
                    one.step()
        known = [name for name, _ in self.store.registrations() if name != _FORGOTTEN or at < -13]
        for start in range(0, len(known), 20):
            self.stack.check(known[start : start + 20], plenty)
        self.work()

    def work(self) -> None:
        """Handle all messages of the queues."""
        queue = self.stack.queue
        alone, queue.checks[:] = list(queue.checks), []
        for chunk in alone:
            self.stack.check(chunk.clusters, plenty)
        again, queue.second_checks[:] = list(queue.second_checks), []
        for cluster, why, _seconds in again:
            queue.request(cluster, why, f"again-{cluster}-{self.clock.at}")
        self.stack.carry_out()

    # ---------------------------------------------------------------- the operator on call
    def ask(self, stack: str, event: Mapping[str, Any]) -> dict[str, Any]:
        """Return the function's answer, after handling the queues."""
        assert stack == STACK
        try:
            who = {} if right_needed(event) is Right.READ else {"by": CALLER}
            answer = self.stack.operate({**event, **who}, plenty)
        except (EvenkeelError, ConfigError) as error:
            answer = answer_of_error(error)
        self.work()
        reported: dict[str, Any] = json.loads(json.dumps(answer))
        return reported

    def type(self, command: str) -> str:
        """Run a command, and return the screen of a terminal of 80 columns after it."""
        with patch.object(stack_client, "ask", self.ask), TemporaryDirectory() as folder, chdir(folder):
            result = CliRunner().invoke(app, shlex.split(command)[1:], env=_TERMINAL)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        assert result.exit_code in (0, IN_TROUBLE), result.output
        return f"$ {command}\n{result.output}"

    def outage_ends(self) -> None:
        """Give the zone machines again, in all clusters."""
        for one in self.members.values():
            for zone in (one.zone, *(ZONES if one.name == _EXHAUSTED else ())):
                one.cloud.restore_zone(zone)

    def status(self) -> dict[str, Any]:
        return self.ask(STACK, {"action": "status"})


# ---------------------------------------------------------------- the page


_STATUS = f"evenkeel status --stack {STACK}"
_FENCE = f"evenkeel fence-zone --stack {STACK} --zone-id {_OUT} --selector env=prod"


@dataclass(frozen=True)
class Step:
    """A command to type, after so many minutes or an act, and why."""

    title: str
    says: Sequence[str]
    commands: Sequence[str]
    minutes: int = 0
    happens: Callable[[Night], None] = lambda _: None


STEPS = (
    Step(
        "03:00: which clusters",
        [
            "`status` shows the whole fleet from stored data, so no cluster can delay it.",
            "A cause that three or more clusters share comes first, with its fix. Then missing nodes, then the rest.",
        ],
        [_STATUS],
    ),
    Step(
        "Why, and what to do",
        ["`explain` prints the cloud's message, the steps to take, and the reason for each number."],
        [f"evenkeel explain --stack {STACK} --cluster web-5"],
    ),
    Step(
        "03:00: fence the zone",
        [
            f"AWS reports a problem in {_OUT}. Accounts name this zone differently, so the command takes its id.",
            "Production's groups there get no growth for two hours. Other zones take over at once.",
        ],
        [f"{_FENCE} --for 2h --reason 'AWS: capacity in {_OUT}' --yes"],
    ),
    Step(
        "03:10: the zone is back",
        [
            "The same command with `--for 0m` lifts the fence.",
            "Evenkeel probes a zone that had failed with one machine. When its node joins, the zone takes part again.",
        ],
        [f"{_FENCE} --for 0m --reason 'AWS: over' --yes"],
        minutes=10,
        happens=Night.outage_ends,
    ),
    Step(
        "03:30: watch it heal",
        [
            "The incidents of this zone are closed. The others wait for an operator; `status` lists them as before.",
            "`history` lists each action of the night with its operator and reason. `report` writes the page.",
        ],
        [f"evenkeel history --stack {STACK} --cluster web-5", f"evenkeel report --stack {STACK} --out night.html"],
        minutes=20,
    ),
)


def walk(night: Night) -> Iterator[tuple[Step, str]]:
    """Yield every step, and the screen after it."""
    for step in STEPS:
        step.happens(night)
        for _ in range(step.minutes):
            night.minute()
        yield step, "".join(map(night.type, step.commands))


def pages(screens: Sequence[tuple[Step, str]]) -> dict[str, str]:
    """Return the page of docs/, by name."""
    sections = []
    for step, screen in screens:
        lines = [line[start : start + COLUMNS].rstrip() for line in screen.splitlines() for start in _starts(line)]
        sections.append("\n".join([f"## {step.title}", "", *step.says, "", "```console", *lines, "```"]))
    return {"operate/night.md": "\n\n".join([_HEAD, *sections]) + "\n"}


def _starts(line: str) -> range:
    """Return the columns at which a terminal may begin a new line."""
    return range(0, max(1, len(line.rstrip())), COLUMNS)


_HEAD = """# A night with forty clusters

After this page you know what each command shows while many clusters fail, and which to use next.
Forty simulated clusters run on one stack.
Twenty-five have incidents, of the seventeen kinds that machine APIs have. Three of them do not answer.
Every screen is real output in a terminal of 80 columns.
`python -m tests.integration.test_night` writes this page; a test compares it.
[Runbooks](runbooks.md) explain each kind of incident.

![The status page of that night](../pictures/night.png)

The [status page](status.md), and [its widget](../pictures/night-widget.png)."""


def draw(answer: Mapping[str, Any], at: datetime) -> None:
    """Draw the pictures of the night: the page, and the widget of a dashboard."""
    fleet = page_of_status(answer, f"answer of stack {STACK}", at)
    widget = f"<!DOCTYPE html><body style='margin:0'>{fragment(fleet, Theme.DARK)}</body>"
    with Chromium() as browser:
        for name, html in (("night", document(fleet)), ("night-widget", widget)):
            picture(browser, name, html, width=1000, height=1160)


def main() -> None:
    logging.disable()  # the functions' log is not on the screen
    night = Night()
    draw(night.status(), night.clock.at)
    for name, text in pages(list(walk(night))).items():
        (ROOT / "docs" / name).write_text(text, encoding="utf-8")


_KINDS, _SEVERITIES = list(IncidentKind), list(Severity)
_OF_AUTO_SCALING = {IncidentKind.LOST_GROUP, IncidentKind.BOUNDS_UNREAD}  # the night has no Auto Scaling groups


def test_the_night_is_as_the_docs_show_it() -> None:
    night = Night()
    reported = night.status()
    assert reported["counts"]["clusters"] == len(night.members) == 40
    is_failing = [cluster for cluster in reported["clusters"] if cluster["state"] == "incident"]
    kinds = [IncidentKind(cluster["incidents"][0]["kind"]) for cluster in is_failing]
    assert set(kinds) == set(IncidentKind) - _OF_AUTO_SCALING
    assert (len(kinds), len(set(kinds))) == (25, 17), "numbers of _HEAD"
    folded = [cluster.get("folded", False) for cluster in is_failing]
    assert folded == sorted(folded), "what no cause reports comes first"
    rest = kinds[: folded.index(True)]
    assert rest == sorted(rest, key=lambda kind: (_SEVERITIES.index(kind.severity), _KINDS.index(kind)))
    assert {cause["title"] for cause in reported["causes"]} >= {"unreachable"}
    assert kinds.count(IncidentKind.UNREACHABLE) == 3
    before = {cluster["cluster"] for cluster in is_failing}
    for cluster in is_failing:  # is nowhere else shown as healthy
        explained = night.ask(STACK, {"action": "explain", "cluster": cluster["cluster"]})
        known = {incident["kind"] for incident in explained["incidents"]}
        assert known >= {incident["kind"] for incident in cluster["incidents"]}
        assert "NAME" not in explained["message"], "a command can be typed as it is reported"

    screens = list(walk(night))
    for name, text in pages(screens).items():
        assert text == (ROOT / "docs" / name).read_text(encoding="utf-8"), f"{name}: python -m {__name__} writes it"
    for _, screen in screens:
        _, _, table = screen.partition("status --stack evenkeel\n")
        rows = [line for line in table.partition("\n$")[0].splitlines() if line.startswith(tuple(night.members))]
        assert all(len(line) <= COLUMNS for line in rows)

    after = {cluster["cluster"] for cluster in night.status()["clusters"]}
    assert before - after == {"shop-3", "pay-4", "web-5", "data-2"}, "what the zone had to do with"


if __name__ == "__main__":
    main()
