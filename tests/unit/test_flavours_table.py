"""Every cell of the table in docs/flavours.md is held by a test, which is named here and is there."""

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from sandbox.template import ROOT

COLUMNS = ("numbers from", "bounds to", "who reads them", "what it costs", "what does not work")
_ECOSYSTEMS = "tests/unit/test_ecosystems.py"
_MOVE = "tests/integration/test_openshift_migration.py"
_ADAPTER = "tests/contract/test_cluster_adapter.py"
_INSTALLED = "tests/unit/test_installed_clusters.py"
_OWNERS = "tests/unit/test_owners.py"


def _here(kind: str, *names: str) -> tuple[str, ...]:
    return tuple(f"{_ECOSYSTEMS}::Test{kind}::test_{name}" for name in names)


_SUMS = _here("Numbers", "where_nobody_owns_bounds_they_are_the_sums_of_what_the_scalables_had")
_COPIED = _here("Readers", "the_owners_controller_copies_what_we_write_and_the_autoscaler_goes_by_it")
_ONE_PATCH = _here("Costs", "where_nobody_owns_bounds_they_go_in_one_patch_with_replicas_and_nothing_else_is_written")
_NO_FENCE = _here("Limits", "an_empty_zone_that_fails_keeps_a_max_of_one_where_the_owner_accepts_no_less")
#: by row, the tests of each column in the order of COLUMNS
CELLS: dict[str, tuple[tuple[str, ...], ...]] = {
    "Gardener": (
        _here(
            "Numbers",
            "gardeners_are_the_workers",
            "without_the_worker_gardeners_are_the_shoots_in_the_cluster_of_the_extensions",
        ),
        _here("Bounds", "gardeners_go_to_annotations_of_the_machine_deployment"),
        _here("Readers", "on_gardener_nobody_does_because_its_autoscaler_has_flags"),
        _here(
            "Costs",
            "gardeners_autoscaler_is_not_started_anew_nothing_rolls_and_the_next_reconciliation_keeps_it",
        ),
        (
            *_here("Readers", "on_gardener_nobody_does_because_its_autoscaler_has_flags"),
            *_here("Limits", "no_zone_of_gardener_gets_more_than_its_share_whatever_another_cannot_deliver"),
        ),
    ),
    "HyperShift": (
        _here("Numbers", "hypershifts_are_those_of_its_node_pools_together"),
        _here("Bounds", "hypershifts_go_to_the_node_pool"),
        _COPIED,
        (
            *_here("Costs", "hypershifts_operator_needs_a_moment_and_no_node_goes_by_a_lower_max"),
            "tests/unit/test_sandbox_owners.py::TestHyperShift::test_replicas_are_clamped_to_the_bounds",
        ),
        (*_NO_FENCE, f"{_INSTALLED}::test_a_node_pool_with_replicas_of_its_own_is_frozen"),
    ),
    "OpenShift, with a MachineAutoscaler": (
        _here(
            "Numbers",
            "openshifts_are_those_of_its_machine_autoscalers_together",
            "no_pool_of_openshift_is_above_what_the_cluster_may_have",
        ),
        _here("Bounds", "openshifts_go_to_the_machine_autoscaler"),
        _COPIED,
        _here("Costs", "openshifts_replicas_and_bounds_are_two_patches_of_two_objects"),
        _NO_FENCE,
    ),
    "OpenShift, without one": (
        _SUMS,
        _here("Bounds", "without_a_machine_autoscaler_they_go_to_annotations_of_the_machine_set"),
        _COPIED,
        _ONE_PATCH,
        _here("Limits", "a_machine_set_without_bounds_and_numbers_takes_no_part"),
    ),
    "OpenShift, moved to Cluster API": (
        (f"{_MOVE}::test_after_the_move_its_bounds_are_told_and_written_where_they_are_read",),
        (f"{_MOVE}::test_after_the_move_its_bounds_are_told_and_written_where_they_are_read",),
        (f"{_MOVE}::test_after_the_move_its_bounds_are_told_and_written_where_they_are_read",),
        (f"{_MOVE}::test_a_backoff_from_before_the_move_is_forgotten",),
        (
            f"{_MOVE}::test_a_machine_autoscaler_moves_nothing_after_the_move",
            f"{_MOVE}::test_while_one_moves_its_pool_stays_one_and_it_is_left_as_it_is",
        ),
    ),
    "ClusterClass": (
        _here("Numbers", "a_cluster_class_has_them_in_the_topology"),
        _here("Bounds", "a_cluster_classs_go_to_the_clusters_topology"),
        _COPIED,
        _here("Costs", "what_is_written_in_a_topology_goes_down_to_machines_without_a_rollout"),
        (f"{_INSTALLED}::test_a_bound_from_the_cluster_class_is_frozen_with_the_remedy",),
    ),
    "Cluster API, plain": (
        _SUMS,
        _here("Bounds", "cluster_apis_go_to_annotations_of_the_scalable"),
        _COPIED,
        _ONE_PATCH,
        (f"{_OWNERS}::test_bounds_of_a_controller_are_frozen_and_checks_remember_it",),
    ),
    "Cluster API, Karpenter": (
        _here("Numbers", "karpenters_are_its_max_annotations"),
        _here("Bounds", "karpenters_are_a_max_alone"),
        _here("Readers", "karpenter_orders_nothing_where_max_is_what_is_there"),
        _here("Costs", "a_batch_of_karpenters_may_pass_a_max_and_is_not_taken_back"),
        (f"{_OWNERS}::test_a_member_of_karpenter_gets_a_max_only_and_keeps_its_replicas",),
    ),
    "Cluster API, MachinePool": (
        _SUMS,
        _here("Bounds", "those_of_machine_pools_go_to_their_annotations"),
        _here("Readers", "what_is_written_on_a_machine_pool_is_what_the_autoscaler_reads"),
        _here("Costs", "a_zone_of_machine_pools_is_fenced_when_the_provision_timeout_is_over_and_no_sooner"),
        (
            "tests/property/test_machine_pool_properties.py"
            "::test_no_replicas_are_lowered_below_the_instances_that_are_there",
            f"{_ADAPTER}::TestMachinePools::test_what_no_instance_stands_for_is_released_and_what_is_there_stays",
        ),
    ),
}


def cells(line: str) -> list[str]:
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


@cache
def table() -> dict[str, list[str]]:
    """The rows of the table, by their first cell."""
    lines = (ROOT / "docs" / "flavours.md").read_text(encoding="utf-8").splitlines()
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


def test_every_test_of_an_ecosystem_stands_for_a_cell() -> None:
    named = {test for row in CELLS.values() for tests in row for test in tests}
    of_cells = {test for test in collected(_ECOSYSTEMS) if test.count("::") == 2}
    assert of_cells <= named
