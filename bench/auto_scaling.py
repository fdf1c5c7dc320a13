"""Checks of Auto Scaling groups in simulated AWS accounts, over HTTP: calls, processor time, throttled calls.

Processor time is that of the checking thread: the client's, without the simulated API's.
"""

from __future__ import annotations

import io
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from unittest.mock import patch
from urllib.parse import parse_qs

from bench.rows import Rows, Samples
from evenkeel.adapters.auto_scaling.clusters import AutoScalingClusters
from evenkeel.adapters.aws_session import AwsSession
from evenkeel.record import ClusterRecord
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.behavior import Rate
from sandbox.auto_scaling.calls import Service
from sandbox.auto_scaling.clock import VirtualClock
from sandbox.auto_scaling.node_groups import NodeGroups
from sandbox.auto_scaling.server import AwsServer
from sandbox.aws import AwsEndpoints
from sandbox.demo.node_groups import WRITES, EksCluster
from sandbox.kube.cloud import Cloud
from sandbox.kube.world import REGION, Pool
from sandbox.server import HttpRequest, LoopbackServer, Response
from sandbox.triggers import InProcess, Triggers

_ZONES = tuple(f"{REGION}{letter}" for letter in "abc")
_OWN = "123456789012"
# AWS publishes no rate. These are far below what re:Post reports, and cluster-autoscaler shares them.
_BUCKET, _PER_MINUTE = 5, 6
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

    def add(self, account: str, groups: int) -> None:
        """Add an account with quiet groups, three to a pool."""
        api = AutoScaling(Cloud(zones=_ZONES), clock=self.clock, account=account)
        for number in range(groups):
            name = f"workers-{number // 3:03}-{_ZONES[number % 3][-1]}"
            tags = {"evenkeel.dev/pool": f"workers-{number // 3:03}", "evenkeel.dev/pool-max": "12"}
            api.create_auto_scaling_group(
                AutoScalingGroupName=name,
                MinSize=0,
                MaxSize=4,
                DesiredCapacity=2,
                AvailabilityZones=[_ZONES[number % 3]],
                LaunchTemplate={"LaunchTemplateName": "web", "Version": "1"},
                Tags=[
                    {"ResourceId": name, "ResourceType": "auto-scaling-group", "PropagateAtLaunch": False}
                    | {"Key": key, "Value": value}
                    for key, value in tags.items()
                ],
            )
        self.services[account] = {"autoscaling": api, "eks": NodeGroups(api)}

    def throttle(self) -> None:
        """Give each account its token bucket, and forget the calls so far."""
        for services in self.services.values():
            api = services["autoscaling"]
            api.behavior.auto_scaling_rate = Rate(size=_BUCKET, per_second=_PER_MINUTE / 60)
            api.calls.clear()

    def calls(self) -> Counter[str]:
        """Return the calls of all accounts by name."""
        return Counter(name for services in self.services.values() for name, _ in services["autoscaling"].calls)


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
        clusters = AutoScalingClusters(session=AwsSession(), clock=accounts, drainer=_no_workload, writes=False)
        yield accounts, lambda record: clusters.open(record, lambda: 60.0, consistent=False)


def _record(number: int, account: str = "") -> ClusterRecord:
    role = {"role_arn": f"arn:aws:iam::{account}:role/evenkeel-check"} if account else {}
    access = {"kind": "auto-scaling", "region": REGION, **role}
    return ClusterRecord.model_validate({"id": f"cluster-{number:04}", "access": access})


def auto_scaling_check(groups: tuple[int, ...] = (3, 30, 300), rounds: int = 9) -> Rows:
    """Measure a check of quiet Auto Scaling groups, by groups: AWS calls and processor time of the reads."""
    yield "a check, auto-scaling, by groups"
    for count in groups:
        with _accounts() as (accounts, opened):
            accounts.add(_OWN, count)
            accounts.clock.run(timedelta(minutes=5))
            api, samples, record = accounts.services[_OWN]["autoscaling"], Samples(), _record(0)
            seen: Mapping[str, str] = {}
            for turn in range(rounds + 1):
                for kind in ("full", "quick"):
                    api.calls.clear()
                    began, cluster = time.thread_time(), opened(record)
                    if kind == "full":
                        cluster.observe()
                        seen = cluster.seen()
                    elif not cluster.shows(seen):
                        raise RuntimeError("a quiet group has changed")
                    if turn:
                        cpu = 1000 * (time.thread_time() - began)
                        samples.add(f"{kind} auto-scaling {count}", calls=len(api.calls), cpu_ms=cpu)
            yield from samples.items()


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
