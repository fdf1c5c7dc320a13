"""First plans for clusters as their installers make them: at once, or after the lines that `plan` proposes."""

import json
import subprocess
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from evenkeel.adapters.kubernetes.objects import name_of
from evenkeel_cli.main import app
from sandbox.kube.access import Rule
from sandbox.kube.api import KubernetesAPI

Json = dict[str, Any]
_CAPI, _MAPI = "cluster.x-k8s.io", "machine.openshift.io"
_AWS, _GCP = [f"eu-central-1{letter}" for letter in "abc"], [f"europe-west1-{letter}" for letter in "bcd"]
_SITES = ["rack1", "rack2", "rack3"]
_BOUNDS = {
    f"{_CAPI}/cluster-api-autoscaler-node-group-{end}-size": value for end, value in (("min", "1"), ("max", "4"))
}
_CPU = {f"{_MAPI}/vCPU": "4", f"{_MAPI}/memoryMb": "16384", f"{_MAPI}/GPU": "0"}


def of_capi(provider: str, zones: Sequence[str], *, named: Sequence[str] = (), zoned: bool = True) -> Iterator[Json]:
    """Yield MachineDeployments as templates of Cluster API's providers make them, with the autoscaler's bounds."""
    for name, zone in zip(named or zones, zones, strict=True):
        reference = {
            "apiGroup": f"infrastructure.{_CAPI}",
            "kind": f"{provider}MachineTemplate",
            "name": f"blue-md-{name}",
        }
        spec: Json = {"clusterName": "blue", "infrastructureRef": reference, "bootstrap": {"dataSecretName": "b"}}
        yield {
            "apiVersion": f"{_CAPI}/v1beta2",
            "kind": "MachineDeployment",
            "metadata": {"name": f"blue-md-{name}", "namespace": "prod", "annotations": _BOUNDS},
            "spec": {
                "clusterName": "blue",
                "replicas": 2,
                "selector": {"matchLabels": {f"{_CAPI}/deployment-name": f"blue-md-{name}"}},
                "template": {"spec": spec | ({"failureDomain": zone} if zoned else {})},
            },
            "status": {"replicas": 2, "readyReplicas": 2},
        }


def pools(provider: str, *, zoned: bool) -> Iterator[Json]:
    """Yield MachinePools. A managed node group has its zones in its AWSManagedMachinePool only."""
    for zone in _AWS:
        reference = {"apiGroup": f"infrastructure.{_CAPI}", "kind": provider, "name": f"blue-mp-{zone}"}
        ids = [f"aws:///{zone}/i-{number}" for number in "12"]
        yield {
            "apiVersion": f"{_CAPI}/v1beta2",
            "kind": "MachinePool",
            "metadata": {"name": f"blue-mp-{zone}", "namespace": "prod", "annotations": _BOUNDS},
            "spec": {
                "clusterName": "blue",
                "replicas": 2,
                "providerIDList": ids,
                "template": {"spec": {"clusterName": "blue", "infrastructureRef": reference, "bootstrap": {}}},
                **({"failureDomains": [zone]} if zoned else {}),
            },
            "status": {"replicas": 2, "nodeRefs": [{"name": one[-3:] + zone} for one in ids]},
        }


def of_openshift(values: Sequence[Json], names: Sequence[str]) -> Iterator[Json]:
    """Yield MachineSets of openshift-install, without a MachineAutoscaler, and their Machines."""
    for value, name, zone in zip(values, names, _AWS, strict=True):
        labels = {f"{_MAPI}/cluster-api-cluster": "demo-x7k2p", f"{_MAPI}/cluster-api-machineset": f"demo-x7k2p-{name}"}
        place = {"namespace": "openshift-machine-api", "labels": labels}
        spec = {"metadata": {}, "providerSpec": {"value": value}}
        yield {
            "apiVersion": f"{_MAPI}/v1beta1",
            "kind": "MachineSet",
            "metadata": {**place, "name": f"demo-x7k2p-{name}", "annotations": _CPU},
            "spec": {
                "replicas": 2,
                "selector": {"matchLabels": labels},
                "template": {"metadata": {"labels": labels}, "spec": spec},
            },
            "status": {"replicas": 2, "readyReplicas": 2},
        }
        for number in (1, 2):
            on = {**labels, f"{_MAPI}/zone": zone}
            yield {
                "apiVersion": f"{_MAPI}/v1beta1",
                "kind": "Machine",
                "metadata": {**place, "name": f"demo-x7k2p-{name}-{number}", "labels": on},
                "spec": spec,
                "status": {"phase": "Running", "nodeRef": {"kind": "Node", "name": f"{name}-{number}"}},
            }


_ON_AWS = [{"kind": "AWSMachineProviderConfig", "placement": {"availabilityZone": zone}} for zone in _AWS]
_ON_VSPHERE = [{"kind": "VSphereMachineProviderSpec", "numCPUs": 4, "memoryMiB": 16384}] * 3
# CAPA reports the capacity of a template's machine. Other providers do not.
_TEMPLATES: list[Json] = [
    {
        "apiVersion": f"infrastructure.{_CAPI}/v1beta2",
        "kind": "AWSMachineTemplate",
        "metadata": {"name": f"blue-md-{zone}", "namespace": "prod"},
        "spec": {"template": {"spec": {"instanceType": "m5.xlarge"}}},
        "status": {"capacity": {"cpu": "4", "memory": "16Gi"}},
    }
    for zone in _AWS
]
INSTALLED = {
    "CAPA": [*_TEMPLATES, *of_capi("AWS", _AWS)],
    "CAPZ": [*of_capi("Azure", ["1", "2", "3"], named=["0", "1", "2"])],
    "CAPG": [*of_capi("GCP", _GCP)],
    "CAPV": [*of_capi("VSphere", _SITES)],
    "metal3": [*of_capi("Metal3", _SITES, zoned=False)],
    "AWSMachinePool": [*pools("AWSMachinePool", zoned=True)],
    "AWSManagedMachinePool": [*pools("AWSManagedMachinePool", zoned=False)],
    "OpenShift on AWS": [*of_openshift(_ON_AWS, [f"worker-{zone}" for zone in _AWS])],
    "OpenShift on vSphere": [*of_openshift(_ON_VSPHERE, ["worker-0", "worker-1", "worker-2"])],
}
# How many lines are proposed, where there is no plan at once.
LINES = {"CAPZ": 1, "CAPG": 1, "CAPV": 1, "metal3": 1, "AWSMachinePool": 1, "AWSManagedMachinePool": 1}
LINES |= {"OpenShift on AWS": 2, "OpenShift on vSphere": 2}
_PRINTS_WORDS = "kubectl() { for word; do printf '%s\\0' \"$word\"; done; printf '\\n\\0'; }\n"


def pasted(line: str) -> Iterator[tuple[str, str, str, list[str], dict[str, str]]]:
    """Yield verb, resource, namespace, names and values of each call of kubectl in a proposed line."""
    printed = subprocess.check_output(["sh", "-c", _PRINTS_WORDS + line], text=True)
    for call in printed.removesuffix("\n\0").split("\n\0"):
        words = [word for word in call.split("\0") if word and word != "--overwrite"]
        at = words.index("-n")
        names = [word for word in words[at + 2 :] if "=" not in word]
        values = dict(word.split("=", 1) for word in words[at + 2 :] if "=" in word)
        yield words[at - 2], words[at - 1], words[at + 1], names, values


def paste(api: KubernetesAPI, line: str) -> None:
    """Do what a proposed line of kubectl does."""
    for verb, resource, namespace, names, values in pasted(line):
        for name in names:
            patch = {"metadata": {{"label": "labels", "annotate": "annotations"}[verb]: values}}
            api.store.patch(resource, namespace, name, patch, manager="kubectl")


@pytest.mark.parametrize("installer", list(INSTALLED))
def test_an_installed_cluster_has_a_plan_at_once_or_after_the_proposed_lines(installer: str, tmp_path: Path) -> None:
    kubeconfig = tmp_path / "kubeconfig"
    at_cluster = ["--kubeconfig", str(kubeconfig), "--context", "sandbox"]

    def planned(*where: str) -> tuple[int, Json]:
        done = CliRunner().invoke(app, ["plan", *where, "-o", "json"], catch_exceptions=False)
        return done.exit_code, json.loads(done.stdout)

    with KubernetesAPI(users={"evenkeel": [Rule.all()]}) as api:
        kubeconfig.write_text(json.dumps(api.kubeconfig("evenkeel")), encoding="utf-8")
        for namespace in ("prod", "openshift-machine-api"):
            api.store.create("namespaces", {"metadata": {"name": namespace}})
        for item in INSTALLED[installer]:
            (namespace, name), resource = name_of(item), f"{item['kind'].lower()}s.{item['apiVersion'].split('/')[0]}"
            api.store.create(resource, item, manager="installer")
            api.store.patch(resource, namespace, name, {"status": item["status"]}, subresource="status")
        code, found = planned(*at_cluster)
        assert len(found.get("proposals", ())) == LINES.get(installer, 0)
        if not found["pools"]:
            assert code == 4
            for line in found["proposals"]:
                paste(api, line)
            code, found = planned(*at_cluster)
        (pool,) = found["pools"]
        assert (code, pool["valid"], len(pool["groups"])) == (0, True, 3)
        assert len({group["zone"] for group in pool["groups"]}) == 3
        assert not any(group["requested"]["from"] != group["requested"]["to"] for group in pool["groups"])
        file = tmp_path / "objects.yaml"
        file.write_text(CliRunner().invoke(app, ["objects", *at_cluster]).stdout, encoding="utf-8")
        assert planned("-f", str(file))[1]["pools"] == found["pools"]


def without_bounds(items: Iterable[Json], pool: str) -> list[Json]:
    """Return the objects as those of another pool."""
    renamed = json.loads(json.dumps([*items]).replace("blue-m", f"{pool}-m"))
    for item in renamed:
        item["metadata"]["annotations"] = {}
    return renamed


_POOLS = ("web", "db", "gpu", "batch", "edge")


@pytest.mark.parametrize(
    "items",
    [
        [item for pool in _POOLS for item in without_bounds(of_capi("Metal3", _SITES, zoned=False), pool)],
        [item for pool in _POOLS for item in without_bounds(pools("AWSManagedMachinePool", zoned=False), pool)],
        [item for pool in _POOLS for item in without_bounds(of_capi("GCP", _GCP), pool)],
        [item for pool in _POOLS for item in of_capi("Azure", ["1", "2"], named=[f"{pool}-0", f"{pool}-1"])],
    ],
    ids=["neither zones nor bounds", "pools without zones", "no bounds", "no label"],
)
def test_after_each_pasting_the_next_plan_proposes_more_until_all_pools_are_there(
    items: list[Json], tmp_path: Path
) -> None:
    by_name = {name_of(item): item for item in items}
    file = tmp_path / "objects.json"
    for rounds in range(20):  # noqa: B007
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}), encoding="utf-8")
        table = CliRunner().invoke(app, ["plan", "-f", str(file)], catch_exceptions=False)
        done = CliRunner().invoke(app, ["plan", "-f", str(file), "-o", "json"], catch_exceptions=False)
        found = json.loads(done.stdout)
        assert len(found.get("proposals", ())) <= 3
        assert ("then plan again for" in table.stdout) <= bool(found.get("proposals"))
        if not found.get("proposals"):
            break
        for line in found["proposals"]:
            for verb, _, namespace, names, values in pasted(line):
                for name in names:
                    metadata = by_name[namespace, name]["metadata"]
                    metadata.setdefault({"label": "labels", "annotate": "annotations"}[verb], {}).update(values)
    assert 2 <= rounds < 10
    assert (done.exit_code, len(found["pools"]), found["skipped"]) == (0, len(_POOLS), [])
    assert all(pool["valid"] and len(pool["groups"]) == len(items) // len(_POOLS) for pool in found["pools"])


@pytest.mark.parametrize(
    ("metadata", "server"),
    [
        ({"labels": {"worker.gardener.cloud/pool": "main"}}, "SEED"),
        ({"annotations": {f"{_CAPI}/cluster-namespace": "prod"}}, "MANAGEMENT-CLUSTER"),
    ],
)
def test_a_workload_cluster_is_answered_with_the_api_server_that_has_its_machines(
    metadata: Json, server: str, tmp_path: Path
) -> None:
    with KubernetesAPI(crds=[], users={"evenkeel": [Rule.all()]}) as api:
        api.store.create("nodes", {"metadata": {"name": "ip-0", **metadata}})
        (tmp_path / "kubeconfig").write_text(json.dumps(api.kubeconfig("evenkeel")), encoding="utf-8")
        words = ["plan", "--kubeconfig", str(tmp_path / "kubeconfig")]
        done = CliRunner().invoke(app, words, catch_exceptions=False)
        document = json.loads(CliRunner().invoke(app, [*words, "-o", "json"], catch_exceptions=False).stdout)
    assert (done.exit_code, done.stdout) == (4, "")
    fault, _, line = done.stderr.splitlines()
    assert "serves none of the machine APIs" in fault
    assert line == f"evenkeel plan --context {server}"
    assert (document["error"], document["proposals"]) == (
        {"code": 4, "messages": [fault.removeprefix("evenkeel: ")]},
        [line],
    )
