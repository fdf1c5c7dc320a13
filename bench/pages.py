"""A bench of the status page in a browser."""

from __future__ import annotations

from typing import Any

from bench.rows import Rows, timed
from evenkeel.adapters.page.reading import page_of_status
from evenkeel.adapters.page.render import document
from sandbox.chromium import Chromium, find_chromium
from tests.builders import NOW, zones
from tests.pages import fleet_answer
from tests.stack import Stack

_READY = "(document.getElementById('find') ?? document.body).offsetHeight && document.querySelectorAll('*').length"


def status_of_groups(groups: int) -> dict[str, Any]:
    """Return `status` of one cluster with so many groups, three to a pool."""
    pools = [f"pool-{number:03}" for number in range(groups // 3)]
    members = [group for pool in pools for group in zones((4, 3, 2), (2, 2, 2), bounds=[(1, 9)] * 3, pool=pool)]
    stack = Stack(members, pools=[{"name": pool, "min": 3, "max": 12} for pool in pools])
    stack.rebalance("demo", "schedule", lambda: 60.0)
    return stack.ask("status")


def pages(clusters: int = 1_000, groups: int = 300, rounds: int = 5) -> Rows:
    """Measure how fast the page of a large cluster and of a fleet is written and opens, laid out and searchable.

    Without a Chromium (`make chromium`) only the writing is measured.
    """
    answers = {
        f"page of a cluster of {groups} groups": status_of_groups(groups),
        f"page of {clusters} clusters, 10 with incidents": fleet_answer(clusters),
        f"page of {clusters} clusters, all with incidents": fleet_answer(clusters, clusters),
    }
    for name, answer in answers.items():
        with timed() as written:
            html = document(page_of_status(answer, "a bench", NOW))
        elements, opened = 0, []
        if find_chromium() is not None:
            with Chromium() as browser:
                browser.open("<p>").close()
                for _ in range(rounds):
                    with timed() as timer:
                        page = browser.open(html, width=1440)
                        elements = int(page.evaluate(_READY))
                    opened.append(timer.wall)
                    page.close()
        yield name, {"kB": len(html) / 1000, "elements": elements, "written_s": written.wall, "opened_s": opened}
