"""Options that several commands share."""

from enum import StrEnum
from typing import Annotated

import typer


class Output(StrEnum):
    """The output format of an answer."""

    TABLE = "table"
    JSON = "json"


OutputForm = Annotated[Output, typer.Option("-o", "--output")]
StackName = Annotated[str, typer.Option("--stack", help="Name of the CloudFormation stack.")]
ClusterId = Annotated[str, typer.Option("--cluster", help="The cluster's id in its record.")]
OneCluster = Annotated[str | None, typer.Option("--cluster", help="The cluster's id in its record.")]
ClusterIdOrAll = Annotated[str, typer.Option("--cluster", help="The cluster's id; default: all registered clusters.")]
AllClusters = Annotated[bool, typer.Option("--all", help="All registered clusters, instead of --cluster.")]
Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]
Reason = Annotated[str | None, typer.Option("--reason", help="The reason, stored with the action.")]
