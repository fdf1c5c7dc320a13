"""How fast the page opens, in a browser: a cluster of many groups, a large fleet, one that is all in trouble.

    python -m bench.pages [--clusters 1000] [--groups 300] [--rounds 5]

From the answer of the real `status` on; opened is when the page has loaded and been laid out, in a window of 1,440
pixels, the search heard. Without a Chromium (`make chromium`) only what is written is counted.
"""

from __future__ import annotations

import argparse
import statistics
import time
from typing import Any

from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import document
from sandbox.chromium import Chromium, find_chromium
from tests.builders import NOW, zones
from tests.house import House
from tests.pages import told_fleet

_FOUND = "(document.getElementById('find') ?? document.body).offsetHeight && document.querySelectorAll('*').length"


def told_groups(groups: int) -> dict[str, Any]:
    """What `status` says of one cluster with so many, three to a pool."""
    pools = [f"pool-{number:03}" for number in range(groups // 3)]
    found = [group for pool in pools for group in zones((4, 3, 2), (2, 2, 2), bounds=[(1, 9)] * 3, pool=pool)]
    house = House(found, pools=[{"name": pool, "min": 3, "max": 12} for pool in pools])
    house.rebalance("demo", "schedule", lambda: 60.0)
    return house.ask("status")


def measure(answers: dict[str, dict[str, Any]], rounds: int) -> dict[str, dict[str, Any]]:
    """By page: its bytes, its elements, and the seconds that writing it and opening it took."""
    found: dict[str, dict[str, Any]] = {}
    for name, answer in answers.items():
        began = time.perf_counter()
        html = document(page_of_status(answer, "a bench", NOW))
        found[name] = {"html": html, "bytes": len(html.encode()), "written": time.perf_counter() - began, "opened": []}
    if find_chromium() is None:
        return found
    with Chromium() as browser:
        browser.open("<p>").close()
        for _ in range(rounds):
            for one in found.values():
                began = time.perf_counter()
                page = browser.open(one["html"], width=1440)
                one["elements"] = page.evaluate(_FOUND)
                one["opened"].append(time.perf_counter() - began)
                page.close()
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--clusters", type=int, default=1000)
    parser.add_argument("--groups", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    answers = {
        f"a cluster of {options.groups} groups": told_groups(options.groups),
        f"{options.clusters} clusters, 10 in trouble": told_fleet(options.clusters),
        f"{options.clusters} clusters, all in trouble": told_fleet(options.clusters, options.clusters),
    }
    for name, one in measure(answers, options.rounds).items():
        opened = one["opened"]
        quote = f"{min(opened):.2f} / {statistics.median(opened):.2f} / {max(opened):.2f}" if opened else "-"
        print(
            f"page of {name}: {one['bytes'] // 1000} kB, {one.get('elements', '-')} elements, "
            f"written in {one['written']:.2f} s, opened in {quote} s"
        )


if __name__ == "__main__":
    main()
