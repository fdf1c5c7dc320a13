"""The file of any record is equal to the record, and a diff is empty exactly if nothing differs."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from evenkeel.adapters.documents import read_document
from evenkeel.application.fleet.records import changes, digest_of, fleet_schema, read_fleet, record_json, record_schema
from evenkeel.record import ClusterRecord
from evenkeel_cli.fleet import fleet_yaml

_NAMES = st.from_regex(r"[a-z0-9]([-a-z0-9.]{0,8}[a-z0-9])?", fullmatch=True)
# Texts that YAML could read as another type.
_TEXTS = st.one_of(
    st.sampled_from(
        ["off", "no", "null", "~", "1e3", "0x1f", "2026-01-31", "'", '"', ": ", "# x", "- a", "é\u2028", ""]
    ),
    st.text(max_size=12),
)
_LABELS = st.dictionaries(
    st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?", fullmatch=True),
    st.from_regex(r"([A-Za-z0-9]([-A-Za-z0-9_.]{0,8}[A-Za-z0-9])?)?", fullmatch=True),
    max_size=3,
)
_ACCESS = st.one_of(
    st.builds(lambda name: {"kind": "eks", "name": name.replace(".", "-"), "region": "eu-central-1"}, _NAMES),
    st.builds(
        lambda secret, context: {"kind": "kubeconfig", "secret": secret or "s", "context": context}, _TEXTS, _TEXTS
    ),
)
_STRATEGY = st.sampled_from(["Balanced", "Lax-Greedy", "Adaptive", "Backward-Compatible"])
_POOL = st.fixed_dictionaries(
    {"name": _TEXTS.map(lambda text: text or "p")},
    optional={
        "namespace": _NAMES,
        "selector": st.dictionaries(_TEXTS, _TEXTS, max_size=2),
        "min": st.integers(0, 3),
        "max": st.integers(3, 9),
        "strategy": _STRATEGY,
        "on_failure": st.sampled_from(["release", "move", "hold"]),
        "level": st.sampled_from(["off", "shrink"]),
        "backoff": st.just({"initial": 60}),
    },
)
_POOLS = st.one_of(
    st.lists(_POOL, max_size=3),
    st.fixed_dictionaries({"discover": st.just("similar")}, optional={"rules": st.lists(_POOL, max_size=2)}),
)
_RECORDS = st.fixed_dictionaries(
    {"id": _NAMES, "flavours": st.sampled_from([["gardener"], ["cluster-api", "openshift"]]), "access": _ACCESS},
    optional={
        "dry_run": st.booleans(),
        "scan_interval": st.sampled_from([15, 60, 120]),
        "namespaces": st.lists(_NAMES, max_size=2),
        "strategy": _STRATEGY,
        "on_failure": st.sampled_from(["release", "hold"]),
        "level": st.sampled_from(["off", "converge"]),
        "autoscaler": st.sampled_from(["cluster-autoscaler", "none"]),
        "pools": _POOLS,
        "backoff": st.just({"initial": 60, "longest": 120}),
        "names": st.lists(_TEXTS, max_size=2),
        "zone_ids": st.dictionaries(_TEXTS, _TEXTS, max_size=2),
        "fix_owners": st.booleans(),
        "trouble_after": st.integers(0, 300),
        "labels": _LABELS,
        "account": st.just("123456789012"),
    },
).map(ClusterRecord.model_validate)


def read_back(text: str) -> dict[str, Any]:
    return read_fleet(["one"], lambda _: read_document(text), lambda _, path: path)


@given(st.lists(_RECORDS, max_size=4, unique_by=lambda record: record.id))
def test_exported_records_are_read_back(records: list[ClusterRecord]) -> None:
    found = read_back(fleet_yaml([record_json(record) for record in records]))
    assert {id: ClusterRecord.model_validate(record) for id, record in found.items()} == {
        record.id: record for record in records
    }


def _edited(record: ClusterRecord) -> st.SearchStrategy[ClusterRecord]:
    fields = [name for name in ClusterRecord.model_fields if name != "id"]

    def with_field(name: str, other: ClusterRecord) -> ClusterRecord:
        return record.model_copy(update={name: getattr(other, name)})

    reordered = record.pools[::-1] if isinstance(record.pools, tuple) else record.pools
    return st.just(record.model_copy(update={"pools": reordered})) | st.builds(
        with_field, st.sampled_from(fields), _RECORDS
    )


@given(_RECORDS, st.data())
def test_diff_and_digest_report_different_records_apart(one: ClusterRecord, data: st.DataObject) -> None:
    assert changes(one, one) == []
    other = data.draw(_edited(one))
    assert (changes(one, other) == []) == (one == other) == (digest_of(one) == digest_of(other))


_FLEET, _RECORD = Draft202012Validator(fleet_schema()), Draft202012Validator(record_schema())


@given(_RECORDS)
def test_schemas_accept_records_and_refuse_unknown_names(record: ClusterRecord) -> None:
    written = record_json(record)
    assert [error.message for error in _RECORD.iter_errors(written)] == []
    assert [error.message for error in _FLEET.iter_errors({"clusters": [written]})] == []
    rest = {name: value for name, value in written.items() if name != "id"}
    assert [error.message for error in _FLEET.iter_errors({"defaults": rest, "clusters": [{"id": record.id}]})] == []
    for wrong in ({"colour": 1}, {"flavours": ["gardner"]}, {"access": {"kind": "eks", "secret": "s"}}):
        assert not _RECORD.is_valid({**written, **wrong})
        assert not _FLEET.is_valid({"clusters": [{**written, **wrong}]})


@given(_RECORDS)
def test_a_record_file_leaves_out_defaults(record: ClusterRecord) -> None:
    written = record_json(record)
    assert None not in written.values()
    for name in set(written) - {"id", "flavours", "access"}:
        rest = {field: value for field, value in written.items() if field != name}
        assert ClusterRecord.model_validate(rest) != record, name
