import socket

import pytest
from pytest_socket import SocketBlockedError


@pytest.mark.filterwarnings("ignore:A test tried to use socket.socket")
def test_unit_tests_cannot_open_a_socket() -> None:
    with pytest.raises(SocketBlockedError):
        socket.socket()
