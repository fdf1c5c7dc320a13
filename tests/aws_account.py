"""An account with Auto Scaling groups, and the AWS command line's output about them."""

import json
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

from click.testing import Result
from typer.testing import CliRunner

from evenkeel_cli.main import app
from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.node_groups import NodeGroups
from sandbox.kube.cloud import Cloud

A, B, C = ZONES = [f"eu-central-1{letter}" for letter in "abc"]
OF_BLUE = {"kubernetes.io/cluster/blue": "owned", "k8s.io/cluster-autoscaler/enabled": "true"}


class Account:
    """An account with Auto Scaling groups and EKS node groups, and the files that the AWS command line writes."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.cloud = Cloud(zones=ZONES)
        self.api = AutoScaling(self.cloud)
        self.eks = NodeGroups(self.api)

    def create(
        self,
        name: str,
        *zones: str,
        bounds: tuple[int, int] = (1, 6),
        nodes: int = 2,
        pool: str = "",
        tags: Mapping[str, str] = OF_BLUE,
    ) -> None:
        of_pool = {"evenkeel.dev/pool": pool} if pool else {}
        self.api.create_auto_scaling_group(
            AutoScalingGroupName=name,
            MinSize=bounds[0],
            MaxSize=bounds[1],
            DesiredCapacity=nodes,
            AvailabilityZones=[*zones],
            LaunchTemplate={"LaunchTemplateName": "workers", "Version": "1"},
            Tags=[{"Key": key, "Value": value} for key, value in {**tags, **of_pool}.items()],
        )
        self.run(1)

    def create_pool(self, pool: str = "workers", tags: Mapping[str, str] = OF_BLUE) -> None:
        for zone in ZONES:
            self.create(f"{pool}-{zone}", zone, pool=pool, tags=tags)

    def run(self, minutes: int) -> None:
        self.api.clock.run(timedelta(minutes=minutes))

    def desire(self, name: str, nodes: int) -> None:
        self.api.set_desired_capacity(AutoScalingGroupName=name, DesiredCapacity=nodes)
        self.run(3)

    def groups(self) -> dict[str, Any]:
        return {"AutoScalingGroups": self.api.describe_auto_scaling_groups(MaxRecords=100)["AutoScalingGroups"]}

    def activities(self, name: str) -> dict[str, Any]:
        return {"Activities": self.api.describe_scaling_activities(AutoScalingGroupName=name)["Activities"]}

    def file(self, name: str, content: Any) -> str:
        path = self.folder / name
        path.write_text(json.dumps(content, default=datetime.isoformat), encoding="utf-8")
        return str(path)

    def plan(self, *contents: Any, record: Any = None, options: Sequence[str] = ()) -> Result:
        files = [self.file(f"{number}.json", content) for number, content in enumerate(contents)]
        given_record = [] if record is None else ["--record", self.file("record.json", record)]
        arguments = [word for file in files for word in ("-f", file)]
        now = self.api.clock.now.isoformat()
        return invoke("plan", *arguments, *given_record, "--now", now, *options)

    def planned(self, *contents: Any, record: Any = None) -> dict[str, Any]:
        result = self.plan(*contents, record=record, options=["-o", "json"])
        document: dict[str, Any] = json.loads(result.stdout)
        return document


def invoke(*arguments: str, **variables: str) -> Result:
    return CliRunner().invoke(app, [*arguments], env=variables or None, catch_exceptions=False)


def loop(names: Sequence[str], pool: str) -> str:
    tag = (
        f"ResourceId=$group,ResourceType=auto-scaling-group,Key=evenkeel.dev/pool,Value={pool},PropagateAtLaunch=false"
    )
    command = "aws autoscaling create-or-update-tags --region eu-central-1 --tags"
    return f'for group in {" ".join(names)}; do {command} "{tag}"; done'
