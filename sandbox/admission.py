"""Evaluates deploy/kubernetes/admission-policy.yaml as an API server of Kubernetes 1.30 or newer does.

Neither API server of the tests supports ValidatingAdmissionPolicy: the real one is too old, and the simulated one lacks
it. So this module evaluates the CEL expressions over the old and the new object.
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
    """One ValidatingAdmissionPolicy. It evaluates its variables in their order, then every validation."""

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
        """Return whether the policy matches updates of a resource."""
        return any(group in rule["apiGroups"] and resource in rule["resources"] for rule in self.rules)

    def applies_to(self, *groups: str, username: str = "someone") -> bool:
        """Return whether the policy's match conditions include a user with this name and these groups."""
        request = celpy.json_to_cel({"userInfo": {"username": username, "groups": list(groups)}})
        return all(_holds(program, {"request": request}) for program in self._conditions)

    def refusals(self, old: Mapping[str, Any], new: Mapping[str, Any]) -> list[str]:
        """Return the messages of the validations that do not hold or cannot be evaluated (failurePolicy Fail)."""
        variables = celpy.celtypes.MapType()
        context = {"object": celpy.json_to_cel(new), "oldObject": celpy.json_to_cel(old), "variables": variables}
        for name, program in self._variables.items():
            variables[celpy.celtypes.StringType(name)] = program.evaluate(context)
        return [message for message, program in self._validations if not _holds(program, context)]


def policies(file: Path = FILE) -> dict[str, Policy]:
    """Return every policy that a binding enforces with the action Deny, by name."""
    documents = list(yaml.safe_load_all(file.read_text(encoding="utf-8")))
    bound = {
        document["spec"]["policyName"]
        for document in documents
        if document["kind"] == "ValidatingAdmissionPolicyBinding" and "Deny" in document["spec"]["validationActions"]
    }
    all_policies = [Policy(document) for document in documents if document["kind"] == "ValidatingAdmissionPolicy"]
    return {policy.name: policy for policy in all_policies if policy.name in bound}


class AdmissionWatch:
    """Evaluates every patch of a user at a simulated API. It records the results, but denies nothing.

    `judged` counts patches by resource. `refused` lists the patches that the policies deny. Only one writer may
    send patches at a time. A policy of a later file replaces a policy of the same name.
    """

    def __init__(self, api: KubernetesAPI, *, user: str = "evenkeel", files: Sequence[Path] = (FILE,)) -> None:
        self.judged: dict[str, int] = {}
        self.refused: list[str] = []
        self._api = api
        self._user = user
        self._policies = list({name: policy for file in files for name, policy in policies(file).items()}.values())
        self._old: Any = None
        api.before.append(self._store_old)
        api.after.append(self._evaluate)

    def _store_old(self, request: Request) -> None:
        if request.method == "PATCH" and request.user == self._user:
            self._old = self._read(request)

    def _evaluate(self, request: Request) -> None:
        if request.method != "PATCH" or request.user != self._user:
            return
        old, new = self._old, self._read(request)
        if old is None or new is None or old["metadata"]["resourceVersion"] == new["metadata"]["resourceVersion"]:
            return  # an invalid patch, or no change
        group, resource = self._target(request)
        matching = [policy for policy in self._policies if policy.covers(group, resource)]
        if not matching:
            self.refused.append(f"{request.path}: no policy covers it")
        for policy in matching:
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
