"""EKS managed node groups: EKS writes to their Auto Scaling groups, later than it is asked, and drains their nodes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from sandbox.auto_scaling.api import AutoScaling
from sandbox.auto_scaling.behavior import Rate
from sandbox.auto_scaling.calls import AwsError, Json, Service, operation, page
from sandbox.auto_scaling.groups import TERMINATING, Group
from sandbox.auto_scaling.past import Past

_HOOK = "Terminate-LC-Hook"
_UPDATABLE = ("ACTIVE", "DEGRADED")
_OWN_MEMBERS = ("clusterName", "nodegroupName", "scalingConfig", "clientRequestToken", "launchTemplate")


@dataclass(kw_only=True, eq=False)
class NodeGroup:
    """A managed node group. Its bounds are those that EKS stores, not those of the Auto Scaling group."""

    cluster: str
    name: str
    group: str
    created: datetime
    minimum: int
    maximum: int
    settings: Json
    status: str = "CREATING"
    issues: list[Json] = field(default_factory=list)
    updates: dict[str, Json] = field(default_factory=dict)


class NodeGroups(Service):
    """The node groups of the EKS clusters in the account and Region of an Auto Scaling API."""

    invalid = "InvalidParameterException"

    def __init__(
        self,
        auto_scaling: AutoScaling,
        *,
        update: timedelta = timedelta(seconds=30),
        drain: timedelta = timedelta(minutes=1),
    ) -> None:
        behavior = auto_scaling.behavior
        super().__init__(auto_scaling.clock, behavior)
        self.auto_scaling = auto_scaling
        self.update, self.drain = update, drain  # from a request to the write, and from a hook to its completion
        self.clusters: dict[str, dict[str, NodeGroup]] = {}
        self.past = Past[tuple[str, str], NodeGroup](
            self.clock, behavior, self._by_name, lambda former, one: vars(former) == vars(one)
        )
        #: members of descriptions that differ from what is simulated, by the name of a node group
        self.overrides: dict[str, Json] = {}
        auto_scaling.log.listeners.append(self._receive)

    @property
    def rate(self) -> Rate | None:
        """Return the rate of the token bucket; None: calls are not throttled."""
        return self.behavior.eks_rate

    def throttled(self) -> AwsError:
        """Return the error of a throttled call."""
        return AwsError("ThrottlingException", "Rate exceeded")

    @operation
    def create_nodegroup(self, request: Json) -> Json:
        """Create a node group and its Auto Scaling group."""
        cluster, name = request["clusterName"], request["nodegroupName"]
        if name in self.clusters.get(cluster, {}):
            raise AwsError("ResourceInUseException", f"NodeGroup already exists with name {name}", 409)
        scaling = {"minSize": 1, "maxSize": 2, "desiredSize": 2, **request.get("scalingConfig", {})}
        _check(scaling)
        number = self.auto_scaling.log.next_number()
        node_group = NodeGroup(
            cluster=cluster,
            name=name,
            group=f"eks-{name}-{number:08x}-0000-4000-d000-{number:012x}",
            created=self.clock.now,
            minimum=scaling["minSize"],
            maximum=scaling["maxSize"],
            settings={key: value for key, value in request.items() if key not in _OWN_MEMBERS},
        )
        self.clusters.setdefault(cluster, {})[name] = node_group
        self._create_group(node_group, scaling["desiredSize"])
        self.clock.after(self.update, self._activate, node_group)
        return {"nodegroup": self._describe(node_group)}

    @operation
    def list_nodegroups(self, request: Json) -> Json:
        """Return one page of the names of a cluster's node groups."""
        names, token = page(sorted(self._cluster(request)), request.get("nextToken"), request.get("maxResults", 100))
        return {"nodegroups": [*names], **({"nextToken": token} if token else {})}

    @operation
    def describe_nodegroup(self, request: Json) -> Json:
        """Return a node group."""
        seen = self.past.see((request["clusterName"], request["nodegroupName"])) or self._find(request)
        return {"nodegroup": self._describe(seen) | self.overrides.get(seen.name, {})}

    @operation
    def update_nodegroup_config(self, request: Json) -> Json:
        """Begin to change the configuration. EKS writes its bounds to the group, also if only labels change.

        A change of the scaling configuration also writes the desired capacity that was read now.
        """
        node_group, scaling = self._updatable(request), request.get("scalingConfig", {})
        now = self._describe(node_group)["scalingConfig"]
        wanted = now | scaling
        _check(wanted)
        node_group.minimum, node_group.maximum = wanted["minSize"], wanted["maxSize"]
        node_group.settings |= {key: request[key] for key in ("updateConfig", "nodeRepairConfig") if key in request}
        names = {"minSize": "MinSize", "maxSize": "MaxSize", "desiredSize": "DesiredSize"}
        update = self._begin(node_group, "ConfigUpdate", {names[key]: value for key, value in scaling.items()})
        bounds = {"MinSize": wanted["minSize"], "MaxSize": wanted["maxSize"]}
        bounds |= {"DesiredCapacity": wanted["desiredSize"]} if scaling else {}
        self.clock.after(self.update, self._continue, node_group, update, self._write_bounds, bounds)
        return {"update": dict(update)}

    @operation
    def update_nodegroup_version(self, request: Json) -> Json:
        """Begin to replace all nodes. EKS raises the maximum and the desired capacity first, and lowers them last."""
        node_group = self._updatable(request)
        node_group.settings |= {key: request[key] for key in ("version", "releaseVersion") if key in request}
        update = self._begin(node_group, "VersionUpdate", {"Version": request.get("version", "")})
        self.clock.after(self.update, self._continue, node_group, update, self._scale_up)
        return {"update": dict(update)}

    @operation
    def describe_update(self, request: Json) -> Json:
        """Return an update of a node group."""
        node_group = self._find({"clusterName": request["name"], "nodegroupName": request.get("nodegroupName", "")})
        if request["updateId"] not in node_group.updates:
            raise AwsError("ResourceNotFoundException", f"No update found for ID: {request['updateId']}", 404)
        return {"update": dict(node_group.updates[request["updateId"]])}

    # -- updates --------------------------------------------------------------------------------------------------

    def _begin(self, node_group: NodeGroup, kind: str, parameters: Json) -> Json:
        number = self.auto_scaling.log.next_number()
        update: Json = {
            "id": f"{number:08x}-0000-4000-e000-{number:012x}",
            "status": "InProgress",
            "type": kind,
            "params": [{"type": name, "value": str(value)} for name, value in parameters.items()],
            "createdAt": self.clock.now,
            "errors": [],
        }
        node_group.updates[update["id"]] = update
        node_group.status = "UPDATING"
        return update

    def _continue(self, node_group: NodeGroup, update: Json, step: Callable[..., None], *arguments: Any) -> None:
        """Run a step of an update. An error of Auto Scaling ends the update."""
        try:
            step(node_group, update, *arguments)
        except AwsError as error:
            failure = {"errorCode": "Unknown", "errorMessage": error.message, "resourceIds": [node_group.group]}
            update["errors"] = [failure]
            self._end(node_group, update, "Failed")

    def _end(self, node_group: NodeGroup, update: Json, status: str) -> None:
        update["status"] = status
        self._activate(node_group)

    def _activate(self, node_group: NodeGroup) -> None:
        node_group.status = "DEGRADED" if node_group.issues else "ACTIVE"

    def _write_bounds(self, node_group: NodeGroup, update: Json, bounds: Json) -> None:
        self._write(AutoScaling.update_auto_scaling_group, node_group, **bounds)
        self._end(node_group, update, "Successful")

    def _scale_up(self, node_group: NodeGroup, update: Json) -> None:
        group = self._group(node_group)
        most = node_group.settings.get("updateConfig", {}).get("maxUnavailable", 1)
        extra = max(2 * len(group.zones), most)
        policy = group.settings["MixedInstancesPolicy"]
        template = policy["LaunchTemplate"]["LaunchTemplateSpecification"]
        template["Version"] = str(int(template["Version"]) + 1)
        self._resize(node_group, extra)
        self.clock.after(self.update, self._continue, node_group, update, self._replace, most, extra)

    def _replace(self, node_group: NodeGroup, update: Json, most: int, extra: int) -> None:
        """Terminate the next old nodes if all others run, then give the extra capacity back."""
        group = self._group(node_group)
        counted = group.counted
        old = [instance for instance in counted if instance.template != group.template]
        if len(counted) >= group.desired and all(instance.state == "InService" for instance in counted):
            for instance in old[:most]:
                self._write(
                    AutoScaling.terminate_instance_in_auto_scaling_group,
                    node_group,
                    InstanceId=instance.id,
                    ShouldDecrementDesiredCapacity=False,
                )
            if not old:
                extra -= 1
                self._resize(node_group, -1)
        if extra:
            self.clock.after(self.update, self._continue, node_group, update, self._replace, most, extra)
        else:
            self._end(node_group, update, "Successful")

    def _resize(self, node_group: NodeGroup, change: int) -> None:
        group = self._group(node_group)
        self._write(
            AutoScaling.update_auto_scaling_group,
            node_group,
            MaxSize=group.maximum + change,
            DesiredCapacity=group.desired + change,
        )

    # -- the Auto Scaling group -----------------------------------------------------------------------------------

    def _create_group(self, node_group: NodeGroup, desired: int) -> None:
        settings, cluster = node_group.settings, node_group.cluster
        discovery = "k8s.io/cluster-autoscaler"
        tags = {
            "eks:cluster-name": cluster,
            "eks:nodegroup-name": node_group.name,
            f"{discovery}/enabled": "true",
            f"{discovery}/{cluster}": "owned",
            f"kubernetes.io/cluster/{cluster}": "owned",
        }
        template = {"LaunchTemplateName": node_group.group, "Version": "1"}
        overrides = [{"InstanceType": machine_type} for machine_type in settings.get("instanceTypes", ["t3.medium"])]
        spot = settings.get("capacityType") == "SPOT"
        self._write(
            AutoScaling.create_auto_scaling_group,
            node_group,
            MinSize=node_group.minimum,
            MaxSize=node_group.maximum,
            DesiredCapacity=desired,
            VPCZoneIdentifier=",".join(settings["subnets"]),
            MixedInstancesPolicy={
                "LaunchTemplate": {"LaunchTemplateSpecification": template, "Overrides": overrides},
                "InstancesDistribution": {"OnDemandPercentageAboveBaseCapacity": 0 if spot else 100},
            },
            Tags=[{"Key": key, "Value": value, "PropagateAtLaunch": True} for key, value in tags.items()],
            LifecycleHookSpecificationList=[
                {"LifecycleHookName": _HOOK, "LifecycleTransition": TERMINATING, "HeartbeatTimeout": 1800}
                | {"DefaultResult": "CONTINUE"}
            ],
        )

    def _write(self, method: Callable[..., Json], node_group: NodeGroup, **request: Any) -> None:
        """Call an operation as EKS: not throttled, and not among the calls of users."""
        implement: Callable[..., Any] = method.__wrapped__  # type: ignore[attr-defined]
        implement(self.auto_scaling, {"AutoScalingGroupName": node_group.group, **request})

    def _group(self, node_group: NodeGroup) -> Group:
        groups = self.auto_scaling.groups.by_name
        if node_group.group not in groups:
            raise AwsError("AutoScalingGroupNotFound", f"AutoScalingGroup {node_group.group} not found")
        return groups[node_group.group]

    def _receive(self, event: Json) -> None:
        """Drain the nodes that the group terminates, and report launches that fail."""
        name = event["detail"]["AutoScalingGroupName"]
        for node_group in (one for groups in self.clusters.values() for one in groups.values() if one.group == name):
            match event["detail-type"]:
                case "EC2 Instance-terminate Lifecycle Action":
                    self.clock.after(self.drain, self._complete, node_group, event["detail"]["EC2InstanceId"])
                case "EC2 Instance Launch Unsuccessful":
                    if event["detail"]["StatusCode"] == "Failed":
                        issue = {"code": "AsgInstanceLaunchFailures", "message": event["detail"]["StatusMessage"]}
                        node_group.issues = [{**issue, "resourceIds": [name]}]
                case "EC2 Instance Launch Successful":
                    node_group.issues = []
            if node_group.status in _UPDATABLE:
                self._activate(node_group)

    def _complete(self, node_group: NodeGroup, instance_id: str) -> None:
        group, instance = self.auto_scaling.groups.find(node_group.group, instance_id)
        if group and instance and _HOOK in instance.waits:
            self.auto_scaling.groups.complete(group, instance, _HOOK, "CONTINUE", "")

    # -- parts ----------------------------------------------------------------------------------------------------

    def _by_name(self) -> dict[tuple[str, str], NodeGroup]:
        return {(one.cluster, one.name): one for groups in self.clusters.values() for one in groups.values()}

    def _cluster(self, request: Json) -> dict[str, NodeGroup]:
        name = request["clusterName"]
        if name not in self.clusters:
            raise AwsError("ResourceNotFoundException", f"No cluster found for name: {name}.", 404)
        return self.clusters[name]

    def _find(self, request: Json) -> NodeGroup:
        node_groups, name = self._cluster(request), request["nodegroupName"]
        if name not in node_groups:
            raise AwsError("ResourceNotFoundException", f"No node group found for name: {name}.", 404)
        return node_groups[name]

    def _updatable(self, request: Json) -> NodeGroup:
        node_group = self._find(request)
        if node_group.status not in _UPDATABLE:
            reason = "Nodegroup cannot be updated as it is currently not in Active State"
            raise AwsError("ResourceInUseException", reason, 409)
        return node_group

    def _describe(self, node_group: NodeGroup) -> Json:
        group = self.auto_scaling.groups.by_name.get(node_group.group)
        arn = f"arn:aws:eks:{self.auto_scaling.region}:{self.auto_scaling.account}:nodegroup"
        return {
            **{"capacityType": "ON_DEMAND", "instanceTypes": ["t3.medium"], "updateConfig": {"maxUnavailable": 1}},
            **node_group.settings,
            "nodegroupName": node_group.name,
            "nodegroupArn": f"{arn}/{node_group.cluster}/{node_group.name}/00000000-0000-4000-f000-000000000000",
            "clusterName": node_group.cluster,
            "createdAt": node_group.created,
            "modifiedAt": node_group.created,
            "status": node_group.status,
            "scalingConfig": {
                "minSize": node_group.minimum,
                "maxSize": node_group.maximum,
                "desiredSize": group.desired if group else 0,
            },
            "resources": {"autoScalingGroups": [{"name": node_group.group}]},
            "health": {"issues": list(node_group.issues)},
        }


def _check(scaling: Json) -> None:
    minimum, maximum, desired = scaling["minSize"], scaling["maxSize"], scaling["desiredSize"]
    if minimum > desired:
        text = f"Minimum capacity {minimum} can't be greater than desired size {desired}"
        raise AwsError("InvalidParameterException", text)
    if desired > maximum:
        text = f"Desired capacity {desired} can't be greater than max size {maximum}"
        raise AwsError("InvalidParameterException", text)
