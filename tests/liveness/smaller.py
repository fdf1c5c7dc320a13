"""Find a smaller case that fails, too."""

from collections.abc import Callable, Iterator

from tests.liveness.cases import Case, can_be_met
from tests.parts import replace

_TRIES = 400
_PLAIN = Case(maximum=1)


def _smaller(case: Case) -> Iterator[Case]:
    for name in ("refusing", "frozen", "paused", "suspended"):
        spans = getattr(case, name)
        yield from (replace(case, **{name: spans[:i] + spans[i + 1 :]}) for i in range(len(spans)))
    for name in (
        "weights",
        "zone_max",
        "floor",
        "minimum",
        "others",
        "events",
        "delay",
        "deaths",
        "timers",
        "balancing",
        "expander",
    ):
        yield replace(case, **{name: getattr(_PLAIN, name)})
    for name in ("boot", "loop", "autoscaler_loop", "scan"):
        yield replace(case, **{name: getattr(_PLAIN, name)})
    for i in range(len(case.demand) - 2, 0, -1):
        yield replace(case, demand=case.demand[:i] + case.demand[i + 1 :])
    yield from (replace(case, demand=case.demand[:i]) for i in range(1, len(case.demand)))


def smallest(case: Case, fails: Callable[[Case], bool]) -> Case:
    """Return a failing case that does not fail without any of its parts, or the smallest after ``_TRIES`` tries."""
    tries = 0
    while True:
        for other in _smaller(case):
            tries += 1
            if tries > _TRIES:
                return case
            wanted = other.wanted
            placed = wanted.free >= 0 and min(wanted.bound) >= 0
            if other != case and placed and can_be_met(other, wanted.free, wanted.bound) and fails(other):
                case = other
                break
        else:
            return case
