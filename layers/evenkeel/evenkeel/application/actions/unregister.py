"""``unregister``: delete a cluster's record."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from datetime import timedelta
from math import ceil
from typing import Annotated

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Digests, Fields, Flag, Right, action
from evenkeel.application.errors import BadRequestError, StateConflictError, UnknownClusterError
from evenkeel.application.fleet.records import digest_of
from evenkeel.application.incidents.notify import UNREGISTERED
from evenkeel.application.ports import StoredCluster
from evenkeel.domain.model.groups import GroupKey
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rebalancing.replicas.release import RELEASE_KEPT
from evenkeel.record import ClusterRecord
from evenkeel.validation import ConfigError

# The length of the lease, which is longer than the deletion takes. If the invocation is killed, runs wait for the lease
# at most this long.
_LEASE = timedelta(seconds=15)


class UnregisterFields(Fields):
    """The fields of ``unregister``, which does not read the cluster itself."""

    force: Annotated[
        Flag, Field(description="Also while Evenkeel's bounds are still set. Nothing restores them afterwards.")
    ] = False
    before: Digests


def _unregister_touches(call: Call, _fields: UnregisterFields) -> Answer | None:
    registered = call.ports.store.registered(call.cluster)
    before = {"before": digest_of(registered.record if registered else None)}
    try:
        stored = call.load()
    except UnknownClusterError:
        if not _was_registered(call):
            raise
        return None
    except ConfigError:
        return {**before, "message": f"{call.cluster}: its record cannot be read"}
    pools = _pools_with_our_bounds(stored)
    unfinished = f"; the write of {_names(stored.unfinished)} has not ended" if stored.unfinished else ""
    held = f": Evenkeel's bounds are still set in pool {', '.join(pools)}" if pools else ""
    return {**before, "message": f"{call.cluster}{held}{unfinished}"}


@action(UnregisterFields, Right.ADMINISTER, touches=_unregister_touches)
def unregister(call: Call, fields: UnregisterFields) -> Answer:
    """Delete a cluster's record; refused while Evenkeel's bounds are set in the cluster.

    The action deletes the record under the lease, so that no run writes bounds after the action has found no bounds.
    """
    try:
        stored = call.load()
    except UnknownClusterError:
        if call.ports.store.cluster_health(call.cluster)[0].is_empty:
            if not _was_registered(call):
                raise
            return {"done": False, "message": f"{call.cluster} is not registered any more"}
        call.request_run(UNREGISTERED)
        return {"done": False, "message": f"{call.cluster} is not registered: Evenkeel closes its incidents now"}
    except ConfigError as error:
        return _unregister_unread(call, fields, error)
    _refuse_changed(call, fields, stored.record)
    if not fields.force:
        _refuse_unfinished(call, stored)
    pools = _pools_with_our_bounds(stored)
    if pools and not fields.force:
        raise BadRequestError(
            f"{call.cluster} is not unregistered: Evenkeel's bounds are still set in pool {', '.join(pools)}: "
            "restore it first, or leave them for good with force"
        )
    _refuse_closed(call, stored)
    _request_run_afterwards(call)
    now = call.ports.clock.now()  # a new time, because the queue may have answered late, and the lease is short
    owner = f"unregister-{now.timestamp()}"
    lease = call.ports.store.take_lease(call.cluster, owner, stored.fencing_token, now, now + _LEASE, stored.unfinished)
    try:
        call.ports.store.remove_record(call.cluster, stored.versions)
    finally:
        call.ports.store.give_back_lease(call.cluster, lease, call.ports.clock.now(), stored.unfinished)
    call.request_run(UNREGISTERED)
    left = f"; bounds of ours stay in pool {', '.join(pools)}" if pools else ""
    if closed := sorted(stored.state.closed_pools):
        left += f"; pool {', '.join(closed)} stays closed to cluster-autoscaler: raise its max by hand"
    drained = stored.state.marked_instances if stored.record.workload is not None else []
    if drained:
        left += f"; the nodes of {', '.join(drained)} stay cordoned: uncordon them by hand"
    left += _left_suspended(stored.unfinished)
    if (place := stored.record.status_configmap) is not None:  # this function has no right to write to clusters
        namespace, _, name = place.partition("/")
        left += f"; its status stays: kubectl delete configmap --namespace {namespace} {name}"
    return {"message": f"{call.cluster} is not registered any more: nothing is read from it or written to it{left}"}


def _unregister_unread(call: Call, fields: UnregisterFields, error: ConfigError) -> Answer:
    """Delete a record that cannot be read. No run can use the record. Evenkeel's bounds may still be set."""
    registered, left = call.ports.store.registered(call.cluster), ""
    if not fields.force:
        raise BadRequestError(
            f"{call.cluster} is not unregistered: it is unknown if Evenkeel's bounds are still set: {error}: "
            "fix its record, or unregister with force"
        )
    with suppress(ConfigError, BadValueError):  # the item may be the one that cannot be read
        left = _left_suspended(call.ports.store.unfinished(call.cluster))
    if registered is not None:
        _refuse_changed(call, fields, registered.record)
        _request_run_afterwards(call)
        call.ports.store.remove_record(call.cluster, registered.versions)
    call.request_run(UNREGISTERED)
    text = f"{call.cluster} is unregistered; the state of its objects is unknown"
    return {"message": text + left}


def _refuse_unfinished(call: Call, stored: StoredCluster) -> None:
    """Raise BadRequestError if a killed run may have left a process of a group suspended."""
    if stored.unfinished:
        raise BadRequestError(
            f"{call.cluster} is not unregistered: a run was killed while it wrote {_names(stored.unfinished)}, so "
            "process Terminate may be suspended there: try again in two minutes, by when the next run has resumed it, "
            "or use force"
        )


def _names(unfinished: Sequence[str]) -> str:
    """Return the names of the groups whose writes have not ended."""
    return ", ".join(GroupKey.read(key).name for key in unfinished)


def _left_suspended(unfinished: Sequence[str]) -> str:
    """Return what ends these writes. Only writes to Auto Scaling groups have several requests."""
    if not unfinished:
        return ""
    command = "aws autoscaling resume-processes --scaling-processes Terminate"
    commands = "; ".join(
        f"{command} --region {key.namespace} --auto-scaling-group-name {shlex.quote(key.name)}"
        for key in map(GroupKey.read, unfinished)
    )
    return f"; process Terminate may stay suspended in {_names(unfinished)}: {commands}"


def _was_registered(call: Call) -> bool:
    """Return True if the cluster has stored decisions, which means that an earlier event has unregistered it."""
    return bool(call.ports.store.decisions(call.cluster, 1))


def _refuse_changed(call: Call, fields: UnregisterFields, record: ClusterRecord | str) -> None:
    if call.cluster in fields.before and fields.before[call.cluster] != digest_of(record):
        raise StateConflictError(f"{call.cluster} is not as it was shown")


def _refuse_closed(call: Call, stored: StoredCluster) -> None:
    """Raise BadRequestError if Evenkeel's bounds keep cluster-autoscaler from ordering nodes in a pool."""
    closed = [name for name, at in stored.state.closed_pools.items() if call.now < at + RELEASE_KEPT]
    if closed:
        raise BadRequestError(
            f"{call.cluster} is not unregistered: pool {', '.join(sorted(closed))} is closed to cluster-autoscaler, "
            "which could order nothing there any more: pause it first, and it is opened within a minute"
        )


def _request_run_afterwards(call: Call) -> None:
    """Request a run that starts after this invocation has ended. If the run finds no record, it closes incidents.

    The run is requested before the record is deleted, because this invocation may be killed. If the run still finds
    the record, it is an ordinary run.
    """
    call.ports.queue.check_again(call.cluster, UNREGISTERED, ceil(call.of_invocation()) + 1)


def _pools_with_our_bounds(stored: StoredCluster) -> Sequence[str]:
    """Return the pools with adopted bounds. They are stored before the first write, and deleted by the restore."""
    return sorted(id.name for id, state in stored.state.pools.items() if state.adopted)
