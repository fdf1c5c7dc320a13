"""Options that several commands share. The module does not import the product, so help and completion are fast."""

import os
from datetime import UTC, datetime
from typing import Annotated

import typer

from evenkeel_cli.completion import clusters, pools, zones
from evenkeel_cli.terminal import Output


def _use_region(region: str | None) -> None:
    """Let the clients of AWS use this region. They read the variable, because each command creates its own clients."""
    if region is not None:
        os.environ["EVENKEEL_REGION"] = region


def _moment(since: str | None) -> str | None:
    """Return the start of a period: 30m becomes the time 30 minutes ago. The stack reads all other texts."""
    if since is None or not since[-1:].isalpha() or since[-1:] in "Zz":
        return since
    from evenkeel.domain.model.fleet import read_length
    from evenkeel.domain.model.values import BadValueError, quote

    try:
        return (datetime.now(UTC) - read_length(since)).isoformat(timespec="seconds")
    except BadValueError as error:
        raise typer.BadParameter(f"{quote(since)}: {error}; or a time in RFC 3339") from None


_SEVERAL = "Clusters by labels: env=prod,tier!=test; instead of --cluster."
OutputForm = Annotated[
    Output,
    typer.Option("-o", "--output", help="Form of the answer; wide: full names; name: only names, one per line."),
]
StackName = Annotated[str, typer.Option("--stack", envvar="EVENKEEL_STACK", help="Name of the CloudFormation stack.")]
Region = Annotated[
    str | None,
    typer.Option(
        "--region", envvar="EVENKEEL_REGION", callback=_use_region, help="The AWS region; default: the profile's."
    ),
]
RoleArn = Annotated[
    str | None,
    typer.Option("--role-arn", help="The role that reads Auto Scaling groups; default: the caller's credentials."),
]
ClusterId = Annotated[str, typer.Option("--cluster", help="The cluster's id in its record.", autocompletion=clusters)]
OneCluster = Annotated[
    str | None, typer.Option("--cluster", help="The cluster's id in its record.", autocompletion=clusters)
]
ClusterIdOrAll = Annotated[
    str,
    typer.Option("--cluster", help="The cluster's id; default: all registered clusters.", autocompletion=clusters),
]
AllClusters = Annotated[bool, typer.Option("-A", "--all", help="All registered clusters, instead of --cluster.")]
Selector = Annotated[str | None, typer.Option("-l", "--selector", help=_SEVERAL)]
Namespace = Annotated[str | None, typer.Option("-n", "--namespace", help="Only objects in this namespace.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Reason = Annotated[str | None, typer.Option("--reason", help="The reason, stored with the action.")]
Pool = Annotated[str | None, typer.Option("--pool", help="One pool, by name or id.", autocompletion=pools)]
Group = Annotated[str | None, typer.Option("--group", help="One node group, by name or key.")]
Until = Annotated[str | None, typer.Option("--until", help="The end, in RFC 3339.")]
Since = Annotated[
    str | None,
    typer.Option(
        "--since",
        callback=_moment,
        help="The start: 30m, 12h or 3d ago, or a time in RFC 3339; default: history 7d, record 30d.",
    ),
]
Lasting = Annotated[str | None, typer.Option("--for", help="How long: 2h, 90m, 1d.")]
Nodes = Annotated[int, typer.Option("--nodes", help="How many nodes.")]
Only = Annotated[
    list[str] | None, typer.Option("--only", help="A group that the pods fit; may be given more than once.")
]
RequestId = Annotated[str | None, typer.Option("--id", help="Requests with the same id are carried out once.")]
Zone = Annotated[
    str | None,
    typer.Option("--zone", help="The zone's name or id, as the cluster has it.", autocompletion=zones),
]
ZoneId = Annotated[
    str | None,
    typer.Option("--zone-id", help="AWS's id of the zone, which is the same in every account; such as euc1-az2."),
]
Kubeconfig = Annotated[str | None, typer.Option("--kubeconfig", help="The kubeconfig; default: as for kubectl.")]
Context = Annotated[str | None, typer.Option("--context", help="The context; default: the kubeconfig's current one.")]
ObjectSelector = Annotated[str | None, typer.Option("-l", "--selector", help="Labels of the objects, as for kubectl.")]
OwnKubeconfig = Annotated[
    str | None, typer.Option("--kubeconfig", help="Read the cluster itself, with this kubeconfig.")
]
OwnContext = Annotated[str | None, typer.Option("--context", help="Read the cluster itself, with this context.")]
Objects = Annotated[
    list[str] | None,
    typer.Option(
        "-f",
        "--objects",
        help="Objects as `kubectl get -o yaml|json` prints them, or JSON of `aws autoscaling describe-*`, "
        "`aws eks describe-nodegroup` and `aws ec2 describe-instance-types`; - reads standard input.",
    ),
]
RecordFile = Annotated[
    str | None,
    typer.Option(
        "--record", help="The cluster's record, YAML or JSON: pools, strategy, discovery; - reads standard input."
    ),
]
State = Annotated[
    str | None,
    typer.Option("--state", help="The stored state, JSON: `state` of an earlier plan, or written by hand."),
]
