"""Reads launches and managed node groups, normally with a number of calls that does not grow with an outage.

The account and Region have one list of activities, newest first, and AWS retries a refused launch within minutes. So a
few pages normally have the newest launches of all groups. What an older launch has shown is stored.

Many activities, also of groups that Evenkeel does not manage, may fill these pages. A group that they do not show may
have failed. So it is read by name: each one by a run, because a write needs more calls, and a few by a check. The other
groups are unknown to this check, and nothing that is stored about them changes.

AWS warns that the list of an account can be slow. If AWS does not answer in time, each group's own list is read, in
threads: one call for each group. After a throttled call and its repeats, no further group is read, because
cluster-autoscaler shares the limit.
"""

import logging
from collections.abc import Callable, Collection, Mapping
from functools import partial
from hashlib import blake2b
from math import ceil
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
# With the three pages of 300 groups, a check of an outage makes at most ten calls.
_MOST_PAGES = 5
_CALLS_OF_A_CHECK = 10
_GROUPS_PER_CALL = 100


def named_reads_of_a_check(groups: int) -> int:
    """Return how many of its groups a check may ask AWS for by name, after all pages. ``groups``: those it has read."""
    return max(1, _CALLS_OF_A_CHECK - _MOST_PAGES - ceil(groups / _GROUPS_PER_CALL))


def read_launches(
    api: AutoScalingApi, names: Collection[str], *, most_named: int | None = None
) -> tuple[dict[str, list[Described]], Collection[str]]:
    """Return the newest activities by group, and the names of the groups whose activities were not read.

    Raises AccessRefusedError if a right is missing.

    Args:
        names: The groups whose launches a plan needs.
        most_named: How many of them are read by name if the account's pages do not show them; None: all of them.
    """
    activities: dict[str, list[Described]] = {name: [] for name in names}
    unread = set(names)
    try:
        if not names or _read_pages(api, activities, unread):
            return activities, ()
    except AccessRefusedError:
        raise
    except ClusterUnavailableError as error:
        _log.warning("activities not read: %s", error, extra={"cluster": api.name})
        if isinstance(error, ThrottledError):
            return activities, unread
        most_named = None
    # Each minute has another order, so that a check that ends early does not leave out the same groups again.
    turns = sorted(unread, key=lambda name: blake2b(f"{api.now():%H:%M} {name}".encode()).digest())[:most_named]
    each = read_in_threads(api.name, turns, lambda name: next(iter(api.activities(name)))[0])
    return {**activities, **{name: [*page] for name, page in each.items()}}, unread.difference(each)


def _read_pages(api: AutoScalingApi, activities: Mapping[str, list[Described]], unread: set[str]) -> bool:
    """Add the account's newest activities, until each group has a launch that has ended.

    Such a group is removed from ``unread``. Return False if further pages may show the launches of the other groups.
    """
    for number, (page, is_last) in enumerate(api.activities(), 1):
        for activity in page:
            name = str(activity.get("AutoScalingGroupName"))
            if name in activities:
                activities[name].append(activity)
                if is_ended_launch(activity):
                    unread.discard(name)
        if is_last or not unread:
            return True
        if number == _MOST_PAGES:
            break
    return False


def read_node_groups(api: AutoScalingApi, keys: Collection[NodeGroupKey]) -> Descriptions:
    """Return the newest answers of EKS about these node groups. A node group that was never read has none.

    Raises AccessRefusedError if a right is missing.
    """
    kept = api.node_groups
    kept.load(api.name, keys, api.now())
    if due := kept.due(api.name, keys, api.now()):
        read_in_threads(api.name, due, lambda key: api.node_group(*key))
        kept.save(api.name, keys)
    return kept.known(api.name, keys)


def read_in_threads(cluster: str, keys: Collection[_K], read: Callable[[_K], _V]) -> Mapping[_K, _V]:
    """Return the answers by key. A key has none if it was not answered, or if AWS throttled the account before.

    Raises AccessRefusedError if a right is missing.
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
