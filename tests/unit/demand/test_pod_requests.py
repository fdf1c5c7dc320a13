"""The resource requests of a pod."""

from typing import Any

import pytest

from evenkeel.domain.demand.requests import amount_text, host_ports, request_of
from evenkeel.domain.model.workload import Container, HostPort
from tests.workloads import amounts, container, pod


def test_containers_add_up_and_cores_are_rounded_up_to_thousandths() -> None:
    asking = pod(containers=(container(cpu="100m", memory="1Gi"), container(cpu="0.2001", memory="0.5")))
    assert request_of(asking) == {"cpu": 301, "memory": 2**30 + 1}


def test_init_containers_count_where_they_need_more() -> None:
    asking = pod(
        containers=(container(cpu="1", memory="1Gi"),),
        init_containers=(container(cpu="3", memory="100Mi"), container(cpu="2", memory="2Gi")),
    )
    assert request_of(asking) == {"cpu": 3000, "memory": 2 * 2**30}


def test_an_init_container_runs_beside_the_sidecars_before_it() -> None:
    sidecar = container(cpu="1", stays=True)
    heavy = container(cpu="3")
    main = (container(cpu="1"),)
    assert request_of(pod(containers=main, init_containers=(sidecar, heavy)))["cpu"] == 4000
    assert request_of(pod(containers=main, init_containers=(heavy, sidecar)))["cpu"] == 3000
    assert request_of(pod(containers=main, init_containers=(sidecar,)))["cpu"] == 2000


def test_pod_level_requests_replace_cpu_memory_and_huge_pages() -> None:
    asking = pod(
        containers=(container(cpu="4", memory="4Gi", nvidia_com__gpu=1),),
        init_containers=(container(cpu="9"),),
        pod_requests=amounts(cpu="2", nvidia_com__gpu=8),
    )
    assert request_of(asking) == {"cpu": 2000, "memory": 4 * 2**30, "nvidia.com/gpu": 1}


def test_overhead_is_added_last() -> None:
    asking = pod(pod_requests=amounts(cpu="2"), overhead=amounts(cpu="250m", memory="120Mi"))
    assert request_of(asking) == {"cpu": 2250, "memory": 2**30 + 120 * 2**20}


def resized(spec: str, has: str, given: str) -> Container:
    return Container(requests=amounts(cpu=spec), running_with=amounts(cpu=has), allocated=amounts(cpu=given))


@pytest.mark.parametrize(
    ("one", "infeasible", "cpu"),
    [
        (resized("1", "2", "3"), False, 3000),
        (resized("4", "2", "3"), False, 4000),
        (resized("4", "2", "3"), True, 3000),
        (Container(requests=amounts(cpu="4"), allocated=amounts(cpu="9")), False, 4000),
    ],
)
def test_a_resized_container_counts_its_largest_amount(one: Container, infeasible: bool, cpu: int) -> None:
    assert request_of(pod(containers=(one,), resize_infeasible=infeasible)) == {"cpu": cpu}


@pytest.mark.parametrize(
    ("fields", "infeasible", "expected"),
    [
        ({}, False, {"cpu": 2000}),
        ({}, True, {"cpu": 2000}),
        ({"pod_running_with": amounts(cpu=3)}, False, {"cpu": 3000}),
        ({"pod_allocated": amounts(cpu=4)}, False, {"cpu": 4000}),
        ({"pod_running_with": amounts(cpu=4), "pod_allocated": amounts(cpu=3)}, False, {"cpu": 4000}),
        ({"pod_running_with": amounts(cpu=1), "pod_allocated": amounts(cpu=1)}, False, {"cpu": 2000}),
        ({"pod_running_with": amounts(cpu=1), "pod_allocated": amounts(cpu=1)}, True, {"cpu": 1000}),
        ({"pod_allocated": amounts(cpu=1, memory="1Gi", x__gpu=1)}, False, {"cpu": 2000, "memory": 2**30}),
        ({"pod_running_with": amounts(cpu=3), "overhead": amounts(cpu=1)}, False, {"cpu": 3000}),
        ({"pod_running_with": amounts(cpu=4), "overhead": amounts(cpu=1)}, False, {"cpu": 4000}),
        ({"pod_running_with": amounts(memory=1), "overhead": amounts(memory=2)}, False, {"cpu": 2000, "memory": 2}),
        ({"pod_requests": {}, "pod_running_with": amounts(cpu=3)}, False, {"cpu": 8000}),
        ({"pod_requests": amounts(x__gpu=1), "pod_running_with": amounts(cpu=3)}, False, {"cpu": 8000}),
    ],
)
def test_a_pod_resized_as_a_whole_counts_its_largest_amount(
    fields: dict[str, Any], infeasible: bool, expected: dict[str, int]
) -> None:
    """component-helpers resource/helpers.go, PodRequests: the status's amounts include the overhead."""
    fields = {"pod_requests": amounts(cpu=2), "containers": (container(cpu=8),), **fields}
    assert request_of(pod(resize_infeasible=infeasible, **fields)) == expected


def test_zero_requests_are_left_out() -> None:
    assert request_of(pod(containers=(container(cpu="0"), Container()))) == {}


def test_ports_of_init_containers_do_not_count() -> None:
    def opening(number: int, *, stays: bool = False) -> Container:
        return Container(ports=(HostPort(number), HostPort(0)), stays=stays)

    asking = pod(containers=(opening(1), opening(1)), init_containers=(opening(2), opening(3, stays=True)))
    assert [port.port for port in host_ports(asking.needs)] == [1, 3]


@pytest.mark.parametrize(
    ("resource", "count", "text"),
    [
        ("cpu", 1500, "1500m"),
        ("cpu", 2000, "2"),
        ("memory", 6 * 2**30, "6Gi"),
        ("memory", 1000, "1000"),
        ("x/gpu", 2, "2"),
    ],
)
def test_counts_are_written_as_quantities(resource: str, count: int, text: str) -> None:
    assert amount_text(resource, count) == text
