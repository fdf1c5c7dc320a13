"""Evenkeel with a simulated EC2 Auto Scaling API: real adapter and use cases, state in memory, virtual time."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from functools import partial
from typing import Any

from botocore.exceptions import ClientError

from evenkeel.adapters.auto_scaling.api import AutoScalingApi
from evenkeel.adapters.auto_scaling.cluster import AutoScalingCluster, Drainer
from evenkeel.adapters.auto_scaling.clusters import AutoScalingClusters, writer_name
from evenkeel.adapters.auto_scaling.decisions import DecisionsInMemory
from evenkeel.adapters.auto_scaling.instance_types import InstanceTypes
from evenkeel.adapters.auto_scaling.node_groups import NodeGroups
from evenkeel.adapters.auto_scaling.read import Refreshing
from evenkeel.adapters.aws_session import AwsSession
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.run_state import RunSummary
from evenkeel.domain.model.groups import NodeGroup
from evenkeel.record import ClusterRecord, ControlRecord, Registration
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.behavior import Behavior
from sandbox.auto_scaling.groups import Group
from sandbox.auto_scaling.node_groups import NodeGroups as ManagedNodeGroups
from sandbox.auto_scaling.server import AwsServer
from sandbox.kube.cloud import Cloud, subnet_in
from tests.fakes import FakeQueue, InMemoryStore, plenty
from tests.timed import worker

REGION = "eu-central-1"
ZONES = tuple(f"{REGION}{letter}" for letter in "abc")
POOL = {"evenkeel.dev/pool": "workers", "evenkeel.dev/pool-min": "0", "evenkeel.dev/pool-max": "12"}
NO_CAPACITY = (
    "We currently do not have sufficient m5.xlarge capacity in the Availability Zone you requested ({zone}). "
    "Our system will be working on provisioning additional capacity."
)


class SimulatedClock:
    """The virtual time of the simulated API."""

    def __init__(self, api: AutoScaling) -> None:
        self._api = api

    def now(self) -> datetime:
        return self._api.clock.now

    def sleep(self, seconds: float) -> None:
        self._api.clock.wait(timedelta(seconds=seconds), self._api.behavior.parallel)


class InProcess:
    """Opens clusters on a simulated API in this process. `wrap` may replace each client, `wrap_store` the decisions."""

    def __init__(self, api: AutoScaling, eks: ManagedNodeGroups, wrap: Callable[[Any], Any] = lambda one: one) -> None:
        self.api, self.eks, self.wrap = api, eks, wrap
        self.clock = SimulatedClock(api)
        self.node_groups = NodeGroups(random=lambda: 0.0)
        self.decisions = DecisionsInMemory()
        self.wrap_store: Callable[[DecisionsInMemory], Any] = lambda store: store
        self.refreshing: Refreshing = {}
        self.stack = "evenkeel"
        self.drainer: Callable[[ClusterRecord, Remaining], Drainer] | None = None
        self.ec2: Any = None  # None: no client for EC2
        self.instance_types = InstanceTypes()

    def open(
        self, record: ClusterRecord, remaining: Remaining, *, consistent: bool = True, alone: bool = True
    ) -> AutoScalingCluster:
        api = AutoScalingApi(
            record.id,
            auto_scaling=lambda: self.wrap(self.api),
            eks=lambda: self.wrap(self.eks),
            node_groups=self.node_groups,
            clock=self.clock,
            remaining=remaining,
            ec2=None if self.ec2 is None else lambda: self.ec2,
            types=self.instance_types,
        )
        drainer = None if self.drainer is None else partial(self.drainer, record, remaining)
        writer = writer_name(self.stack, record.id)
        return AutoScalingCluster(
            api,
            record,
            self.refreshing,
            store=self.wrap_store(self.decisions),
            name=writer,
            consistent=consistent,
            drainer=drainer,
        )

    def needs_run(self, _record: ClusterRecord) -> bool:
        return False


class Stage:
    """Auto Scaling groups of one account and Region, managed by Evenkeel."""

    def __init__(self, behavior: Behavior | None = None, **fields: Any) -> None:
        self.stock = Cloud(zones=ZONES)
        self.api = AutoScaling(self.stock, behavior=behavior)
        self.eks = ManagedNodeGroups(self.api)
        self.clock = SimulatedClock(self.api)
        self.clusters: Any = InProcess(self.api, self.eks)
        self.decisions: DecisionsInMemory = self.clusters.decisions
        self.store, self.queue = InMemoryStore(clock=self.clock), FakeQueue()
        self.record = register(self.store, **fields)

    def register(self, **fields: Any) -> None:
        """Change fields of the record."""
        stored = self.store.load("demo")
        self.record = ClusterRecord.model_validate({**self.record.model_dump(exclude_unset=True), **fields})
        self.store.save_record(self.record, stored.control, stored.versions)

    def put(self, name: str, zone: str, minimum: int, desired: int, maximum: int, **tags: str) -> None:
        """Create a group with the pool's tags and these. A tag without text is left out."""
        values = {**POOL, **{key.replace("__", "/").replace("_", "-"): value for key, value in tags.items()}}
        self.api.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=minimum,
            MaxSize=maximum,
            DesiredCapacity=desired,
            AvailabilityZones=[zone],
            LaunchTemplate={"LaunchTemplateName": "web", "Version": "1"},
            Tags=[tag(name, key, value) for key, value in values.items() if value],
        )

    def put_managed(self, name: str, zone: str, minimum: int, desired: int, maximum: int, **more: Any) -> str:
        """Create a managed node group of the cluster `demo`, and return the name of its Auto Scaling group."""
        self.eks.create_nodegroup(
            clusterName="demo",
            nodegroupName=name,
            subnets=[subnet_in(zone)],
            nodeRole="arn:aws:iam::123456789012:role/nodes",
            scalingConfig={"minSize": minimum, "desiredSize": desired, "maxSize": maximum},
            **more,
        )
        node_group = self.eks.describe_nodegroup(clusterName="demo", nodegroupName=name)["nodegroup"]
        group: str = node_group["resources"]["autoScalingGroups"][0]["name"]
        self.api.create_or_update_tags(Tags=[tag(group, key, value) for key, value in POOL.items()])
        return group

    def pool(self, desired: int = 2, maximum: int = 9) -> list[str]:
        """Create one group in each zone, whose instances run."""
        names = [f"workers-{zone[-1]}" for zone in ZONES]
        for name, zone in zip(names, ZONES, strict=True):
            self.put(name, zone, 0, desired, maximum)
        self.minutes(2)
        return names

    def refuse(self, zone: str) -> None:
        """Refuse launches in a zone: no capacity."""
        text = NO_CAPACITY.format(zone=zone)
        self.stock.refuse(zone, code="InsufficientInstanceCapacity", message=text, status=500)

    def minutes(self, minutes: float) -> None:
        self.api.clock.run(timedelta(minutes=minutes))

    def seconds_left(self, seconds: float) -> Remaining:
        """Return a function that returns the seconds left, in the time of the simulated API."""
        end = self.clock.now() + timedelta(seconds=seconds)
        return lambda: (end - self.clock.now()).total_seconds()

    def group(self, name: str) -> Group:
        return self.api.groups.by_name[name]

    def numbers(self, name: str) -> tuple[int, int, int, int]:
        """Return a group's minimum, desired capacity, number of running instances, and maximum."""
        group = self.group(name)
        running = sum(instance.state == "InService" for instance in group.instances.values())
        return group.minimum, group.desired, running, group.maximum

    def tags(self, name: str) -> dict[str, str]:
        return {key: value for key, (value, _) in self.group(name).tags.items()}

    def decision(self, name: str) -> str:
        """Return the stored decision about a group."""
        return self.decisions.load("demo").get(name, "")

    def observe(self, *, consistent: bool = False) -> dict[str, NodeGroup]:
        cluster = self.clusters.open(self.record, plenty, consistent=consistent)
        return {group.key.name: group for group in cluster.observe().groups}

    def run(self) -> RunSummary:
        return worker(self.store, self.clusters, self.clock, self.queue)("demo", "a test", plenty)

    def settle(self) -> None:
        """Run until there is nothing to write."""
        for _ in range(8):
            summary = self.run()
            if not summary.written and not summary.conflicts:
                return
            self.minutes(1)
        raise AssertionError("eight runs, and it still writes, or meets conflicts")

    def restore(self) -> None:
        stored = self.store.load("demo")
        self.store.save_record(stored.record, ControlRecord(restoring=True), stored.versions)
        self.settle()


def register(store: InMemoryStore, **fields: Any) -> ClusterRecord:
    """Store a record with access to the groups."""
    access = {"kind": "auto-scaling", "region": REGION}
    record = Registration.model_validate({"id": "demo", "access": access, **fields}).record
    store.save_record(record, ControlRecord(), None)
    return record


def tag(group: str, key: str, value: str) -> dict[str, Any]:
    kind = "auto-scaling-group"
    return {"ResourceId": group, "ResourceType": kind, "Key": key, "Value": value, "PropagateAtLaunch": False}


class Ec2:
    """EC2's DescribeInstanceTypes with some instance types."""

    def __init__(self, *, refused: bool = False) -> None:
        self.refused, self.asked = refused, list[list[str]]()

    def describe_instance_types(self, *, Filters: list[dict[str, Any]], **_: Any) -> dict[str, Any]:  # noqa: N803
        (names,) = (each["Values"] for each in Filters if each["Name"] == "instance-type")
        self.asked.append(names)
        if self.refused:
            error = {"Code": "UnauthorizedOperation", "Message": "You are not authorized to perform this operation."}
            raise ClientError({"Error": error, "ResponseMetadata": {"HTTPStatusCode": 403}}, "DescribeInstanceTypes")
        return {"InstanceTypes": [TYPES[name] for name in names if name in TYPES]}


def instance_type(name: str, cpu: int, mib: int, arch: str = "x86_64", gpus: Sequence[Any] = ()) -> dict[str, Any]:
    found: dict[str, Any] = {
        "InstanceType": name,
        "ProcessorInfo": {"SupportedArchitectures": [arch]},
        "VCpuInfo": {"DefaultVCpus": cpu, "DefaultCores": cpu // 2},
        "MemoryInfo": {"SizeInMiB": mib},
    }
    return {**found, "GpuInfo": {"Gpus": list(gpus)}} if gpus else found


TYPES = {
    each["InstanceType"]: each
    for each in (
        instance_type("m5.xlarge", 4, 16384),
        instance_type("m7g.large", 2, 8192, "arm64"),
        instance_type("g5.12xlarge", 48, 196608, gpus=[{"Name": "A10G", "Manufacturer": "NVIDIA", "Count": 4}]),
        instance_type("g4ad.xlarge", 4, 16384, gpus=[{"Name": "V520", "Manufacturer": "AMD", "Count": 1}]),
    )
}


def strip(stage: Stage, name: str, *kept: str) -> None:
    """Remove the tags that a configuration does not name, as Terraform does."""
    stage.api.delete_tags(Tags=[tag(name, key, "") for key in stage.tags(name) if key not in kept])


def runs_with_rights(stage: Stage, minutes: int, check: Callable[[], None] = lambda: None) -> None:
    """Run each minute. The policy denies every write to a group without the pool's tag, and none is tried."""

    def before(operation: str, request: dict[str, Any]) -> None:
        check()
        named = [request.get("AutoScalingGroupName"), *(each["ResourceId"] for each in request.get("Tags", ()))]
        for name in named if not operation.startswith("Describe") else ():
            assert name not in stage.api.groups.by_name or "evenkeel.dev/pool" in stage.tags(name), operation

    for _ in range(minutes):
        stage.minutes(1)
        stage.api.before = before
        stage.run()
        stage.api.before = lambda _operation, _request: None
        check()


def no_workload(record: ClusterRecord, _remaining: Remaining) -> Drainer:
    raise AssertionError(f"{record.id} has no workload")


class SessionAt(AwsSession):
    """A session whose clients reach one server, whatever the environment says."""

    def __init__(self, url: str) -> None:
        super().__init__()
        self.url = url

    def client(self, service: str, **settings: Any) -> Any:
        keys = {"aws_access_key_id": "KEY", "aws_secret_access_key": "secret"}
        return super().client(service, endpoint_url=self.url, **{**keys, **settings})


@contextmanager
def over_http(stage: Stage) -> Iterator[AwsServer]:
    """Open the stage's clusters as deployed code does: with boto3's clients, over HTTP. Yield the server."""
    with AwsServer(lambda _key, _region: {"autoscaling": stage.api, "eks": stage.eks}) as server:
        session = SessionAt(server.url)
        kept = NodeGroups(random=lambda: 0.0)
        stage.clusters = AutoScalingClusters(
            session=session, clock=stage.clock, drainer=no_workload, node_groups=kept, decisions=stage.decisions
        )
        yield server


def outage(**fields: Any) -> tuple[Stage, list[str]]:
    """Return three zones with two nodes each. Two more are requested in a zone that refuses them."""
    stage = Stage(autoscaler="none", **fields)
    names = stage.pool()
    stage.settle()
    stage.refuse(ZONES[1])
    stage.api.set_desired_capacity(AutoScalingGroupName=names[1], DesiredCapacity=4)
    stage.minutes(3)
    return stage, names
