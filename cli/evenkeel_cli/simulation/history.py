"""Derive a scenario from a recorded history (`evenkeel record`): zones, demand and failures from its decisions.

A decision is recorded when something changes. It has the requested replicas and the fenced zones. All other values are
defaults of the scenario. docs/guides/simulate.md lists the derived values, and the information that a history lacks.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from evenkeel.application.plan_documents import DecisionDocument, GroupDocument
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.reasons import Rule
from evenkeel.validation import ConfigError, Moment, read_model
from evenkeel_cli.simulation.scenario import Scenario, read_scenario, spans_where, write_duration

_Samples = list[tuple[int, GroupDocument]]
"""The recorded groups of one pool in one zone, each with the seconds since the history began."""

# One failure of each class. Its code gives simulated failures the recorded class. Nothing reports a timeout (``seen``:
# never).
_REFUSALS: Mapping[str, Mapping[str, str]] = {
    FailureClass.CAPACITY: {"code": "InsufficientInstanceCapacity"},
    FailureClass.QUOTA: {"code": "VcpuLimitExceeded"},
    FailureClass.TIMEOUT: {"code": "Timeout", "seen": "never"},
    FailureClass.CONFIGURATION: {"code": "InvalidParameterValue"},
    FailureClass.UNKNOWN: {"code": "Unknown"},
}


class _History(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore")
    cluster: str
    start: Moment = Field(alias="from")
    end: Moment = Field(alias="to")
    decisions: tuple[DecisionDocument, ...]

    @field_validator("decisions", mode="before")
    @classmethod
    def _of_pools(cls, decisions: object) -> object:
        """Return the entries without actions of operators, because these actions move no node."""
        if not isinstance(decisions, list):
            return decisions
        return [entry for entry in decisions if not isinstance(entry, Mapping) or "pool" in entry or "by" not in entry]


def refusal_of(kind: str) -> Mapping[str, str]:
    """Return a scenario's failure of a class."""
    return _REFUSALS.get(kind, _REFUSALS[FailureClass.UNKNOWN])


def is_history(data: object) -> bool:
    """Return True for a recorded history."""
    return isinstance(data, Mapping) and "decisions" in data


def scenario_of(data: object, where: str) -> Scenario:
    """Return a history's scenario. Raises ConfigError for a bad value, or if no pool is valid."""
    history = read_model(_History, data, where)
    pools = _by_pool(history.decisions)
    if not pools:
        raise ConfigError([f"{where}: decisions holds no valid pool: record a longer time"])
    seconds = int((history.end - history.start).total_seconds())
    if seconds <= 0:
        raise ConfigError([f"{where}: to is not after from"])
    short = [name for _, name in pools]
    names = {key: key[1] if short.count(key[1]) == 1 else f"{key[0]}.{key[1]}" for key in pools}
    zones: dict[str, list[_Samples]] = {}
    for decisions in pools.values():
        for zone, samples in _by_zone(decisions, history.start).items():
            zones.setdefault(zone, []).append(samples)
    return read_scenario(
        {
            "name": f"history of {history.cluster}"[:100],
            "flavour": AUTO_SCALING if _is_of_aws(pools.values()) else "cluster-api",
            "start": history.start,
            "duration": write_duration(seconds),
            "zones": [
                {
                    "name": zone,
                    "capacity": _steps([span for samples in of_pools for span in _failing(samples, seconds)]),
                    "failure": refusal_of(_failure_class(of_pools[0])),
                }
                for zone, of_pools in sorted(zones.items())
            ],
            "pools": [_pool(names[key], decisions) for key, decisions in pools.items()],
            "demand": [
                {"pool": names[key], "nodes": _demand(decisions, history.start)} for key, decisions in pools.items()
            ],
            "fences": [
                {"zone": zone, "from": write_duration(start), "until": write_duration(until)}
                for zone, of_pools in zones.items()
                for samples in of_pools
                for start, until in _impaired(samples, seconds)
            ],
        },
        where,
    )


def _by_pool(decisions: Sequence[DecisionDocument]) -> dict[tuple[str, str], list[DecisionDocument]]:
    """Return the decisions of valid pools by namespace and name, oldest first."""
    pools: dict[tuple[str, str], list[DecisionDocument]] = {}
    for decision in sorted(decisions, key=lambda decision: decision.at):
        pool = decision.pool
        if pool.valid and pool.max is not None and pool.groups:
            pools.setdefault((pool.groups[0].namespace, pool.name), []).append(decision)
    return pools


def _is_of_aws(pools: Iterable[Sequence[DecisionDocument]]) -> bool:
    return all(group.flavour == AUTO_SCALING for decisions in pools for group in decisions[-1].pool.groups)


def _by_zone(decisions: Sequence[DecisionDocument], start: datetime) -> dict[str, _Samples]:
    """Return a pool's samples by zone."""
    zones: dict[str, _Samples] = {}
    for decision in decisions:
        at = max(0, int((decision.at - start).total_seconds()))
        for group in decision.pool.groups:
            zones.setdefault(_zone(group), []).append((at, group))
    return dict(sorted(zones.items()))


def _zone(group: GroupDocument) -> str:
    """Return a group's zone; for a group without a zone, its name."""
    return group.zone or group.name


def _failure_class(samples: _Samples) -> str:
    """Return the class of the first recorded failure; capacity if no failure is recorded."""
    backoffs = (group.facts(Rule.IN_BACKOFF) for _, group in samples)
    return next((str(facts.get("kind")) for facts in backoffs if facts is not None), FailureClass.CAPACITY.value)


def _pool(name: str, decisions: Sequence[DecisionDocument]) -> dict[str, Any]:
    """Return a pool with the settings of its last decision, and the zones and nodes of its first decision."""
    first, last = decisions[0].pool, decisions[-1].pool
    return {
        "name": name,
        "min": last.min or 0,
        "max": last.max,
        "strategy": last.strategy,
        "zones": sorted({_zone(group) for group in first.groups}),
        "start_in_zone": {_zone(group): _ran(group) for group in first.groups},
    }


def _ran(group: GroupDocument) -> int:
    """Return a group's running nodes at the start.

    If their number is not recorded, return the requested replicas from before the decision. For a fenced group, return
    those from after the decision.
    """
    if group.running is not None:
        return min(group.running, group.requested.before)
    return group.requested.after if group.state is State.FENCED else group.requested.before


def _demand(decisions: Sequence[DecisionDocument], start: datetime) -> list[dict[str, Any]]:
    """Return a pool's demand, which is the sum of its requested nodes in all zones at each decision."""
    demand: dict[int, int] = {}
    for decision in decisions:
        at = int((decision.at - start).total_seconds()) if demand else 0
        demand[max(0, at)] = sum(group.requested.before for group in decision.pool.groups)
    return [{"at": write_duration(at), "nodes": nodes} for at, nodes in sorted(demand.items())]


def _failing(samples: _Samples, end: int) -> list[tuple[int, int]]:
    """Return the spans in which the cloud had no machines in a zone.

    A span lasts from the decision before a fence to the successful probe.
    """
    spans: list[tuple[int, int]] = []
    since: int | None = None
    probed = before = 0
    for at, group in samples:
        if group.facts(Rule.IN_BACKOFF) is not None:
            since = before if since is None else since
            probed = end
        elif since is not None and group.state is State.PROBING:
            probed = at
        elif since is not None:
            spans.append((since, min(at, probed)))
            since = None
        before = at
    if since is not None:
        spans.append((since, probed))
    return [(start, until) for start, until in spans if start < until]


def _impaired(samples: _Samples, end: int) -> list[tuple[int, int]]:
    """Return the spans in which an operator or AWS fenced the zone."""
    spans = spans_where(((at, group.facts(Rule.ZONE_IMPAIRED) is not None) for at, group in samples), end)
    return [(start, until) for start, until in spans if start < until]


def _steps(spans: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Return steps of capacity: 0 within the spans, no limit outside of them."""
    merged: list[tuple[int, int]] = []
    for start, until in sorted(spans):
        if merged and start <= merged[-1][1]:
            merged[-1] = (merged[-1][0], max(until, merged[-1][1]))
        else:
            merged.append((start, until))
    return [
        step
        for start, until in merged
        for step in ({"at": write_duration(start), "nodes": 0}, {"at": write_duration(until)})
    ]
