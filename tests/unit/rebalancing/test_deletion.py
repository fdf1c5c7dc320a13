"""The order in which machines are deleted."""

from datetime import timedelta
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from evenkeel.domain.model.flavours import PLACEHOLDER
from evenkeel.domain.model.groups import Machine, MachineFailure
from evenkeel.domain.rebalancing.replicas.deletion import MarksLeft, deletion_candidates, marks_left
from tests.fakes import NOW

TIMEOUT = timedelta(minutes=15)
REFUSED = MachineFailure(code="ResourceExhausted", message="no capacity")


def machine(name: str, age: float, **fields: Any) -> Machine:
    return Machine(name=name, created_at=NOW - timedelta(minutes=age), **{"has_node": False, **fields})


def names_of(machines: list[Machine], requested: int, *, may_remove_running: bool = False) -> tuple[str, ...]:
    return deletion_candidates(
        machines, requested, may_remove_running=may_remove_running, provision_timeout=TIMEOUT, now=NOW
    )


def going(machines: list[Machine], requested: int, **fields: bool) -> str:
    return "".join(names_of(machines, requested, **fields))


FAILED, LATE, OLD, NEW = machine("f", 5, failure=REFUSED), machine("l", 15), machine("o", 9), machine("n", 1)
READY, UNWELL = machine("r", 60, has_node=True), machine("u", 90, has_node=True, ready=False)


def test_failed_machines_go_first_then_late_ones_then_the_newest() -> None:
    machines = [READY, OLD, NEW, UNWELL, LATE, FAILED]
    assert [going(machines, requested) for requested in (6, 5, 4, 3, 2, 0)] == ["", "f", "fl", "fln", "flno", "flno"]


def test_running_machines_go_only_where_allowed_the_unready_first() -> None:
    assert going([READY, UNWELL, NEW], 0) == "n"
    assert going([READY, UNWELL, NEW], 0, may_remove_running=True) == "nur"


def test_ties_go_by_age_then_by_name() -> None:
    assert going([machine("a", 3), machine("b", 2), machine("c", 3)], 0) == "bca"
    ready = [machine(name, age, has_node=True) for name, age in (("x", 9), ("y", 8))]
    assert going(ready, 0, may_remove_running=True) == "yx"


def test_a_preserved_machine_is_kept_with_its_replica() -> None:
    kept = [machine("k", 5, failure=REFUSED, preserved=True), machine("p", 5, has_node=True, preserved=True)]
    assert going([*kept, NEW, READY], 3) == "n"
    assert going([*kept, NEW, READY], 0, may_remove_running=True) == "nr"


def test_a_machine_that_is_being_deleted_does_not_count() -> None:
    gone = machine("g", 5, failure=REFUSED, deleting=True)
    assert going([gone, NEW, READY], 2) == ""
    assert going([gone, NEW, READY], 1) == "n"


def test_a_machine_from_the_future_is_late() -> None:
    assert going([OLD, machine("z", -600)], 1) == "z"


def test_a_mark_is_removed_once_machines_match_replicas() -> None:
    gone = machine("g", 5, deleting=True)
    assert marks_left([NEW, READY, gone], 2, [NEW.name, gone.name], None) is None
    assert marks_left([NEW, READY, gone], 1, [NEW.name], None) == MarksLeft(is_doubtful=False)


def test_a_list_that_may_be_incomplete_leaves_marks_in_doubt() -> None:
    hidden = MarksLeft(is_doubtful=True, hidden=(NEW.name,))
    assert marks_left([], 2, [NEW.name], None) == hidden
    assert marks_left([NEW], 2, [NEW.name], None) == MarksLeft(is_doubtful=True), "a hidden machine may be a surplus"
    assert marks_left([READY, OLD], 2, [NEW.name], None) == hidden, "the marked one may be hidden"
    assert marks_left([READY, OLD], 2, [f"{PLACEHOLDER}a-1"], None) is None, "a failed launch is no machine"


def test_a_doubt_is_confirmed_only_if_an_earlier_list_lacked_the_same_machines() -> None:
    assert marks_left([READY, OLD], 2, [NEW.name], [NEW.name]) is None
    assert marks_left([READY, OLD], 2, [NEW.name], [OLD.name]) == MarksLeft(is_doubtful=True, hidden=(NEW.name,))
    assert marks_left([NEW], 2, [NEW.name], []) is None, "a list can be short for long: no machine is made"
    assert marks_left([NEW, READY], 1, [NEW.name], [NEW.name]) == MarksLeft(is_doubtful=False)


_machines = st.lists(
    st.builds(
        machine,
        st.uuids().map(str),
        st.integers(-60, 60),
        has_node=st.booleans(),
        ready=st.booleans(),
        preserved=st.booleans(),
        deleting=st.booleans(),
        failure=st.sampled_from([None, REFUSED]),
    ),
    max_size=8,
)


@given(machines=_machines, requested=st.integers(0, 9))
def test_no_running_machine_goes_unless_allowed_and_never_too_many(machines: list[Machine], requested: int) -> None:
    names = names_of(machines, requested)
    by_name = {machine.name: machine for machine in machines}
    assert not any(by_name[name].has_node or by_name[name].preserved or by_name[name].deleting for name in names)
    assert len(names) <= max(0, sum(not machine.deleting for machine in machines) - requested)
    assert names == names_of(machines[::-1], requested)
