"""Checks of Auto Scaling groups in simulated AWS accounts, over HTTP: calls, processor time, throttled calls.

Processor time is that of the checking thread: the client's, without the simulated API's.
"""

from __future__ import annotations

import io
import os
import random
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs

import boto3

from bench.rows import Rows, Samples
from evenkeel.adapters.auto_scaling.clusters import AutoScalingClusters
from evenkeel.adapters.auto_scaling.node_groups import NodeGroups
from evenkeel.adapters.aws_session import AwsSession, for_clusters
from evenkeel.record import ClusterRecord
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.behavior import Rate
from sandbox.auto_scaling.calls import Service
from sandbox.auto_scaling.clock import VirtualClock
from sandbox.auto_scaling.node_groups import NodeGroups as ManagedNodeGroups
from sandbox.auto_scaling.server import AwsServer
from sandbox.aws import AwsEndpoints
from sandbox.demo.node_groups import WRITES, EksCluster
from sandbox.kube.cloud import Cloud, subnet_in
from sandbox.kube.world import REGION, Pool
from sandbox.server import HttpRequest, LoopbackServer, Response
from sandbox.triggers import InProcess, Triggers

_ZONES = tuple(f"{REGION}{letter}" for letter in "abc")
_OWN = "123456789012"
# AWS publishes no rate. These are far below what re:Post reports, and cluster-autoscaler shares them.
_BUCKET, _PER_MINUTE = 5, 6
_UNTIL_DESCRIBED = 9  # full checks until EKS has described 300 node groups
_OF_AUTOSCALER = 2  # calls a minute of cluster-autoscaler: its groups, and a write
_CREDENTIALS = """<AssumeRoleResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/"><AssumeRoleResult>
<Credentials><AccessKeyId>{account}</AccessKeyId><SecretAccessKey>secret</SecretAccessKey>
<SessionToken>token</SessionToken><Expiration>{end}</Expiration></Credentials>
</AssumeRoleResult><ResponseMetadata><RequestId>1</RequestId></ResponseMetadata></AssumeRoleResponse>"""


@dataclass
class _Accounts:
    """Accounts by number, each with its groups, and the clients that check them."""

    clock: VirtualClock = field(default_factory=lambda: VirtualClock(datetime.now(UTC)))
    services: dict[str, Mapping[str, Service]] = field(default_factory=dict)

    def now(self) -> datetime:
        return self.clock.now

    def sleep(self, seconds: float) -> None:
        self.clock.run(timedelta(seconds=seconds))

    def add(self, account: str, groups: int, *, managed: bool = False) -> None:
        """Add an account with quiet groups, three to a pool. ``managed``: they are those of managed node groups."""
        api = AutoScaling(Cloud(zones=_ZONES), clock=self.clock, account=account)
        eks = ManagedNodeGroups(api)
        self.services[account] = {"autoscaling": api, "eks": eks}
        for number in range(groups):
            name, zone = f"workers-{number // 3:03}-{_ZONES[number % 3][-1]}", _ZONES[number % 3]
            tags = {"evenkeel.dev/pool": f"workers-{number // 3:03}", "evenkeel.dev/pool-max": "12"}
            if managed:
                api.create_or_update_tags(Tags=_tags(create_managed(eks, name, zone, 0, 2, 4), tags))
                continue
            api.create_auto_scaling_group(
                AutoScalingGroupName=name,
                MinSize=0,
                MaxSize=4,
                DesiredCapacity=2,
                AvailabilityZones=[zone],
                LaunchTemplate={"LaunchTemplateName": "web", "Version": "1"},
                Tags=_tags(name, tags),
            )

    def throttle(self) -> None:
        """Give each account its token bucket, and forget the calls so far."""
        for services in self.services.values():
            api = services["autoscaling"]
            api.behavior.auto_scaling_rate = Rate(size=_BUCKET, per_second=_PER_MINUTE / 60)
            api.calls.clear()

    def calls(self) -> Counter[str]:
        """Return the calls of all accounts by name."""
        return Counter(name for services in self.services.values() for name, _ in services["autoscaling"].calls)


def create_managed(eks: ManagedNodeGroups, name: str, zone: str, minimum: int, desired: int, maximum: int) -> str:
    """Create a managed node group, and return the name of its Auto Scaling group."""
    answer = eks.create_nodegroup(
        clusterName="demo",
        nodegroupName=name,
        subnets=[subnet_in(zone)],
        nodeRole="arn:aws:iam::123456789012:role/nodes",
        scalingConfig={"minSize": minimum, "desiredSize": desired, "maxSize": maximum},
    )
    group: str = answer["nodegroup"]["resources"]["autoScalingGroups"][0]["name"]
    return group


def _tags(group: str, tags: Mapping[str, str]) -> list[dict[str, Any]]:
    of_group = {"ResourceId": group, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
    return [{**of_group, "Key": key, "Value": value} for key, value in tags.items()]


def _assumed(request: HttpRequest) -> Response:
    """Return credentials of a role, whose access key is the number of the role's account."""
    (arn,) = parse_qs(request.body.decode())["RoleArn"]
    end = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    return Response(status=200, body=_CREDENTIALS.format(account=arn.split(":")[4], end=end).encode())


def _no_workload(record: ClusterRecord, _remaining: object) -> Any:
    raise AssertionError(f"{record.id} has no workload")


@contextmanager
def _accounts() -> Iterator[tuple[_Accounts, Callable[[ClusterRecord], Any]]]:
    """Yield accounts, and what opens a cluster for checks."""
    accounts = _Accounts()
    with ExitStack() as stack:
        server = stack.enter_context(AwsServer(lambda key, _region: accounts.services[key]))
        sts = stack.enter_context(LoopbackServer(_assumed))
        own = {"AWS_ACCESS_KEY_ID": _OWN, "AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": REGION}
        stack.enter_context(patch.dict(os.environ, {**server.environment(), **own, "AWS_ENDPOINT_URL_STS": sts.url}))
        kept = NodeGroups(random=random.random)
        clusters = AutoScalingClusters(
            session=AwsSession(), clock=accounts, drainer=_no_workload, node_groups=kept, writes=False
        )
        yield accounts, lambda record: clusters.open(record, lambda: 60.0, consistent=False)


def _record(number: int, account: str = "") -> ClusterRecord:
    role = {"role_arn": f"arn:aws:iam::{account}:role/evenkeel-check"} if account else {}
    access = {"kind": "auto-scaling", "region": REGION, **role}
    return ClusterRecord.model_validate({"id": f"cluster-{number:04}", "access": access})


def auto_scaling_check(groups: tuple[int, ...] = (3, 30, 300), rounds: int = 9) -> Rows:
    """Measure a check of quiet groups, plain and managed, by groups: AWS calls and processor time of the reads.

    A full check of managed node groups follows the one before after 15 minutes. Its threads that ask EKS are not
    measured: the last row has the processor time of one such call.
    """
    yield "a check, auto-scaling, by groups"
    for count in groups:
        for kind in ("auto-scaling", "managed node groups"):
            samples = Samples()
            with _accounts() as (accounts, opened):
                accounts.add(_OWN, count, managed=kind != "auto-scaling")
                _check_quiet_groups(accounts, opened, f"{kind} {count}", samples, rounds)
                if count == groups[-1] and kind != "auto-scaling":
                    _describe_node_groups(samples)
            yield from samples.items()


def _check_quiet_groups(
    accounts: _Accounts, opened: Callable[[ClusterRecord], Any], name: str, samples: Samples, rounds: int
) -> None:
    services, record, seen = accounts.services[_OWN], _record(0), dict[str, str]()
    for turn in range(_UNTIL_DESCRIBED + rounds):
        accounts.clock.run(timedelta(minutes=15))
        for kind in ("full", "quick"):
            for service in services.values():
                service.calls.clear()
            began, cluster = time.thread_time(), opened(record)
            if kind == "full":
                cluster.observe()
                seen = cluster.seen()
            elif not cluster.shows(seen):
                raise RuntimeError("a quiet group has changed")
            if turn >= _UNTIL_DESCRIBED:
                cpu, eks_calls = 1000 * (time.thread_time() - began), len(services["eks"].calls)
                calls = len(services["autoscaling"].calls)
                samples.add(f"{kind} {name}", calls=calls, eks_calls=eks_calls, cpu_ms=cpu)


def _describe_node_groups(samples: Samples, rounds: int = 50) -> None:
    client = boto3.client("eks", config=for_clusters(1))
    for turn in range(rounds):
        began = time.thread_time()
        client.describe_nodegroup(clusterName="demo", nodegroupName="workers-000-a")
        if turn:
            samples.add("a call of EKS", cpu_ms=1000 * (time.thread_time() - began))


def auto_scaling_accounts(accounts: int = 1_000, groups: int = 30, minutes: int = 3) -> Rows:
    """Check a cluster in each of many accounts once a minute, next to cluster-autoscaler on the same token bucket."""
    with _accounts() as (aws, opened):
        records = [_record(number, f"{100_000_000_000 + number}") for number in range(accounts)]
        for number in range(accounts):
            aws.add(f"{100_000_000_000 + number}", groups)
        aws.clock.run(timedelta(minutes=5))
        seen = {}
        for record in records:
            cluster = opened(record)
            cluster.observe()
            seen[record.id] = cluster.seen()
        aws.throttle()
        yield "the same, by accounts"
        samples = Samples()
        for _ in range(minutes):
            for services in aws.services.values():
                for _ in range(_OF_AUTOSCALER):
                    services["autoscaling"].describe_auto_scaling_groups(MaxRecords=100)
            before, began = aws.calls().total(), time.thread_time()
            changed = sum(not opened(record).shows(seen[record.id]) for record in records)
            cpu = 1000 * (time.thread_time() - began) / accounts
            if changed:
                raise RuntimeError(f"{changed} quiet clusters have changed")
            calls = (aws.calls().total() - before) / accounts
            samples.add(f"quick auto-scaling {groups} {accounts} accounts", calls=calls, cpu_ms=cpu)
            aws.clock.run(timedelta(minutes=1))
        yield from samples.items()


def auto_scaling_failure(rounds: int = 5) -> Rows:
    """Measure from the event of a refused launch to the writes: `provisioning_failure`, its message, `rebalance`.

    An operator has requested two instances of a zone that has none. Functions, queues and AWS are in this process.
    """
    samples = Samples()
    for _ in range(rounds):
        samples.add("failure event to write, auto-scaling", **_failure_to_write())
    yield from samples.items()


def _failure_to_write() -> dict[str, float]:
    """Return milliseconds from the event to the first and the last write, the writes and all calls."""
    with ExitStack() as stack:
        cluster = stack.enter_context(EksCluster("eks", Pool(name="workers", minimum=3, maximum=12), datetime.now(UTC)))
        deployment = stack.enter_context(stack.enter_context(AwsEndpoints()).deploy(parameters={"DryRun": "false"}))
        invoke = stack.enter_context(InProcess(deployment, log=io.StringIO()))
        triggers = Triggers(deployment, invoke)
        record = {"access": {"kind": "auto-scaling", "region": REGION}, "autoscaler": "none", "dry_run": False}
        invoke("AdminFunction", {"action": "register", "cluster": "eks", "record": record})
        triggers.tick()
        triggers.drain()
        group = cluster.groups()[0]
        cluster.cloud.exhaust_zone(group.zone)
        cluster.api.set_desired_capacity(AutoScalingGroupName=group.name, DesiredCapacity=group.requested + 2)
        events = cluster.step(datetime.now(UTC) + timedelta(seconds=1))
        refused = next(one for one in events if one["detail-type"] == "EC2 Instance Launch Unsuccessful")
        cluster.api.calls.clear()
        writes: list[float] = []
        cluster.api.before = lambda name, _: writes.append(time.monotonic()) if name in WRITES else None
        began = time.monotonic()
        invoke("ProvisioningFailureFunction", refused)
        triggers.poll()
        first, *_, last = (1000 * (at - began) for at in (*writes, writes[-1]))
        return {"first_write_ms": first, "last_write_ms": last, "writes": len(writes), "calls": len(cluster.api.calls)}
