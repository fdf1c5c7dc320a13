"""Child processes of the sandbox: emulators, API servers and functions."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from random import SystemRandom
from typing import BinaryIO


@contextlib.contextmanager
def running(
    command: Sequence[str], *, log: BinaryIO, cwd: Path, env: Mapping[str, str], patience: float = 5
) -> Iterator[subprocess.Popen[bytes]]:
    """Run a process, with its output in `log`. End its process group with SIGTERM, after `patience` s with SIGKILL."""
    process = subprocess.Popen(
        command, cwd=cwd, env=dict(env), stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        try:
            process.wait(timeout=patience)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


# Linux, macOS and Windows give outgoing connections higher ports.
_NOT_FOR_CONNECTIONS = range(20_000, 32_000)


def free_port() -> int:
    """Return a free loopback port that no outgoing connection takes before a server listens there."""
    while True:
        port = SystemRandom().choice(_NOT_FOR_CONNECTIONS)
        with contextlib.suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            return port
