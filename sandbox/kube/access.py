"""Access: kubeconfigs, and the subset of RBAC that the simulated API implements."""

from __future__ import annotations

import base64
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from sandbox.kube.schema import Json


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One RBAC rule; `*` in a field means all. Subresources are written `machinedeployments/scale`."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...]
    resources: tuple[str, ...]
    names: tuple[str, ...] = ()
    namespaces: tuple[str, ...] = ()

    @classmethod
    def all(cls) -> Self:
        """Return the rule that allows everything."""
        return cls(verbs=("*",), groups=("*",), resources=("*",))

    @classmethod
    def of_role(cls, role: dict[str, Json]) -> list[Self]:
        """Return the rules of a Role or ClusterRole manifest without those for non-resource URLs."""
        namespace = role["metadata"].get("namespace")
        return [
            cls(
                verbs=tuple(rule["verbs"]),
                groups=tuple(rule.get("apiGroups", ())),
                resources=tuple(rule["resources"]),
                names=tuple(rule.get("resourceNames", ())),
                namespaces=(namespace,) if namespace else (),
            )
            for rule in role.get("rules") or ()
            if rule.get("resources")
        ]

    def allows(self, verb: str, group: str, resource: str, namespace: str, name: str) -> bool:
        """Return True if the rule allows this verb on this object."""
        return (
            _in(verb, self.verbs)
            and _in(group, self.groups)
            and _in(resource, self.resources)
            and (not self.names or name in self.names)
            and (not self.namespaces or namespace in self.namespaces)
        )

    def as_json(self) -> dict[str, Json]:
        """Return the rule as an entry of a ClusterRole."""
        if self.namespaces:
            raise ValueError(f"namespaces {list(self.namespaces)}: a ClusterRole has none; use a Role")
        rule: dict[str, Json] = {
            "verbs": list(self.verbs),
            "apiGroups": list(self.groups),
            "resources": list(self.resources),
        }
        return rule | ({"resourceNames": list(self.names)} if self.names else {})


def _in(value: str, allowed: Iterable[str]) -> bool:
    allowed = tuple(allowed)
    return "*" in allowed or value in allowed


def kubeconfig(*, url: str, ca_pem: str, user: str, token: str) -> dict[str, Json]:
    """Return a kubeconfig with the certificate authority and the token inline."""
    return {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {
                "name": "sandbox",
                "cluster": {
                    "server": url,
                    "certificate-authority-data": base64.b64encode(ca_pem.encode()).decode(),
                },
            }
        ],
        "users": [{"name": user, "user": {"token": token}}],
        "contexts": [{"name": "sandbox", "context": {"cluster": "sandbox", "user": user}}],
        "current-context": "sandbox",
    }
