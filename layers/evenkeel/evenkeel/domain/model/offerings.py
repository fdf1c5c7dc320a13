"""Offerings that clusters buy, and the capacity reports about offerings that clusters share.

An *offering* is a machine type of a provider in one zone, on demand or spot. A *capacity report* is one cluster's last
failure to buy an offering. Each report is stored under the API server of its cluster. So a cluster that is registered
twice, or under a new name, has only one report.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Self

from evenkeel.domain.model.values import BadValueError, quote

# The stack's account. It is the account of all clusters whose record names none.
OWN_ACCOUNT = "own"
_PART = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}", re.ASCII)
_PARTS = 5  # the parts of an offering's name; there are six if the zone is written <account>/<zone>


@dataclass(frozen=True, order=True)
class Offering:
    """An offering, by names that mean the same in every cluster. ``zone`` may be ``<account>/<zone>``."""

    provider: str
    region: str
    zone: str
    machine_type: str
    capacity_type: str  # on-demand or spot

    def __post_init__(self) -> None:
        *account, zone = self.zone.split("/", 1)
        for part in (self.provider, self.region, *account, zone, self.machine_type, self.capacity_type):
            if not _PART.fullmatch(part):
                raise BadValueError(f"{quote(part)} is no part of an offering's name")

    def __str__(self) -> str:
        return "/".join((self.provider, self.region, self.zone, self.machine_type, self.capacity_type))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the offering of ``<provider>/<region>/<zone id, or account/zone>/<machine type>/<capacity type>``.

        Raises BadValueError if the text has another form.
        """
        parts = text.split("/")
        if len(parts) not in (_PARTS, _PARTS + 1):
            raise BadValueError("an offering is written <provider>/<region>/<zone>/<machine type>/<capacity type>")
        return cls(parts[0], parts[1], "/".join(parts[2:-2]), parts[-2], parts[-1])


@dataclass(frozen=True, kw_only=True)
class Bought:
    """The machines that a node group buys, as its machine API names them. An empty name is unknown."""

    provider: str
    region: str
    machine_type: str
    capacity_type: str = "on-demand"


# Providers whose zones have the same name in every account.
_SAME_FOR_ALL = frozenset({"gcp"})
# The patterns of regions. A zone's name starts with its region. Examples: us-east-1a, us-west-2-lax-1a, europe-west3-a.
_REGIONS = {
    "aws": re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+", re.ASCII),
    "gcp": re.compile(r"[a-z]+-[a-z]+[0-9]+", re.ASCII),
}


def _region_of(provider: str, zone: str) -> str:
    match = _REGIONS[provider].match(zone) if provider in _REGIONS else None
    return match[0] if match else ""


def has_region(zone: str) -> bool:
    """Return True if the name of a zone contains its region. If not, zones of several regions may have this name."""
    return any(pattern.match(zone) for pattern in _REGIONS.values())


@dataclass(frozen=True, kw_only=True)
class Buyer:
    """The facts that distinguish the zones of one cluster from other clusters' zones with the same name."""

    account: str | None  # the account that buys the machines; None: unknown, or several accounts
    # From the record: name of a zone in the account -> the provider's id of the zone.
    zone_ids: Mapping[str, str] = field(default_factory=dict)
    troubled: frozenset[str] = frozenset()  # the zones with reports about their offerings, from any cluster

    def offering(self, bought: Bought | None, zone: str | None, zone_id: str | None = None) -> Offering | None:
        """Return the offering of these machines in the zone; None: a part of the offering's name is unknown.

        ``zone_id`` is the provider's id of the zone, from a node of the group. An id in the record takes precedence.
        """
        if bought is None or not zone:
            return None
        region = bought.region or _region_of(bought.provider, zone)
        # Azure's zones are numbers. Nodes, and Gardener's groups, name a zone with the region before the number.
        name = zone.removeprefix(f"{region}-") if bought.provider == "azure" else zone
        own = f"{self.account}/{name}" if self.account else None
        place = self.zone_ids.get(zone, zone_id) or (name if bought.provider in _SAME_FOR_ALL else own)
        try:
            return Offering(bought.provider, region, place or "", bought.machine_type, bought.capacity_type)
        except BadValueError:
            return None

    def is_concerned(self, zone: str | None) -> bool:
        """Return True if a report may concern the zone. Only the zone's name is compared."""
        if not self.troubled or not zone:
            return False
        names = (self.zone_ids.get(zone, zone), zone, f"{self.account}/{zone}")
        return not self.troubled.isdisjoint((*names, f"{self.account}/{zone.rpartition('-')[2]}"))


@dataclass(frozen=True, kw_only=True)
class CapacityReport:
    """One cluster's last failure to buy an offering. If ``cluster`` is empty, the cluster reports anonymously."""

    failed_at: datetime
    until: datetime  # the end of that cluster's own backoff
    cluster: str = ""


@dataclass(frozen=True, kw_only=True)
class OfferingState:
    """The reports about an offering, by API server.

    ``delivered_at`` is the last time at which a machine that was ordered after a report became a node.
    """

    reports: Mapping[str, CapacityReport] = field(default_factory=dict)
    delivered_at: datetime | None = None


@dataclass(frozen=True, kw_only=True)
class Experience:
    """The findings of one check about an offering: the cluster's last failure to buy it, and its last new machine."""

    report: CapacityReport | None = None
    delivered_at: datetime | None = None
