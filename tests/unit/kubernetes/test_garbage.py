"""Checks and runs leave no reference cycles behind, which would be most of the memory of a function."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.application.errors import ClusterUnavailableError
from tests.fakes import FakeClock, FakeCluster, FakeClusters, plenty
from tests.stack import Stack


@pytest.fixture(autouse=True)
def no_garbage_collection() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


class Opened:
    """A cluster of one check or run, with all objects that it has read."""

    def __init__(self, cluster: FakeCluster) -> None:
        self._cluster = cluster

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)


class OpenedAnew(FakeClusters):
    """Gives each check and run a new cluster."""

    def __init__(self, cluster: FakeCluster) -> None:
        super().__init__({"demo": cluster})
        self.opened: list[weakref.ref[Opened]] = []

    def open(self, *arguments: Any, **named: Any) -> Any:
        opened = Opened(super().open(*arguments, **named))
        self.opened.append(weakref.ref(opened))
        return opened


@pytest.mark.parametrize("act", ["checks", "run"])
def test_nothing_of_a_cluster_stays_after_a_check_or_run(act: str) -> None:
    clusters = OpenedAnew(Stack().cluster)
    stack = Stack(clusters=clusters)
    for _ in range(4):
        getattr(stack, act)()
    assert len(clusters.opened) >= 4
    assert {ref() for ref in clusters.opened} == {None}


def test_a_request_that_fails_keeps_nothing_of_those_before_it() -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise OSError("no route")

    configuration = SimpleNamespace(host="https://demo", get_api_key_with_prefix=lambda _: None)
    client: Any = SimpleNamespace(configuration=configuration, request=fail)
    api = KubernetesApi("demo", client, None, FakeClock())

    def failed() -> weakref.ref[ClusterUnavailableError]:
        try:
            api.get("/api/v1/nodes", plenty)
        except ClusterUnavailableError as error:
            return weakref.ref(error)
        raise AssertionError("it did not fail")

    assert failed()() is None
