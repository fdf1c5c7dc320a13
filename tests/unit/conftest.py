"""No test in here reaches the network: sockets are closed. The command line's commands are built once."""

from collections.abc import Iterator
from functools import cache

import pytest
from typer.main import get_command


@pytest.fixture(autouse=True)
def _sockets_closed(socket_disabled: None) -> None:
    """Use pytest-socket's fixture for every test. It opens sockets again afterwards."""


@pytest.fixture(autouse=True, scope="session")
def _commands_built_once() -> Iterator[None]:
    """Build Typer's commands once: its runner builds them for every call, which takes longer than most calls."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("typer.testing._get_command", cache(get_command))
        yield
