"""Put back the bounds from before Evenkeel, take its annotations off, and pause: the cluster, or one pool of it."""

from evenkeel.application.actions.call import Answer, Call, Fields, PoolName
from evenkeel.application.rebalancing.preview import check_pool


class RestoreFields(Fields):
    """Without a pool: the whole cluster."""

    pool: PoolName = None


def restore(call: Call, fields: RestoreFields) -> Answer:
    remembered, pool = call.load(), fields.pool
    if pool is None:
        call.change_control(remembered, {"restoring": True, "restored": False, "paused": False, "paused_until": None})
        scope, end = "every group", "the cluster is paused"
    else:
        check_pool(call.clusters, remembered, pool, call.now, call.remaining)
        restoring_pools = tuple(dict.fromkeys((*remembered.control.restoring_pools, pool)))
        call.change_control(remembered, {"restoring_pools": restoring_pools})
        scope, end = f"every group of pool {pool}", "the pool is paused for good"
    call.request_look("restore")
    waits = pool is not None and remembered.control.is_paused(call.now)
    return {
        "message": f"{call.cluster}: {scope} gets its bounds from before Evenkeel back and loses its annotations; "
        f"then {end}. Ask for its status to see it done; asking twice does no harm"
        + (". The cluster is paused: that happens once it is resumed" if waits else "")
    }
