"""A cluster is not looked at any more, and its record is gone."""

from collections.abc import Sequence
from datetime import timedelta
from math import ceil
from typing import Annotated

from pydantic import Field

from evenkeel.application.actions.call import Answer, Call, Fields, Flag
from evenkeel.application.errors import BadRequestError, StateConflictError, UnknownClusterError
from evenkeel.application.fleet.records import digest_of
from evenkeel.application.incidents.notify import UNREGISTERED
from evenkeel.application.ports import StoredCluster
from evenkeel.domain.rebalancing.replicas.release import RELEASE_KEPT
from evenkeel.record import ClusterRecord
from evenkeel.validation import ConfigError

# Longer than it takes; should it be cut off, no run waits for longer.
_LEASE = timedelta(seconds=15)


class UnregisterFields(Fields):
    """What stands in the cluster is not looked at."""

    force: Annotated[Flag, Field(description="Also while bounds of ours stand, which nobody then puts back.")] = False
    before: Annotated[
        dict[str, str | None], Field(description="Digests of what was shown, by id.", default_factory=dict)
    ]


def unregister_touches(call: Call, _fields: UnregisterFields) -> Answer | None:
    found = call.store.registered(call.cluster)
    quote = {"before": digest_of(found.record if found else None)}
    try:
        pools = _pools_with_our_bounds(call.load())
    except UnknownClusterError:
        if not _was_registered(call):
            raise
        return None
    except ConfigError:
        return {**quote, "message": f"{call.cluster}: its record cannot be read"}
    held = f": bounds of ours stand in pool {', '.join(pools)}" if pools else ""
    return {**quote, "message": f"{call.cluster}{held}"}


def unregister(call: Call, fields: UnregisterFields) -> Answer:
    """No run is under way meanwhile, so that none leaves bounds behind that were not there when this was decided."""
    try:
        remembered = call.load()
    except UnknownClusterError:
        if call.store.cluster_health(call.cluster)[0].is_empty:
            if not _was_registered(call):
                raise
            return {"done": False, "message": f"{call.cluster} is not registered any more"}
        call.request_look(UNREGISTERED)
        return {"done": False, "message": f"{call.cluster} is not registered; its trouble is told to have ended"}
    except ConfigError as error:
        return _unregister_unread(call, fields, error)
    _refuse_changed(call, fields, remembered.record)
    pools = _pools_with_our_bounds(remembered)
    if pools and not fields.force:
        raise BadRequestError(
            f"{call.cluster} is not unregistered: bounds of ours stand in pool {', '.join(pools)}: "
            "restore it first, or leave them for good with force"
        )
    _refuse_closed(call, remembered)
    _ask_for_its_end(call)
    now = call.clock.now()  # a queue may have answered late, and the lease is short
    owner = f"unregister-{now.timestamp()}"
    lease = call.store.take_lease(call.cluster, owner, remembered.fencing_token, now, now + _LEASE)
    try:
        call.store.remove_record(call.cluster, remembered.versions)
    finally:
        call.store.give_back_lease(call.cluster, lease, call.clock.now())
    call.request_look(UNREGISTERED)
    left = f"; bounds of ours stay in pool {', '.join(pools)}" if pools else ""
    if closed := sorted(remembered.closed_pools):
        left += f"; pool {', '.join(closed)} stays closed to cluster-autoscaler: raise its max by hand"
    if (place := remembered.record.status_configmap) is not None:  # who answers here may write to no cluster
        namespace, _, name = place.partition("/")
        left += f"; its status stays: kubectl delete configmap --namespace {namespace} {name}"
    return {"message": f"{call.cluster} is not registered any more: nothing is read from it or written to it{left}"}


def _unregister_unread(call: Call, fields: UnregisterFields, error: ConfigError) -> Answer:
    """Nobody runs on a record that cannot be read, and nobody knows what stands."""
    if not fields.force:
        raise BadRequestError(
            f"{call.cluster} is not unregistered: whether bounds of ours stand cannot be known: {error}: "
            "mend its record, or unregister with force"
        )
    found = call.store.registered(call.cluster)
    if found is not None:
        _refuse_changed(call, fields, found.record)
        _ask_for_its_end(call)
        call.store.remove_record(call.cluster, found.versions)
    call.request_look(UNREGISTERED)
    return {"message": f"{call.cluster} is not registered any more; what stands there is not known"}


def _was_registered(call: Call) -> bool:
    """Return whether anything is recorded of a cluster that has no record: then the request is a repeat."""
    return bool(call.store.decisions(call.cluster, 1))


def _refuse_changed(call: Call, fields: UnregisterFields, record: ClusterRecord | str) -> None:
    if call.cluster in fields.before and fields.before[call.cluster] != digest_of(record):
        raise StateConflictError(f"{call.cluster} is not as it was shown")


def _refuse_closed(call: Call, remembered: StoredCluster) -> None:
    """Raise BadRequestError for a cluster with a pool that the next run opens. One that no run can open may go."""
    closed = [name for name, at in remembered.closed_pools.items() if call.now < at + RELEASE_KEPT]
    if closed:
        raise BadRequestError(
            f"{call.cluster} is not unregistered: pool {', '.join(sorted(closed))} is closed to cluster-autoscaler, "
            "which could order nothing there any more: pause it first, and it is opened within a minute"
        )


def _ask_for_its_end(call: Call) -> None:
    """A run of a cluster without a record tells that its trouble has ended; nothing else would ever ask for one.

    So one is asked for before the record goes, for when this invocation is over, however it ends. Where the record is
    still there then, it is a run like any other.
    """
    call.queue.look_again(call.cluster, UNREGISTERED, ceil(call.of_invocation()) + 1)


def _pools_with_our_bounds(remembered: StoredCluster) -> Sequence[str]:
    """A pool's adopted bounds are remembered from before the first write until they are put back."""
    return sorted(id.name for id, state in remembered.state.pools.items() if state.adopted)
