"""`evenkeel ACTION --stack`: the command, boto3 and the real operator function, from a laptop to a cluster and back."""

import io
import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

from evenkeel.adapters.codec import unpack
from evenkeel.bootstrap import SystemClock, use_clock
from evenkeel.domain.model.observations import Observation
from evenkeel_cli.main import app
from evenkeel_cli.stack_client import ask
from sandbox.aws import AwsEndpoints
from sandbox.kube.world import World
from sandbox.stack import CALLER, StackEndpoint
from sandbox.triggers import InProcess, Triggers
from tests.integration.staging import UNEVEN, patches, put_kubeconfig

STACK = "evenkeel"
RESOURCE = "machinedeployments.cluster.x-k8s.io"


class Shell:
    """An operator with credentials and the name of a stack."""

    def __init__(self, endpoint: StackEndpoint, folder: Path) -> None:
        self.endpoint = endpoint
        self.folder = folder

    def run(self, *arguments: str, stack: str = STACK, **env: str | None) -> Result:
        environment = {**self.endpoint.environment(), "COLUMNS": "150", **env}
        result = CliRunner().invoke(app, [arguments[0], "--stack", stack, *arguments[1:]], env=environment)
        assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
        assert "Traceback" not in result.output
        return result

    def ask(self, action: str, *arguments: str, cluster: str = "blue", code: int = 0) -> str:
        result = self.run(action, "--cluster", cluster, *arguments)
        assert result.exit_code == code, result.output
        return result.stdout

    def json(self, action: str, *arguments: str, **more: Any) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.ask(action, *arguments, "-o", "json", **more))
        return found

    def fault(self, *arguments: str, stack: str = STACK, code: int = 2, **env: str | None) -> str:
        """Return the one line on standard error."""
        result = self.run(*arguments, stack=stack, **env)
        assert (result.exit_code, result.stdout) == (code, ""), result.output
        (line,) = result.stderr.splitlines()
        assert line.startswith("evenkeel: ")
        return line.removeprefix("evenkeel: ")


class MovableClock(SystemClock):
    """The system's time, plus what a test adds."""

    passed = timedelta()

    def now(self) -> datetime:
        return super().now() + self.passed


class Laptop(Shell):
    """The same with a real stack, and one cluster that is not registered yet."""

    def __init__(
        self,
        world: World,
        triggers: Triggers,
        endpoint: StackEndpoint,
        access: dict[str, str],
        folder: Path,
        clock: MovableClock,
    ) -> None:
        super().__init__(endpoint, folder)
        self.world = world
        self.clock = clock
        self.triggers = triggers
        (self.cluster,) = world.clusters.values()
        self.api = self.cluster.api
        self.record = folder / "record.yaml"
        self.record.write_text(json.dumps({"flavours": ["cluster-api"], "access": access}))

    def register(self, *, dry_run: bool | None = None) -> str:
        given = json.loads(self.record.read_text())
        self.record.write_text(json.dumps({**given, **({} if dry_run is None else {"dry_run": dry_run})}))
        return self.ask("register", "--record", str(self.record))

    def check(self) -> None:
        self.triggers.drain()
        assert self.triggers.failures == []

    def patches(self) -> int:
        return patches(self.cluster)


@pytest.fixture
def shell(tmp_path: Path) -> Iterator[Shell]:
    """Yield a shell with a stack that answers each call."""
    with StackEndpoint(STACK, lambda function, event: {"ok": True, **event, "message": "done", "clusters": []}) as one:
        yield Shell(one, tmp_path)


@pytest.fixture
def staged(aws: AwsEndpoints, tmp_path: Path) -> Iterator[Callable[..., Laptop]]:
    with ExitStack() as stack:

        def made(dry_run: bool = True, kind: str = "cluster-api") -> Laptop:
            clock = MovableClock()
            world = World(clusters=(kind,), pools=UNEVEN, clock=clock.now, settings=None)
            stack.enter_context(world)
            deployment = stack.enter_context(aws.deploy(parameters={"DryRun": str(dry_run).lower()}))
            functions = stack.enter_context(InProcess(deployment, log=io.StringIO()))
            use_clock(clock)
            access = put_kubeconfig(deployment, "blue", world.clusters[kind])
            endpoint = stack.enter_context(StackEndpoint(STACK, functions))
            return Laptop(world, Triggers(deployment, functions), endpoint, access, tmp_path, clock)

        yield made


@pytest.fixture
def laptop(staged: Callable[..., Laptop]) -> Laptop:
    made = staged()
    made.register()
    return made


def test_a_first_deployment_writes_nothing_and_register_switches_one_cluster_on(staged: Callable[..., Laptop]) -> None:
    laptop = staged()
    assert "blue is registered in dry run: nothing is written to it" in laptop.register()
    laptop.check()
    assert laptop.patches() == 0
    planned = laptop.json("plan")
    (recorded,) = laptop.json("status")["decisions"]
    assert recorded["dryRun"] is True

    assert "blue is updated and switched on" in laptop.register(dry_run=False)
    laptop.check()
    assert laptop.patches() == 2
    written = laptop.json("status")["decisions"][0]
    # One of the zones needs no write.
    for decision, outcome in ((written, "written"), (recorded, "planned")):
        for name in ("outcome", "result"):
            assert sorted(group.pop(name) for group in decision["pool"]["groups"]) == ["left alone", outcome, outcome]
    # The dry run's record, the output of `plan` and the later writes are equal. Only the timeouts change, because each
    # run learns from the machines that it reads.
    for shown in (*planned["pools"], recorded["pool"], written["pool"]):
        for field in ("timeouts", "timeoutRules"):
            shown.pop(field, None)
    assert planned["pools"] == [recorded["pool"]] == [written["pool"]]
    bounds = {group.name: (group.minimum, group.maximum) for group in laptop.cluster.groups()}
    promised = {group["name"]: (group["min"]["to"], group["max"]["to"]) for group in written["pool"]["groups"]}
    assert bounds == promised


def test_status_and_explain_show_zones_and_states_in_sentences(laptop: Laptop) -> None:
    laptop.check()
    status = laptop.ask("status")
    assert "blue: dry run, no incident; last decision just now" in status
    assert all(text in status for text in ("eu-central-1a", "eu-central-1b", "eu-central-1c", "would change"))
    assert [one["cluster"] for one in json.loads(laptop.run("status", "-o", "json").stdout)["clusters"]] == ["blue"]
    name = laptop.cluster.groups()[0].name
    explained = laptop.ask("explain", "--group", name)
    assert "Cluster blue is in dry run: nothing of this is written, and numbers stay as they are." in explained
    assert f"{name} in zone eu-central-1a is healthy." in explained
    assert "strategy: Balanced: " in explained


def test_a_pool_is_paused_resumed_and_restored_from_the_shell(laptop: Laptop) -> None:
    laptop.register(dry_run=False)
    laptop.check()
    until = (datetime.now(UTC) + timedelta(hours=1)).strftime("%Y-%m-%dT%H:%M:%SZ")
    assert f"pool workers of blue is paused until {until}" in laptop.ask("pause", "--pool", "workers", "--until", until)
    assert f"paused by an operator until {until}" in laptop.ask("status")
    assert "resumed" in laptop.ask("resume", "--pool", "workers")
    actions = [(action["cause"], action["by"]) for action in laptop.json("status")["actions"]]
    assert actions[:2] == [("resume", CALLER), ("pause", CALLER)]
    laptop.check()
    assert "the pool is paused for good" in laptop.ask("restore", "--pool", "workers", "--yes")
    laptop.check()
    laptop.triggers.tick()
    laptop.check()
    status = laptop.json("status")
    assert (status["pausedPools"], status["leavingPools"], status["paused"]) == ({"workers": None}, [], False)
    for item in laptop.cluster.store.list(RESOURCE):
        assert not {"evenkeel.dev/decision", "evenkeel.dev/adopted-bounds"} & set(item["metadata"]["annotations"])
    before = laptop.patches()
    laptop.ask("restore", "--pool", "workers", "--yes")
    laptop.check()
    assert laptop.patches() == before


def test_validate_shows_a_diff_and_has_it_written_with_the_objects_own_version(laptop: Laptop) -> None:
    cluster = laptop.cluster
    groups = cluster.groups()
    for group in groups:
        patch = {"metadata": {"annotations": {"evenkeel.dev/pool-max": "2", "evenkeel.dev/pool-min": "1"}}}
        cluster.store.patch(RESOURCE, group.namespace, group.name, patch, manager="test")
    reported = laptop.ask("validate", "--fix")
    assert '-evenkeel.dev/pool-max: "2"\n+evenkeel.dev/pool-max: "3"' in reported
    laptop.register(dry_run=False)
    laptop.check()
    assert "of which the next check writes to objects: 3" in laptop.ask("validate", "--apply")
    laptop.api.requests.clear()
    laptop.check()
    bodies = [request.body for request in laptop.api.requests if "pool-max" in json.dumps(request.body)]
    assert len(bodies) == 3
    assert all(body["metadata"]["resourceVersion"] for body in bodies)
    for group in groups:
        item = cluster.store.get(RESOURCE, group.namespace, group.name)
        assert item["metadata"]["annotations"]["evenkeel.dev/pool-max"] == "3"
    assert laptop.json("validate")["pools"] == []
    fixed = [decision["fixed"] for decision in laptop.json("status")["decisions"] if "fixed" in decision]
    assert [change["outcome"] for changes in fixed for change in changes] == ["written"] * 3
    many = {"metadata": {"annotations": {"evenkeel.dev/pool-max": "many"}}}
    cluster.store.patch(RESOURCE, groups[0].namespace, groups[0].name, many, manager="test")
    for action in ("validate", "plan"):
        assert "evenkeel.dev/pool-max is 'many'" in laptop.ask(action, code=3)


def test_a_stack_forecasts_without_a_kubeconfig_what_a_context_forecasts(
    staged: Callable[..., Laptop], monkeypatch: pytest.MonkeyPatch
) -> None:
    laptop = staged(kind="self-managed")
    container: dict[str, Any] = {"name": "web", "image": "web", "resources": {"requests": {"cpu": "1200m"}}}
    container["env"] = [{"name": "PASSWORD", "value": "s3cret"}]
    metadata = {"labels": {"app": "web"}, "annotations": {"own": "s3cret"}}
    template = {"metadata": metadata, "spec": {"containers": [container]}}
    spec = {"replicas": 6, "selector": {"matchLabels": {"app": "web"}}, "template": template}
    laptop.cluster.store.create("deployments.apps", {"metadata": {"name": "web"}, "spec": spec}, manager="test")
    laptop.world.step()
    laptop.register()
    question = ("--zone", "eu-central-1a", "--now", laptop.clock.now().isoformat())
    kubeconfig = laptop.folder / "kubeconfig"
    kubeconfig.write_text(json.dumps(laptop.api.kubeconfig("evenkeel")))
    context = json.loads(kubeconfig.read_text())["current-context"]
    by_context = laptop.json("forecast", *question, "--kubeconfig", str(kubeconfig), "--context", context)
    asked = len(laptop.endpoint.called)
    by_stack = laptop.json("forecast", *question)
    assert [event["action"] for event in laptop.endpoint.invoked[asked:]] == ["export", "status", "plan"]
    assert {*laptop.endpoint.called[asked:]} == {"WidgetFunction"}
    assert (by_stack["podsKnown"], len(by_stack["pods"])) == (True, 1)
    assert by_stack == by_context
    for name, value in laptop.endpoint.environment().items():
        monkeypatch.setenv(name, value)
    packed = ask(STACK, {"action": "plan", "cluster": "blue", "observation": True})["observation"]
    read = unpack(Observation, packed, "observation")
    assert "web-" in repr(read)
    assert "s3cret" not in repr(read)


#: the calls of each function
ASKED = {
    "WidgetFunction": (
        *("plan --cluster blue", "status", "explain --cluster blue --pool p", "validate", "validate --fix"),
        *("record --cluster blue", "drill --cluster blue"),
    ),
    "OperatorFunction": (
        *("pause --cluster blue", "resume --cluster blue", "dry-run --cluster blue"),
        "fence-zone --cluster blue --zone a --until 2099-01-01T00:00:00Z",
        "drill --cluster blue --abort",
        "leave-zone --cluster blue --back",
        "scale-up --cluster blue --pool p --nodes 1",
        "scale-down --cluster blue --pool p --nodes 1",
        "level --cluster blue --pool p",
    ),
    "AdminFunction": (
        *("validate --apply", "restore --cluster blue --yes", "unregister --cluster blue", "live --cluster blue --yes"),
    ),
}


@pytest.mark.parametrize(
    ("function", "command"), [(function, command) for function, commands in ASKED.items() for command in commands]
)
def test_a_command_asks_the_function_with_its_rights_and_writes_name_the_caller(
    shell: Shell, function: str, command: str
) -> None:
    if function == "WidgetFunction":
        shell.endpoint.refuse("sts", 403, "AccessDenied", "never asked")
    environment = {**shell.endpoint.environment(), "COLUMNS": "150"}
    action, *arguments = command.split()
    CliRunner().invoke(app, [action, "--stack", STACK, *arguments], env=environment)
    assert shell.endpoint.called == [function]
    assert shell.endpoint.invoked[0].get("by") == (None if function == "WidgetFunction" else CALLER)


def test_a_caller_that_sts_does_not_name_acts_all_the_same(shell: Shell) -> None:
    shell.endpoint.refuse("sts", 403, "AccessDenied", "not allowed")
    shell.ask("pause")
    assert shell.endpoint.invoked == [{"action": "pause", "cluster": "blue"}]


def test_the_history_is_written_to_a_file(laptop: Laptop) -> None:
    laptop.check()
    file = laptop.folder / "history.json"
    assert "1 decision, 1 action of blue since " in laptop.ask("record", "--out", str(file))
    history = json.loads(file.read_text())
    assert set(history) == {"cluster", "from", "to", "decisions"}
    assert history["from"] == history["decisions"][0]["at"] <= history["to"]
    assert json.loads(laptop.ask("record", "--since", "2199-01-01T00:00:00Z"))["decisions"] == []
    assert "cannot be written" in laptop.fault(
        "record", "--cluster", "blue", "--out", str(laptop.folder / "no" / "file")
    )


class TestErrors:
    def test_an_unknown_cluster_pool_or_group_is_refused_with_the_nearest(self, laptop: Laptop) -> None:
        assert laptop.fault("status", "--cluster", "bleu") == "cluster 'bleu' is not registered; did you mean blue?"
        assert laptop.fault("pause", "--cluster", "blue", "--pool", "worker").endswith("did you mean workers?")
        assert "has no such group" in laptop.fault("explain", "--cluster", "blue", "--group", "nothing")

    def test_a_record_with_a_typo_names_the_field(self, laptop: Laptop) -> None:
        laptop.record.write_text("flavours: [gardner]")
        assert "flavours.0 is 'gardner'" in laptop.fault("register", "--cluster", "x", "--record", str(laptop.record))
        assert "cannot be read" in laptop.fault("register", "--cluster", "x", "--record", "/nowhere")

    def test_an_unknown_stack_and_a_stack_of_something_else(self, shell: Shell) -> None:
        assert shell.fault("status", stack="other") == (
            "stack is 'other': no stack of that name is here: check name, region and account"
        )
        said = "Resource WidgetFunction does not exist for stack evenkeel"
        shell.endpoint.refuse("cloudformation", 400, "ValidationError", said)
        assert "it has no WidgetFunction" in shell.fault("status")

    @pytest.mark.parametrize(
        ("service", "status", "code", "says"),
        [
            ("cloudformation", 403, "AccessDenied", "missing permission cloudformation:DescribeStackResource for "),
            ("lambda", 403, "AccessDeniedException", "missing permission lambda:InvokeFunction for stack evenkeel: "),
            ("cloudformation", 403, "ExpiredToken", "the AWS credentials have expired: renew them and ask again"),
            ("lambda", 403, "ExpiredTokenException", "the AWS credentials have expired: renew them and ask again"),
            ("cloudformation", 403, "InvalidClientTokenId", "AWS does not accept the credentials: why"),
            ("lambda", 429, "TooManyRequestsException", "Lambda refused: TooManyRequestsException: why"),
        ],
    )
    def test_a_refusal_of_aws_is_one_sentence(
        self, shell: Shell, service: str, status: int, code: str, says: str
    ) -> None:
        shell.endpoint.refuse(service, status, code, "why")
        assert shell.fault("status", code=1).startswith(says)

    def test_no_credentials_and_no_region_say_what_to_set(self, shell: Shell) -> None:
        nobody = {"AWS_ACCESS_KEY_ID": None, "AWS_SECRET_ACCESS_KEY": None, "AWS_CONTAINER_CREDENTIALS_FULL_URI": None}
        files = {name: str(shell.folder / "none") for name in ("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE")}
        assert "log in, or name a profile" in shell.fault("status", code=1, **nobody, **files)
        nowhere = {"AWS_DEFAULT_REGION": None, "AWS_REGION": None}
        assert shell.fault("status", **nowhere, **files) == (
            "no AWS region: give --region, or set AWS_REGION or the region of the profile"
        )
        assert "could not be found" in shell.fault("status", AWS_PROFILE="nobody", **files)

    def test_an_endpoint_that_does_not_answer_is_one_line(self, shell: Shell) -> None:
        away = {"AWS_ENDPOINT_URL_CLOUDFORMATION": "http://127.0.0.1:1"}
        assert shell.fault("status", code=1, **away).startswith("CloudFormation does not answer: ")

    def test_a_function_that_fails_is_named(self, shell: Shell) -> None:
        def broken(logical_id: str, event: Any) -> Any:
            raise RuntimeError("out of memory")

        with StackEndpoint(STACK, broken) as endpoint:
            shell.endpoint = endpoint
            assert shell.fault("status", code=1).startswith("WidgetFunction of stack evenkeel failed: out of memory")

    def test_an_unreachable_cluster_is_exit_one_and_an_incident_in_its_status(self, laptop: Laptop) -> None:
        laptop.api.faults.add(status=403, times=100)
        assert laptop.fault("plan", "--cluster", "blue", code=1)
        assert "incident: access refused" in laptop.ask("status", code=4)

    def test_plan_from_a_stack_and_from_files_do_not_mix(self, shell: Shell) -> None:
        assert shell.fault("plan", "-f", "-", "--cluster", "blue").startswith("--stack plans for a registered cluster")

    def test_a_request_whose_answer_is_lost_is_not_repeated(self, shell: Shell) -> None:
        shell.endpoint.refuse("lambda", 500, "ServiceException", "why")
        before = len(shell.endpoint.invoked)
        shell.fault("scale-up", "--cluster", "blue", "--pool", "workers", "--nodes", "2", code=1)
        assert len(shell.endpoint.invoked) == before


class TestFleet:
    """Files on a laptop, a stack, and a cluster whose API server is called before anything is stored."""

    def write(self, laptop: Laptop, **fields: Any) -> str:
        given = json.loads(laptop.record.read_text())
        folder = laptop.folder / "fleet"
        (folder / "prod").mkdir(parents=True, exist_ok=True)
        common = {"defaults": {"flavours": ["cluster-api"], "dry_run": False}, "labels": {"env": "prod"}}
        (folder / "prod" / "common.yaml").write_text(json.dumps(common))
        clusters = [{"id": "blue", "access": given["access"], **fields}]
        (folder / "prod" / "blue.yaml").write_text(json.dumps({"include": ["common.yaml"], "clusters": clusters}))
        return str(folder)

    def test_a_fleet_is_applied_fenced_exported_and_left_again(self, staged: Callable[..., Laptop]) -> None:
        laptop = staged()
        folder = self.write(laptop, zone_ids={"euc1-az2": "eu-central-1a"})
        assert laptop.run("apply", "-f", folder, "--diff").stdout.startswith("+ blue\n")
        assert laptop.run("apply", "-f", folder, "--yes", "--reason", "ticket 7").exit_code == 0
        laptop.check()
        assert laptop.patches() == 2
        assert laptop.run("apply", "-f", folder, "--yes").stdout == "1 cluster as in the files\n"
        fence = ("fence-zone", "--selector", "env=prod", "--zone-id", "euc1-az2", "--for", "2h", "--yes")
        assert "zone eu-central-1a of blue is fenced until" in laptop.run(*fence).stdout
        assert laptop.endpoint.invoked[-1]["clusters"] == ["blue"]

        exported = laptop.run("export", "--out", str(laptop.folder / "all.yaml"))
        assert exported.exit_code == 0, exported.output
        same = laptop.run("apply", "-f", str(laptop.folder / "all.yaml"))
        assert (same.exit_code, same.stdout) == (0, "1 cluster as in the files\n")

        other = laptop.folder / "other.yaml"
        # The same objects under another name: the first cluster's restore would take its writes for another writer's.
        as_teal = (laptop.folder / "all.yaml").read_text().replace("id: blue", "id: teal")
        other.write_text(as_teal.replace("dry_run: false", "dry_run: true"))
        assert "dry_run: true" in other.read_text()
        pruned = laptop.run("apply", "-f", str(other), "--prune", "--yes")
        assert pruned.exit_code == 1
        assert "blue is not unregistered: Evenkeel's bounds are still set in pool workers" in pruned.stderr
        laptop.ask("restore", "--yes")
        for _ in range(3):
            laptop.check()
            laptop.clock.passed += timedelta(minutes=1)
            laptop.triggers.tick(laptop.clock.now())
        pruned = laptop.run("apply", "-f", str(other), "--prune", "--yes")
        assert (pruned.exit_code, pruned.stderr) == (0, "")
        known = json.loads(laptop.run("status", "-o", "json").stdout)
        assert known["counts"]["clusters"] == 1
        assert "did you mean" not in laptop.fault("status", "--cluster", "blue")

    def test_missing_rights_are_reported_before_anything_is_stored(self, staged: Callable[..., Laptop]) -> None:
        laptop = staged()
        folder = self.write(laptop)
        laptop.api.revoke("evenkeel")
        failed = laptop.run("apply", "-f", folder, "--yes")
        assert failed.exit_code == 2
        assert "evenkeel: blue: it may not list machinedeployments.cluster.x-k8s.io" in failed.stderr
        assert "evenkeel: blue: it may not patch machines.cluster.x-k8s.io" in failed.stderr
        assert laptop.json("status", cluster="*")["counts"]["clusters"] == 0
        assert laptop.run("apply", "-f", folder, "--yes", "--no-verify").exit_code == 0
