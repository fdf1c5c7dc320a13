"""The state that ``evenkeel plan --state`` reads, and that ``-o json`` prints for the next plan."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any, Self

from evenkeel.adapters.codec import StoredGroupState, StoredPoolState, dump_plain, read_as
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.model.policy import BackoffPolicy
from evenkeel.domain.model.states import ClusterState, GroupState, PoolState
from evenkeel.domain.model.ulids import ulid
from evenkeel.domain.model.values import BadValueError, quote
from evenkeel.domain.rebalancing.journal import closed, opened
from evenkeel.validation import ConfigError, parse_json


@dataclass(frozen=True, kw_only=True)
class ImpairedZone:
    """A zone whose node groups do not grow until ``impaired_until``."""

    impaired_until: datetime


def _with_failures(state: Any) -> object:
    """Return the content of a state file. If the entry of a group lacks ``failures``, set it to 1."""
    groups = state.get("groups") if isinstance(state, Mapping) else None
    if not isinstance(groups, Mapping):
        return state
    counted = {key: {"failures": 1, **group} if isinstance(group, Mapping) else group for key, group in groups.items()}
    return {**state, "groups": counted}


@dataclass(frozen=True, kw_only=True)
class StateFile:
    """The state that one plan passes to the next plan. The keys are group keys, zone names and pool ids."""

    groups: Mapping[str, StoredGroupState] = field(default_factory=dict)
    zones: Mapping[str, ImpairedZone] = field(default_factory=dict)
    pools: Mapping[str, StoredPoolState] = field(default_factory=dict)

    @classmethod
    def read(cls, text: str, where: str) -> Self:
        """Return the state of a file. Raises ConfigError with a line for each bad value."""
        file = read_as(cls, _with_failures(parse_json(text, where)), where, strict=True)
        _check_keys("groups", file.groups, GroupKey.read, where)
        _check_keys("pools", file.pools, PoolId.read, where)
        return file

    @classmethod
    def of_status(cls, answer: Mapping[str, Any], where: str) -> Self:
        """Return the failures of node groups and the impaired zones of a status answer. Raises ConfigError."""
        names = {
            "failures": "failures",
            "class": "class",
            "backoff_until": "backoffUntil",
            "last_failure": "lastFailure",
        }
        groups = {
            key: {name: group[field] for name, field in names.items() if group[field] is not None}
            for key, group in answer["groups"].items()
            if group["failures"]
        }
        zones = {
            zone: {"impaired_until": words["impairedUntil"]}
            for zone, words in answer["zones"].items()
            if words["impaired"]
        }
        return read_as(cls, {"groups": groups, "zones": zones}, where)

    def state(self) -> ClusterState:
        """Return the state that the next plan starts from."""
        return ClusterState(
            groups={GroupKey.read(key): _with_last_failure(state) for key, state in self.groups.items()},
            pools={PoolId.read(key): state for key, state in self.pools.items()},
            zones={zone: impaired.impaired_until for zone, impaired in self.zones.items()},
        )

    def after(self, planned: Plan) -> dict[str, Any]:
        """Return the state after the plan has been carried out, as plain JSON."""
        # The random part of the id may be zero, because no other move begins at this time.
        id = ulid(planned.now, bytes(10))
        pools = {pool.id: closed(pool, opened(pool, id)) for pool in planned.pools}
        former = {str(pool.known_as) for pool in planned.pools if pool.known_as is not None}
        groups = {**self.groups, **{str(key): state for key, state in planned.states.items()}}
        kept = {id: pool for id, pool in self.pools.items() if id not in former}
        kept |= {str(id): state for id, state in pools.items() if state != PoolState()}
        document: dict[str, Any] = dump_plain(replace(self, groups=groups, pools=kept))
        for key, state in groups.items():
            document["groups"][key]["failures"] = state.failure.failures
        return document


def _with_last_failure(state: GroupState) -> GroupState:
    """Return the state. If ``last_failure`` is missing, set it to the latest time that its backoff allows."""
    until = state.failure.backoff_until
    if state.failure.last_failure is not None or until is None:
        return state
    return replace(state, failure=replace(state.failure, last_failure=until - BackoffPolicy().initial))


def _check_keys(part: str, keys: Iterable[str], read: Callable[[str], object], where: str) -> None:
    for key in keys:
        try:
            read(key)
        except BadValueError as error:
            raise ConfigError([f"{where}: {part} has key {quote(key)}: {error}"]) from None
