"""A decision that is too large for an item of the table is cut; all readers of decisions can read the rest."""

import json
from typing import Any

import pytest

from evenkeel.application.actions.explain import history
from evenkeel.application.plan_documents import read_decisions
from evenkeel.application.rebalancing.decisions import LARGEST_DECISION, decision_json, fit
from evenkeel.domain.model.outcomes import Outcome, Result
from evenkeel_cli.answers import _outcomes
from tests.builders import NOW, group, key, numbers, pool_plan


def large_decision(count: int, *, wordy: int = 0) -> dict[str, Any]:
    """Return the decision about so many groups, each with a few reasons. Every hundredth is written or fails."""
    groups = [group(f"zone-{number:04}", 2, bounds=(0, 9), key=key(f"z{number:04}")) for number in range(count)]
    pool = pool_plan(groups, numbers(3, 10 * count))
    outcomes = {key(f"z{number:04}"): Outcome(Result.WRITTEN) for number in range(0, count, 100)}
    outcomes |= {key(f"z{number:04}"): Outcome(Result.REJECTED, "no") for number in range(50, count, 100)}
    decision = decision_json(pool, id="01A", cluster="demo", at=NOW, reason="scan", dry_run=False, outcomes=outcomes)
    for reported in decision["pool"]["groups"]:
        reported["reasons"] = ["a reason of usual length, as the plan gives some for each group " * 3, "x" * wordy]
        if reported["result"] not in (Result.WRITTEN, Result.REJECTED):
            reported["outcome"] = reported["result"] = "left alone"
            for name in ("requested", "min", "max"):
                reported[name]["to"] = reported[name]["from"]
    return decision


def size(decision: Any) -> int:
    return len(json.dumps(decision, ensure_ascii=False).encode())


def test_a_decision_that_fits_is_unchanged() -> None:
    decision = large_decision(20)
    assert fit(decision) is decision
    assert "truncated" not in decision


@pytest.mark.parametrize(("count", "wordy"), [(1000, 0), (5000, 0), (300, 4000)])
def test_a_large_decision_keeps_its_facts_and_the_changed_or_failed_groups(count: int, wordy: int) -> None:
    decision = large_decision(count, wordy=wordy)
    cut = fit(decision)
    assert size(decision) > LARGEST_DECISION
    assert LARGEST_DECISION * 0.9 < size(cut) <= LARGEST_DECISION
    kept = cut["pool"]["groups"]
    assert cut["truncated"] == count - len(kept)
    assert {name: cut["pool"][name] for name in cut["pool"] if name != "groups"} == {
        name: decision["pool"][name] for name in decision["pool"] if name != "groups"
    }
    assert sum(one["outcome"] != "left alone" for one in kept) == count // 50
    names = [one["name"] for one in decision["pool"]["groups"]]
    assert sorted(names.index(one["name"]) for one in kept) == [names.index(one["name"]) for one in kept]


def test_long_lists_of_problems_or_fixes_are_cut() -> None:
    decision = large_decision(1000)
    decision["pool"]["problems"] = [f"group {number} has a problem, and it is \N{BUG}" * 4 for number in range(5000)]
    decision["fixed"] = [{"object": "x" * 600, "outcome": "written"} for _ in range(5000)]
    cut = fit(decision)
    assert size(cut) <= LARGEST_DECISION
    assert cut["pool"]["problems"]
    assert cut["fixed"]
    assert len(cut["pool"]["groups"]) >= 20


def test_a_group_with_too_long_reasons_is_left_out_alone() -> None:
    decision = large_decision(900)
    decision["pool"]["groups"][0]["reasons"] = ["x" * LARGEST_DECISION]
    cut = fit(decision)
    assert size(cut) <= LARGEST_DECISION
    assert len(cut["pool"]["groups"]) > 400


def test_a_cut_decision_is_shown_like_any_other() -> None:
    cut = fit(large_decision(1000))
    (reported,) = history([cut], [str(key("z0100"))], NOW)
    assert "z0100" in reported
    assert "z0950 rejected: no" in "; ".join(_outcomes(*read_decisions([cut], "decision")))
