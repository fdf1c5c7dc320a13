"""What the stages of several integration tests do alike."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from sandbox.aws import Deployment
from sandbox.kube.world import Cluster
from sandbox.template import ROOT

_EVENT = json.loads((ROOT / "events" / "provisioning-failure.json").read_text(encoding="utf-8"))


def put_kubeconfig(deployment: Deployment, name: str, cluster: Cluster) -> dict[str, str]:
    """A cluster's kubeconfig into Secrets Manager; the access of its record."""
    secret = f"evenkeel/{deployment.stack}-{name}"
    kubeconfig = json.dumps(cluster.api.kubeconfig("evenkeel"))
    deployment.aws.client("secretsmanager").create_secret(Name=secret, SecretString=kubeconfig)
    return {"kind": "kubeconfig", "secret": secret}


def report_failure(
    deployment: Deployment, name: str, cluster: Cluster, zone: str, at: datetime, **fields: Any
) -> dict[str, Any]:
    """Puts a native failure event about the group of that zone on the bus; its detail."""
    group = next(view for view in cluster.groups() if view.zone == zone)
    detail = {
        **_EVENT["detail"],
        "cluster": name,
        "namespace": group.namespace,
        "kind": "MachineSet" if cluster.flavour == "openshift" else "MachineDeployment",
        "name": group.name,
        "zone": zone,
        "occurredAt": at.isoformat(),
        "id": f"{deployment.stack}-{group.name}",
        **fields,
    }
    entry = {"Source": _EVENT["source"], "DetailType": _EVENT["detail-type"], "Detail": json.dumps(detail)}
    deployment.aws.client("events").put_events(Entries=[{"EventBusName": deployment.bus, **entry}])
    return detail
