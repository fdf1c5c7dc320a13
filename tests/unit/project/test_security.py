"""SECURITY.md names the functions' rights in AWS that template.yaml grants."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml

from sandbox.template import ROOT, Template

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
# The services of the stack's own table, queues, bus, logs, keys and traces.
OWN = {"dynamodb", "sqs", "events", "logs", "kms", "xray"}


def actions(policies: Any) -> Iterator[str]:
    """Yield every action that policies grant, with any parameters."""
    if isinstance(policies, list):
        for item in policies:
            yield from actions(item)
    elif isinstance(policies, dict):
        granted = policies.get("Action", [])
        yield from [granted] if isinstance(granted, str) else granted
        yield from actions(list(policies.values()))


def granted() -> dict[str, set[str]]:
    """Return the actions of each function beyond those on the stack's own resources."""
    template = Template()
    roles = template.of_type("AWS::IAM::Role")
    return {
        function["CodeUri"].removeprefix("functions/"): {
            action
            for action in actions(roles[function["Role"]["Fn::GetAtt"][0]]["Policies"])
            if action.partition(":")[0] not in OWN
        }
        for function in template.of_type("AWS::Serverless::Function").values()
    }


def described() -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for names, listed in re.findall(r"^\| (`[a-z_`, ]+) \| (.*) \|$", TEXT, re.M):
        for name in re.findall(r"\w+", names):
            found.setdefault(name, set()).update(re.findall(r"`([a-z0-9]+:\w+)`", listed))
    return found


def test_the_actions_of_each_function_are_those_of_the_template() -> None:
    assert described() == granted()


def secrets(function: str) -> set[str]:
    """Return the names of the secrets that a function may read: the part after `:secret:` in its role's resources."""
    template = Template()
    of = next(
        of for of in template.of_type("AWS::Serverless::Function").values() if of["CodeUri"].endswith(f"/{function}")
    )
    policies = template.of_type("AWS::IAM::Role")[of["Role"]["Fn::GetAtt"][0]]["Policies"]
    return set(re.findall(r":secret:(.+?)['\"]", str(policies)))


def test_notify_reads_only_the_secrets_that_the_text_names() -> None:
    assert "`notify` only those that parameters `…Secret` name." in TEXT
    named = [name for name in Template().parameters if name.endswith("Secret")]
    assert secrets("notify") == {f"${{{name}}}-??????" for name in named}


@pytest.mark.parametrize("function", sorted(granted().keys() - {"notify"}))
def test_other_functions_read_only_secrets_with_the_stacks_prefix(function: str) -> None:
    reads = "secretsmanager:GetSecretValue" in granted()[function]
    assert secrets(function) == ({"${SecretPrefix}*", "${AWS::StackName}/*"} if reads else set())


def test_only_traces_and_network_interfaces_are_granted_besides() -> None:
    """The text names them in one sentence, and the table leaves them out."""
    roles = Template().of_type("AWS::IAM::Role")
    managed = {
        name for role in roles.values() for name in re.findall(r"policy/([\w/-]+)", str(role.get("ManagedPolicyArns")))
    }
    assert managed == {"service-role/AWSLambdaENIManagementAccess"}
    assert "traces, and network interfaces (VPC)" in TEXT


def test_only_rebalance_ends_machines_or_changes_their_number() -> None:
    writes = {
        name: {action for action in of if not re.search(":(Describe|Get)", action)} for name, of in granted().items()
    }
    assert {name for name, of in writes.items() if any(action.startswith("autoscaling:") for action in of)} == {
        "rebalance"
    }
    assert not any(action.startswith(("iam:", "ec2:")) for of in writes.values() for action in of)


def test_the_exporters_policy_allows_exactly_what_the_exporter_sends() -> None:
    page = (ROOT / "docs" / "reference" / "events.md").read_text(encoding="utf-8")
    (policy,) = re.findall(r"```json policy\n(.*?)```", page, re.S)
    (exporter,) = re.findall(r"```yaml exporter\n(.*?)```", page, re.S)
    sends = yaml.safe_load(exporter)["receivers"][0]["eventbridge"]
    (statement,) = json.loads(policy)["Statement"]
    assert (statement["Effect"], statement["Action"]) == ("Allow", "events:PutEvents")
    expected = {"events:source": sends["source"], "events:detail-type": sends["detailType"]}
    assert statement["Condition"] == {"StringEquals": expected}
    assert "Senders on the stack's bus" in TEXT
