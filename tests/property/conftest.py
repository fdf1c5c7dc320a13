"""No test in here reaches the network: sockets are closed."""

import pytest


@pytest.fixture(autouse=True)
def _sockets_closed(socket_disabled: None) -> None:
    """Use pytest-socket's fixture for every test. It opens sockets again afterwards."""
