"""A recorded history as a scenario: what `evenkeel record` wrote, derived back into zones, demand and failures.

A decision record says what was requested at moments when something was news, and which zones were fenced. What it does
not say is taken from the scenario's defaults: docs/simulate.md lists both.
"""

import re
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Any

from pydantic import BaseModel, ConfigDict, Field, field_validator

from evenkeel.cli.simulation.scenario import Scenario, read_scenario, write_duration
from evenkeel.config import ConfigError, Count, Moment, StrategyName, read_model
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.groups import State

# A code per class that leads to the same class again; a timeout says nothing, that is what it is.
_REFUSALS: Mapping[str, Mapping[str, str]] = {
    FailureClass.CAPACITY: {"code": "InsufficientInstanceCapacity"},
    FailureClass.QUOTA: {"code": "VcpuLimitExceeded"},
    FailureClass.TIMEOUT: {"code": "Timeout", "seen": "never"},
    FailureClass.CONFIGURATION: {"code": "InvalidParameterValue"},
    FailureClass.UNKNOWN: {"code": "Unknown"},
}
_FENCED = re.compile(r"fenced: (\w+) failure")
_IMPAIRED = re.compile(r"fenced: zone .* is impaired until")


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="ignore", populate_by_name=True)


class _Span(_Part):
    before: Count = Field(alias="from")
    after: Count = Field(alias="to")


class _Group(_Part):
    namespace: str
    zone: str
    state: State
    requested: _Span
    reasons: tuple[str, ...] = ()

    def says(self, pattern: re.Pattern[str]) -> re.Match[str] | None:
        """The first of its reasons that fits."""
        return next((found for reason in self.reasons if (found := pattern.match(reason))), None)


class _Pool(_Part):
    name: str
    strategy: StrategyName
    min: Count | None
    max: Count | None
    valid: bool = True
    groups: tuple[_Group, ...]


class _Decision(_Part):
    at: Moment
    pool: _Pool


class _History(_Part):
    cluster: str
    start: Moment = Field(alias="from")
    end: Moment = Field(alias="to")
    decisions: tuple[_Decision, ...]

    @field_validator("decisions", mode="before")
    @classmethod
    def _of_pools(cls, decisions: object) -> object:
        """What people asked for stands among them, and moves no node by itself."""
        if not isinstance(decisions, list):
            return decisions
        return [one for one in decisions if not isinstance(one, Mapping) or "pool" in one or "by" not in one]


def is_history(data: object) -> bool:
    """Whether this is a recorded history and no scenario."""
    return isinstance(data, Mapping) and "decisions" in data


def scenario_of(data: object, where: str) -> Scenario:
    """Raises ConfigError: a bad value, or nothing in it to derive a pool from."""
    history = read_model(_History, data, where)
    pools: dict[tuple[str, str], list[_Decision]] = {}
    for decision in sorted(history.decisions, key=lambda decision: decision.at):
        pool = decision.pool
        if pool.valid and pool.max is not None and pool.groups:
            pools.setdefault((pool.groups[0].namespace, pool.name), []).append(decision)
    if not pools:
        raise ConfigError([f"{where}: decisions holds no valid pool: record a longer time"])
    seconds = int((history.end - history.start).total_seconds())
    if seconds <= 0:
        raise ConfigError([f"{where}: to is not after from"])
    short = [name for _, name in pools]
    names = {key: key[1] if short.count(key[1]) == 1 else f"{key[0]}.{key[1]}" for key in pools}
    failing: dict[str, list[tuple[int, int]]] = {}
    fences: list[dict[str, str]] = []
    kinds: dict[str, str] = {}
    for decisions in pools.values():
        times = [max(0, int((decision.at - history.start).total_seconds())) for decision in decisions]
        for zone in sorted({group.zone for decision in decisions for group in decision.pool.groups}):
            looks = [
                (at, group)
                for at, decision in zip(times, decisions, strict=True)
                for group in decision.pool.groups
                if group.zone == zone
            ]
            failing.setdefault(zone, []).extend(_failing(looks, seconds))
            fences += [
                {"zone": zone, "from": write_duration(start), "until": write_duration(until)}
                for start, until in _impaired(looks, seconds)
            ]
            said = [found[1] for _, group in looks if (found := group.says(_FENCED))]
            kinds.setdefault(zone, said[0] if said else FailureClass.CAPACITY.value)
    return read_scenario(
        {
            "name": f"history of {history.cluster}"[:100],
            "start": history.start,
            "duration": write_duration(seconds),
            "zones": [
                {
                    "name": zone,
                    "capacity": _steps(spans),
                    "failure": _REFUSALS.get(kinds[zone], _REFUSALS[FailureClass.UNKNOWN]),
                }
                for zone, spans in sorted(failing.items())
            ],
            "pools": [_pool(names[key], decisions) for key, decisions in pools.items()],
            "demand": [
                {"pool": names[key], "nodes": _demand(decisions, history.start)} for key, decisions in pools.items()
            ],
            "fences": fences,
        },
        where,
    )


def _pool(name: str, decisions: Sequence[_Decision]) -> dict[str, Any]:
    """Numbers as they were last; nodes as they were first. Of a zone that failed already, only what is left to it."""
    first, last = decisions[0].pool, decisions[-1].pool
    return {
        "name": name,
        "min": last.min or 0,
        "max": last.max,
        "strategy": last.strategy,
        "zones": sorted({group.zone for group in first.groups}),
        "start_in_zone": {
            group.zone: group.requested.after if group.state is State.FENCED else group.requested.before
            for group in first.groups
        },
    }


def _demand(decisions: Sequence[_Decision], start: datetime) -> list[dict[str, Any]]:
    """What was requested in all zones, each time that it was written down."""
    wanted: dict[int, int] = {}
    for decision in decisions:
        at = int((decision.at - start).total_seconds()) if wanted else 0
        wanted[max(0, at)] = sum(group.requested.before for group in decision.pool.groups)
    return [{"at": write_duration(at), "nodes": nodes} for at, nodes in sorted(wanted.items())]


def _failing(looks: Sequence[tuple[int, _Group]], end: int) -> list[tuple[int, int]]:
    """When the zone gave out no machines: from the look before a fence to the probe that went well."""
    spans: list[tuple[int, int]] = []
    since: int | None = None
    probed = before = 0
    for at, group in looks:
        if group.says(_FENCED):
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


def _impaired(looks: Sequence[tuple[int, _Group]], end: int) -> list[tuple[int, int]]:
    """When the whole zone was fenced by an operator or by AWS."""
    spans: list[tuple[int, int]] = []
    since: int | None = None
    for at, group in looks:
        if group.says(_IMPAIRED):
            since = at if since is None else since
        elif since is not None:
            spans.append((since, at))
            since = None
    if since is not None:
        spans.append((since, end))
    return [(start, until) for start, until in spans if start < until]


def _steps(spans: Sequence[tuple[int, int]]) -> list[dict[str, Any]]:
    """Capacity 0 while any pool found none there, and no limit in between."""
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
