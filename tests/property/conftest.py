"""No test in here reaches the network: sockets are closed."""

import pytest


@pytest.fixture(autouse=True)
def _sockets_closed(socket_disabled: None) -> None:
    """pytest-socket's own fixture, for every test; it opens them again afterwards."""
