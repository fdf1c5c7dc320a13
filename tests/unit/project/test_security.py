"""SECURITY.md: what the functions may do in AWS is what template.yaml grants."""

import re
from collections.abc import Iterator
from typing import Any

from sandbox.template import ROOT, Template

TEXT = (ROOT / "SECURITY.md").read_text(encoding="utf-8")
# The services of the stack's own table, queues, bus, logs, keys and traces.
OWN = {"dynamodb", "sqs", "events", "logs", "kms", "xray"}


def actions(policies: Any) -> Iterator[str]:
    """Every action that policies grant, whatever the parameters are."""
    if isinstance(policies, list):
        for item in policies:
            yield from actions(item)
    elif isinstance(policies, dict):
        granted = policies.get("Action", [])
        yield from [granted] if isinstance(granted, str) else granted
        yield from actions(list(policies.values()))


def granted() -> dict[str, set[str]]:
    """The actions of each function beyond those on the stack's own resources."""
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


def test_only_rebalance_ends_machines_or_changes_their_number() -> None:
    writes = {
        name: {action for action in of if not re.search(":(Describe|Get)", action)} for name, of in granted().items()
    }
    assert {name for name, of in writes.items() if any(action.startswith("autoscaling:") for action in of)} == {
        "rebalance"
    }
    assert not any(action.startswith(("iam:", "ec2:")) for of in writes.values() for action in of)
