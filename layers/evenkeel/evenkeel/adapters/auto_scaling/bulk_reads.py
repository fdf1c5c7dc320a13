"""Reads launches and managed node groups, normally with a number of calls that does not grow with an outage.

The account and Region have one list of activities, newest first, and AWS retries a refused launch within minutes. So a
few pages have the newest launches of all groups. What an older launch has shown is stored.

AWS warns that the list of an account can be slow. If AWS does not answer in time, each group's own list is read, in
threads: one call for each group. After a throttled call and its repeats, no further group is read, because
cluster-autoscaler shares the limit.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from hashlib import blake2b
from itertools import islice
from threading import Event
from typing import TypeVar

from evenkeel.adapters.auto_scaling.api import AutoScalingApi, ThrottledError
from evenkeel.adapters.auto_scaling.node_groups import Descriptions, NodeGroupKey
from evenkeel.adapters.auto_scaling.read import Described, is_ended_launch
from evenkeel.adapters.thread_pool import run_in_threads
from evenkeel.application.errors import AccessRefusedError, ClusterUnavailableError, ConflictError

_log = logging.getLogger("evenkeel.auto_scaling")
_K = TypeVar("_K")
_V = TypeVar("_V")
# With the three pages of 300 groups, a check of an outage makes eight calls.
_MOST_PAGES = 5


def read_launches(api: AutoScalingApi, names: Collection[str]) -> tuple[dict[str, list[Described]], Collection[str]]:
    """Return the newest activities by group, and the names of the groups whose activities were not read.

    Args:
        api: The API.
        names: The groups whose launches a plan needs.

    Raises:
        AccessRefusedError: A right is missing.
    """
    activities: dict[str, list[Described]] = {name: [] for name in names}
    unread = set(names)
    try:
        for page in islice(api.activities(), _MOST_PAGES) if names else ():
            for activity in page:
                name = str(activity.get("AutoScalingGroupName"))
                if name in activities:
                    activities[name].append(activity)
                    if is_ended_launch(activity):
                        unread.discard(name)
            if not unread:
                break
    except AccessRefusedError:
        raise
    except ClusterUnavailableError as error:
        _log.warning("activities not read: %s", error, extra={"cluster": api.name})
        if isinstance(error, ThrottledError):
            return activities, unread
        # Each minute has another order, so that a check that ends early does not leave out the same groups again.
        turns = sorted(unread, key=lambda name: blake2b(f"{api.now():%H:%M} {name}".encode()).digest())
        each = read_in_threads(api.name, turns, lambda name: [*next(iter(api.activities(name)))])
        return {**activities, **each}, unread.difference(each)
    return activities, ()


def read_node_groups(api: AutoScalingApi, keys: Collection[NodeGroupKey]) -> Descriptions:
    """Return the newest answers of EKS about these node groups. A node group that was never read has none.

    Raises:
        AccessRefusedError: A right is missing.
    """
    kept = api.node_groups
    kept.load(api.name, keys, api.now())
    if due := kept.due(api.name, keys, api.now()):
        read_in_threads(api.name, due, lambda key: api.node_group(*key))
        kept.save(api.name, keys)
    return kept.known(api.name, keys)


def read_in_threads(cluster: str, keys: Collection[_K], read: Callable[[_K], _V]) -> Mapping[_K, _V]:
    """Return the answers by key. A key has none if it was not answered, or if AWS throttled the account before.

    Raises:
        AccessRefusedError: A right is missing.
    """
    answers: dict[_K, _V] = {}
    errors: list[Exception] = []
    is_throttled = Event()

    def read_one(key: _K) -> None:
        if is_throttled.is_set():
            return
        try:
            answers[key] = read(key)
        except AccessRefusedError:
            raise
        except (ClusterUnavailableError, ConflictError) as error:
            if isinstance(error, ThrottledError):
                is_throttled.set()
            errors.append(error)

    run_in_threads([partial(read_one, key) for key in keys])
    if errors:
        _log.warning("%s not read, such as: %s", len(keys) - len(answers), errors[0], extra={"cluster": cluster})
    return answers
