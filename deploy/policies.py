"""What Evenkeel may change of each kind of object, as a ValidatingAdmissionPolicy. ``deploy.rights`` writes the files.

The annotations of bounds and the delete marks are those of the flavours.
"""

from collections.abc import Mapping, Sequence
from textwrap import dedent, indent
from typing import NamedTuple

from evenkeel.adapters.kubernetes.flavours import CLUSTER_API, FLAVOURS
from evenkeel.adapters.kubernetes.objects import Kind
from evenkeel.adapters.kubernetes.owners.cluster_topology import ClusterTopology
from evenkeel.adapters.kubernetes.owners.node_pool import NodePool
from evenkeel.adapters.kubernetes.owners.openshift import MachineAutoscaler
from evenkeel.adapters.kubernetes.owners.worker import SHOOT


class Policy(NamedTuple):
    """What Evenkeel may change of objects of some kinds."""

    name: str
    comment: str
    kinds: Sequence[Kind]
    validations: Mapping[str, str]  # by message
    variables: Mapping[str, str] = {}


_HEAD = """\
# {comment}
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata:
  name: {name}
spec:
  failurePolicy: Fail
  matchConditions:
    - name: only-evenkeel
      expression: >-
        (has(request.userInfo.groups) && 'evenkeel' in request.userInfo.groups)
        || request.userInfo.username.matches('^system:serviceaccount:[^:]+:evenkeel$')
        || request.userInfo.username.startsWith('evenkeel:')
  matchConstraints:
    resourceRules:
"""
_RULE = """\
      - apiGroups: [{group}]
        apiVersions: ['*']
        operations: [UPDATE]
        resources: [{plurals}]
"""
_BINDING = """\
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata:
  name: {name}
spec:
  policyName: {name}
  validationActions: [Deny]
"""


def text_of(policy: Policy) -> str:
    """Return the documents of a policy and of its binding."""
    lines = [_HEAD.format(name=policy.name, comment=policy.comment)]
    for group in dict.fromkeys(kind.group for kind in policy.kinds):
        plurals = [kind.plural for kind in policy.kinds if kind.group == group]
        lines.append(_RULE.format(group=group, plurals=", ".join(plurals)))
    variables, validations = {**_CHANGED, **policy.variables}, {**policy.validations, **_METADATA}
    lines.append("  variables:\n")
    lines += [f"    - name: {name}\n{_expression(text)}" for name, text in variables.items()]
    lines.append("  validations:\n")
    lines += [f"    - {_expression(text).lstrip()}      message: {message}\n" for message, text in validations.items()]
    return "".join([*lines, _BINDING.format(name=policy.name)])


def _expression(text: str) -> str:
    return f"      expression: >-\n{indent(dedent(text).strip(), ' ' * 8)}\n"


# --- Parts of expressions

_CHANGED = {
    "before": "has(oldObject.metadata.annotations) ? oldObject.metadata.annotations : {}",
    "after": "has(object.metadata.annotations) ? object.metadata.annotations : {}",
    "changed": """
        variables.after.filter(k, !(k in variables.before) || variables.before[k] != variables.after[k])
        + variables.before.filter(k, !(k in variables.after))
    """,
}


def _unchanged(field: str, empty: str) -> str:
    now, before = (
        f"(has({item}.metadata.{field}) ? {item}.metadata.{field} : {empty})" for item in ("object", "oldObject")
    )
    return f"{now} == {before}"


_METADATA = {
    "Evenkeel may not change labels, finalizers or owners": "\n&& ".join(
        [_unchanged("labels", "{}"), _unchanged("finalizers", "[]"), _unchanged("ownerReferences", "[]")]
    )
}


def _only(fields: Sequence[str], new: str = "object.spec", old: str = "oldObject.spec") -> str:
    """Return that no field but these is added, removed or changed."""
    return (
        f"{new}.all(k, k in {list(fields)} || (k in {old} && {new}[k] == {old}[k]))\n"
        f"&& {old}.all(k, k in {list(fields)} || k in {new})"
    )


def _own_annotations(kind: str) -> dict[str, str]:
    return {
        f"Evenkeel may change no annotations of {kind} but its own": (
            "variables.changed.all(k, k.startsWith('evenkeel.dev/'))"
        )
    }


def _list(values: Sequence[str]) -> str:
    lines = ",\n".join(f"  '{value}'" for value in values)
    return f"[\n{lines}\n]"


# --- Node groups and machines


def node_groups(prefix: str, kinds: Sequence[Kind]) -> Policy:
    """Return the policy of node groups: replicas, bounds and Evenkeel's annotations."""
    keys = sorted((flavour.bound_keys for flavour in FLAVOURS.values()), key=lambda pair: pair.min)
    return Policy(
        f"{prefix}-node-groups",
        "Node groups: replicas, bounds and Evenkeel's annotations",
        kinds,
        {
            "Evenkeel may change nothing of a node group's spec but replicas": _only(["replicas"]),
            "replicas may not be negative": "!has(object.spec.replicas) || object.spec.replicas >= 0",
            "replicas may not be removed": "has(object.spec.replicas) || !has(oldObject.spec.replicas)",
            "Evenkeel may change no annotations but its own and the autoscaler's bounds": (
                "variables.changed.all(k, k.startsWith('evenkeel.dev/') || k in variables.bounds)"
            ),
            "the autoscaler's bounds must be whole numbers": (
                "variables.changed.all(k, !(k in variables.bounds) || !(k in variables.after)"
                " || variables.after[k].matches('^[0-9]{1,9}$'))"
            ),
            "the lower bound may not be above the upper one": "\n&& ".join(_ordered(*pair) for pair in keys),
        },
        {"bounds": _list([key for pair in keys for key in pair])},
    )


def _ordered(low: str, high: str) -> str:
    return (
        f"(!('{low}' in variables.changed || '{high}' in variables.changed)"
        f" || !('{low}' in variables.after) || !('{high}' in variables.after)\n"
        f"  || int(variables.after['{low}']) <= int(variables.after['{high}']))"
    )


def marked_machines(prefix: str, kinds: Sequence[Kind]) -> Policy:
    """Return the policy of machines: the delete mark."""
    return Policy(
        f"{prefix}-machines",
        "Machines: the mark that makes a controller delete a machine first when replicas decrease",
        kinds,
        {
            "Evenkeel may not change a machine's spec": "object.spec == oldObject.spec",
            "Evenkeel may change no annotations of a machine but the delete mark": (
                "variables.changed.all(k, k in variables.marks)"
            ),
        },
        {"marks": _list(sorted(flavour.machines.mark.annotation for flavour in FLAVOURS.values()))},
    )


# --- Owners of bounds


def machine_autoscalers(name: str) -> Policy:
    """Return the policy of OpenShift's MachineAutoscalers: their bounds."""
    return Policy(
        name,
        "OpenShift's MachineAutoscaler owns the bounds of its MachineSet",
        [MachineAutoscaler.kind],
        {
            "Evenkeel may change nothing of a MachineAutoscaler but minReplicas and maxReplicas": _only(
                ["minReplicas", "maxReplicas"]
            ),
            "minReplicas must be 0 or more, maxReplicas 1 or more and not below minReplicas": """
                object.spec.minReplicas >= 0 && object.spec.maxReplicas >= 1
                && object.spec.minReplicas <= object.spec.maxReplicas
            """,
            **_own_annotations("a MachineAutoscaler"),
        },
    )


_AUTO_SCALING_BOUNDS = """
    !has(object.spec.autoScaling)
    || (object.spec.autoScaling.min >= 0 && object.spec.autoScaling.max >= 1
      && object.spec.autoScaling.min <= object.spec.autoScaling.max)
"""


def node_pools() -> Policy:
    """Return the policy of HyperShift's NodePools: their bounds."""
    return Policy(
        "evenkeel-hypershift-node-pools",
        "NodePools own bounds and replicas of their node groups",
        [NodePool.kind],
        {
            "Evenkeel may change nothing of a NodePool's spec but autoScaling": _only(["autoScaling"]),
            "autoscaling of a NodePool may not be switched on or off": (
                "has(object.spec.autoScaling) == has(oldObject.spec.autoScaling)"
            ),
            "autoScaling.min must be 0 or more, autoScaling.max 1 or more and not below it": _AUTO_SCALING_BOUNDS,
            **_own_annotations("a NodePool"),
        },
    )


def fenced_node_pools() -> Policy:
    """Return the policy of NodePools with ``node_pool_fence``: their bounds, or replicas instead."""
    return node_pools()._replace(
        comment="NodePools own bounds and replicas of their node groups, and have either",
        validations={
            "Evenkeel may change nothing of a NodePool's spec but autoScaling and replicas": _only(
                ["autoScaling", "replicas"]
            ),
            "a NodePool has either autoScaling or replicas": (
                "has(object.spec.autoScaling) != has(object.spec.replicas)"
            ),
            "replicas may not be negative": "!has(object.spec.replicas) || object.spec.replicas >= 0",
            "autoScaling.min must be 0 or more, autoScaling.max 1 or more and not below it": _AUTO_SCALING_BOUNDS,
            **_own_annotations("a NodePool"),
        },
    )


def shoot_workers() -> Policy:
    """Return the policy of Gardener's Shoots: the maximum of each worker pool."""
    new, old = "object.spec.provider", "oldObject.spec.provider"
    return Policy(
        "evenkeel-gardener-shoots",
        "Shoots have the maximum of each worker pool",
        [SHOOT],
        {
            "Evenkeel may change nothing of a Shoot's spec but its workers": _only(["provider"]),
            "Evenkeel may change nothing of a Shoot's provider but its workers": f"""
                {new}.all(k, k in ['workers'] || (k in {old} && {new}[k] == {old}[k]))
                && {old}.all(k, k in {new})
            """,
            "Evenkeel may not add, remove, rename or reorder workers": (
                f"{new}.workers.map(w, w.name) == {old}.workers.map(w, w.name)"
            ),
            "Evenkeel may change nothing of a worker but its maximum": f"""
                {new}.workers.all(w, {old}.workers.exists(o, o.name == w.name
                  && w.all(k, k == 'maximum' || (k in o && w[k] == o[k]))
                  && o.all(k, k in w)))
            """,
            "a worker's maximum may not be below its minimum": f"{new}.workers.all(w, w.maximum >= w.minimum)",
            **_own_annotations("a Shoot"),
        },
    )


def clusters(name: str) -> Policy:
    """Return the policy of ClusterClass-managed Clusters: bounds and replicas of the topology's MachineDeployments."""
    low, high = CLUSTER_API.bound_keys
    new, old = (
        f"(has({one}.metadata) && has({one}.metadata.annotations) ? {one}.metadata.annotations : {{}})" for one in "do"
    )
    topology, workers = (
        ("variables.topologyAfter", "variables.topologyBefore"),
        ("variables.workersAfter", "variables.workersBefore"),
    )
    of_entry = "Evenkeel may change no annotations of a topology's machineDeployment"
    each = "variables.deploymentsAfter.all(d, variables.deploymentsBefore.exists(o, o.name == d.name"
    return Policy(
        name,
        "A ClusterClass-managed Cluster owns the bounds and replicas of its MachineDeployments",
        [ClusterTopology.kind],
        {
            "Evenkeel may change nothing of a Cluster's spec but its topology": (
                f"{_only(['topology'])}\n&& has(object.spec.topology) == has(oldObject.spec.topology)"
            ),
            "Evenkeel may change nothing of a topology but its workers": (
                f"{_only(['workers'], *topology)}\n&& ('workers' in {topology[0]}) == ('workers' in {topology[1]})"
            ),
            "Evenkeel may change nothing of a topology's workers but machineDeployments": _only(
                ["machineDeployments"], *workers
            ),
            "Evenkeel may not add, remove, rename or reorder machineDeployments of a topology": (
                "variables.deploymentsAfter.map(d, d.name) == variables.deploymentsBefore.map(d, d.name)"
            ),
            "Evenkeel may change nothing of a topology's machineDeployment but replicas and annotations": f"""
                {each}
                  && d.all(k, k in ['replicas', 'metadata'] || (k in o && d[k] == o[k]))
                  && o.all(k, k == 'metadata' || k in d)
                  && (!has(d.replicas) || d.replicas >= 0)
                  && (has(d.metadata) ? d.metadata : {{}}).all(k,
                    k == 'annotations' || (has(o.metadata) && k in o.metadata && d.metadata[k] == o.metadata[k]))
                  && (has(o.metadata) ? o.metadata : {{}}).all(k,
                    k == 'annotations' || (has(d.metadata) && k in d.metadata))))
            """,
            f"{of_entry} but its own and the autoscaler's bounds": f"""
                {each}
                  && {new}.all(k,
                    k.startsWith('evenkeel.dev/') || k in variables.bounds
                    || (k in {old} && {old}[k] == {new}[k]))
                  && {old}.all(k,
                    k.startsWith('evenkeel.dev/') || k in variables.bounds
                    || k in {new})))
            """,
            # As on node groups, only changes are checked: a bad value from before does not block other writers.
            "the autoscaler's bounds in a topology must be whole numbers": f"""
                {each}
                  && variables.bounds.all(k, !(k in {new})
                    || (k in {old} && {old}[k] == {new}[k])
                    || {new}[k].matches('^[0-9]{{1,9}}$'))))
            """,
            "in a topology, the lower bound may not be above the upper one": f"""
                {each}
                  && (variables.bounds.all(k, (k in {new}) == (k in {old})
                      && (!(k in {new}) || {old}[k] == {new}[k]))
                    || variables.bounds.exists(k, !(k in {new}))
                    || int(d.metadata.annotations['{low}'])
                      <= int(d.metadata.annotations['{high}']))))
            """,
            **_own_annotations("a Cluster"),
        },
        {
            "bounds": _list([low, high]),
            "topologyBefore": "has(oldObject.spec.topology) ? oldObject.spec.topology : {}",
            "topologyAfter": "has(object.spec.topology) ? object.spec.topology : {}",
            "workersBefore": "'workers' in variables.topologyBefore ? variables.topologyBefore.workers : {}",
            "workersAfter": "'workers' in variables.topologyAfter ? variables.topologyAfter.workers : {}",
            "deploymentsBefore": (
                "'machineDeployments' in variables.workersBefore ? variables.workersBefore.machineDeployments : []"
            ),
            "deploymentsAfter": (
                "'machineDeployments' in variables.workersAfter ? variables.workersAfter.machineDeployments : []"
            ),
        },
    )
