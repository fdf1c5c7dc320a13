"""The commands and their options. Each command imports its module only when it runs, so that help and TAB are quick.

The options of an operator action have the names of its fields. A test compares them with the table of actions.
"""

from collections.abc import Callable
from functools import wraps
from typing import Annotated, Any, TypeVar

import typer

from evenkeel_cli import options
from evenkeel_cli.completion import clusters, pools, strategies
from evenkeel_cli.terminal import LookbackForm, Output

_TRY, _SEE, _OPERATE = "Try without a stack", "Observe", "Operate"
_CLUSTERS, _LIVE = "Register clusters", "Go live and leave"
PANELS = (_TRY, _SEE, _OPERATE, _CLUSTERS, _LIVE)

_Command = TypeVar("_Command", bound=Callable[..., None])

app = typer.Typer(
    name="evenkeel",
    context_settings={"help_option_names": ["-h", "--help"]},
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # so that help and errors are plain lines
)
discover = typer.Typer(
    help="Propose records for existing clusters, as a file of a fleet. Stores nothing.",
    rich_markup_mode=None,
)


def _command(
    panel: str, *examples: str, name: str | None = None, group: typer.Typer = app
) -> Callable[[_Command], _Command]:
    """Return a decorator that adds a command with these examples to a panel of the help."""
    epilog = "\b\n" + "\n".join(["Examples:", *(f"  {example}" for example in examples)])
    return group.command(name, rich_help_panel=panel, epilog=epilog)


def _action(panel: str, *examples: str) -> Callable[[_Command], _Command]:
    """Return a decorator that adds the command of an operator action. Its own options are the action's fields."""

    def add(command: _Command) -> _Command:
        @_command(panel, *examples)
        @wraps(command)
        def run(
            stack: str,
            cluster: str | None,
            output: Output,
            everything: bool = False,
            yes: bool = False,
            _region: str | None = None,
            **fields: Any,
        ) -> None:
            from evenkeel_cli.actions import perform

            named = {"for" if name == "lasting" else name: value for name, value in fields.items()}
            perform(command.__name__.replace("_", "-"), stack, cluster, output, named, everything=everything, yes=yes)

        return command

    return add


@_command(
    _TRY,
    "evenkeel plan",
    "evenkeel plan --auto-scaling --region eu-central-1",
    "evenkeel plan -f objects.yaml --grow workers=6 -o json",
)
def plan(  # noqa: PLR0913  one parameter per option
    file: options.Objects = None,
    state: options.State = None,
    now: Annotated[str | None, typer.Option("--now", help="The time to plan for, RFC 3339; default: now.")] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="With --stack: the cluster's id. Without: a file, as --record.")
    ] = None,
    record: options.RecordFile = None,
    namespace: options.Namespace = None,
    grow: Annotated[
        list[str] | None,
        typer.Option("--grow", help="Split K more nodes over a pool: pool=K or pool=K,only=group,group."),
    ] = None,
    shrink: Annotated[
        list[str] | None,
        typer.Option("--shrink", help="Remove K nodes from a pool: pool=K or pool=K,only=group,group."),
    ] = None,
    output: options.OutputForm = Output.TABLE,
    kubeconfig: options.OwnKubeconfig = None,
    context: options.OwnContext = None,
    stack: Annotated[
        str | None,
        typer.Option("--stack", help="Let this stack plan; default for a registered cluster: EVENKEEL_STACK."),
    ] = None,
    auto_scaling: Annotated[
        bool,
        typer.Option("--auto-scaling", help="Read EC2 Auto Scaling groups, of EKS for example, from AWS itself."),
    ] = False,
    role_arn: options.RoleArn = None,
    _region: options.Region = None,
) -> None:
    """Show the changes that Evenkeel would make, with reasons. Read-only.

    Exit code 3 means that a pool is invalid, and 4 that there is no pool; lines to paste then say what to do.
    """
    from evenkeel_cli.plan import plan_command

    plan_command(
        file=file or [],
        state=state,
        now=now,
        cluster=cluster,
        record=record,
        namespace=namespace,
        grow=grow or [],
        shrink=shrink or [],
        output=output,
        kubeconfig=kubeconfig,
        context=context,
        stack=stack,
        auto_scaling=auto_scaling,
        role_arn=role_arn,
    )


@_command(_TRY, "evenkeel objects --context prod > objects.yaml")
def objects(
    context: options.Context = None,
    kubeconfig: options.Kubeconfig = None,
    namespace: Annotated[
        list[str] | None,
        typer.Option("-n", "--namespace", help="Only this namespace; may be repeated. Default: all namespaces."),
    ] = None,
) -> None:
    """Print the objects that `plan -f` reads: node groups, owners, machines and node templates. Never a Secret."""
    from evenkeel_cli.collect import objects_command

    objects_command(context, kubeconfig, namespace or [])


@_command(_TRY, "evenkeel simulate scenarios/zone-outage.yaml --strategy all --plot outage.svg")
def simulate(
    file: Annotated[
        str, typer.Argument(help="A scenario, YAML, or a file of `evenkeel record`; - reads standard input.")
    ],
    strategy: Annotated[
        list[str] | None,
        typer.Option(
            "--strategy",
            help="own (default): that of the scenario; all: compare all; or a strategy, "
            "static, loose, no-autoscaler or serverless. May be repeated.",
            autocompletion=strategies,
        ),
    ] = None,
    output: options.OutputForm = Output.TABLE,
    plot: Annotated[str | None, typer.Option("--plot", help="Also draw the runs into this file, .png or .svg.")] = None,
) -> None:
    """Play a scenario in virtual time. The same scenario and seed give the same output."""
    from evenkeel_cli.simulate import simulate_command

    simulate_command(file, strategy or [], output, plot)


@_command(
    _TRY,
    "evenkeel lookback --auto-scaling --region eu-central-1",
    "evenkeel lookback -f groups.json -f activities.json --plot outage.svg",
)
def lookback(  # noqa: PLR0913  one parameter per option
    file: Annotated[
        list[str] | None,
        typer.Option(
            "-f",
            "--file",
            help="JSON of `aws autoscaling describe-auto-scaling-groups` and `describe-scaling-activities`, "
            "`aws eks describe-nodegroup` and `aws cloudtrail lookup-events`, or of range queries of Prometheus, then "
            "also the groups' objects; - reads standard input.",
        ),
    ] = None,
    auto_scaling: Annotated[
        bool, typer.Option("--auto-scaling", help="Read EC2 Auto Scaling groups and activities from AWS itself.")
    ] = False,
    role_arn: options.RoleArn = None,
    _region: options.Region = None,
    days: Annotated[int, typer.Option("--days", help="How many days to look back; AWS keeps 42.")] = 28,
    now: Annotated[
        str | None, typer.Option("--now", help="The end, RFC 3339; default: now, or the last activity of the files.")
    ] = None,
    cache: Annotated[
        str | None, typer.Option("--cache", help="Keep days that are read in this folder, and go on from there.")
    ] = None,
    rate: Annotated[
        float,
        typer.Option("--calls-per-second", help="How fast AWS is read; default: a quarter of a usual account's rate."),
    ] = 1.25,
    row: Annotated[
        int | None, typer.Option("--row", help="The row to draw or to print as a scenario; default: the worst.")
    ] = None,
    output: Annotated[
        LookbackForm,
        typer.Option("-o", "--output", help="Form of the answer; scenario: the input of `evenkeel simulate`."),
    ] = LookbackForm.TABLE,
    plot: Annotated[
        str | None,
        typer.Option("--plot", help="Also draw a row into this file, .png or .svg: seen, and with Evenkeel."),
    ] = None,
    queries: Annotated[
        str | None,
        typer.Option(
            "--print-queries",
            help="Print the queries for an exporter: cluster-api, machine-controller-manager, openshift, "
            "cluster-autoscaler or kube-state-metrics.",
        ),
    ] = None,
) -> None:
    """What outages cost in the last weeks, and what Evenkeel would have changed. Read-only.

    Exit code 4 means that there is no verdict about some outage.
    """
    from evenkeel_cli.lookback.command import Inputs, lookback_command, queries_command

    if queries is not None:
        queries_command(queries, days, now)
        return
    inputs = Inputs(
        file=file or [],
        auto_scaling=auto_scaling,
        role_arn=role_arn,
        days=days,
        now=now,
        cache=cache,
        rate=rate,
    )
    lookback_command(inputs, row, output, plot)


@_command(
    _TRY,
    "evenkeel forecast --context prod --zone eu-central-1a",
    "evenkeel forecast --stack evenkeel --all --zone-id euc1-az2",
    "evenkeel forecast -f objects.yaml --record record.yaml --zone a -o json",
)
def forecast(  # noqa: PLR0913  one parameter per option
    zone: options.Zone = None,
    zone_id: Annotated[
        str | None, typer.Option("--zone-id", help="AWS's id of the zone, as labels of nodes or the record have it.")
    ] = None,
    file: options.Objects = None,
    record: options.RecordFile = None,
    state: options.State = None,
    now: Annotated[str | None, typer.Option("--now", help="The time of the loss, RFC 3339; default: now.")] = None,
    kubeconfig: options.OwnKubeconfig = None,
    context: Annotated[
        str | None,
        typer.Option("--context", help="Read the cluster with this context; with --stack, instead of by the stack."),
    ] = None,
    workload_context: Annotated[
        str | None,
        typer.Option("--workload-context", help="The context of the pods, if another API has the machine objects."),
    ] = None,
    auto_scaling: Annotated[
        bool, typer.Option("--auto-scaling", help="Read EC2 Auto Scaling groups from AWS: nodes only, no pods.")
    ] = False,
    role_arn: options.RoleArn = None,
    _region: options.Region = None,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack",
            help="Forecast clusters of this stack, which reads them; default for stored clusters: EVENKEEL_STACK.",
        ),
    ] = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="With --stack: the cluster's id.", autocompletion=clusters)
    ] = None,
    everything: Annotated[
        bool,
        typer.Option("-A", "--all", help="All clusters of the stack; without --stack: all contexts of the kubeconfig."),
    ] = False,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Play the loss of a zone in virtual time: pods that wait, nodes ordered, limits reached. Read-only.

    Exit code 4 means that pods get no place or nodes stay missing, and 1 that a cluster could not be read.
    """
    from evenkeel_cli.forecast import Inputs, forecast_command

    inputs = Inputs(
        zone=zone,
        zone_id=zone_id,
        file=file or [],
        record=record,
        state=state,
        now=now,
        kubeconfig=kubeconfig,
        context=context,
        workload_context=workload_context,
        auto_scaling=auto_scaling,
        role_arn=role_arn,
        stack=stack,
        cluster=cluster,
        everything=everything,
    )
    forecast_command(inputs, output)


@_command(_SEE, "evenkeel status --stack evenkeel", "evenkeel status --cluster blue --watch")
def status(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.ClusterIdOrAll = "*",
    everything: options.AllClusters = False,
    pool: options.Pool = None,
    unhealthy: Annotated[
        bool, typer.Option("--unhealthy", help="Only pools that are not healthy; the others as a count.")
    ] = False,
    live: Annotated[
        bool, typer.Option("--live", help="Without a cluster: read each cluster now, not only stored items.")
    ] = False,
    selector: options.Selector = None,
    watch: Annotated[bool, typer.Option("-w", "--watch", help="Repeat every few seconds, until interrupted.")] = False,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """The incidents of all clusters; or the pools and zones of one, why groups are held, and the last decisions."""
    from evenkeel_cli.actions import status_command

    fields = {"pool": pool, "unhealthy": unhealthy or None, "live": live or None, "selector": selector}
    status_command(stack, cluster, output, fields, everything=everything, watch=watch)


@_action(_SEE, "evenkeel explain --stack evenkeel", "evenkeel explain --cluster blue --pool workers")
def explain(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.ClusterIdOrAll = "*",
    group: options.Group = None,
    pool: options.Pool = None,
    everything: options.AllClusters = False,
    selector: options.Selector = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """The incidents of all clusters or of one, and what to do; or the reasons for the numbers of a group or pool."""


@_action(_SEE, "evenkeel validate --all", "evenkeel validate --cluster blue --fix")
def validate(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.ClusterIdOrAll = "*",
    pool: options.Pool = None,
    fix: Annotated[bool, typer.Option("--fix", help="Show numbers that would fix the pools.")] = False,
    apply: Annotated[bool, typer.Option("--apply", help="Write the fix with the next check.")] = False,
    everything: options.AllClusters = False,
    selector: options.Selector = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Pools whose numbers break a rule; exit code 3 means that a pool is invalid."""


@_command(_CLUSTERS, "evenkeel register --stack evenkeel --cluster blue --record blue.yaml")
def register(
    stack: options.StackName,
    cluster: options.ClusterId,
    record: Annotated[
        str, typer.Option("--record", help="The cluster's record, YAML or JSON; - reads standard input.")
    ],
    _region: options.Region = None,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Store a cluster's record, and check the cluster now."""
    from evenkeel_cli.actions import perform
    from evenkeel_cli.inputs import read_yaml

    perform("register", stack, cluster, output, {"record": read_yaml(record), "reason": reason})


@_command(_CLUSTERS, "evenkeel apply -f fleet/ --diff", "evenkeel apply -f fleet/ --prune --yes")
def apply(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    file: Annotated[str, typer.Option("--file", "-f", help="A file of a fleet, or a folder of such files.")],
    _region: options.Region = None,
    prune: Annotated[bool, typer.Option("--prune", help="Unregister clusters that no file names.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --prune: also clusters that still have Evenkeel's bounds.")
    ] = False,
    selector: Annotated[
        str | None, typer.Option("-l", "--selector", help="With --prune: only these registered clusters.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Read each cluster before its record is stored.")
    ] = True,
    diff: Annotated[bool, typer.Option("--diff", help="Show the differences; change nothing.")] = False,
    yes: options.Yes = False,
    reason: options.Reason = None,
) -> None:
    """Store the records of fleet files; the differences are shown first."""
    from evenkeel_cli.fleet import apply_command

    apply_command(
        stack, file, prune=prune, force=force, selector=selector, verify=verify, diff=diff, yes=yes, reason=reason
    )


@_action(_CLUSTERS, "evenkeel unregister --cluster blue")
def unregister(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.OneCluster = None,
    force: Annotated[
        bool,
        typer.Option("--force", help="Also while Evenkeel's bounds are still set. Nothing restores them afterwards."),
    ] = False,
    everything: options.AllClusters = False,
    yes: options.Yes = False,
    selector: options.Selector = None,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Delete a cluster's record; refused while Evenkeel's bounds are set in the cluster."""


@_command(_CLUSTERS, "evenkeel export --out fleet.yaml", "evenkeel export -l env=prod")
def export(
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.ClusterIdOrAll = "*",
    selector: Annotated[
        str | None, typer.Option("-l", "--selector", help="Clusters by labels: env=prod,tier!=test.")
    ] = None,
    out: Annotated[
        str, typer.Option("--out", help="The file to write, together with its schema; - is standard output.")
    ] = "-",
) -> None:
    """Export the stored records, as files that apply reads."""
    from evenkeel_cli.fleet import export_command

    export_command(stack, cluster, selector, out)


@_action(_OPERATE, "evenkeel pause --cluster blue --for 2h --reason 'node upgrade'", "evenkeel pause -l env=test")
def pause(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.OneCluster = None,
    until: options.Until = None,
    lasting: options.Lasting = None,
    pool: options.Pool = None,
    everything: options.AllClusters = False,
    yes: options.Yes = False,
    selector: options.Selector = None,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Pause a cluster, or one of its pools."""


@_action(_OPERATE, "evenkeel resume --cluster blue")
def resume(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.OneCluster = None,
    pool: options.Pool = None,
    restored: Annotated[
        bool, typer.Option("--restored", help="Also end a restore, or the pause after it. For administrators.")
    ] = False,
    everything: options.AllClusters = False,
    yes: options.Yes = False,
    selector: options.Selector = None,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """End a pause; or, for administrators, a restore and the pause that follows it."""


@_action(_LIVE, "evenkeel readiness --all --for 3d")
def readiness(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.ClusterIdOrAll = "*",
    lasting: Annotated[
        str | None, typer.Option("--for", help="How long its dry run must have lasted: 3d, 12h.")
    ] = None,
    live: Annotated[
        bool, typer.Option("--live", help="Also read the cluster now, for skipped objects and missing rights.")
    ] = False,
    everything: options.AllClusters = False,
    selector: options.Selector = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Show which clusters in dry run may go live, and why others may not; exit code 5 means that one may not."""


@_command(_LIVE, "evenkeel live --cluster blue", "evenkeel live -l env=prod")
def live(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.OneCluster = None,
    everything: options.AllClusters = False,
    selector: options.Selector = None,
    force: Annotated[bool, typer.Option("--force", help="Also for a cluster that is not ready.")] = False,
    dry_run: Annotated[
        bool, typer.Option("--dry-run", help="Show which clusters would go live; change nothing.")
    ] = False,
    yes: options.Yes = False,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Enable writes for clusters that passed their dry run."""
    from evenkeel_cli.actions import live_command

    fields = {"force": force or None, "reason": reason}
    live_command(stack, cluster, output, fields, everything=everything, selector=selector, dry_run=dry_run, yes=yes)


@_action(_LIVE, "evenkeel dry-run --cluster blue")
def dry_run(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.OneCluster = None,
    everything: options.AllClusters = False,
    yes: options.Yes = False,
    selector: options.Selector = None,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Stop writes to a cluster; its objects stay as they are."""


@_command(_LIVE, "evenkeel restore --cluster blue", "evenkeel restore --cluster blue --pool workers --yes")
def restore(
    stack: options.StackName,
    cluster: options.ClusterId,
    _region: options.Region = None,
    pool: options.Pool = None,
    yes: options.Yes = False,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Restore the bounds from before Evenkeel, remove its annotations, and pause; one pool, or all."""
    from evenkeel_cli.actions import perform
    from evenkeel_cli.terminal import confirm

    of_pool = "" if pool is None else f" of pool {pool}"
    confirm(f"restore: put back the bounds{of_pool} from before Evenkeel in cluster {cluster}, and pause", yes=yes)
    perform("restore", stack, cluster, output, {"pool": pool, "reason": reason})


@_command(_OPERATE, "evenkeel send events/provisioning-failure.json --stack evenkeel")
def send(
    file: Annotated[str, typer.Argument(help="A file of events/; the beginning of its name is the function's name.")],
    stack: options.StackName,
    _region: options.Region = None,
) -> None:
    """Send a test event, with its times set to now, to its function or to the stack's event bus."""
    from evenkeel_cli.send import send_command

    send_command(file, stack)


@_action(
    _OPERATE,
    "evenkeel fence-zone --cluster blue --zone eu-central-1b --for 2h",
    "evenkeel fence-zone --all --zone-id euc1-az2 --for 1h --yes",
)
def fence_zone(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.OneCluster = None,
    until: options.Until = None,
    lasting: Annotated[str | None, typer.Option("--for", help="How long: 2h, 90m, 1d; 0m lifts the fence.")] = None,
    zone: options.Zone = None,
    zone_id: options.ZoneId = None,
    everything: options.AllClusters = False,
    yes: options.Yes = False,
    selector: options.Selector = None,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Stop scale-up in one zone until a given time."""


@_command(
    _OPERATE,
    "evenkeel drill --cluster blue --zone eu-central-1a --for 30m --reason 'quarterly rehearsal'",
    "evenkeel drill --cluster blue",
    "evenkeel drill --cluster blue --abort",
)
def drill(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    cluster: options.ClusterId,
    _region: options.Region = None,
    zone: options.Zone = None,
    zone_id: options.ZoneId = None,
    lasting: Annotated[str | None, typer.Option("--for", help="How long: 5m to 4h; default: 30m.")] = None,
    abort: Annotated[bool, typer.Option("--abort", help="End the drill now.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show only the forecast; fence nothing.")] = False,
    kubeconfig: options.OwnKubeconfig = None,
    context: options.OwnContext = None,
    yes: options.Yes = False,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Fence one zone for a limited time, and report the forecast next to the effect. Running nodes stay."""
    from evenkeel_cli.drill import drill_command

    drill_command(
        stack,
        cluster,
        zone=zone,
        zone_id=zone_id,
        lasting=lasting,
        abort=abort,
        dry_run=dry_run,
        yes=yes,
        reason=reason,
        kubeconfig=kubeconfig,
        context=context,
        output=output,
    )


@_command(
    _OPERATE,
    "evenkeel leave-zone --cluster blue --zone eu-central-1a --per-hour 2",
    "evenkeel leave-zone --cluster blue --back",
)
def leave_zone(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    cluster: options.ClusterId,
    _region: options.Region = None,
    zone: options.Zone = None,
    zone_id: options.ZoneId = None,
    pool: options.Pool = None,
    per_hour: Annotated[
        int | None,
        typer.Option(
            "--per-hour",
            help="The most nodes of the cluster that move in an hour; default: converge.per_hour per pool.",
        ),
    ] = None,
    until: options.Until = None,
    lasting: options.Lasting = None,
    back: Annotated[bool, typer.Option("--back", help="End it: the zone may grow again.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Show only the forecast; move nothing.")] = False,
    yes: options.Yes = False,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Move the nodes of one zone to the other zones, a few an hour. Pods that cannot move stay."""
    from evenkeel_cli.leave_zone import leave_zone_command

    fields = {"zone": zone, "zone_id": zone_id, "pool": pool, "per_hour": per_hour, "until": until, "for": lasting}
    fields |= {"back": back or None, "reason": reason}
    leave_zone_command(stack, cluster, fields, dry_run=dry_run, yes=yes, output=output)


@_action(_OPERATE, "evenkeel scale-up --cluster blue --pool workers --nodes 6")
def scale_up(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    cluster: options.ClusterId,
    nodes: options.Nodes,
    _region: options.Region = None,
    pool: options.Pool = None,
    group: options.Group = None,
    only: options.Only = None,
    id: options.RequestId = None,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Add nodes to a pool, split evenly over its zones."""


@_action(_OPERATE, "evenkeel scale-down --cluster blue --pool workers --nodes 6")
def scale_down(  # noqa: PLR0913  one parameter per option
    stack: options.StackName,
    cluster: options.ClusterId,
    nodes: options.Nodes,
    _region: options.Region = None,
    pool: options.Pool = None,
    group: options.Group = None,
    only: options.Only = None,
    id: options.RequestId = None,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Give nodes of a pool back, from the largest zones first."""


@_action(_OPERATE, "evenkeel level --cluster blue --pool workers --dry-run")
def level(
    stack: options.StackName,
    cluster: options.ClusterId,
    pool: Annotated[str, typer.Option("--pool", help="The pool, by name or id.", autocompletion=pools)],
    _region: options.Region = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the steps.")] = False,
    reason: options.Reason = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Move nodes of a pool one by one, once, until its zones are level."""


@_action(_SEE, "evenkeel history --cluster blue --since 12h")
def history(
    stack: options.StackName,
    _region: options.Region = None,
    cluster: options.ClusterIdOrAll = "*",
    since: options.Since = None,
    everything: options.AllClusters = False,
    selector: options.Selector = None,
    output: options.OutputForm = Output.TABLE,
) -> None:
    """Operator actions on clusters, with their callers and reasons."""


@_command(_SEE, "evenkeel record --cluster blue --out blue.json")
def record(
    stack: options.StackName,
    cluster: options.ClusterId,
    _region: options.Region = None,
    since: options.Since = None,
    out: Annotated[str, typer.Option("--out", help="The file to write, JSON; - is standard output.")] = "-",
) -> None:
    """The decisions of a cluster, the oldest first, as JSON."""
    from evenkeel_cli.actions import record_command

    record_command(stack, cluster, since, out)


@_command(
    _SEE,
    "evenkeel report --stack evenkeel --out status.html",
    "evenkeel plan -f objects.yaml -o json | evenkeel report --plan - --out plan.html",
)
def report(  # noqa: PLR0913  one parameter per option
    out: Annotated[str | None, typer.Option("--out", help="The HTML file to write.")] = None,
    publish: Annotated[
        str | None, typer.Option("--publish", help="Store the page in a bucket: s3://BUCKET/KEY.")
    ] = None,
    stack: Annotated[
        str | None, typer.Option("--stack", help="Show the status of this stack; default: EVENKEEL_STACK.")
    ] = None,
    _region: options.Region = None,
    cluster: Annotated[
        str | None, typer.Option("--cluster", help="With --stack: one cluster; default: all clusters.")
    ] = None,
    live: Annotated[bool, typer.Option("--live", help="With --stack: check every cluster now.")] = False,
    plan: Annotated[
        str | None, typer.Option("--plan", help="Output of `evenkeel plan -o json`; - is standard input.")
    ] = None,
    simulation: Annotated[
        str | None, typer.Option("--simulation", help="Output of `evenkeel simulate -o json`; - is standard input.")
    ] = None,
    forecast: Annotated[
        str | None, typer.Option("--forecast", help="Output of `evenkeel forecast -o json`; - is standard input.")
    ] = None,
) -> None:
    """Write one self-contained HTML file: incidents and what to do, pools, zones, decisions, and a timeline."""
    from evenkeel_cli.report import report_command

    report_command(out, publish, stack, cluster, plan, simulation, forecast, live=live)


@_command(_CLUSTERS, "evenkeel discover eks --tag env=prod --stack evenkeel > fleet.yaml", name="eks", group=discover)
def discover_eks(
    tag: Annotated[list[str], typer.Option("--tag", help="KEY=VALUE of the clusters; of several, all must match.")],
    _region: options.Region = None,
    stack: Annotated[
        str | None,
        typer.Option(
            "--stack",
            envvar="EVENKEEL_STACK",
            help="Print, as comments, the commands that give this stack's roles access.",
        ),
    ] = None,
    grant: Annotated[bool, typer.Option("--grant", help="With --stack: create these access entries now.")] = False,
    yes: options.Yes = False,
) -> None:
    """Propose a record for each EKS cluster that has the given tags. Each record contains the account's zone ids."""
    from evenkeel_cli.discover import eks

    eks(tag, stack, grant=grant, yes=yes)


@_command(
    _CLUSTERS, "evenkeel discover cluster-api --context mgmt -n prod > fleet.yaml", name="cluster-api", group=discover
)
def discover_cluster_api(
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    selector: options.ObjectSelector = None,
    secret: Annotated[
        str | None,
        typer.Option("--secret", help="The secret in Secrets Manager with the management cluster's kubeconfig."),
    ] = None,
) -> None:
    """Propose a record for each Cluster of a management cluster. The record covers only this Cluster's node groups."""
    from evenkeel_cli.discover import Kinds, cluster_api

    cluster_api(Kinds(kubeconfig, context, namespace, selector), secret)


@_command(_CLUSTERS, "evenkeel discover gardener --context garden > fleet.yaml", name="gardener", group=discover)
def discover_gardener(
    kubeconfig: options.Kubeconfig = None,
    context: options.Context = None,
    namespace: options.Namespace = None,
    selector: options.ObjectSelector = None,
    seeds: Annotated[
        bool, typer.Option("--seeds", help="Propose a record for each Seed, with all its Shoots.")
    ] = False,
    secret: Annotated[
        str | None,
        typer.Option(
            "--secret",
            help="The secret in Secrets Manager with the seed's kubeconfig; {seed} is replaced by its name.",
        ),
    ] = None,
) -> None:
    """Propose a record for each Shoot of a garden cluster. The record names the Shoot's namespace on the seed."""
    from evenkeel_cli.discover import Kinds, gardener

    gardener(Kinds(kubeconfig, context, namespace, selector), secret, seeds=seeds)


@_command(
    _CLUSTERS,
    "evenkeel discover auto-scaling --region eu-central-1 > fleet.yaml",
    name="auto-scaling",
    group=discover,
)
def discover_auto_scaling(
    tag: Annotated[
        list[str] | None, typer.Option("--tag", help="KEY=VALUE of the groups; of several, all must match.")
    ] = None,
    role_arn: options.RoleArn = None,
    _region: options.Region = None,
) -> None:
    """Propose a record for each cluster that the tags of Auto Scaling groups name, of EKS or kOps for example."""
    from evenkeel_cli.discover import auto_scaling

    auto_scaling(tag or [], role_arn)


app.add_typer(discover, name="discover", rich_help_panel=_CLUSTERS)
