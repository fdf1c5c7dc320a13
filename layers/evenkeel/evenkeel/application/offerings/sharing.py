"""Share capacity reports. Every check reads other clusters' reports, and publishes its cluster's reports.

A report is published only if it affects other clusters. Publishing is best effort. The next check derives a lost report
again from the stored states of the groups. An event creates no report, but lets Evenkeel detect a failure sooner.
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from evenkeel.access_config import AwsAccess
from evenkeel.application.errors import StateConflictError, StateUnavailableError
from evenkeel.application.offerings.ports import OfferingStore
from evenkeel.application.ports import Offerings, SharedOffering, StoredCluster
from evenkeel.domain.model.offerings import (
    OWN_ACCOUNT,
    Buyer,
    CapacityReport,
    Experience,
    Offering,
    OfferingState,
    has_region,
)
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.offerings.reports import changes
from evenkeel.record import ClusterRecord

_log = logging.getLogger("evenkeel.rebalance")

# The most attempts to publish a report. A conflict means that another cluster has published a report, and a few reports
# are enough.
_TRIES = 4


def read_offerings(store: OfferingStore) -> Offerings | None:
    """Return the reports of all clusters, from one query; None if it fails, because checks work without reports."""
    try:
        return store.offerings()
    except StateUnavailableError as error:
        _log.warning("offerings not read: %s", error)
        return None


def with_reports(stored: StoredCluster, offerings: Offerings | None) -> StoredCluster:
    """Return the stored cluster with other clusters' reports, or without reports if its record shares no offerings."""
    if not stored.record.shares_offerings:
        offerings = {}
    others = None if offerings is None else _of_others(stored.record, offerings)
    return replace(stored, state=replace(stored.state, offerings=others), offerings=offerings or {})


def _of_others(record: ClusterRecord, offerings: Offerings) -> Mapping[Offering, OfferingState]:
    """Return the offerings that have reports, without this cluster's own reports."""
    if not offerings:
        return {}
    server = server_of(record)
    return {
        offering: replace(state, reports={voice: report for voice, report in state.reports.items() if voice != server})
        for offering, state in ((offering, shared.state) for offering, shared in offerings.items())
        if state.reports
    }


def server_of(record: ClusterRecord) -> str:
    """Return an id for the API server of a record. It depends on the record's access, not on the cluster's id."""
    return hashlib.sha256(record.access.model_dump_json().encode()).hexdigest()[:16]


def buyer_of(record: ClusterRecord, offerings: Mapping[Offering, Any] | None) -> Buyer | None:
    """Return the facts that identify the cluster's zones; None if its record shares no offerings."""
    if not record.shares_offerings:
        return None
    return Buyer(
        account=_buying_account(record),
        zone_ids={name: id for id, name in record.zone_ids.items()},
        troubled=frozenset(offering.zone for offering in offerings or {}),
    )


def _buying_account(record: ClusterRecord) -> str | None:
    """Return the account that buys the machines. None: there are several, so only zones with a zone id are shared."""
    accounts = (record.account,) if record.account else record.event_accounts or (OWN_ACCOUNT,)
    return accounts[0] if len(accounts) == 1 else None


@dataclass(frozen=True)
class ZoneIds:
    """The zone ids from the records of several clusters."""

    _ids: Mapping[tuple[str, str], frozenset[str]]  # by account, and the zone's name in this account

    @classmethod
    def of(cls, records: Iterable[ClusterRecord]) -> Self:
        """Return the zone ids from the records, by account and zone name."""
        ids_by_name: dict[tuple[str, str], set[str]] = {}
        for record in records:
            if account := cls._account(record):
                for id, zone in record.zone_ids.items():
                    ids_by_name.setdefault((account, zone), set()).add(id)
        return cls({key: frozenset(ids) for key, ids in ids_by_name.items()})

    def place(self, record: ClusterRecord, zone: str) -> str | None:
        """Return a zone's id, or ``account/name`` if the id is unknown; None if the zone cannot be identified."""
        own = next((id for id, name in record.zone_ids.items() if name == zone), None)
        account = self._account(record)
        if own is not None or account is None:
            return own
        ids = self._ids.get((account, zone), frozenset())
        if ids:  # ids from other records of the account; they are not used if they differ
            return next(iter(ids)) if len(ids) == 1 else None
        return f"{account}/{zone}" if has_region(zone) else None

    @staticmethod
    def _account(record: ClusterRecord) -> str | None:
        account = _buying_account(record)
        is_of_a_role = isinstance(record.access, AwsAccess) and record.access.role_arn is not None
        return None if account == OWN_ACCOUNT and is_of_a_role else account  # the role may belong to another account


def is_affected(record: ClusterRecord, offerings: Mapping[Offering, Any] | None, zones: Iterable[str]) -> bool:
    """Return True if a report may affect the cluster in these zones, or if reports were not read."""
    buyer = buyer_of(record, offerings)
    return buyer is not None and (offerings is None or any(buyer.is_concerned(zone) for zone in zones))


def _with(shared: SharedOffering, record: ClusterRecord, experience: Experience, now: datetime) -> OfferingState | None:
    report: CapacityReport | None = experience.report
    if report is not None and record.share_offerings != "anonymous":
        report = replace(report, cluster=record.id)
    # ``changes`` uses the default backoff instead of this cluster's, so that a report affects all clusters alike.
    return changes(shared.state, server_of(record), replace(experience, report=report), now)


def publish_reports(store: OfferingStore, stored: StoredCluster, plan: Plan) -> None:
    """Publish the experiences of this check that affect other clusters. The next check retries failed writes."""
    record, nothing = stored.record, SharedOffering(state=OfferingState(), version=None)
    if not record.shares_offerings or stored.state.offerings is None:
        return
    for offering, experience in plan.experiences.items():
        if _with(stored.offerings.get(offering, nothing), record, experience, plan.now) is None:
            continue
        try:
            _publish(store, record, offering, experience, plan.now)
        except StateUnavailableError as error:
            _log.warning("report not published: %s", error, extra={"cluster": record.id})
            return


def _publish(
    store: OfferingStore, record: ClusterRecord, offering: Offering, experience: Experience, now: datetime
) -> None:
    for _ in range(_TRIES):
        shared = store.offering(offering)  # read again, because the check's copy may be a minute old
        state = _with(shared, record, experience, now)
        if state is None:
            return
        try:
            store.save_offering(offering, state, shared.version)
        except StateConflictError:
            continue
        _log.info("published a report about %s", offering, extra={"cluster": record.id})
        return
