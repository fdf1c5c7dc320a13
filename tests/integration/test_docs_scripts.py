"""Every script of the docs runs as written on the sandbox, with `evenkeel` and stand-ins for aws, sam and kubectl.

The file test_docs_commands.py has the commands of `evenkeel` that are shown with their output.
"""

import json
import os
import pty
import re
import shlex
import shutil
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import boto3
import pytest
import yaml

from sandbox.aws import AwsEndpoints
from sandbox.kube.world import World
from sandbox.local_stack import EVENKEEL, LocalStack
from sandbox.template import ROOT
from tests.stand_ins import ECOSYSTEMS, called
from tests.unit.project.test_docs import PAGES, blocks, by_name

PROGRAMS = re.compile(r"^\s*(?:\$ )?(?:[\w.]*/)*(make|evenkeel|aws|sam|kubectl|ssh-keygen|sha256sum|sed|echo) ", re.M)
# Commands that do not run here: the beginning, the reason, and the file with tests of the same.
NOT_RUN = {
    "make setup": ("each target runs it first, also `make test`", "Makefile"),
    "make test": ("it runs this test", "Makefile"),
    "make demo": ("it takes 25 seconds", "tests/integration/test_demo.py"),
    "make build": ("it needs Python 3.13 and the SAM CLI", "tests/e2e/test_build.py"),
    ".venv-sam/bin/sam local invoke": ("it needs Docker", "tests/e2e/test_events.py"),
    "aws eks create-access-entry": ("moto has no access entries", "tests/unit/fleet/test_discovering.py"),
    "aws sqs start-message-move-task": ("moto does not have it", "tests/integration/test_dead_letters.py"),
    "sh queries.sh": ("it needs a Prometheus", "tests/unit/lookback/test_prometheus.py"),
    "evenkeel lookback -f groups.yaml $(printf": ("it needs its answers", "tests/unit/lookback/test_prometheus.py"),
    "kubectl apply": ("the sandbox has no roles and policies", "tests/unit/project/test_deploy_folders.py"),
    "kubectl create token": ("the sandbox issues no tokens", "tests/contract/test_service_account_tokens.py"),
    "kubectl get secret": ("the sandbox issues no tokens", "tests/contract/test_service_account_tokens.py"),
    "kubectl krew": ("it needs a release and krew", "tests/e2e/test_package.py"),
    "kubectl evenkeel": ("it needs the plug-in of a release", "tests/e2e/test_package.py"),
    "echo": ("it needs a signed release", "tests/e2e/test_package.py"),
    "ssh-keygen": ("it needs a signed release", "tests/e2e/test_package.py"),
    "sha256sum": ("it needs a signed release", "tests/e2e/test_package.py"),
}


def scripts(page: Path) -> Iterator[str]:
    """Yield each block with commands, also below a list item."""
    text = page.read_text(encoding="utf-8")
    for _, language, block in re.findall(r"^( *)```(\w*)[^\n]*\n(.*?)^\1```", text, re.S | re.M):
        if language in ("sh", "text") and PROGRAMS.search(block):
            yield textwrap.dedent(block)


def commands(script: str) -> list[str]:
    """Return the commands of a script. A command over several lines is one."""
    joined = re.sub(r"\\\n\s*", "", script)
    return re.findall(r"^.*<<'EOF'\n(?:.*\n)*?EOF$|^.+$", joined, re.M)


def reason(command: str) -> str:
    return next((name for name in NOT_RUN if command.startswith(name)), "")


def in_sentences(page: Path) -> list[str]:
    """Return the complete commands in the sentences of a page: with their inputs, and without placeholders."""
    text = re.sub(r"^ *```.*?^ *```", "", page.read_text(encoding="utf-8"), flags=re.S | re.M)
    found = re.findall(r"`(?:\.venv/bin/)?(evenkeel [a-z][^`]*)`", text)
    whole = re.compile(r"--stack evenkeel|--context [a-z]|-f [a-z]|scenarios/|discover|--forecast [a-z]|--version")
    return [line for line in found if whole.search(line) and not re.search(r"\b[A-Z]{2,}\b|…|--plot", line)]


NAMESPACE = {"kind": "Namespace", "apiVersion": "v1", "metadata": {"name": "evenkeel"}}
STATUS = {
    "kind": "ConfigMap",
    "apiVersion": "v1",
    "metadata": {"namespace": "evenkeel", "name": "evenkeel-status"},
    "data": {"evenkeel.json": "{}"},
}
KEYS = {"aws_access_key_id": "sandbox", "aws_secret_access_key": "sandbox"}
SCRIPTS = {page: [*scripts(page)] for page in PAGES if [*scripts(page)]}


@pytest.fixture(scope="module")
def stack(aws: AwsEndpoints, world: World) -> Iterator[LocalStack]:
    with LocalStack(aws) as started:
        kubeconfig = json.dumps(world.clusters["cluster-api"].api.kubeconfig("evenkeel"))
        aws.client("secretsmanager").create_secret(Name="evenkeel/blue", SecretString=kubeconfig)
        yield started


def register_blue(stack: LocalStack) -> None:
    record = {"flavours": ["cluster-api"], "access": {"kind": "kubeconfig", "secret": "evenkeel/blue"}}
    answer = stack.invoke("AdminFunction", {"action": "register", "cluster": "blue", "record": record})
    assert answer["ok"], answer


@pytest.fixture(scope="module")
def world() -> Iterator[World]:
    seed = {"kind": "Seed", "apiVersion": "core.gardener.cloud/v1beta1", "metadata": {"name": "s1"}, "spec": {}}
    with World(clusters=set(ECOSYSTEMS.values()), settings=None) as started:
        store = started.clusters["cluster-api"].store
        store.create("seeds.core.gardener.cloud", seed, manager="gardener")
        store.create("namespaces", NAMESPACE, manager="kubectl")
        store.create("configmaps", STATUS, manager="evenkeel")
        yield started


@pytest.fixture(scope="module")
def folder(stack: LocalStack, world: World, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder like the repository's, with the files that the scripts expect."""
    made = tmp_path_factory.mktemp("repository")
    for name in ("scenarios", "events", "deploy"):
        (made / name).symlink_to(ROOT / name)
    for name, cluster in world.clusters.items():
        (made / f"{name}.kubeconfig").write_text(yaml.safe_dump(cluster.api.kubeconfig("evenkeel")))
    kubeconfig = json.dumps(world.clusters["cluster-api"].api.kubeconfig("evenkeel"))
    context = yaml.safe_load(kubeconfig)["current-context"]
    (made / "kubeconfig").write_text(kubeconfig.replace(f'"{context}"', '"my-cluster"'))
    for name, text in programs().items():
        for path in (made / "bin" / name, made / f".venv{'-sam' * (name == 'sam')}" / "bin" / name):
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"#!/bin/sh\n{text}\n")
            path.chmod(0o755)
    (made / "token").write_text("a token")
    for page in ("start/first-plan.md", "start/first-cluster.md"):
        write_files(made, ROOT / "docs" / page)
    (made / "record.yaml").write_text((made / "blue.yaml").read_text())
    (made / "state.json").write_text("{}")
    return made


def write_files(folder: Path, page: Path) -> None:
    """Write the files that a page shows with their names."""
    for language in ("yaml", "json"):
        for title, text in blocks(page, language):
            if "." in title:
                (folder / title).write_text(text, encoding="utf-8")


def programs() -> dict[str, str]:
    stand_in = f"PYTHONPATH={shlex.quote(str(ROOT))} exec {shlex.quote(sys.executable)} -m tests.stand_ins"
    incident = "case $? in 0|3|4|5) exit 0;; *) exit 1;; esac"  # a pool has an incident, or is not ready
    return {
        **{name: f'{stand_in} {name} "$@"' for name in ("aws", "sam", "kubectl")},
        "evenkeel": f'{shlex.quote(str(EVENKEEL))} "$@"\n{incident}',
        "sleep": "exit 0",
    }


@pytest.fixture(scope="module")
def environment(stack: LocalStack, folder: Path) -> dict[str, str]:
    variables = [f"export {name}={shlex.quote(value)}\n" for name, value in stack.environment().items()]
    (folder / "build").mkdir()
    (folder / "build" / "localstack.env").write_text("".join(variables))
    return {
        **stack.environment(),
        "PATH": f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(folder),
        "KUBECONFIG": str(folder / "kubeconfig"),
        "AWS_ENDPOINT_URL_EKS": stack.aws.url,
        "BUS": stack.deployment.bus,
    }


@pytest.fixture(scope="module")
def values(aws: AwsEndpoints, stack: LocalStack) -> dict[str, str]:
    """Return the values for the placeholders in capitals."""
    network = {"subnetIds": ["subnet-1"], "securityGroupIds": []}
    role, tags = "arn:aws:iam::123456789012:role/eks", {"team": "platform"}
    eks = boto3.client("eks", endpoint_url=aws.url, region_name=aws.region, **KEYS)
    eks.create_cluster(name="management", roleArn=role, resourcesVpcConfig=network, tags=tags)
    node_group = {"clusterName": "management", "nodegroupName": "demo-eks-workers-eu-central-1a", "nodeRole": role}
    eks.create_nodegroup(**node_group, subnets=["subnet-1"])
    tag = {"ResourceType": "auto-scaling-group", "Key": "kubernetes.io/cluster/demo-eks", "Value": "owned"}
    scaling = boto3.client("autoscaling", region_name=aws.region, **KEYS)
    for group in scaling.describe_auto_scaling_groups()["AutoScalingGroups"]:
        of_group = {**tag, "ResourceId": group["AutoScalingGroupName"], "PropagateAtLaunch": False}
        scaling.create_or_update_tags(Tags=[of_group])
    backup = aws.client("dynamodb").create_backup(TableName=stack.deployment.table, BackupName="daily")
    return {
        "TOKEN_KEY_ARN": aws.client("kms").create_key()["KeyMetadata"]["Arn"],
        "GROUP": "demo-eks-workers-eu-central-1a",
        "NAME": "demo-eks-workers-eu-central-1a",
        "CLUSTER": "management",
        "TYPE": "m5.large",
        "TABLE": "restored",
        "ARN": backup["BackupDetails"]["BackupArn"],
        "URL": stack.deployment.physical("DeadLetters"),
    }


@pytest.mark.parametrize("page", [page for page in PAGES if page in SCRIPTS or in_sentences(page)], ids=by_name)
def test_the_commands_of_a_page_run(
    page: Path, stack: LocalStack, folder: Path, environment: dict[str, str], values: dict[str, str]
) -> None:
    register_blue(stack)
    write_files(folder, page)
    lines = [command for script in SCRIPTS.get(page, ()) for command in commands(script) if not reason(command)]
    text = re.sub(rf"\b({'|'.join(values)})\b", lambda word: values[word[0]], "\n".join(lines + in_sentences(page)))
    if "jq " in text and shutil.which("jq") is None:
        pytest.skip("no jq, which this page uses")
    person, terminal = pty.openpty()
    os.write(person, b"y\n" * 10)  # agrees to each question
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", text],
        stdin=terminal,
        cwd=folder,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    os.close(person)
    os.close(terminal)
    assert done.returncode == 0, f"{text}\n{done.stdout}\n{done.stderr}"


def test_each_command_that_is_not_run_is_in_the_docs_and_tested_elsewhere() -> None:
    found = [command for page in SCRIPTS for script in SCRIPTS[page] for command in commands(script)]
    assert NOT_RUN.keys() == {reason(command) for command in found} - {""}
    assert [file for _, file in NOT_RUN.values() if not (ROOT / file).exists()] == []
    for command in found:
        if reason(command).startswith("aws "):
            _, service, operation, *words = shlex.split(command)
            called(service, operation, words)


def test_each_target_of_make_that_the_docs_name_exists() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.M))
    for page in PAGES:
        assert set(re.findall(r"(?:^|`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.M)) <= targets, page.name
