"""Evaluates deploy/kubernetes/admission-policy.yaml as an API server of 1.30 or newer would.

The real API server that the tests can start is older than ValidatingAdmissionPolicy, and the simulated one knows none;
so the expressions are evaluated here, in CEL, over the old and the new object.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import celpy
import yaml

from sandbox.kube.api import KubernetesAPI, Request
from sandbox.template import ROOT

FILE = ROOT / "deploy" / "kubernetes" / "admission-policy.yaml"

_PATH = re.compile(
    r"/apis/(?P<group>[^/]+)/(?P<version>[^/]+)/namespaces/(?P<namespace>[^/]+)/(?P<plural>[^/]+)/(?P<name>[^/]+)"
)


class Policy:
    """One ValidatingAdmissionPolicy: variables in the order in which they stand, then every validation."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        spec = document["spec"]
        self.name: str = document["metadata"]["name"]
        self.rules: list[Mapping[str, Any]] = spec["matchConstraints"]["resourceRules"]
        environment = celpy.Environment()

        def program(source: str) -> celpy.Runner:
            return environment.program(environment.compile(source))

        self._conditions = [program(entry["expression"]) for entry in spec["matchConditions"]]
        self._variables = {entry["name"]: program(entry["expression"]) for entry in spec["variables"]}
        self._validations = [(entry["message"], program(entry["expression"])) for entry in spec["validations"]]

    def covers(self, group: str, resource: str) -> bool:
        """Whether updates of that resource are looked at."""
        return any(group in rule["apiGroups"] and resource in rule["resources"] for rule in self.rules)

    def applies_to(self, *groups: str, username: str = "someone") -> bool:
        """Whether a user in these groups, or of that name, is looked at."""
        request = celpy.json_to_cel({"userInfo": {"username": username, "groups": list(groups)}})
        return all(_holds(program, {"request": request}) for program in self._conditions)

    def refusals(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
        """Messages of the validations that do not hold; one that fails to evaluate does not (failurePolicy Fail)."""
        variables = celpy.celtypes.MapType()
        context = {"object": celpy.json_to_cel(new), "oldObject": celpy.json_to_cel(old), "variables": variables}
        for name, program in self._variables.items():
            variables[celpy.celtypes.StringType(name)] = program.evaluate(context)
        return [message for message, program in self._validations if not _holds(program, context)]


def policies(file: Path = FILE) -> dict[str, Policy]:
    """Every policy that is bound with the action Deny, by name."""
    documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    bound = {
        document["spec"]["policyName"]
        for document in documents
        if document["kind"] == "ValidatingAdmissionPolicyBinding" and "Deny" in document["spec"]["validationActions"]
    }
    found = [Policy(document) for document in documents if document["kind"] == "ValidatingAdmissionPolicy"]
    return {policy.name: policy for policy in found if policy.name in bound}


class AdmissionWatch:
    """Judges every patch that a user sends to a simulated API, from outside: nothing is refused, all is noted.

    `judged` counts patches by resource, `refused` says what the policies would have refused. For one writer at a time.
    Of `files`, applied in this order, a later policy replaces one of the same name.
    """

    def __init__(self, api: KubernetesAPI, *, user: str = "evenkeel", files: Sequence[Path] = (FILE,)) -> None:
        self.judged: dict[str, int] = {}
        self.refused: list[str] = []
        self._api = api
        self._user = user
        self._policies = list({name: policy for file in files for name, policy in policies(file).items()}.values())
        self._old: Any = None
        api.before.append(self._remember)
        api.after.append(self._judge)

    def _remember(self, request: Request) -> None:
        if request.method == "PATCH" and request.user == self._user:
            self._old = self._read(request)

    def _judge(self, request: Request) -> None:
        if request.method != "PATCH" or request.user != self._user:
            return
        old, new = self._old, self._read(request)
        if old is None or new is None or old["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]:
            return  # refused for another reason, or nothing changed
        group, resource = self._target(request)
        looking = [policy for policy in self._policies if policy.covers(group, resource)]
        if not looking:
            self.refused.append(f"{request.path}: no policy covers it")
        for policy in looking:
            self.refused += [f"{request.path}: {message}" for message in policy.refusals(old, new)]
        self.judged[resource] = self.judged.get(resource, 0) + 1

    def _target(self, request: Request) -> tuple[str, str]:
        match = _PATH.fullmatch(request.path)
        if match is None:
            raise ValueError(f"{request.path} is no namespaced object of an API group")
        return match["group"], match["plural"]

    def _read(self, request: Request) -> Any:
        match = _PATH.fullmatch(request.path)
        if match is None:
            return None
        resource = f"{match['plural']}.{match['group']}"
        return self._api.store.get(resource, match["namespace"], match["name"], version=match["version"])


def _holds(program: celpy.Runner, context: dict[str, Any]) -> bool:
    try:
        return bool(program.evaluate(context))
    except celpy.CELEvalError:
        return False
