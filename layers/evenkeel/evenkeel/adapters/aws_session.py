"""boto3's clients for the functions. Their region, endpoints and credentials come from the environment."""

from functools import cached_property
from threading import Lock
from typing import Any

import boto3
from botocore.config import Config

from evenkeel.adapters.thread_pool import THREADS

# AWS writes the user agent into CloudTrail's events, so that Evenkeel does not react to its own calls.
USER_AGENT = "evenkeel"

# Timeouts are short, because AWS answers in milliseconds or not at all. There is a connection for each parallel check.
RUNS = Config(
    connect_timeout=3, read_timeout=10, retries={"mode": "standard", "max_attempts": 3}, max_pool_connections=50
)
# A check waits only a few seconds for a table that does not answer, because the next check follows in a minute.
CHECKS = Config(
    connect_timeout=1.5,
    read_timeout=2.5,
    retries={"mode": "standard", "total_max_attempts": 2},
    max_pool_connections=50,
)


def for_clusters(attempts: int) -> Config:
    """Return the limits of a client for clusters: two attempts fit into the eight seconds of a check.

    The second attempt is made where AWS throttles the first.
    """
    retries = {"mode": "standard", "total_max_attempts": attempts}
    return Config(connect_timeout=1.5, read_timeout=2, retries=retries, max_pool_connections=THREADS)


class AwsSession:
    """A session of boto3 for many threads: only one thread at a time makes clients or finds credentials."""

    def __init__(self) -> None:
        self._lock = Lock()

    @cached_property
    def _session(self) -> boto3.Session:
        return boto3.Session()

    def client(self, service: str, *, config: Config, **settings: Any) -> Any:
        """Return a new client. ``settings`` are those of ``boto3.Session.client``."""
        with self._lock:
            config = config.merge(Config(user_agent_appid=USER_AGENT))
            return self._session.client(service, config=config, **settings)

    def get_credentials(self) -> Any:
        """Return the function's own credentials; None if there are none."""
        with self._lock:
            return self._session.get_credentials()
