"""Return the history that answers of AWS tell: activities, groups, managed node groups and CloudTrail's events."""

import json
import re
from collections.abc import Mapping, Sequence
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any

from evenkeel.adapters.auto_scaling.installers import clusters_of, control_plane_tag
from evenkeel.adapters.auto_scaling.read import tags_of
from evenkeel.adapters.own_annotations import POOL_LABEL
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.groups import GroupKey, Identity, NodeGroup
from evenkeel.validation import ConfigError
from evenkeel_cli.aws_documents import AwsDocuments, answer_of, is_of_cluster
from evenkeel_cli.aws_names import is_called_other, plain_name, stems, without_zone
from evenkeel_cli.inputs import documents_of
from evenkeel_cli.lookback.activities import GroupActivities, second, text_of
from evenkeel_cli.lookback.history import Doubt, GroupHistory, History, KnownBounds

SOURCE = "Auto Scaling"
_DAY = 86400
_PAGE = 100
LONGEST = 42  # days that AWS keeps activities
_WRITES = ("SetDesiredCapacity", "UpdateAutoScalingGroup")
_NO_TRAIL = "former bounds of groups, and desired capacities that fell without an activity (CloudTrail has both)"


class Answers(AwsDocuments):
    """Answers of AWS, also those of CloudTrail."""

    def __init__(self) -> None:
        super().__init__()
        self.events: list[Mapping[str, Any]] = []
        self.has_activities = False  # an answer about activities is given, which may be empty
        self.cut_before = 0  # a file with one page of activities has none before this second

    def read_files(self, files: Sequence[tuple[str, str]]) -> None:
        """Add the answers of files, given as (name, text). Raises ConfigError with a line per fault."""
        faults: list[str] = []
        for file, number, document in documents_of(files, faults):
            faults += [f"{file}: document {number}: {fault}" for fault in self._take(document)]
        if faults:
            raise ConfigError(faults)

    def _take(self, document: object) -> Sequence[str]:
        if isinstance(document, Mapping) and isinstance(document.get("Events"), list):
            self.events += [event for event in document["Events"] if isinstance(event, Mapping)]
            return ["NextToken: the list goes on: print all of it"] if document.get("NextToken") else ()
        answer = answer_of(document)
        if answer is None:
            return ["no answer of the AWS command line: give describe-scaling-activities with --output json"]
        self.has_activities |= "Activities" in answer
        before = len(self.activities)
        faults = self.add(answer)
        if not faults and len(page := self.activities[before:]) == _PAGE:
            self.cut_before = max(self.cut_before, min(second(activity["StartTime"]) for activity in page))
        return faults


def read_history(answers: Answers, days: int, now: datetime | None) -> History:
    """Return the history of the groups of Kubernetes clusters. ``now``: None for the time of the last activity.

    Raises ConfigError if an answer is missing, or if the answers are of several accounts or Regions.
    """
    activities = {activity["ActivityId"]: activity for activity in answers.activities}  # of two copies, the later
    times = [moment for one in activities.values() for moment in (one["StartTime"], one.get("EndTime")) if moment]
    until = second(now or max(times, default=datetime.now(UTC)))
    if times and until < second(min(times)):
        raise ConfigError([f"--now is before the first activity, {text_of(second(min(times)))}: choose a later time"])
    since = until - min(days, LONGEST) * _DAY
    zones = {str(item["AutoScalingGroupName"]): item["AvailabilityZones"] for item in answers.groups}
    read: dict[str, GroupActivities] = {}
    for activity in activities.values():
        if since <= second(activity["StartTime"]):
            name = str(activity["AutoScalingGroupName"])
            only_zone = zones[name][0] if len(zones.get(name, ())) == 1 else ""
            read.setdefault(name, GroupActivities(since, only_zone)).add(activity)
    described = _described(answers, read)
    _refuse_misfits(answers, described, read)
    pools, trail = _pools(described), _trail(answers.events)
    for pool in set(pools.values()):
        members = [read[name] for name in described if pools[name] == pool and name in read]
        times = sorted({at for group in members for at, before, after in group.changes if after > before})
        for group in members:
            group.find_hidden(times)
    deleted = sorted(read.keys() - {str(item["AutoScalingGroupName"]) for item in answers.groups} - described.keys())
    lost = {pool: _lost(pool, deleted, read) for pool in pools.values()}
    if activities and all(activity["StatusCode"] == "Failed" for activity in activities.values()):
        filtered = Doubt(until + 1, "all activities have failed: print them without a filter on Status")
        lost = {pool: (*doubts, filtered) for pool, doubts in lost.items()}
    groups = [
        _group(item, read.get(name, GroupActivities(since)), pools[name], trail.get(name, ()), lost[pools[name]])
        for name, item in described.items()
    ]
    unknown = [f"what {command} prints, which is not read here" for command in dict.fromkeys(answers.unused)]
    unknown += [] if answers.events else [_NO_TRAIL]
    if deleted:
        more = f" and {len(deleted) - 1} more" if len(deleted) > 1 else ""
        unknown.append(
            f"groups that are deleted, because their bounds and first instances are lost: {deleted[0]}{more}"
        )
    if answers.cut_before > since:
        unknown.append(
            f"anything before {text_of(answers.cut_before)}: a file has exactly one page of activities, print all"
        )
    return History(
        source=SOURCE,
        since=max(since, answers.cut_before),
        until=until,
        step=1,
        groups=tuple(groups),
        unknown=tuple(unknown),
    )


def _described(answers: Answers, read: Mapping[str, GroupActivities]) -> dict[str, Mapping[str, Any]]:
    """Return the groups of workers by name. EKS describes those of its node groups, too, but not their instances."""
    found = {str(item["AutoScalingGroupName"]): item for item in answers.groups}
    for node_group in answers.node_groups:
        for each in node_group.get("resources", {}).get("autoScalingGroups", ()):
            name, sizes = str(each.get("name")), node_group.get("scalingConfig") or {}
            zones = sorted(read[name].zones) if name in read else []
            if name in found or not zones or "desiredSize" not in sizes:
                continue
            alive = sum(one.ended is None for one in read[name].instances.values())
            older = [{"InstanceId": f"i-{number}"} for number in range(max(0, sizes["desiredSize"] - alive))]
            tags = {
                "eks:nodegroup-name": node_group.get("nodegroupName"),
                "eks:cluster-name": node_group.get("clusterName"),
            }
            found[name] = {
                "AutoScalingGroupName": name,
                "MinSize": sizes.get("minSize", 0),
                "MaxSize": sizes.get("maxSize", sizes["desiredSize"]),
                "DesiredCapacity": sizes["desiredSize"],
                "AvailabilityZones": zones,
                "Instances": older,
                "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            }
    return {
        name: item
        for name, item in found.items()
        if is_of_cluster(item)
        and not control_plane_tag(name, tags_of(item))
        and not is_called_other(name, tags_of(item))
    }


def _refuse_misfits(
    answers: Answers, described: Mapping[str, Mapping[str, Any]], read: Mapping[str, GroupActivities]
) -> None:
    every = (*described.values(), *answers.activities)
    arns = (str(item.get("AutoScalingGroupARN") or "").split(":") for item in every)
    places = sorted({f"{arn[4]} {arn[3]}" for arn in arns if len(arn) > 4})
    if len(places) > 1:
        raise ConfigError([f"the answers are of {', '.join(places)}: look back at one account and Region"])
    if not described and not answers.groups:
        raise ConfigError(["no group is described: add the answer of aws autoscaling describe-auto-scaling-groups"])
    if not described:
        tags = "eks:…, kubernetes.io/cluster/…, k8s.io/cluster-autoscaler/… or evenkeel.dev/…"
        raise ConfigError([f"none of {len(answers.groups)} groups is of a cluster's workers: none has a tag {tags}"])
    if not answers.has_activities:
        raise ConfigError(["no activity is given: add the answer of aws autoscaling describe-scaling-activities"])
    if read and not read.keys() & {*described, *(str(item["AutoScalingGroupName"]) for item in answers.groups)}:
        raise ConfigError(["no activity is of a described group: give answers of one account and Region"])


def _pools(described: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the pool of each group: its tag, else what the names of groups in several zones share."""
    single = [_node_group(name, item) for name, item in described.items() if len(item["AvailabilityZones"]) == 1]
    found = {key.name: stem for key, stem in stems(single).items()}
    full: dict[str, tuple[str, str]] = {}
    for name, item in described.items():
        tags = tags_of(item)
        pool = tags.get(POOL_LABEL) or found.get(name) or plain_name(name, tags)
        full[name] = (next(iter(clusters_of(tags)), ""), pool)
    ambiguous = {pool for _, pool in full.values() if len({place for place in full.values() if place[1] == pool}) > 1}
    return {
        name: _plain(f"{cluster}.{pool}" if pool in ambiguous and cluster else pool)
        for name, (cluster, pool) in full.items()
    }


def _plain(name: str) -> str:
    """Return a name that a scenario may use."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower())[:63].strip("-.") or "workers"


def _node_group(name: str, item: Mapping[str, Any]) -> NodeGroup:
    tags = tags_of(item)
    identity = Identity(
        kind="AutoScalingGroup",
        cluster=next(iter(clusters_of(tags)), ""),
        labels=tags,
        zone=str(item["AvailabilityZones"][0]),
    )
    return NodeGroup(key=GroupKey(AUTO_SCALING, "", name), identity=identity)


def _lost(pool: str, deleted: Sequence[str], read: Mapping[str, GroupActivities]) -> tuple[Doubt, ...]:
    """Return the doubts from groups that are deleted and, by their names, were of a pool."""
    return tuple(
        Doubt(read[name].newest, f"{name} is deleted, and its bounds and first instances are lost")
        for name in deleted
        if any(_plain(without_zone(plain_name(name, {}), zone) or "") == pool for zone in read[name].zones)
    )


def _group(
    item: Mapping[str, Any],
    read: GroupActivities,
    pool: str,
    trail: Sequence[Mapping[str, Any]],
    lost: tuple[Doubt, ...],
) -> GroupHistory:
    name = str(item["AutoScalingGroupName"])
    read.list_present(item.get("Instances") or ())
    for event in trail:
        read.add_write(event["at"], event)
    now = KnownBounds(max([read.since, *read.bounds]) + 1, int(item["MinSize"]), int(item["MaxSize"]))
    last = read.bounds[max(read.bounds)] if read.bounds else now
    bounds = [read.bounds[at] for at in sorted(read.bounds)]
    if (last.min, last.max) != (now.min, now.max) or not bounds:
        bounds.append(now)
    return GroupHistory(
        name=name,
        pool=pool,
        zones=tuple(sorted(item["AvailabilityZones"])),
        bounds=tuple(bounds),
        running=read.running(),
        orders=read.orders(),
        removals=read.removals(),
        losses=read.losses(),
        refusals=tuple(sorted(read.refusals, key=lambda refusal: refusal.at)),
        launches=read.launches(),
        doubts=(*read.doubts(name), *lost),
    )


def _trail(events: Sequence[Mapping[str, Any]]) -> dict[str, list[Mapping[str, Any]]]:
    """Return the successful writes of CloudTrail's events by group, in order of time."""
    found: dict[str, list[Mapping[str, Any]]] = {}
    for event in events:
        with suppress(ValueError, TypeError, KeyError, AttributeError):
            record = json.loads(event["CloudTrailEvent"])
            request = record["requestParameters"]
            if record["eventName"] in _WRITES and not record.get("errorCode"):
                at = second(datetime.fromisoformat(record["eventTime"]))
                found.setdefault(str(request["autoScalingGroupName"]), []).append({**request, "at": at})
    return {name: sorted(writes, key=lambda write: write["at"]) for name, writes in found.items()}
