"""For all suites: profiles of Hypothesis, marks, and one loader for the models of AWS services."""

import logging
import os
import re
from functools import cache
from pathlib import Path

import botocore.session
import pytest
from hypothesis import HealthCheck, settings

_LOOPBACK = "127.0.0.1,localhost"
for name in [*os.environ]:
    if name.startswith("AWS_") or name in (
        "KUBECONFIG",
        "COLUMNS",
        "LINES",
        "FORCE_COLOR",
        "NO_COLOR",
        "TTY_COMPATIBLE",
    ):
        del os.environ[name]
os.environ["AWS_DEFAULT_REGION"] = "eu-central-1"
# The tests' servers are on this machine. Package downloads still use the proxy of the environment.
for name in ("NO_PROXY", "no_proxy"):
    os.environ[name] = ",".join(filter(None, (os.environ.get(name), _LOOPBACK)))

# Derandomized, so that only a change makes a run fail. `make test` tries few examples, `make test-deep` more. `pytest
# tests/property --hypothesis-profile=explore` tries new examples each time.
settings.register_profile("quick", derandomize=True, deadline=None, max_examples=30)
settings.register_profile("deep", derandomize=True, deadline=None, max_examples=100)
settings.register_profile(
    "explore", deadline=None, max_examples=2000, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.load_profile("quick")

# Each session of botocore reads the models of its services again, which takes most of a client's time. Here, sessions
# share one loader.
botocore.session.create_loader = cache(botocore.session.create_loader)


@pytest.fixture(autouse=True)
def logs_reach_pytest() -> None:
    """Undo what a function's entry point does in the same process: Powertools sets the level and ends propagation."""
    logger = logging.getLogger("evenkeel")
    logger.setLevel(logging.NOTSET)
    logger.propagate = True


DEEP = Path(__file__).parent / "deep.txt"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark the deep tests, and those that call AWS."""
    lines = DEEP.read_text(encoding="utf-8").splitlines()
    deep = re.compile("|".join(f"(?:{line})" for line in lines if line and not line.startswith("#")))
    for item in items:
        if deep.match(item.nodeid.removeprefix("tests/")):
            item.add_marker("deep")
        if "aws" in getattr(item, "fixturenames", ()):
            item.add_marker("aws")
