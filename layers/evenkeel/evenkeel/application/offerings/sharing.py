"""What clusters tell one another of what they buy: heard with every look, said when it changes what anybody does.

Best effort, and not lost: what could not be written is worked out again by the next look, from the groups' own states,
for as long as it matters. Nothing here comes from an event; an event may only make a group's failure known sooner.
"""

import hashlib
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any, Self

from evenkeel.access_config import EksAccess
from evenkeel.application.errors import StateConflictError, StateUnavailableError
from evenkeel.application.offerings.ports import OfferingStore
from evenkeel.application.ports import Offerings, SharedOffering, StoredCluster
from evenkeel.domain.model.offerings import Buyer, CapacityReport, Experience, Offering, OfferingState, has_region
from evenkeel.domain.model.plans import Plan
from evenkeel.domain.offerings.reports import changes
from evenkeel.record import ClusterRecord

_log = logging.getLogger("evenkeel.rebalance")

# Each conflict means that somebody else has said something; after a few of them nothing is left to say.
_TRIES = 4
# What an account is called where neither the record nor its events name one: all such clusters share the stack's own.
OWN_ACCOUNT = "own"


def read_offerings(store: OfferingStore) -> Offerings | None:
    """What all clusters say, in one query; None where it cannot be known: nobody waits for that."""
    try:
        return store.offerings()
    except StateUnavailableError as error:
        _log.warning("offerings not read: %s", error)
        return None


def with_reports(remembered: StoredCluster, offerings: Offerings | None) -> StoredCluster:
    """What is remembered of a cluster, with what others say of what it may buy; nothing, where it takes no part."""
    if not remembered.record.shares_offerings:
        offerings = {}
    others = None if offerings is None else _of_others(remembered.record, offerings)
    return replace(remembered, state=replace(remembered.state, offerings=others), offerings=offerings or {})


def _of_others(record: ClusterRecord, offerings: Offerings) -> Mapping[Offering, OfferingState]:
    """Of every offering that any word stands about, the cluster's own included, what others say."""
    if not offerings:
        return {}
    server = voice_of(record)
    return {
        offering: replace(state, words={voice: word for voice, word in state.words.items() if voice != server})
        for offering, state in ((offering, shared.state) for offering, shared in offerings.items())
        if state.words
    }


def voice_of(record: ClusterRecord) -> str:
    """The API server behind a record, as words name it: the same whatever the record is called."""
    return hashlib.sha256(record.access.model_dump_json().encode()).hexdigest()[:16]


def buyer_of(record: ClusterRecord, offerings: Mapping[Offering, Any] | None) -> Buyer | None:
    """What tells its zones apart from others' of the same name, and where there is trouble; None: it takes no part."""
    if not record.shares_offerings:
        return None
    return Buyer(
        account=_buying_account(record),
        zone_ids={name: id for id, name in record.zone_ids.items()},
        troubled=frozenset(offering.zone for offering in offerings or {}),
    )


def _buying_account(record: ClusterRecord) -> str | None:
    """None: of several nobody says which one buys; then only zones with an id are known to others."""
    accounts = (record.account,) if record.account else record.event_accounts or (OWN_ACCOUNT,)
    return accounts[0] if len(accounts) == 1 else None


@dataclass(frozen=True)
class Places:
    """What tells zones of several clusters from others of the same name, as far as their records say."""

    _ids: Mapping[tuple[str, str], frozenset[str]]  # by account and its name of a zone

    @classmethod
    def of(cls, records: Iterable[ClusterRecord]) -> Self:
        found: dict[tuple[str, str], set[str]] = {}
        for record in records:
            if account := cls._account(record):
                for id, zone in record.zone_ids.items():
                    found.setdefault((account, zone), set()).add(id)
        return cls({key: frozenset(ids) for key, ids in found.items()})

    def place(self, record: ClusterRecord, zone: str) -> str | None:
        """The provider's id of a zone, else the account and its name of it; None: neither can be known."""
        own = next((id for id, name in record.zone_ids.items() if name == zone), None)
        account = self._account(record)
        if own is not None or account is None:
            return own
        ids = self._ids.get((account, zone), frozenset())
        if ids:  # another record of that account says; where two say otherwise, nobody knows
            return next(iter(ids)) if len(ids) == 1 else None
        return f"{account}/{zone}" if has_region(zone) else None

    @staticmethod
    def _account(record: ClusterRecord) -> str | None:
        account = _buying_account(record)
        is_of_a_role = isinstance(record.access, EksAccess) and record.access.role_arn is not None
        return None if account == OWN_ACCOUNT and is_of_a_role else account  # the role's account may be another


def is_affected(record: ClusterRecord, offerings: Mapping[Offering, Any] | None, zones: Iterable[str]) -> bool:
    """Whether anything that is said, or nobody knows what, may be about what a cluster buys in these zones."""
    buyer = buyer_of(record, offerings)
    return buyer is not None and (offerings is None or any(buyer.is_concerned(zone) for zone in zones))


def unsaid(remembered: StoredCluster, plan: Plan) -> Mapping[Offering, OfferingState]:
    """What this look has to tell other clusters: the states of offerings with it, where it changes anything."""
    record = remembered.record
    if not plan.experiences or not record.shares_offerings or remembered.state.offerings is None:
        return {}
    nothing = SharedOffering(state=OfferingState(), version=None)
    said = {
        offering: _with(remembered.offerings.get(offering, nothing), record, experience, plan.now)
        for offering, experience in plan.experiences.items()
    }
    return {offering: state for offering, state in said.items() if state is not None}


def _with(shared: SharedOffering, record: ClusterRecord, experience: Experience, now: datetime) -> OfferingState | None:
    word: CapacityReport | None = experience.word
    if word is not None and record.share_offerings != "anonymous":
        word = replace(word, cluster=record.id)
    # By everybody's durations, not by this cluster's own: what counts must count for all alike.
    return changes(shared.state, voice_of(record), replace(experience, word=word), now)


def publish_reports(store: OfferingStore, remembered: StoredCluster, plan: Plan) -> int:
    """Tell other clusters what is unsaid. How many offerings were written. Never raises: the next look tries again."""
    written = 0
    for offering in unsaid(remembered, plan):
        try:
            written += _say(store, remembered, plan, offering)
        except StateUnavailableError as error:
            _log.warning("not told to other clusters: %s", error, extra={"cluster": remembered.record.id})
            break
    return written


def _say(store: OfferingStore, remembered: StoredCluster, plan: Plan, offering: Offering) -> bool:
    for _ in range(_TRIES):
        shared = store.offering(offering)  # what was read with the look may be a second old, or a minute
        state = _with(shared, remembered.record, plan.experiences[offering], plan.now)
        if state is None:
            return False
        try:
            store.save_offering(offering, state, shared.version)
        except StateConflictError:
            continue
        _log.info("told other clusters of %s", offering, extra={"cluster": remembered.record.id})
        return True
    return False
