"""A source of signals is one file and one rule of the template, and neither may be missing."""

import importlib
import importlib.util
import sys
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest

from evenkeel.adapters.aws import sources
from evenkeel.adapters.aws.sources import ignored_on_purpose
from evenkeel.application.rebalancing.events import ReceiveEvent
from evenkeel.domain.model.groups import GroupKey
from sandbox.template import ROOT, Template
from tests.fakes import adopt
from tests.stack import Stack

ACCOUNT = "123456789012"
FUNCTION = "ProvisioningFailureFunction"
# A file as a user would put it into the folder of sources.
MADE_UP = '''
"""Failures that the billing department reports."""

from evenkeel.adapters.aws.signals import Envelope
from evenkeel.application.rebalancing.events import Failure
from evenkeel.validation import read_model


def _failure(event):
    envelope = read_model(Envelope, event, "billing event")
    return Failure(
        cluster="demo", flavour="cluster-api", namespace="demo", name="workers-a",
        code="InsufficientInstanceCapacity", message="no money left", occurred_at=envelope.time, id=envelope.id,
    )


ROWS = {("billing", "Budget Exhausted"): _failure}
'''
EVENT = {
    "source": "billing",
    "detail-type": "Budget Exhausted",
    "id": "b-1",
    "time": "2026-01-15T12:00:00Z",
    "account": ACCOUNT,
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Yield a second folder of sources, in addition to the deployed one."""
    monkeypatch.setattr(sources, "__path__", [*sources.__path__, str(tmp_path)])
    yield tmp_path
    for path in tmp_path.glob("*.py"):
        sys.modules.pop(f"{sources.__name__}.{path.stem}", None)


def test_a_source_in_the_folder_is_read_by_the_function(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", "test")
    monkeypatch.setenv("POWERTOOLS_SERVICE_NAME", "test")
    spec = importlib.util.spec_from_file_location("_app", ROOT / "functions" / "provisioning_failure" / "app.py")
    assert spec is not None
    assert spec.loader is not None
    app = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(app)
    stack = Stack()
    adopt(stack.store, "demo", [GroupKey("cluster-api", "demo", "workers-a")])

    def other(event: object) -> Any:
        raise AssertionError("not reached")

    class Container:
        receive_event = ReceiveEvent(
            record_failure=stack.record_failure,
            record_zone_shift=other,
            request_scale=other,
            idempotent=lambda key, remaining, work: work(),
        )

    monkeypatch.setattr(app, "container", Container)
    assert app.handler(EVENT, LambdaContext())["kind"] == "unknown shape"
    (folder / "billing.py").write_text(MADE_UP, encoding="utf-8")
    importlib.invalidate_caches()
    monkeypatch.setattr(sources, "ROWS", sources.collect())
    assert app.handler(EVENT, LambdaContext())["result"] == "recorded"
    assert [key.name for key in stack.state.groups] == ["workers-a"]
    assert stack.queue.clusters == ["demo"]


class LambdaContext:
    function_name = "test"
    memory_limit_in_mb = 128
    invoked_function_arn = f"arn:aws:lambda:eu-central-1:{ACCOUNT}:function:test"
    aws_request_id = "1"

    def get_remaining_time_in_millis(self) -> int:
        return 60_000


def test_a_source_without_rows_is_named_at_the_start(folder: Path) -> None:
    (folder / "empty_handed.py").write_text('"""Nothing."""\n', encoding="utf-8")
    importlib.invalidate_caches()
    with pytest.raises(AttributeError, match="empty_handed"):
        sources.collect()


def test_no_two_sources_claim_the_same_events() -> None:
    modules = [importlib.import_module(f"{sources.__name__}.{name}") for name in names_of_sources()]
    assert sum(len(module.ROWS) for module in modules) == len(sources.ROWS)


def names_of_sources() -> list[str]:
    return [path.stem for path in Path(sources.__file__).parent.glob("*.py") if path.stem != "__init__"]


# ---------------------------------------------------------------- the template's rules
def patterns() -> dict[str, Mapping[str, Any]]:
    """Return each rule's event pattern by the rule's name."""
    events = Template().functions()[FUNCTION].events
    return {name: event["Properties"]["Pattern"] for name, event in events.items()}


def rows_of(pattern: Mapping[str, Any]) -> set[tuple[str, str]]:
    """Return a rule's sources and detail-types. A prefix is written with its ``*``."""
    texts = [
        [f"{one['prefix']}*" if isinstance(one, dict) else one for one in pattern.get(field, ["*"])]
        for field in ("source", "detail-type")
    ]
    return {(source, detail_type) for source in texts[0] for detail_type in texts[1]}


def lacking(rows: set[tuple[str, str]], others: set[tuple[str, str]]) -> set[tuple[str, str]]:
    """Return the rows that no other one covers."""
    return {row for row in rows if not any(all(map(fnmatchcase, row, other)) for other in others)}


def test_every_source_has_a_rule_of_the_template() -> None:
    read = set(sources.ROWS) - set(ignored_on_purpose.ROWS)
    ruled = {row for pattern in patterns().values() for row in rows_of(pattern)}
    assert not lacking(read, ruled), "template.yaml has no rule for these"


@pytest.mark.parametrize("rule", patterns())
def test_every_rule_of_the_template_has_a_source(rule: str) -> None:
    assert not lacking(rows_of(patterns()[rule]), set(sources.ROWS)), f"no file of sources/ reads what {rule} sends"
    assert rows_of(patterns()[rule]).isdisjoint(ignored_on_purpose.ROWS)


def test_a_source_without_a_rule_would_be_named() -> None:
    ruled = {row for pattern in patterns().values() for row in rows_of(pattern)}
    assert lacking({("billing", "Budget Exhausted")}, ruled) == {("billing", "Budget Exhausted")}
