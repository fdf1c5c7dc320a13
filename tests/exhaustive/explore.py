"""Every story of a write protocol up to a bound: breadth first over states, with the real code as the transition.

A run of a worker is a sequence of steps: its calls of other systems. At each step, an event may happen. A story is a
sequence of runs, each with its events. Two stories that lead to the same state are continued once.
"""

from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Protocol, Self

Event = tuple[int, str]  # the number of a step in its run, and the event there
Events = tuple[Event, ...]
Story = tuple[Events, ...]


class Model(Protocol):
    """A world with workers, which play one run at a time."""

    steps: list[str]  # of the last run
    problems: list[str]  # until now
    is_calm: bool  # True: the last run has ended, and the next one has nothing to do

    def again(self) -> Self:
        """Return a copy, in which another run can be played."""

    def play(self, events: Events) -> None:
        """Play one run with these events, and the time until the next run."""

    def choices(self, step: str) -> tuple[str, ...]:
        """Return the possible events at a step."""

    def key(self) -> str:
        """Return everything on which the next runs depend."""


@dataclass(frozen=True)
class Explored:
    """The result of an exploration."""

    states: int
    runs: int
    counterexample: tuple[str, ...] = ()  # the story and its problems
    story: Story = ()


_RUNS_UNTIL_CALM = 8


def explore(start: Model, events: int) -> Explored:
    """Play all stories with at most this number of events. Stop at the first with a problem: none is shorter."""
    left_at: dict[str, int] = {}
    waiting = deque([(start, (), events, 0)])
    runs = 0
    while waiting:
        world, story, left, undisturbed = waiting.popleft()
        for run, after in _runs(world, left):
            runs += 1
            quiet = 0 if run else undisturbed + 1
            problems = after.problems or (["it never becomes calm"] if quiet > _RUNS_UNTIL_CALM else [])
            if problems:
                return Explored(len(left_at), runs, (*_words(start, (*story, run)), *problems), (*story, run))
            more, key = left - len(run), after.key()
            if left_at.get(key, -1) < more and not (after.is_calm and not run):
                left_at[key] = more
                waiting.append((after, (*story, run), more, quiet))
    return Explored(len(left_at), runs)


def replay(start: Model, story: Story) -> Model:
    """Play one story."""
    world = start
    for run in story:
        world = world.again()
        world.play(run)
    return world


def _runs(world: Model, left: int, run: Events = ()) -> Iterator[tuple[Events, Model]]:
    """Play a run with each choice of at most so many further events."""
    after = world.again()
    after.play(run)
    yield run, after
    for number in range(run[-1][0] + 1 if run else 0, len(after.steps) if left else 0):
        for what in after.choices(after.steps[number]):
            yield from _runs(world, left - 1, (*run, (number, what)))


def _words(start: Model, story: Story) -> Iterator[str]:
    world = start
    for number, run in enumerate(story, 1):
        world = world.again()
        world.play(run)
        happened = [f"{what} at step {step}, {world.steps[step]}" for step, what in run]
        yield f"run {number}: {'; '.join(happened) or 'undisturbed'}"
