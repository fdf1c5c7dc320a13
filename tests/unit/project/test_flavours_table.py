"""Every cell of the table in docs/guides/machine-apis.md names a test that exists."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from sandbox.template import ROOT

COLUMNS = ("numbers from", "bounds to", "who reads them", "costs", "what does not work")
_ECOSYSTEMS = "tests/unit/project/test_ecosystems.py"
_MOVE = "tests/integration/test_openshift_migration.py"
_ADAPTER = "tests/contract/test_cluster_adapter.py"
_INSTALLED = "tests/unit/project/test_installed_clusters.py"
_OWNERS = "tests/unit/rebalancing/test_owners.py"


def _here(kind: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{_ECOSYSTEMS}::Test{kind}::test_{name}" for name in names)


_SUMS = _here("Numbers", "without_an_owner_they_are_sums")
_OWNED = _here("Numbers", "they_are_those_of_their_owners")
_WRITTEN = _here("Bounds", "they_go_where_the_owner_takes_them")
_ANNOTATED = _here("Bounds", "they_go_to_annotations_without_replicas")


_COPIED = _here("Readers", "the_autoscaler_uses_evenkeels_bounds")


_ONE_PATCH = _here("Costs", "without_an_owner_both_are_one_patch")


_NO_FENCE = _here("Limits", "an_empty_failing_zone_keeps_a_max_of_one_where_the_owner_requires_it")
_FLAGS = _here("Readers", "gardeners_autoscaler_uses_its_flags_instead")
_MOVED = (f"{_MOVE}::test_after_the_move_its_bounds_are_written_in_cluster_api",)


CELLS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Gardener": (
        _OWNED,
        _WRITTEN,
        _FLAGS,
        _here("Costs", "gardeners_autoscaler_is_not_restarted_and_nothing_rolls"),
        (*_FLAGS, *_here("Limits", "no_zone_of_gardener_gets_more_than_its_share")),
    ),
    "HyperShift": (
        _OWNED,
        _WRITTEN,
        _COPIED,
        (
            *_here("Costs", "hypershifts_operator_copies_later_and_a_lower_max_removes_no_node"),
            "tests/unit/sandbox/test_sandbox_owners.py::TestHyperShift::test_replicas_are_clamped_to_the_bounds",
        ),
        (*_NO_FENCE, f"{_INSTALLED}::test_a_node_pool_with_replicas_of_its_own_is_frozen"),
    ),
    "OpenShift, with a MachineAutoscaler": (
        (*_OWNED, *_here("Numbers", "no_pool_of_openshift_exceeds_max_nodes_total")),
        _WRITTEN,
        _COPIED,
        _here("Costs", "openshifts_replicas_and_bounds_are_two_patches_of_two_objects"),
        _NO_FENCE,
    ),
    "OpenShift, without one": (
        _SUMS,
        _WRITTEN,
        _COPIED,
        _ONE_PATCH,
        _here("Limits", "a_machine_set_without_bounds_and_numbers_is_skipped"),
    ),
    "OpenShift, moved to Cluster API": (
        _MOVED,
        _MOVED,
        _MOVED,
        (f"{_MOVE}::test_a_backoff_from_before_the_move_is_forgotten",),
        (
            f"{_MOVE}::test_a_machine_autoscaler_moves_nothing_after_the_move",
            f"{_MOVE}::test_a_group_that_moves_stays_in_its_pool_and_is_not_written",
        ),
    ),
    "ClusterClass": (
        _OWNED,
        _here("Bounds", "those_of_a_cluster_class_go_to_the_topology"),
        _COPIED,
        _here("Costs", "annotations_in_a_topology_reach_machines_without_a_rollout"),
        (f"{_INSTALLED}::test_a_bound_from_the_cluster_class_is_frozen_with_the_remedy",),
    ),
    "Cluster API, plain": (
        _SUMS,
        _WRITTEN,
        _COPIED,
        _ONE_PATCH,
        (f"{_OWNERS}::test_bounds_of_a_controller_are_frozen_and_checks_remember_it",),
    ),
    "Cluster API, Karpenter": (
        _SUMS,
        _ANNOTATED,
        _here("Readers", "karpenter_orders_nothing_in_a_zone_at_its_max"),
        _here("Costs", "a_batch_of_karpenter_may_exceed_a_max_and_is_kept"),
        (f"{_OWNERS}::test_a_member_of_karpenter_gets_a_max_only_and_keeps_its_replicas",),
    ),
    "Cluster API, MachinePool": (
        _SUMS,
        _ANNOTATED,
        _here("Readers", "the_autoscaler_reads_the_bounds_of_a_machine_pool"),
        _here("Costs", "a_zone_of_machine_pools_is_fenced_at_the_provision_timeout"),
        (
            "tests/property/rebalancing/test_machine_pool_properties.py"
            "::test_no_replicas_are_lowered_below_the_instances_that_are_there",
            f"{_ADAPTER}::TestMachinePools::test_replicas_without_an_instance_are_released_and_instances_stay",
        ),
    ),
}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


@cache
def table() -> dict[str, list[str]]:
    lines = (ROOT / "docs" / "guides/machine-apis.md").read_text(encoding="utf-8").splitlines()
    (start,) = (number for number, line in enumerate(lines) if cells(line)[1:] == list(COLUMNS))
    rows: dict[str, list[str]] = {}
    for line in lines[start + 2 :]:
        if not line.startswith("|"):
            break
        name, *rest = cells(line)
        assert name not in rows, f"two rows of {name}"
        rows[name] = rest
    return rows


@cache
def collected(path: str) -> set[str]:
    """The tests that pytest finds in a file: its functions, and the methods of its test classes."""
    tree = ast.parse((ROOT / path).read_text(encoding="utf-8"))
    return set(_tests(tree, path))


def _tests(node: ast.Module | ast.ClassDef, path: str) -> Iterator[str]:
    for part in node.body:
        if isinstance(part, ast.ClassDef) and part.name.startswith("Test"):
            yield from _tests(part, f"{path}::{part.name}")
        elif isinstance(part, ast.FunctionDef) and part.name.startswith("test_"):
            marks = " ".join(map(ast.unparse, part.decorator_list))
            if not re.search(r"mark\.(skip|xfail)", marks):
                yield f"{path}::{part.name}"


def test_the_table_has_a_row_for_each_ecosystem_and_no_cell_without_a_word() -> None:
    assert list(table()) == list(CELLS)
    for row, texts in table().items():
        assert len(texts) == len(COLUMNS) == len(CELLS[row]), row
        assert all(texts), row


@pytest.mark.parametrize(("row", "column"), [(row, column) for row in CELLS for column in COLUMNS])
def test_every_cell_is_held_by_tests_that_are_there(row: str, column: str) -> None:
    named = CELLS[row][COLUMNS.index(column)]
    assert named, "a cell without a test"
    for test in named:
        assert test in collected(test.partition("::")[0])


def test_every_test_of_an_ecosystem_is_named_by_a_cell() -> None:
    named = {test for row in CELLS.values() for tests in row for test in tests}
    of_cells = {test for test in collected(_ECOSYSTEMS) if test.count("::") == 2}
    assert of_cells <= named
