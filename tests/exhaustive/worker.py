"""A run with events at some steps, and a description of its world that does not depend on the time."""

import re
from collections.abc import Callable, Mapping
from datetime import datetime, timedelta
from typing import Any

from evenkeel.application.ports import Clock, Lease, Remaining
from tests.crashing import Life

# The promises of docs/guarantees.md that the models check
MOVES = "Moves conserve replicas."
NODES = "No running node is removed,"
MAXIMA = "Balanced does not pass PoolMaximum."
BOUNDS = "Bounds are valid at every moment."
FROZEN = "Frozen objects are not written."
TABLE = "Nothing is written without the table,"
LEASE = "One worker at a time holds the lease of a cluster."
ENDS = "Work without change ends."
PROMISES = (MOVES, NODES, MAXIMA, BOUNDS, FROZEN, TABLE, LEASE, ENDS)


class Worker(Life):
    """One run of a worker. ``happens``: events by the number of the step; ``others``: other writers' acts by name.

    Others act before the step. After it, the worker dies, its answer is lost, or a second worker takes over.
    """

    def __init__(
        self, happens: Mapping[int, str], others: Mapping[str, Callable[[], None]], take_over: Callable[[], None]
    ) -> None:
        super().__init__()
        self.happens, self.others, self.take_over = happens, others, take_over
        self.lease: Lease | None = None

    def step(self, name: str, call: Callable[[], Any], lost: Callable[[], Exception]) -> Any:
        what = "" if self.dead else self.happens.get(len(self.steps), "")
        if what in self.others:
            self.others[what]()
        answer = super().step(name, call, lost)
        if name == "table.take_lease":
            self.lease = answer
        if what == "second worker":
            self.take_over()
        if what == "dies":
            self.die()
        if what == "answer lost":
            raise lost()
        return answer


_ID = re.compile(r"\b[0-9A-HJKMNP-TV-Z]{26}\b")
_TIME = re.compile(r"\b20\d\d-\d\d-\d\d[T ]\d\d:\d\d:\d\d(?:\.\d+)?(?:Z|\+00:00)")


def normalized(text: str, now: datetime) -> str:
    """Return a description of a world in which times count from now, and ids are the numbers of their first places."""
    ids = {id: str(number) for number, id in enumerate(dict.fromkeys(_ID.findall(text)))}
    text = _ID.sub(lambda found: ids[found[0]], text)
    return _TIME.sub(lambda found: str((datetime.fromisoformat(found[0]) - now).total_seconds()), text)


def minute_of(clock: Clock) -> Remaining:
    """Return a function that returns the seconds left of a function's minute."""
    end = clock.now() + timedelta(minutes=1)
    return lambda: (end - clock.now()).total_seconds()
