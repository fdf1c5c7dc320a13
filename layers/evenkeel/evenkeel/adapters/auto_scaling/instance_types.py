"""Keeps EC2's descriptions of instance types for a day, because a type does not change."""

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta

from evenkeel.adapters.auto_scaling.templates import Described
from evenkeel.adapters.lru import LruCache

_MOST = 3_000  # the largest number of cached types of all clusters, each of less than 1 KB
_DAY = timedelta(days=1)
# After an error, such as a right that is missing, EC2 is not asked again for this time.
_ASKED_AGAIN = timedelta(hours=1)
_USED = ("InstanceType", "VCpuInfo", "MemoryInfo", "GpuInfo", "ProcessorInfo")


class InstanceTypes:
    """The answers about the instance types of all clusters, for many threads. A type unknown to EC2 has no fields."""

    def __init__(self) -> None:
        self._kept: LruCache[tuple[str, str], tuple[Described, datetime]] = LruCache(_MOST)
        self._failed: LruCache[str, datetime] = LruCache(_MOST)

    def known(self, cluster: str, names: Collection[str], now: datetime) -> Mapping[str, Described]:
        """Return the answers that are younger than a day."""
        kept = {name: self._kept.get((cluster, name)) for name in names}
        return {name: answer[0] for name, answer in kept.items() if answer is not None and now - answer[1] < _DAY}

    def keep(self, cluster: str, names: Collection[str], answer: Collection[Described], now: datetime) -> None:
        """Keep EC2's answer about these types."""
        found = {str(each.get("InstanceType")): each for each in answer}
        for name in names:
            used = {field: value for field, value in found.get(name, {}).items() if field in _USED}
            self._kept.put((cluster, name), (used, now))

    def fail(self, cluster: str, now: datetime) -> None:
        """Note that EC2 has not answered."""
        self._failed.put(cluster, now)

    def may_ask(self, cluster: str, now: datetime) -> bool:
        """Return False for a while after an error."""
        failed = self._failed.get(cluster)
        return failed is None or now - failed >= _ASKED_AGAIN
