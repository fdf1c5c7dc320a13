"""Stand-ins for the AWS CLI, the SAM CLI and kubectl: `python -m tests.stand_ins PROGRAM WORDS…`.

Each performs the API calls of the command that it gets, with the endpoints of the environment. An option that the API
does not have is an error, as for the real program. Imports are inside the functions, because a script starts many
programs.
"""

import json
import os
import re
import sys
from collections.abc import Sequence
from functools import reduce
from pathlib import Path
from typing import Any

import boto3
import botocore.session
from botocore import xform_name

# The sandbox's cluster that has objects of these API groups; the first that a command names counts.
ECOSYSTEMS = {
    "machine.sapcloud.io": "gardener",
    "hypershift.openshift.io": "hypershift",
    "machine.openshift.io": "openshift",
    "cluster.x-k8s.io": "cluster-api",
}


def called(service: str, operation: str, words: Sequence[str]) -> tuple[str, dict[str, Any], dict[str, str]]:
    """Return the method of boto3 and the parameters of a command of the AWS CLI, and the options about its output."""
    model = botocore.session.Session().get_service_model(service)
    found = next(name for name in model.operation_names if xform_name(name, "-") == operation)
    shape = model.operation_model(found).input_shape
    options = {f"--{xform_name(name, '-')}": (name, member) for name, member in shape.members.items()}
    given: dict[str, Any] = {}
    output: dict[str, str] = {}
    rest = list(words)
    while rest:
        word = rest.pop(0)
        if not word.startswith("--"):
            output["file"] = word
        elif word in ("--query", "--output"):
            output[word.strip("-")] = rest.pop(0)
        else:
            name, member = options[word]
            if member.type_name == "boolean":
                given[name] = True
                continue
            given[name] = _value(member, rest.pop(0))
            while member.type_name == "list" and rest and not rest[0].startswith("--"):
                given[name] += _value(member, rest.pop(0))
    assert set(shape.required_members) <= given.keys(), operation
    return xform_name(found), given, output


def _value(shape: Any, text: str) -> Any:
    """Return the value of an option: from a file, as JSON, or in the short form name=value,name=value."""
    if match := re.match("fileb?://", text):
        return Path(text[match.end() :]).read_bytes()
    if text[:1] in ("{", "["):
        return json.loads(text)
    match shape.type_name:
        case "list":
            return [_value(shape.member, text)]
        case "map":
            return dict(part.split("=", 1) for part in text.split(","))
        case "structure":
            parts = dict(part.split("=", 1) for part in text.split(","))
            return {name: _value(shape.members[name], part) for name, part in parts.items()}
        case "boolean":
            return text == "true"
        case "integer":
            return int(text)
    return text


def aws(service: str, operation: str, *words: str) -> None:
    import jmespath

    method, given, output = called(service, operation, words)
    answer = getattr(boto3.client(service), method)(**given)
    if "file" in output:
        Path(output["file"]).write_bytes(answer.pop("Payload").read())
    answer.pop("ResponseMetadata")
    answer = jmespath.search(output["query"], answer) if "query" in output else answer
    sys.stdout.write(f"{answer}\n" if output.get("output") == "text" else json.dumps(answer, default=str, indent=2))


def sam(command: str, *words: str) -> None:
    if command == "deploy":
        from sandbox.aws import AwsEndpoints

        given = words[words.index("--parameter-overrides") + 1 :] if words else ("AlarmTopicArn=nobody",)
        for name in [name for name in os.environ if name.startswith("AWS_ENDPOINT_URL_")]:
            del os.environ[name]  # of the stack that runs; this one is new
        with AwsEndpoints() as endpoints, endpoints.deploy(parameters=dict(word.split("=", 1) for word in given)):
            return
    assert (command, words[0], words[2], words[4]) == ("remote", "invoke", "--stack-name", "--event-file")
    where = {"StackName": words[3], "LogicalResourceId": words[1]}
    detail = boto3.client("cloudformation").describe_stack_resource(**where)["StackResourceDetail"]
    event = Path(words[5]).read_bytes()
    answer = boto3.client("lambda").invoke(FunctionName=detail["PhysicalResourceId"], Payload=event)
    assert "FunctionError" not in answer
    sys.stdout.write(answer["Payload"].read().decode())


def kubectl(command: str, *words: str) -> None:
    import yaml

    if command == "api-resources":
        group = _after("--api-group", words)
        served = {resource.name for resource in _cluster("cluster-api").resources.search(group=group)}
        sys.stdout.writelines(f"{name}.{group}\n" for name in sorted(served))
    elif "-A" in words:
        types = [word.split(".", 1) for word in words[-1].split(",")]
        api = _cluster(next(name for group, name in ECOSYSTEMS.items() if group in words[-1]))
        found = [api.resources.search(group=group, name=name)[0].get().to_dict() for name, group in types]
        items = [{**each, "apiVersion": page["apiVersion"]} for page in found for each in page["items"]]
        assert items, f"no objects: {words[-1]}"
        sys.stdout.write(yaml.safe_dump({"apiVersion": "v1", "kind": "List", "items": items}))
    else:
        assert (command, words[0]) == ("get", "configmap")
        maps = _cluster("cluster-api").resources.get(api_version="v1", kind="ConfigMap")
        found = maps.get(namespace=_after("-n", words), name=words[3]).to_dict()
        path = re.split(r"(?<!\\)\.", _after("-o", words).removeprefix("jsonpath={.").removesuffix("}"))
        sys.stdout.write(reduce(lambda value, name: value[name.replace("\\", "")], path, found))


def _after(option: str, words: Sequence[str]) -> str:
    return words[words.index(option) + 1]


def _cluster(name: str) -> Any:
    """Return the client of a cluster of the sandbox."""
    from kubernetes.config import new_client_from_config
    from kubernetes.dynamic import DynamicClient

    return DynamicClient(new_client_from_config(f"{name}.kubeconfig"))


def main(program: str, *words: str) -> None:
    {"aws": aws, "sam": sam, "kubectl": kubectl}[program](*words)


if __name__ == "__main__":
    main(*sys.argv[1:])
