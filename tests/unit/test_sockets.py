import socket

import pytest
from pytest_socket import SocketBlockedError


def test_unit_tests_cannot_open_a_socket() -> None:
    with pytest.raises(SocketBlockedError):
        socket.socket()
