"""The names, links, examples and numbers in docs/ are those of the code."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import celpy
import pytest
import yaml

from evenkeel.adapters.aws.inbound import read_event
from evenkeel.adapters.aws.metrics import ALARMED
from evenkeel.adapters.aws.queues import Request, read_message
from evenkeel.adapters.kubernetes.access.kubeconfig import REFUSED
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.read.groups import Listing, read_groups
from evenkeel.application.actions.table import ACTIONS
from evenkeel.application.incidents.notify import incident_json
from evenkeel.application.ports import RUNBOOKS, DetailType
from evenkeel.application.rebalancing.check import CheckSummary
from evenkeel.application.rebalancing.events import Failure
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.capabilities import SETTINGS
from evenkeel.domain.model.choices import OnFailure
from evenkeel.domain.model.failures import FailureClass, classify
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.parts import annotation_of
from evenkeel.domain.model.plans import PoolPlan
from evenkeel.domain.model.policy import Policy
from evenkeel.domain.model.servers import own_audience
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.plan import plan
from evenkeel.domain.rebalancing.annotations import read_published
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.strategies import read_strategy
from evenkeel.domain.rebalancing.membership.discovery import Discovery
from evenkeel.record import Registration
from evenkeel.texts.incidents import runbook
from evenkeel.validation import read_model
from evenkeel_cli.terminal import BAD_INPUT, CANNOT_READ, IN_TROUBLE, INVALID_POOL, NOT_READY
from sandbox.admission import policies
from tests.builders import (
    MINUTE,
    NOW,
    Played,
    after_backoff,
    in_backoff,
    key,
    maxima,
    minima,
    numbers,
    pool_plan,
    problems_of,
    requested,
    zones,
)
from tests.objects import cluster_api
from tests.parts import make, replace
from tests.unit.rebalancing.test_safety import published

ROOT = Path(__file__).resolve().parents[3]
DOCS = sorted((ROOT / "docs").rglob("*.md"))
PAGES = [*DOCS, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "SECURITY.md"))]
SOURCES = [*(ROOT / "layers" / "evenkeel").rglob("*.py"), *(ROOT / "functions").rglob("*.py"), ROOT / "template.yaml"]
CODE = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
ALL_DOCS = "\n".join(path.read_text(encoding="utf-8") for path in DOCS)
TEMPLATE = (ROOT / "template.yaml").read_text(encoding="utf-8")


def text_of(name: str, after: str = "", before: str = "") -> str:
    """Return a page of docs/, or its part between these texts."""
    text = (ROOT / "docs" / name).read_text(encoding="utf-8")
    text = text.partition(after)[2] if after else text
    return text.partition(before)[0] if before else text


def headings(page: Path) -> set[str]:
    """Return the anchors of a page's headings as GitHub makes them."""
    found = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.M)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in found}


def by_name(path: Path) -> str:
    return str(path.relative_to(ROOT))


def blocks(page: Path, language: str) -> list[tuple[str, str]]:
    """Return the fenced blocks of a language: the rest of the fence's line, and the text."""
    found = re.findall(rf"^```{language}\b *(.*?)\n(.*?)^```", page.read_text(encoding="utf-8"), re.S | re.M)
    return [(title, text) for title, text in found]


def block(name: str, language: str, title: str) -> str:
    return next(text for found, text in blocks(ROOT / "docs" / name, language) if found == title)


def rows(name: str, marker: str) -> Iterator[list[str]]:
    """Yield the body rows of every table below a marker comment. Cells lose their backticks."""
    tables = re.findall(rf"<!-- {marker} -->\n((?:\|.*\n)+)", text_of(name))
    assert tables, f"{name} has no table marked {marker}"
    for table in tables:
        for line in table.splitlines()[2:]:
            yield [cell.strip().strip("`") for cell in line.strip("|").split("|")]


def leads_somewhere(page: Path, target: str) -> bool:
    """Return True if a link of a page has its file and heading. Links to other sites are not followed."""
    path, _, fragment = target.partition("#")
    found = (page.parent / path).resolve() if path else page
    return target.startswith("https://") or (found.exists() and (not fragment or fragment in headings(found)))


def test_every_link_leads_somewhere() -> None:
    links = [(page, target) for page in PAGES for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text("utf-8"))]
    assert len(links) > 100
    assert [(by_name(page), target) for page, target in links if not leads_somewhere(page, target)] == []


def test_the_index_names_every_page() -> None:
    index = text_of("README.md")
    for page in DOCS:
        name = str(page.relative_to(ROOT / "docs"))
        assert name == "README.md" or f"]({name})" in index or name.startswith("design/decisions-"), name


LONG = {"cli.md", "record.md", "night.md", "runbooks.md"}  # generated, or one section for each incident


def test_a_page_can_be_read_in_one_sitting() -> None:
    prose = {page: re.sub(r"^```.*?^```", "", page.read_text("utf-8"), flags=re.S | re.M) for page in DOCS}
    lengths = {by_name(page): len(text.splitlines()) for page, text in prose.items() if page.name not in LONG}
    assert {page: length for page, length in lengths.items() if length > 130} == {}


def parses(language: str, text: str) -> bool:
    try:
        documents = [json.loads(text)] if language == "json" else list(yaml.safe_load_all(text))
    except (ValueError, yaml.YAMLError):
        return False
    return language == "json" or all(isinstance(document, dict) for document in documents)


def test_every_json_and_yaml_block_parses() -> None:
    found = [
        (by_name(page), language, text)
        for page in PAGES
        for language in ("json", "yaml")
        for _, text in blocks(page, language)
    ]
    assert {language for _, language, _ in found} == {"json", "yaml"}
    assert [(page, text) for page, language, text in found if not parses(language, text)] == []


KNOWN = set(re.findall(r'OWN \+ "([a-z-]+)"', CODE)) | {
    annotation_of(setting.name).removeprefix("evenkeel.dev/") for setting in SETTINGS
}
CODES = {"0", *map(str, (CANNOT_READ, BAD_INPUT, INVALID_POOL, IN_TROUBLE, NOT_READY))}


@pytest.mark.parametrize(
    ("text", "pattern", "names"),
    [
        pytest.param(
            text_of("reference/annotations.md"),
            r"evenkeel\.dev/([a-z-]+)",
            KNOWN | set(re.findall(r"evenkeel\.dev/([a-z-]+)", CODE)),
            id="annotations",
        ),
        pytest.param(
            text_of("reference/metrics.md", "## Alarms", "##"),
            r"(?m)^\| ([A-Z]\w+) \|",
            set(re.findall(r"^  (\w+)Alarm:$", TEMPLATE, re.M)),
            id="alarms",
        ),
        pytest.param(text_of("reference/errors.md", "| code | means |"), r"(?m)^\| (\d) \|", CODES, id="exit codes"),
        pytest.param(
            text_of("reference/events.md", "## Events out", "## "),
            r"(?m)^\| `([A-Z][A-Za-z ]+)` \|",
            {detail_type.value for detail_type in DetailType},
            id="detail types",
        ),
        pytest.param(
            text_of("reference/actions.md", "## Actions"), r"(?m)^\| `([a-z-]+)` \|", set(ACTIONS), id="actions"
        ),
    ],
)
def test_a_page_lists_the_names_of_the_code(text: str, pattern: str, names: set[str]) -> None:
    assert set(re.findall(pattern, text)) == names


def test_no_page_names_an_annotation_that_does_not_exist() -> None:
    name = re.compile(r"evenkeel\.dev/([a-z-]+)(?![a-z…-]|\n)")
    unknown = {by_name(page): set(name.findall(page.read_text("utf-8"))) - KNOWN for page in PAGES}
    assert {page: names for page, names in unknown.items() if names} == {}


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=lambda flavour: flavour.name)
def test_bounds_and_delete_marks_are_those_of_the_code(flavour: Any) -> None:
    mark, value = flavour.machines.mark
    for name in (flavour.min_key, flavour.max_key, mark, value):
        assert f"`{name}`" in text_of("reference/annotations.md")
    for name in [kind.kind for kind in (*flavour.scalables, *flavour.companions)] + [mark]:
        assert name in text_of("guides/machine-apis.md")


@pytest.mark.parametrize("flavour", FLAVOURS.values(), ids=lambda flavour: flavour.name)
def test_kubectl_lists_every_kind_that_a_plan_reads(flavour: Any) -> None:
    listed = re.findall(r"[\w.-]+", text_of("start/first-plan.md", "## Plan from a file", "```\n\n"))
    for kind in (*flavour.kinds, flavour.machines.kind):
        assert f"{kind.plural}.{kind.group}" in listed


def test_metrics_are_those_that_the_code_counts() -> None:
    counted = set(RunSummary(cluster="blue").metrics()) | set(re.findall(r'add_metric\("([A-Za-z]+)"', CODE))
    counted |= set(CheckSummary(alone=True).metrics())
    lines = re.findall(r"^- (`[A-Z].*?) \((.*?)\):", text_of("reference/metrics.md", "## Metrics", "## "), re.M)
    alarms = {name: "alarm " in notes for names, notes in lines for name in re.findall(r"`([A-Za-z]+)`", names)}
    assert set(alarms) == counted
    assert {name for name, has_alarm in alarms.items() if has_alarm} == ALARMED


def test_every_incident_kind_and_failure_class_has_a_runbook() -> None:
    anchors = headings(ROOT / "docs" / "operate/runbooks.md")
    of_kinds = [Incident(kind=kind, since=NOW) for kind in IncidentKind]
    of_classes = [Incident(kind=IncidentKind.MISSING, since=NOW, failure_class=each) for each in FailureClass]
    for incident in (*of_kinds, *of_classes):
        page, _, place = runbook(incident, RUNBOOKS).partition("#")
        assert (page, place in anchors) == (RUNBOOKS, True), place
    kinds = set(
        re.findall(r"`([a-z-]+)`", "".join(re.findall(r"^\| (`.*?) \| a ", text_of("operate/runbooks.md"), re.M)))
    )
    assert kinds == {kind.value for kind in IncidentKind}


def test_the_incident_event_shown_has_the_fields_of_one() -> None:
    event = json.loads(block("reference/events.md", "json", "incident"))
    given = {"pool": event["pool"], "zones": tuple(event["zones"]), "message": event["said"]}
    counts = {"missing": 3, "requested": 9, "failure_class": FailureClass.CAPACITY}
    made = incident_json(Incident(kind=IncidentKind.MISSING, since=NOW, **given, **counts), "blue", NOW, "NAME")
    assert set(event) == {*made, "key", "change", "cluster", "at", "order"}
    for name in ("message", "todo", "command", "runbook"):
        assert event[name] == made[name]


def test_the_fields_that_an_action_takes_are_those_of_its_table() -> None:
    listed: set[str] = set()
    for name, fields in re.findall(
        r"^\| `([a-z-]+)` \| ([^|]*)\|", text_of("reference/actions.md", "## Actions"), re.M
    ):
        if fields.strip() != "the same":
            listed = set(re.findall(r"`(\w+)`", fields)) - {"cluster"}
        assert listed == set(ACTIONS[name].fields.names()), name


def test_every_field_of_a_record_is_described() -> None:
    text = text_of("reference/record.md")
    for name in Registration.model_fields:
        assert re.search(rf"^- `{name}` \(", text, re.M) or f"`{name}`" in text_of(
            "reference/record.md", "actions set"
        ), name


@pytest.mark.parametrize(
    "text", [text for title, text in blocks(ROOT / "docs" / "reference/record.md", "json") if title]
)
def test_the_records_shown_are_valid(text: str) -> None:
    record = read_model(Registration, {"id": "blue", **json.loads(text)}, "docs")
    record.policy()


def test_the_complete_record_has_every_field_that_operators_set() -> None:
    text = max((text for _, text in blocks(ROOT / "docs" / "reference/record.md", "json")), key=len)
    by_actions = {"id", "paused", "paused_until", "leaving", "paused_pools", "leaving_pools", "live", "fixes"}
    assert set(json.loads(text)) == set(Registration.model_fields) - by_actions


def test_the_examples_shown_can_be_read() -> None:
    discovery = re.findall(r"^\| `((?:clusterapi|mcm):[^`]+)` \|", ALL_DOCS, re.M)
    assert len([Discovery.read(text) for text in discovery]) == 2
    failure = read_event(json.loads(block("reference/events.md", "json", "event")))
    assert isinstance(failure, Failure)
    assert (failure.cluster, failure.name) == ("blue", "workers-a")
    assert read_message(Request, block("reference/stored-state.md", "json", "request")).cluster == "blue"
    _, decision = blocks(ROOT / "docs" / "reference/annotations.md", "json")[0]
    assert read_published(decision) is not None


def grown_to_its_bound(wanted: int, policy: Policy) -> PoolPlan:
    """Return a pool whose zone a alone has grown to its max until ``wanted``, while the others did not change."""
    pool = Played(zones((0, 0, 0)), policy)
    found = pool.check()
    while pool.groups[0].requested < wanted:
        pool.check(20, a=maxima(found)[0])
        found = pool.check(15)
    assert pool.groups[0].requested == wanted
    return found


@pytest.mark.parametrize("row", list(rows("guides/strategies.md", "planned")), ids=" ".join)
def test_the_worked_examples_give_the_printed_plan(row: list[str]) -> None:
    strategy, minimum, maximum, wanted, running, says, *expected = row
    before, nodes = [[int(word) for word in text.split()] for text in (wanted, running)]
    policy = numbers(int(minimum), int(maximum), read_strategy(strategy))
    if "at its bound" in says:
        pool = grown_to_its_bound(before[0], policy)
    else:
        states = {"fenced": in_backoff(), "probing": after_backoff()}
        state = {key("a"): states[word] for word in states if word in says}
        pool = pool_plan(zones(before, nodes, fencing_enabled="fence false" not in says), policy, states=state)
    assert [" ".join(map(str, column)) for column in (requested(pool), minima(pool), maxima(pool))] == expected


@pytest.mark.parametrize("row", list(rows("guides/outages.md", "moved")), ids=" ".join)
def test_the_moves_shown_give_the_printed_plan(row: list[str]) -> None:
    maximum, wanted, running, *expected = row
    before, nodes = [[int(word) for word in text.split()] for text in (wanted, running)]
    policy = numbers(0, int(maximum), BALANCED, OnFailure.MOVE)
    alone, beside = [
        pool_plan(zones(before, nodes), replace(policy, autoscaler=runs), fenced=("a",)) for runs in (False, True)
    ]
    assert requested(alone) == requested(beside)
    assert [" ".join(map(str, column)) for column in (requested(alone), maxima(alone), maxima(beside))] == expected


@pytest.mark.parametrize("row", list(rows("guides/scale-requests.md", "split")), ids=" ".join)
def test_growth_is_split_as_printed(row: list[str]) -> None:
    sizes, request, becomes = row
    count, direction = request.split()
    asked = int(count) * {"more": 1, "back": -1}[direction]
    groups = zones([int(size) for size in sizes.split()])
    scale_request = ScaleRequest(id="r", nodes=asked, at=NOW, pool="workers")
    found = plan(Observation(groups=tuple(groups)), ClusterState(scale_requests=(scale_request,)), numbers(0, 99), NOW)
    assert " ".join(str(planned.requested) for planned in found.pools[0].groups) == becomes


@pytest.mark.parametrize("row", list(rows("reference/errors.md", "annotations")), ids=lambda row: "=".join(row[:2]))
def test_bad_annotations_lead_to_the_printed_line(row: list[str]) -> None:
    name, value, line = row
    given = {"evenkeel.dev/pool-min": "3", "evenkeel.dev/pool-max": "12", name: value}
    item = cluster_api("eu-central-1a", 1, bounds=(1, 4), annotations=given)
    item["metadata"]["namespace"] = "prod"
    listing = Listing(flavour=FLAVOURS["cluster-api"], objects={"MachineDeployment": [item]})
    pool = pool_plan([one.group for one in read_groups(listing)[0]])
    assert not pool.mode.valid
    assert problems_of(pool.report.problems)[0].endswith(line)


def test_the_failure_classes_shown_are_those_of_the_code() -> None:
    text = text_of("guides/outages.md", "### Classes", "## ")
    shown = [
        (code, kind)
        for kind, examples in re.findall(r"^\| (\w+) \| ([^|]+) \| (?:yes|no)", text, re.M)
        for code in re.findall(r"\b[A-Z][A-Za-z_]{6,}\b", examples)
    ]
    assert len(shown) >= 8
    assert [(code, classify(code).value) for code, _ in shown] == shown


def test_files_that_a_page_names_exist() -> None:
    ours = re.compile(r"(?<![\w./-])(?:layers|functions|tests|events|sandbox|bench|deploy)/[\w./-]*\w")
    named = {(by_name(page), name) for page in PAGES for name in ours.findall(page.read_text("utf-8"))}
    assert len(named) > 20
    assert [(page, name) for page, name in named if not list(ROOT.glob(f"{name}*"))] == []


def test_refused_kubeconfig_fields_are_those_of_the_code() -> None:
    lines = text_of("guides/access.md").splitlines()
    refused = "".join(line.split("|")[2] for line in lines if line.startswith(("| `server`", "| `token`")))
    assert set(re.findall(r"`([\w-]+)`", refused)) == set(REFUSED)


ACCOUNT = "arn:aws:iam::123456789012:role/"
SERVER, PROD = "evenkeel:https://api.blue.example:6443", "evenkeel:prod"


@pytest.mark.parametrize(
    ("role", "audience", "groups"),
    [
        ("evenkeel-RebalanceRole-1", SERVER, ["evenkeel"]),
        ("evenkeel-RebalanceRole-1", PROD, None),
        ("evenkeel-RebalanceRole-1", [SERVER, PROD], None),
        ("evenkeel-OperatorRole-2", PROD, ["evenkeel-readers"]),
        ("evenkeel-WidgetRole-3", SERVER, ["evenkeel-readers"]),
        ("evenkeel-RebalanceRole-12", SERVER, None),
    ],
)
def test_the_authentication_shown_maps_roles(role: str, audience: str | list[str], groups: list[str] | None) -> None:
    (jwt,) = yaml.safe_load(block("guides/access.md", "yaml", "authentication"))["jwt"]
    claims = {"sub": f"{ACCOUNT}{role}", "aud": audience}

    def value(expression: str) -> Any:
        environment = celpy.Environment()
        found = environment.program(environment.compile(expression)).evaluate({"claims": celpy.json_to_cel(claims)})
        return json.loads(json.dumps(found, cls=celpy.CELJSONEncoder))

    def holds(expression: str) -> bool:
        try:
            return bool(value(expression))
        except celpy.CELEvalError:  # a rule that cannot be evaluated refuses all
            return False

    let_in = all(holds(rule["expression"]) for rule in jwt["claimValidationRules"])
    assert let_in is (groups is not None)
    if groups is not None:
        assert value(jwt["claimMappings"]["groups"]["expression"]) == groups
        username = value(jwt["claimMappings"]["username"]["expression"])
        assert username == f"evenkeel:{ACCOUNT}{role}"
        assert all(policy.applies_to(*groups, username=username) for policy in policies().values())
    record = yaml.safe_load(block("guides/access.md", "yaml", ""))["access"]
    assert jwt["issuer"]["audiences"] == [own_audience(record["endpoint"]), record["audience"]]


def test_resources_that_are_described_are_those_that_the_role_grants() -> None:
    text = text_of("reference/rbac.md", "| resources | verbs |", "\n\n")
    role = yaml.safe_load((ROOT / "deploy" / "kubernetes" / "rbac.yaml").read_text(encoding="utf-8").split("---")[0])
    granted = {(name, ", ".join(rule["verbs"])) for rule in role["rules"] for name in rule["resources"]}
    # "machines of all three APIs", "clusters.cluster.x-k8s.io", "configmap cluster-autoscaler-status": the first word
    described = {
        (re.split(r"[ .]", name)[0].replace("configmap", "configmaps"), verbs)
        for names, verbs in re.findall(r"^\| ([a-z][^|]*) \| ([a-z, ]+) \|", text, re.M)
        for name in names.partition(", by")[0].split(", ")
    }
    assert described == granted


def test_reasons_of_the_safety_pass_are_worded_as_printed() -> None:
    text = text_of("guides/strategies.md")
    given = [
        *published(0, 9, 1, zone_max=4)[1],
        *published(0, 2, 3)[1],
        *published(0, 0, 0, least_max=1)[1],
        *published(0, 1, 1, least_min=1)[1],
        *published(2, 4, 1)[1],
    ]
    assert re.findall(r"^\| [^|]+ \| `(.+)` \|$", text, re.M) == given


def test_operator_events_shown_request_actions_that_exist() -> None:
    events = [json.loads(text) for page in PAGES for _, text in blocks(page, "json") if text.startswith('{"action"')]
    inline = re.findall(r'\{"action": "([a-z-]+)"', "\n".join(page.read_text(encoding="utf-8") for page in PAGES))
    assert events
    assert {event["action"] for event in events} | set(inline) <= set(ACTIONS)


def test_backoff_constants_are_those_of_the_policy() -> None:
    policy = make(Policy, strategy=BALANCED)
    shown = re.findall(
        r"^\| [a-z][^|]+ \| (\d+) (?:min|h) \|", text_of("guides/outages.md", "### Constants", "## "), re.M
    )
    forget_hours = policy.settings.backoff.forget_after // (60 * MINUTE)
    minutes = [policy.settings.backoff.initial // MINUTE, policy.settings.backoff.longest // MINUTE]
    assert list(map(int, shown)) == [*minutes, forget_hours, policy.settings.provision_timeout // MINUTE]
