"""The ids of zones, from the records of all clusters. By its id, one zone has the same name in every cluster."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Self

from evenkeel.access_config import AwsAccess
from evenkeel.domain.incidents.causes import OWN_ACCOUNT
from evenkeel.record import ClusterRecord

# The beginnings of zone names that contain their region: of AWS, such as us-east-1a and us-west-2-lax-1a, and of Google
# Cloud, such as europe-west3-a.
_REGIONS = (re.compile(r"[a-z]+(-[a-z]+)+-[0-9]+", re.ASCII), re.compile(r"[a-z]+-[a-z]+[0-9]+", re.ASCII))


@dataclass(frozen=True)
class ZoneIds:
    """The zone ids from the records of several clusters."""

    _ids: Mapping[tuple[str, str], frozenset[str]]  # by account, and the zone's name in this account

    @classmethod
    def of(cls, records: Iterable[ClusterRecord]) -> Self:
        """Return the zone ids from the records, by account and zone name."""
        ids_by_name: dict[tuple[str, str], set[str]] = {}
        for record in records:
            if account := _account(record):
                for id, zone in record.zone_ids.items():
                    ids_by_name.setdefault((account, zone), set()).add(id)
        return cls({key: frozenset(ids) for key, ids in ids_by_name.items()})

    def place(self, record: ClusterRecord, zone: str) -> str | None:
        """Return a zone's id, or ``account/name`` if the id is unknown; None if the zone cannot be identified."""
        own = next((id for id, name in record.zone_ids.items() if name == zone), None)
        account = _account(record)
        if own is not None or account is None:
            return own
        ids = self._ids.get((account, zone), frozenset())
        if ids:  # ids from other records of the account; they are not used if they differ
            return next(iter(ids)) if len(ids) == 1 else None
        return f"{account}/{zone}" if _has_region(zone) else None


def _account(record: ClusterRecord) -> str | None:
    """Return the account that buys the machines. None: unknown, or several, so only zones with an id are known."""
    accounts = (record.account,) if record.account else record.event_accounts or (OWN_ACCOUNT,)
    account = accounts[0] if len(accounts) == 1 else None
    is_of_a_role = isinstance(record.access, AwsAccess) and record.access.role_arn is not None
    return None if account == OWN_ACCOUNT and is_of_a_role else account  # the role may belong to another account


def _has_region(zone: str) -> bool:
    """Return True if the name of a zone contains its region. If not, zones of several regions may have this name."""
    return any(pattern.match(zone) for pattern in _REGIONS)
