"""`evenkeel discover`: propose records for existing clusters, as a fleet file. It stores nothing.

No proposed record has ``dry_run``, so that ``live`` decides. Until then, the stack's ``DryRun`` applies.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from botocore.exceptions import ClientError

from evenkeel.adapters.auto_scaling.installers import OWNED, clusters_of
from evenkeel.adapters.auto_scaling.read import tags_of
from evenkeel.adapters.aws.zone_names import ZoneNames
from evenkeel.adapters.aws_faults import AWS_ERRORS, text_of
from evenkeel.adapters.kubernetes.objects import get_path, name_of, string_map
from evenkeel.adapters.own_annotations import POOL_LABEL
from evenkeel.application.errors import AccessError
from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.fleet import LABEL_KEY, LABEL_VALUE
from evenkeel.texts.english import counted
from evenkeel_cli.fleet import fleet_yaml
from evenkeel_cli.stack_client import CannotAskError, credentials_error, role_arns, session
from evenkeel_cli.terminal import CANNOT_READ, confirm, fail, say, say_lines

Json = dict[str, Any]
_READERS = "evenkeel-readers"
# The roles in template.yaml that need access to clusters, each with its Kubernetes group (docs/guides/eks.md).
_GROUPS = {"RebalanceRole": "evenkeel", "CheckRole": _READERS, "OperatorRole": _READERS, "WidgetRole": _READERS}
_AWS_REGION = re.compile(r"[a-z]{2}(-[a-z]+)+-[0-9]+")
_OF_CONTROLLERS = re.compile(r"(k8s\.io|kubernetes\.io|gardener\.cloud)/")
_NOT_OF_AN_ID = re.compile(r"[^a-z0-9._-]")


class Kinds(NamedTuple):
    """Where to list objects: the kubeconfig and context, and the namespace and labels of the objects."""

    kubeconfig: str | None
    context: str | None
    namespace: str | None
    selector: str | None


def eks(tag: Sequence[str], stack: str | None, *, grant: bool, yes: bool) -> None:
    """Propose a record for each EKS cluster that has the given tags. Each record contains the account's zone ids."""
    tags = dict(_pair(text) for text in tag)
    if grant and stack is None:
        fail(["--grant goes with --stack: it says whom to let in"])
    try:
        aws = session()
        eks = aws.client("eks")
        names = [name for page in eks.get_paginator("list_clusters").paginate() for name in page["clusters"]]
        clusters = [eks.describe_cluster(name=name)["cluster"] for name in names]
        clusters = [cluster for cluster in clusters if tags.items() <= (cluster.get("tags") or {}).items()]
        zone_ids = _zone_ids(aws, eks.meta.region_name) if clusters else {}
        arns = role_arns(stack, _GROUPS) if stack is not None else {}
    except AWS_ERRORS as error:
        raise credentials_error(error) or CannotAskError(f"AWS: {text_of(error)}") from None
    region: str = eks.meta.region_name
    records = [
        _record(
            cluster["name"],
            "cluster-api",
            {"kind": "eks", "name": cluster["name"], "region": region},
            region=region,
            zone_ids=dict(zone_ids),
            account=cluster["arn"].split(":")[4],
            labels=_valid_labels(tags),
        )
        for cluster in clusters
    ]
    entries = [(cluster["name"], group, arns[role]) for cluster in clusters for role, group in _GROUPS.items() if arns]
    _print(records, [] if grant else [_command(region, *entry) for entry in entries])
    if grant and entries:
        confirm(f"let {counted(len(arns), 'role')} into {counted(len(clusters), 'cluster')}", yes=yes)
        _grant(eks, entries)


def auto_scaling(tag: Sequence[str], role_arn: str | None) -> None:
    """Propose a record for each cluster that tags of Auto Scaling groups name. The record selects groups by a tag."""
    from evenkeel_cli.auto_scaling import own_session, read_all_groups  # its imports take 0.2 s

    tags = dict(_pair(text) for text in tag)
    aws = own_session(role_arn)
    clusters: dict[str, list[Mapping[str, Any]]] = {}
    lost = 0
    for group in read_all_groups(aws):
        found = tags_of(group)
        if not tags.items() <= found.items():
            continue
        if selectors := clusters_of(found):
            clusters.setdefault(next(iter(selectors)), []).append(group)
        else:
            lost += 1
    zone_ids = _zone_ids(aws, aws.region_name) if clusters else {}
    role = {} if role_arn is None else {"role_arn": role_arn}
    records, comments = [], [f"{counted(lost, 'group')} left out: no tag names a cluster"] if lost else []
    for name, groups in sorted(clusters.items()):
        shared = set.intersection(*(set(clusters_of(tags_of(group)).get(name, ())) for group in groups))
        if not shared:
            comments.append(f"{name} is left out: its groups share no tag; set kubernetes.io/cluster/{name} on each")
            continue
        records.append(
            _record(
                name,
                AUTO_SCALING,
                {"kind": AUTO_SCALING, "region": aws.region_name, **role},
                discovery=f"asg:tag={min(shared, key=_by_owner)}",
                zone_ids=dict(zone_ids),
                account=groups[0]["AutoScalingGroupARN"].split(":")[4],
                labels=_valid_labels(tags),
            )
        )
        if without := sum(POOL_LABEL not in tags_of(group) for group in groups):
            comments.append(
                f"{name}: {counted(without, 'group')} without tag {POOL_LABEL}: evenkeel plan --auto-scaling"
            )
    _print(records, comments)


def _by_owner(selector: str) -> tuple[bool, str]:
    """Return the sort key of a cluster's tags. The tag that the cluster's owner sets is first."""
    return not selector.startswith(OWNED), selector


def _pair(text: str) -> tuple[str, str]:
    key, sign, value = text.partition("=")
    if not key or not sign:
        fail([f"--tag is {text!r}: write KEY=VALUE"])
    return key, value


def _zone_ids(aws: Any, region: str) -> Mapping[str, str]:
    """Return the account's zone names by zone id; empty if the caller lacks permission to read them."""
    try:
        return ZoneNames(lambda name: aws.client("ec2", region_name=name))(region)
    except AccessError:
        return {}


def _record(
    name: str, flavour: str, access: Json | None, namespaces: Sequence[str] = (), discovery: str = "", **fields: Any
) -> Json:
    """Return a record without empty fields."""
    record: Json = {"access": access, "namespaces": [*namespaces], "discovery": [*filter(None, [discovery])]}
    record |= fields
    id = _NOT_OF_AN_ID.sub("-", name.lower())[:100].strip("-._")
    return {"id": id, "flavours": [flavour], **{field: value for field, value in record.items() if value}}


def _command(region: str, cluster: str, group: str, arn: str) -> str:
    return (
        f"aws eks create-access-entry --region {region} --cluster-name {cluster} "
        f"--kubernetes-groups {group} --principal-arn {arn}"
    )


def _grant(eks: Any, entries: Iterable[tuple[str, str, str]]) -> None:
    """Create access entries. Existing entries remain unchanged. After a refusal, continue with the other entries."""
    refused = []
    for cluster, group, arn in entries:
        try:
            eks.create_access_entry(clusterName=cluster, kubernetesGroups=[group], principalArn=arn)
            say(f"{cluster}: {arn} is let in as {group}", err=True)
        except ClientError as error:
            if error.response.get("Error", {}).get("Code") == "ResourceInUseException":
                say(f"{cluster}: {arn} has an access entry already", err=True)
            else:
                refused.append(f"{cluster}: {arn} is not let in: {error}")
        except AWS_ERRORS as error:
            refused.append(f"{cluster}: {arn} is not let in: {text_of(error)}")
    if refused:
        fail(refused, CANNOT_READ)


def cluster_api(kinds: Kinds, secret: str | None) -> None:
    """Propose a record for each Cluster of a management cluster. The record covers only this Cluster's node groups."""
    clusters = _listed(kinds, "cluster.x-k8s.io", "clusters")
    names = [name_of(item) for item in clusters]
    records = []
    for item in clusters:
        namespace, name = name_of(item)
        is_unique = sum(other == name for _, other in names) == 1
        records.append(
            _record(
                name if is_unique else f"{namespace}.{name}",
                "cluster-api",
                _access(secret),
                [namespace],
                f"clusterapi:namespace={namespace},clusterName={name}",
                labels=_labels(item),
            )
        )
    _print(records)


def gardener(kinds: Kinds, secret: str | None, *, seeds: bool) -> None:
    """Propose a record for each Shoot of a garden cluster. The record names the Shoot's namespace on the seed."""
    objects = _listed(kinds, "core.gardener.cloud", "seeds" if seeds else "shoots")
    records, skipped = [], []
    for item in objects:
        seed: Any = name_of(item)[1]
        place: Any = ""
        if not seeds:
            seed = get_path(item, ("status", "seedName")) or get_path(item, ("spec", "seedName"))
            place = get_path(item, ("status", "technicalID"))
        if not isinstance(seed, str) or not isinstance(place, str) or not (seeds or place):
            skipped.append(f"{'/'.join(filter(None, name_of(item)))} is left out: no seed has it yet")
            continue
        of_provider = ("spec", "provider", "region") if seeds else ("spec", "region")
        region = get_path(item, of_provider)
        is_aws = get_path(item, ("spec", "provider", "type")) == "aws" and _AWS_REGION.fullmatch(str(region))
        records.append(
            _record(
                place or seed,
                "gardener",
                _access(secret, seed),
                [place] if place else [],
                region=region if is_aws else None,
                labels=_labels(item),
            )
        )
    _print(records, skipped)


def _listed(kinds: Kinds, group: str, plural: str) -> Sequence[Mapping[str, Any]]:
    from evenkeel_cli.live import list_objects  # takes half a second; `discover eks` does not need it

    listed = list_objects(kinds.kubeconfig, kinds.context, group, plural, kinds.selector)
    inside = (item for item in listed if kinds.namespace in (None, name_of(item)[0]))
    return sorted(inside, key=name_of)


def _access(secret: str | None, seed: str = "{seed}") -> Json | None:
    """Return an access with a secret; None if no secret is given. The user then adds an access before ``apply``."""
    return None if secret is None else {"kind": "kubeconfig", "secret": secret.replace("{seed}", seed)}


def _labels(item: Mapping[str, Any]) -> Json:
    """Return an object's valid labels, except labels that controllers set."""
    labels = string_map(get_path(item, ("metadata", "labels")))
    own = {key: value for key, value in labels.items() if not _OF_CONTROLLERS.search(key)}
    return _valid_labels(own)


def _valid_labels(labels: Mapping[str, str]) -> Json:
    """Return a new mapping, because YAML would print a shared one as an alias."""
    return {
        key: value for key, value in labels.items() if re.fullmatch(LABEL_KEY, key) and re.fullmatch(LABEL_VALUE, value)
    }


def _print(records: Sequence[Json], comments: Sequence[str] = ()) -> None:
    if not records:
        for line in comments:
            say(line, err=True)
        fail(["no cluster matches"])
    without = [] if "access" in records[0] else ["access is missing: say it for each, or once under defaults"]
    say_lines(fleet_yaml(records, ["Look through it, then: evenkeel apply -f FILE", *without, *comments]))
