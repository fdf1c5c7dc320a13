"""Open and read one cluster: machine objects, other objects, and workload. An error affects only this cluster."""

import logging
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from functools import partial

from evenkeel.application.errors import EvenkeelError, TooLargeError, UnexpectedError, contained
from evenkeel.application.ports import Remaining, StoredCluster
from evenkeel.application.rebalancing.ports import Cluster, Clusters, WorkloadCluster
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.workload import Workload
from evenkeel.record import ClusterRecord

_log = logging.getLogger("evenkeel.check")
# The time limit, in seconds, to open and read a cluster, including all pages of its lists. A healthy cluster needs
# tenths of a second.
CHECK_SECONDS = 8.0
# Seconds of an invocation that are reserved for the work after reading a workload cluster. A patch takes up to 13 s.
_KEPT_FOR_THE_REST = 15.0
_NOTHING = ClusterState()


class _Time:
    """The time limit of a check, within the remaining time of the invocation."""

    def __init__(self, remaining: Remaining) -> None:
        self._remaining = remaining
        self.kept_back = max(0.0, remaining() - CHECK_SECONDS)

    def left(self) -> float:
        return self._remaining() - self.kept_back


def within_check(remaining: Remaining) -> Remaining:
    """Return a function that returns the remaining seconds of a check that starts now."""
    return _Time(remaining).left


def observe_cluster(
    clusters: Clusters,
    record: ClusterRecord,
    remaining: Remaining,
    state: ClusterState = _NOTHING,
    *,
    consistent: bool = True,
    alone: bool = True,
) -> tuple[Cluster, Observation]:
    """Open and read a cluster within ``CHECK_SECONDS``.

    Later calls of the returned cluster may use all the remaining time of the invocation.

    ``consistent``, ``alone``: as in ``Clusters.open``. Raises AccessError, ClusterUnavailableError.
    """
    time = _Time(remaining)
    open_it = partial(clusters.open, record, time.left, consistent=consistent, alone=alone)
    cluster = contained(record.id, "it was opened", open_it)
    observation = read_cluster(record.id, cluster, state)
    time.kept_back = 0.0
    return cluster, observation


def read_cluster(name: str, cluster: Cluster, state: ClusterState) -> Observation:
    """Read a cluster. The machines of failing groups, and of groups in a step of convergence, are always listed.

    So the check finds machines that were launched after a group's last failure. A group that waited is listed once
    more, to learn when its last machine joined. Raises as ``observe_cluster`` does.
    """
    groups = state.groups.items()
    with_machines = [key for key, group in groups if group.is_failing or group.arrivals.waiting_running is not None]
    steps = [pool.convergence.step for pool in state.pools.values() if pool.convergence.step is not None]
    with_machines += [GroupKey.read(key) for step in steps for key in sorted(step.groups)]
    known = sorted({key for pool in state.pools.values() for key in pool.adopted})
    return contained(name, "it was read", lambda: cluster.observe(with_machines, known))


def observe(  # noqa: PLR0913  the cluster, its state and time, and how much of it is read
    clusters: Clusters,
    stored: StoredCluster,
    remaining: Remaining,
    now: Callable[[], datetime],
    *,
    judges_nodes: bool | None,
    consistent: bool = True,
    alone: bool = True,
) -> tuple[Cluster, Observation]:
    """Read a cluster, the other objects that capabilities need, and the workload if the record's ``demand`` needs it.

    ``judges_nodes``: as in ``WorkloadCluster.read``; None: no workload is read. Raises as ``observe_cluster`` does, and
    TooLargeError if the cluster is too large for a check that is not ``alone``.
    """
    record, state = stored.record, stored.state
    cluster, observation = observe_cluster(clusters, record, remaining, state, consistent=consistent, alone=alone)
    for others in cluster.others.values():
        if (found := others.read(state, now() + observation.clock_skew)) is not None:
            observation = replace(observation, parts=observation.parts.plus(type(found), found))
    if judges_nodes is None or record.demand_stage is DemandStage.OFF:
        return cluster, observation
    open_it = partial(clusters.open_workload, record, _workload_time(remaining, alone=alone), alone=alone)
    return cluster, with_workload(record.id, open_it, cluster, observation, judges_nodes=judges_nodes, alone=alone)


def _workload_time(remaining: Remaining, *, alone: bool) -> Remaining:
    """Return a function for the seconds left to read a workload: at most ``CHECK_SECONDS``, unless ``alone``."""
    of_check = within_check(remaining)

    def left() -> float:
        before_the_rest = remaining() - _KEPT_FOR_THE_REST
        return before_the_rest if alone else min(before_the_rest, of_check())

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
    """Return the observation with all pods, if the record has a workload. Raises TooLargeError as ``observe`` does."""
    if record.workload is None or not lacks_pods(observation):
        return observation
    open_it = partial(clusters.open_workload, record, _workload_time(remaining, alone=alone), alone=alone)
    return with_workload(record.id, open_it, cluster, observation, judges_nodes=True, alone=alone)


def lacks_pods(observation: Observation) -> bool:
    """Return True if some pods were not read, and no attempt to read pods has failed."""
    known = observation.workload is not None and observation.workload.whole
    return not known and not observation.workload_unread


def with_workload(
    name: str,
    open_it: Callable[[], WorkloadCluster],
    cluster: Cluster,
    observation: Observation,
    *,
    judges_nodes: bool,
    alone: bool = True,
) -> Observation:
    """Return the observation with pods and nodes or, if these cannot be read, with the reason in one sentence.

    Raises TooLargeError as ``observe`` does.
    """

    def read() -> Workload:
        return open_it().read(cluster.nodes, judges_nodes=judges_nodes)

    try:
        return replace(observation, workload=contained(name, "its workload was read", read))
    except EvenkeelError as error:
        if isinstance(error, TooLargeError) and not alone:
            raise
        _log.warning("%s: its workload is not read: %s", name, error, extra={"cluster": name})
        rule = Rule.WORKLOAD_TOO_LARGE if isinstance(error, TooLargeError) else Rule.WORKLOAD_UNREAD
        rule = Rule.WORKLOAD_UNJUDGED if isinstance(error, UnexpectedError) else rule
        return replace(observation, workload_unread=Reason.of(rule, error=str(error)))
