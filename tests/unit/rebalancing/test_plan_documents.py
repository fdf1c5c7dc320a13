"""A decision is written and read in one format, which has a schema."""

import json
from copy import deepcopy
from datetime import UTC, datetime
from typing import Any

import pytest

from evenkeel.application.plan_documents import read_decisions, reason_json
from evenkeel.application.rebalancing.decisions import decision_json, plan_json
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.observations import Skipped
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.validation import ConfigError
from evenkeel_cli.answers import _outcomes
from tests.builders import NOW, in_backoff, key, numbers, pool_plan, zones
from tests.parts import replace
from tests.unit.project.test_docs import ROOT, block


def decision(**outcomes: Outcome) -> dict[str, Any]:
    """Return the decision about a pool whose zone a is fenced, so that its replicas move."""
    pool = pool_plan(zones([4, 2, 2], [1, 2, 2]), numbers(3, 12), states={key("a"): in_backoff()})
    tried = {key(zone): outcome for zone, outcome in outcomes.items()}
    return decision_json(pool, id="01A", cluster="blue", at=NOW, reason="scan", dry_run=False, outcomes=tried)


def stored_group(zone: str, rule: dict[str, str], outcome: str) -> dict[str, Any]:
    names = {"flavour": "cluster-api", "namespace": "demo", "name": f"workers-{zone}", "zone": zone, "state": "fenced"}
    changes = {"requested": {"from": 3, "to": 1}, "min": {"from": 0, "to": 0}, "max": {"from": None, "to": 1}}
    result = {"outcome": outcome, "result": outcome.partition(":")[0]}
    return {**names, **changes, "reasons": ["a reason"], "rules": [rule], **result}


FIX = {
    "object": "demo/workers-a",
    "from": 9,
    "to": 12,
    "outcome": "not written: it has changed",
    "result": "not written",
}
GROUPS = [
    stored_group("a", {"rule": "in-backoff", "kind": "quota"}, "written"),
    stored_group("b", {"rule": "zone-impaired"}, "rejected: not allowed: written"),
    stored_group("c", {"rule": "strategy"}, "left alone"),
]
POOL = {"name": "workers", "strategy": "Balanced", "min": 3, "max": 12, "valid": True, "problems": []}
HEAD = {"id": "01B", "at": "2026-01-15T12:00:00Z", "cluster": "blue", "cause": "scan", "dryRun": False}
#: a decision as it is stored
STORED: dict[str, Any] = {
    **HEAD,
    "pool": {**POOL, "starved": 0, "overcommitted": False, "groups": GROUPS},
    "fixed": [FIX],
}


def test_a_decision_has_the_names_of_the_contract() -> None:
    reported = decision(a=Outcome(Result.WRITTEN), b=Outcome(Result.CONFLICT, "it has changed"))
    assert list(reported) == ["id", "at", "cluster", "cause", "dryRun", "pool"]
    assert list(reported["pool"]) == [
        *("name", "strategy", "min", "max", "valid", "problems", "problemRules", "starved", "overcommitted"),
        *("numbersFrom", "groups"),
    ]
    first, second, third = reported["pool"]["groups"]
    assert list(first) == [
        *("flavour", "namespace", "name", "zone", "state", "requested", "min", "max"),
        *("reasons", "rules", "outcome", "result", "running"),
    ]
    assert first["requested"] == {"from": 4, "to": 1}
    assert (first["outcome"], first["result"]) == ("written", "written")
    assert all(len(group["rules"]) == len(group["reasons"]) for group in reported["pool"]["groups"])
    assert first["rules"][0]["rule"] == "in-backoff"
    assert (second["outcome"], second["result"]) == ("conflict: it has changed", "conflict")
    assert third["result"] == "waits", "it was to be written after one that failed"


def test_a_plan_has_the_names_of_the_contract() -> None:
    pool = pool_plan(zones([1, 1, 1]), numbers(3, 12))
    quiet = Plan(
        now=NOW,
        pools=(pool,),
        skipped=(Skipped(namespace="x", name="y", reason=Reason.of(Rule.SAID, text="z")),),
        states={},
    )
    reported = plan_json(quiet)
    assert list(reported) == ["now", "pools", "skipped"]
    assert reported["skipped"] == [{"namespace": "x", "name": "y", "reason": "z"}]
    assert "outcome" not in reported["pools"][0]["groups"][0]
    asked = replace(pool, request_current=ScaleRequest(id="r", nodes=2, at=NOW, pool="workers"))
    reported = plan_json(Plan(now=NOW, pools=(asked,), skipped=(), states={}, check_at=NOW))
    assert reported["checkAt"] == "2026-01-15T12:00:00Z"
    assert reported["pools"][0]["growth"] == {"request": "r", "nodes": 2, "missing": 0}


def test_a_decision_is_read_back_as_it_was_written() -> None:
    written = decision(a=Outcome(Result.WRITTEN))
    (read,) = read_decisions([json.loads(json.dumps(written))], "decision")
    assert (read.at, read.cause, read.dry_run) == (NOW, "scan", False)
    first = read.pool.groups[0]
    assert (first.key, first.requested.before, first.requested.after) == (str(key("a")), 4, 1)
    assert first.result == Result.WRITTEN


def test_a_stored_decision_has_results_rules_and_outcomes() -> None:
    (read,) = read_decisions([STORED], "decision")
    assert [group.result for group in read.pool.groups] == [Result.WRITTEN, Result.REJECTED, Result.LEFT_ALONE]
    quota, impaired, well = read.pool.groups
    assert quota.facts(Rule.IN_BACKOFF) == {"rule": "in-backoff", "kind": "quota"}
    assert impaired.facts(Rule.ZONE_IMPAIRED) is not None
    assert well.facts(Rule.IN_BACKOFF) is None
    assert list(_outcomes(read)) == [
        "workers-a changed",
        "workers-b rejected: not allowed: written",
        "PoolMaximum of demo/workers-a not written: it has changed",
    ]


def test_unknown_fields_of_a_decision_are_ignored() -> None:
    newer = deepcopy(STORED)
    newer |= {"mood": "good"}
    newer["pool"] |= {"demand": {"pending": 3}}
    newer["pool"]["groups"][0] |= {
        "reasons": ["words of tomorrow"],
        "rules": [{"rule": "not-invented-yet"}],
        "outcome": "postponed: tomorrow",
        "result": "postponed",
    }
    (read,) = read_decisions([newer], "decision")
    assert read.pool.groups[0].result == "postponed"
    assert "workers-a postponed: tomorrow" in list(_outcomes(read))


def test_an_invalid_decision_is_refused_with_its_place() -> None:
    broken = deepcopy(STORED)
    del broken["pool"]["groups"][1]["zone"]
    broken["pool"]["groups"][0]["requested"] = 3
    with pytest.raises(ConfigError) as error:
        read_decisions([broken], "history.json")
    first, second = error.value.faults
    assert first.startswith("history.json: decisions.0.pool.groups.0.requested is '3': no object")
    assert second == "history.json: decisions.0.pool.groups.1.zone is missing"


def test_a_reason_is_its_rule_and_facts() -> None:
    inner = Reason.of(Rule.IN_BACKOFF, kind="capacity", until=datetime(2026, 1, 15, 12, tzinfo=UTC))
    reason = Reason.of(Rule.STUCK_ON_HOLD, count=3, zone=None, why=inner, others=(inner,))
    reported = {"rule": "in-backoff", "kind": "capacity", "until": "2026-01-15T12:00:00Z"}
    assert reason_json(reason) == {
        "rule": "stuck-on-hold",
        "count": 3,
        "zone": None,
        "why": reported,
        "others": [reported],
    }


def test_the_decision_in_the_docs_has_the_fields_of_the_schema() -> None:
    quote = json.loads(block("start/first-cluster.md", "json", ""))
    read_decisions([quote], "docs/start/first-cluster.md")
    schema = json.loads((ROOT / "docs/reference/schemas/decision.schema.json").read_text(encoding="utf-8"))
    pool, group = schema["$defs"]["PoolDocument"], schema["$defs"]["GroupDocument"]
    assert set(quote) <= set(schema["properties"])
    assert set(pool["required"]) <= set(quote["pool"]) <= set(pool["properties"])
    assert set(quote["pool"]["groups"][0]) == set(group["properties"])
