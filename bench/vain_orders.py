"""Nodes ordered an hour where the nodes that arrive do not help, and over worlds by chance where they do.

The worlds are those of tests/vain_orders.py, with the deployed run and a scheduler of their own.
"""

from __future__ import annotations

import argparse
import logging
from collections import Counter
from contextlib import nullcontext
from unittest.mock import patch

from evenkeel.domain.demand.order_memory import OrderMemory
from tests.vain_orders import CASES, HOUR, Story

HOURS, STORIES = 6, 100


def show_cases() -> None:
    """Print the orders of each hour, with the memory of orders and without it."""
    print("Nodes ordered in each of six hours, and without the memory of orders")
    for name, case in CASES.items():
        figures = []
        for forgets in (False, True):
            with _forgetting() if forgets else nullcontext():
                world = case.make()
                world.live(HOURS * HOUR)
            figures.append(world.per_hour(HOURS))
        print(f"  {name:42}{_row(figures[0])}   {_row(figures[1])}")


def show_stories(number: int) -> None:
    """Print what worlds by chance order, with the memory of orders and without it, and who waits in the end."""
    total: Counter[str] = Counter()
    for seed in range(number):
        for forgets in (False, True):
            with _forgetting() if forgets else nullcontext():
                world = Story(seed).play()
            column = "without" if forgets else "with"
            total[column] += sum(nodes for _, nodes in world.orders)
            starved = sum(world.waiting(app) for app in world.apps)
            total[f"starved {column}"] += starved
            if starved and not forgets:
                print(f"  seed {seed}: {starved} pods wait")
    change = 100 * (total["with"] / max(1, total["without"]) - 1)
    print(f"{number} worlds by chance: {total['with']} nodes ordered, {total['without']} without ({change:+.1f} %)")
    print(f"  pods that wait in the end: {total['starved with']}, {total['starved without']} without")


def _forgetting() -> patch:  # type: ignore[valid-type]
    return patch.object(OrderMemory, "ineffective_groups", lambda _, __: {})


def _row(counts: list[int]) -> str:
    return " ".join(f"{count:3}" for count in counts)


def main() -> None:
    logging.disable(logging.CRITICAL)  # what workers say when they die
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--stories", type=int, default=STORIES)
    show_cases()
    show_stories(parser.parse_known_args()[0].stories)


if __name__ == "__main__":
    main()
