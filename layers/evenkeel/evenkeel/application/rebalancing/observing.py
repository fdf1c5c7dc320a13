"""Opening and reading one cluster, so that whatever goes wrong there is that cluster's trouble and nobody else's."""

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime
from functools import partial
from pathlib import PurePath
from types import TracebackType
from typing import TypeVar

import evenkeel
from evenkeel.application.actions.ports import InspectableClusters
from evenkeel.application.errors import ClusterUnavailableError, EvenkeelError, TooLargeError
from evenkeel.application.offerings.sharing import buyer_of
from evenkeel.application.ports import Remaining, StoredCluster
from evenkeel.application.rebalancing.ports import Cluster, Clusters, WorkloadCluster
from evenkeel.domain.demand.advice import is_at_work
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.offerings import Buyer
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import Workload
from evenkeel.domain.rebalancing.relief import shoots_asked_for
from evenkeel.record import ClusterRecord

_log = logging.getLogger("evenkeel.look")
# Opening and reading a cluster, all pages included. A healthy one takes tenths of a second.
CHECK_SECONDS = 8.0
# Of an invocation, when a workload cluster hangs: a patch takes up to 13 s, and what is known is to be told.
_KEPT_FOR_THE_REST = 15.0
# Of the package itself: a checkout, and any folder above it, may be named evenkeel as well.
_PACKAGE = PurePath(evenkeel.__file__).parent
_NOTHING = ClusterState()
_T = TypeVar("_T")


class UnexpectedError(ClusterUnavailableError):
    """Something inside a look that nobody foresaw. Says what kind and where; its text may hold a secret."""

    def __init__(self, cluster: str, step: str, kind: str, place: str) -> None:
        super().__init__(f"{cluster}: {kind} while {step}, at {place}: please report this")
        self.kind = kind


def observe_cluster(
    clusters: Clusters,
    record: ClusterRecord,
    remaining: Remaining,
    state: ClusterState = _NOTHING,
    *,
    consistent: bool = True,
    alone: bool = True,
) -> tuple[Cluster, Observation]:
    """The opened cluster and a complete look at it, within ``CHECK_SECONDS``; what comes after has all that remains.

    ``consistent`` and ``alone`` as ``open`` has them.

    Raises:
        AccessError, ClusterUnavailableError: whatever went wrong, of any kind.
    """
    time = _Time(remaining)
    open_it = partial(clusters.open, record, time.left, consistent=consistent, alone=alone)
    cluster = contained(record.id, "it was opened", open_it)
    observation = read_cluster(record.id, cluster, state, buyer_of(record, state.offerings))
    time.kept_back = 0.0
    return cluster, observation


def observe(  # noqa: PLR0913  what is looked at, what is asked of it, and how
    clusters: Clusters,
    remembered: StoredCluster,
    remaining: Remaining,
    now: Callable[[], datetime],
    *,
    judges_nodes: bool | None,
    consistent: bool = True,
    alone: bool = True,
) -> tuple[Cluster, Observation]:
    """A complete look, with the Shoots that relief asks for, and with pods and nodes, where the record asks for them.

    ``judges_nodes``: whether all is read that says which nodes nobody needs; None: no pod is. Raises as
    ``observe_cluster``, and TooLargeError as ``_see_workload``.
    """
    record, state = remembered.record, remembered.state
    cluster, observation = observe_cluster(clusters, record, remaining, state, consistent=consistent, alone=alone)
    observation = _with_shoots(observation, cluster, record, state, now() + observation.clock_skew)
    if judges_nodes is not None:
        see = partial(_see_workload, judges_nodes=judges_nodes, alone=alone)
        observation = see(clusters, record, (cluster, observation), remaining)
    return cluster, observation


def _with_shoots(
    observation: Observation, cluster: Cluster, record: ClusterRecord, state: ClusterState, now: datetime
) -> Observation:
    """The observation with those Shoots that relief asks for now: one request each, and none in quiet times.

    Whatever goes wrong in the garden is no trouble of the seed: it is told, and the rest is planned.
    """
    asked_for = shoots_asked_for(state, now) if record.shoot_relief is not None else ()
    if not asked_for:
        return observation
    try:
        shoots = contained(record.id, "its Shoots were read", partial(cluster.shoots, asked_for))
    except EvenkeelError as error:
        shoots = dict.fromkeys(asked_for, Reason.of(Rule.SHOOT_UNREAD, said=str(error)))
    return replace(observation, shoots=shoots)


def is_unchanged(
    clusters: Clusters, record: ClusterRecord, seen: Mapping[str, str], remaining: Remaining, *, alone: bool
) -> bool:
    """Whether a cluster shows what it showed (``shows``), within
    ``CHECK_SECONDS``. Raises as ``observe_cluster``.
    """
    open_it = partial(clusters.open, record, _Time(remaining).left, consistent=False, alone=alone)
    return contained(record.id, "it was glanced at", lambda: open_it().shows(seen))


def _see_workload(
    clusters: Clusters,
    record: ClusterRecord,
    looked: tuple[Cluster, Observation],
    remaining: Remaining,
    *,
    judges_nodes: bool,
    alone: bool,
) -> Observation:
    """The look with what runs in the workload cluster, where the record asks for it. The rest of the look goes on
    where that cannot be read, and has the time that it needs; beside others there are ``CHECK_SECONDS`` for it.

    Raises TooLargeError where others are looked at beside it: alone, it may be read.
    """
    if record.demand_stage is DemandStage.OFF:
        return looked[1]
    open_it = partial(clusters.open_workload, record, _workload_time(remaining, alone=alone), alone=alone)
    return with_workload(record.id, open_it, *looked, judges_nodes=judges_nodes, alone=alone)


def _workload_time(remaining: Remaining, *, alone: bool) -> Remaining:
    time = _Time(remaining)

    def left() -> float:
        before_the_rest = remaining() - _KEPT_FOR_THE_REST
        return before_the_rest if alone else min(before_the_rest, time.left())

    return left


def see_all_pods(
    clusters: Clusters,
    record: ClusterRecord,
    cluster: Cluster,
    observation: Observation,
    remaining: Remaining,
    *,
    alone: bool = True,
) -> Observation:
    """The look with all that has to be known to say which node may go, where the record says where its pods are.

    Raises as ``_see_workload``.
    """
    if record.workload is None or not lacks_pods(observation):
        return observation
    open_it = partial(clusters.open_workload, record, _workload_time(remaining, alone=alone), alone=alone)
    return with_workload(record.id, open_it, cluster, observation, judges_nodes=True, alone=alone)


def lacks_pods(observation: Observation) -> bool:
    """Return True if pods were not read, or not all of them, and no attempt has failed."""
    known = observation.workload is not None and observation.workload.whole
    return not known and not observation.workload_unread


def another_autoscaler(
    clusters: InspectableClusters, record: ClusterRecord, remaining: Remaining, now: datetime
) -> Reason | None:
    """Why this record may not order nodes: another does. None: it orders none, or no other is seen at work.

    Raises AccessError, ClusterUnavailableError.
    """
    if not record.demand_stage.orders:
        return None
    ask = partial(clusters.autoscaler_at, record, _Time(remaining).left)
    at = contained(record.id, "another autoscaler was looked for", ask)
    return Reason.of(Rule.TWO_AUTOSCALERS, at=at) if at is not None and is_at_work(at, now) else None


def with_workload(
    name: str,
    open_it: Callable[[], WorkloadCluster],
    cluster: Cluster,
    observation: Observation,
    *,
    judges_nodes: bool,
    alone: bool = True,
) -> Observation:
    """The look with pods and nodes, or with one sentence why they could not be read. Raises as ``observe``."""

    def read() -> Workload:
        return open_it().read(cluster.nodes, judges_nodes=judges_nodes)

    try:
        return replace(observation, workload=contained(name, "its workload was read", read))
    except EvenkeelError as error:
        if isinstance(error, TooLargeError) and not alone:
            raise
        _log.warning("%s: its workload is not read: %s", name, error, extra={"cluster": name})
        return replace(observation, workload_unread=str(error))


class _Time:
    """The seconds of a look, out of those that remain."""

    def __init__(self, remaining: Remaining) -> None:
        self._remaining = remaining
        self.kept_back = max(0.0, remaining() - CHECK_SECONDS)

    def left(self) -> float:
        return self._remaining() - self.kept_back


def read_cluster(name: str, cluster: Cluster, state: ClusterState, buyer: Buyer | None = None) -> Observation:
    """A complete look. Machines of groups that are remembered to be in trouble, or in a step of converge, are looked at
    closely.

    So that one is seen that was launched since the last failure, and runs. ``buyer``: what such groups buy, and those
    that other clusters' words may be about, is looked up too. Raises as ``observe_cluster``.
    """
    closely = [key for key, group in state.groups.items() if group.is_failing]
    steps = [pool.convergence.step for pool in state.pools.values() if pool.convergence.step is not None]
    closely += [GroupKey.read(key) for step in steps for key in sorted(step.groups)]
    return contained(name, "it was read", lambda: cluster.observe(closely, buyer))


def contained(cluster: str, step: str, call: Callable[[], _T]) -> _T:
    """What the call returns. Raises the expected errors as they are, and all others as UnexpectedError."""
    unexpected: UnexpectedError
    try:
        return call()
    except EvenkeelError as error:
        error.__cause__ = error.__context__ = None  # of what it was made from, its text tells what may be told
        raise
    except Exception as error:  # the promise is: of any kind
        unexpected = UnexpectedError(cluster, step, type(error).__name__, _place(error.__traceback__))
    raise unexpected  # out here, where the other one does not hang on it


def _place(traceback: TracebackType | None) -> str:
    """The innermost line of ours."""
    place = "an unknown place"
    while traceback is not None:
        path = PurePath(traceback.tb_frame.f_code.co_filename)
        if _PACKAGE in path.parents:
            place = f"{path.name}:{traceback.tb_lineno}"
        traceback = traceback.tb_next
    return place
