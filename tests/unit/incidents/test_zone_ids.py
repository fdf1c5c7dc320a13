"""The ids of zones that clusters share, from the records of all clusters."""

import pytest

from evenkeel.application.actions.zone_ids import ZoneIds
from tests.fakes import record

ROLE = "arn:aws:iam::123456789012:role/evenkeel"
ZONE = "eu-central-1a"


@pytest.mark.parametrize(
    ("fields", "zone", "place"),
    [
        ({}, ZONE, f"own/{ZONE}"),
        ({"zone_ids": {"euc1-az2": ZONE}}, ZONE, "euc1-az2"),
        ({"account": "123456789012"}, ZONE, f"123456789012/{ZONE}"),
        ({"event_accounts": ["1" * 12]}, ZONE, f"{'1' * 12}/{ZONE}"),
        ({"event_accounts": ["1" * 12, "2" * 12]}, ZONE, None),
        ({}, "us-west-2-lax-1a", "own/us-west-2-lax-1a"),
        ({}, "europe-west3-a", "own/europe-west3-a"),
        ({}, "1", None),
    ],
)
def test_a_zone_has_an_id_or_its_name_in_the_account_that_buys_its_machines(
    fields: dict[str, object], zone: str, place: str | None
) -> None:
    assert ZoneIds.of([]).place(record(**fields), zone) == place


@pytest.mark.parametrize(("access", "place"), [({}, "own/eu-central-1a"), ({"role_arn": ROLE}, None)])
def test_the_zones_of_a_role_have_no_known_account(access: dict[str, str], place: str | None) -> None:
    eks = record("blue", access={"kind": "eks", "name": "blue", "region": "eu-central-1", **access})
    assert ZoneIds.of([]).place(eks, "eu-central-1a") == place


@pytest.mark.parametrize(
    ("others", "place"), [([], f"own/{ZONE}"), (["euc1-az2"] * 2, "euc1-az2"), (["euc1-az2", "euc1-az3"], None)]
)
def test_a_zone_has_the_id_on_which_all_records_of_the_account_agree(others: list[str], place: str | None) -> None:
    records = [record(f"other-{i}", zone_ids={id: ZONE}) for i, id in enumerate(others)]
    assert ZoneIds.of(records).place(record(), ZONE) == place
