"""Clients are made by one session of boto3, with limits and the name of the program."""

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import boto3
import pytest
from botocore.config import Config

from evenkeel.adapters.aws_session import CHECKS, RUNS, AwsSession, for_clusters


@pytest.mark.parametrize(
    ("config", "attempts", "seconds"),
    [(RUNS, 4, 13), (CHECKS, 2, 4), (for_clusters(2), 2, 3.5), (for_clusters(1), 1, 3.5)],
)
def test_a_client_has_timeouts_retries_and_the_programs_name(config: Config, attempts: int, seconds: float) -> None:
    keys = {"aws_access_key_id": "a", "aws_secret_access_key": "b"}
    made = AwsSession().client("sts", config=config, **keys).meta.config
    assert (made.retries["mode"], made.retries["total_max_attempts"]) == ("standard", attempts)
    assert made.connect_timeout + made.read_timeout == seconds
    assert made.user_agent_appid == "evenkeel"


def test_one_thread_at_a_time_uses_the_session(monkeypatch: pytest.MonkeyPatch) -> None:
    using = threading.Lock()

    def used(*_: Any, **__: Any) -> None:
        assert using.acquire(blocking=False), "another thread uses the session"
        threading.Event().wait(0.001)
        using.release()

    monkeypatch.setattr(boto3.Session, "client", used)
    monkeypatch.setattr(boto3.Session, "get_credentials", used)
    session = AwsSession()
    with ThreadPoolExecutor(16) as threads:
        made = [threads.submit(session.client, "sts", config=RUNS) for _ in range(32)]
        found = [threads.submit(session.get_credentials) for _ in range(32)]
        for one in (*made, *found):
            one.result(20)
