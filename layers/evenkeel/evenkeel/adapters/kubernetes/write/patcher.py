"""Patches scalables and the owners of their bounds."""

from collections.abc import Mapping
from typing import Any

from evenkeel.adapters.kubernetes.client.api import RIGHTS, KubernetesApi
from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.adapters.kubernetes.objects import Kind, Object, get_path, name_of
from evenkeel.adapters.kubernetes.owners.base import AppliedBounds
from evenkeel.adapters.kubernetes.read.groups import GroupObjects
from evenkeel.adapters.own_annotations import ADOPTED, DECISION, MOVE
from evenkeel.application.errors import ConflictError, ForbiddenError, RejectedError
from evenkeel.application.ports import Remaining
from evenkeel.domain.model.groups import Bounds
from evenkeel.domain.model.origins import POOL_MAX
from evenkeel.domain.model.plans import GroupPlan
from evenkeel.domain.rebalancing.writes import Patch

Annotations = dict[str, str | None]
"""The annotations of a merge patch: None removes an annotation."""


class Patcher:
    """Patches the objects of one check. Each patch contains the resourceVersion of the last answer about the object."""

    def __init__(self, api: KubernetesApi, remaining: Remaining, *, write_topology: bool) -> None:
        self._api = api
        self._remaining = remaining
        self._write_topology = write_topology
        # The newest state of patched objects, by identity; several groups can share one owner.
        self._answers: dict[str, Object] = {}

    def apply(self, member: GroupObjects, patch: Patch, decision: str, adopted: str, move: str | None) -> None:
        """Write bounds, replicas and annotations, each to the object that has them."""
        has_owner = member.owner_object is not None
        if patch.leaves and has_owner:
            self._leave_both(member, patch)
        elif patch.bounds is None and not patch.leaves and (has_owner or patch.requested is None):
            self._write_replicas(member, patch, move)
        elif has_owner and patch.bounds is not None:
            if _narrows(patch, patch.bounds):
                self._check_replicas(member)
            annotations = {DECISION: decision, ADOPTED: adopted, **member.owner.bounds_annotations(patch.bounds)}
            self.write_owner(member, annotations, patch.bounds, pins=patch.pins)
        else:
            self._write_all(member, patch, decision, adopted, move)

    def _leave_both(self, member: GroupObjects, patch: Patch) -> None:
        """Restore the owner's bounds, and remove Evenkeel's annotations from both objects."""
        group = patch.plan.group
        if group.has_ours_with_bounds or not group.owner.bounds_held:
            removed = {DECISION: None, ADOPTED: None, **member.owner.bounds_annotations(patch.bounds)}
            self.write_owner(member, removed, patch.bounds, leaves=True)
        if group.ours.move is not None:
            self._patch_scalable(member, {MOVE: None})

    def _write_replicas(self, member: GroupObjects, patch: Patch, move: str | None) -> None:
        """Write replicas and the move. The other annotations are written with bounds."""
        is_moved = patch.requested is not None and move is not None
        self._patch_scalable(member, {MOVE: move} if is_moved else {}, patch.requested)

    def _write_all(self, member: GroupObjects, patch: Patch, decision: str, adopted: str, move: str | None) -> None:
        """Write bounds, replicas and all annotations to the scalable, in one patch."""
        annotations: Annotations = {DECISION: None if patch.leaves else decision}
        if patch.leaves or (patch.bounds is not None and not patch.plan.group.ours.has_adopted):
            annotations[ADOPTED] = None if patch.leaves else adopted
        if patch.leaves or patch.bounds is not None:
            annotations |= member.owner.bounds_annotations(patch.bounds)
        if patch.leaves or (patch.requested is not None and move is not None):
            annotations[MOVE] = None if patch.leaves else move
        item = self._newest(member.scalable)
        body = member.owner.patch(item, member.scalable, annotations, patch.bounds)
        if patch.requested is not None:
            body["spec"] = {"replicas": patch.requested}
        self._patch(member, item, body)

    def _check_replicas(self, member: GroupObjects) -> None:
        """Raise ConflictError where the scalable's replicas have changed since they were read.

        The owner's resourceVersion does not reveal such a change. If replicas were raised above the new max meanwhile,
        that max would remove running nodes (HyperShift), or stop scale-down until the next check.
        """
        item, path = self._newest(member.scalable), ("spec", "replicas")
        newest = self._api.get(_path_of(member, item), self._remaining)
        if newest is None or get_path(newest, path) != get_path(item, path):
            change = "is gone" if newest is None else f"requests {get_path(newest, path)} replicas by now"
            raise ConflictError(f"{identity(item)} {change}: its owner's max is not lowered")

    def write_pool_maximum(self, member: GroupObjects, maximum: int) -> None:
        """Write annotation pool-max to the scalable, or to the owner from which it is copied to the scalable."""
        annotations: Annotations = {POOL_MAX: str(maximum)}
        if member.copied_maximum:
            self.write_owner(member, annotations, None)
        else:
            self._patch_scalable(member, annotations)

    def write_owner_numbers(self, member: GroupObjects, bounds: Bounds) -> None:
        """Write the bounds to the object that owns them, without Evenkeel's annotations."""
        if member.owner_object is None:
            raise RejectedError(f"{member.group.key} has no owner that is written")
        self.write_owner(member, member.owner.bounds_annotations(bounds), bounds)

    def check_owner(self, member: GroupObjects, plan: GroupPlan) -> None:
        """Send the owner's patch as a dry run, where Evenkeel may lack the right to write the owner.

        Raises RejectedError, ConflictError.
        """
        # The record, and not a right, decides whether Evenkeel writes an owner of class AppliedBounds.
        needs_right = member.owner.rights and not isinstance(member.owner, AppliedBounds)
        if needs_right and member.owner_object is not None and plan.bounds is not None and plan.publishes:
            self.write_owner(member, {}, plan.bounds, pins=plan.pins, dry_run=True)

    def write_owner(
        self,
        member: GroupObjects,
        annotations: Mapping[str, str | None],
        bounds: Bounds | None,
        *,
        leaves: bool = False,
        pins: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Write annotations and bounds to the owner of the bounds. ``pins``: write fixed replicas instead of bounds."""
        key, owner = member.group.key, member.owner
        item = self._newest(member.owner_object or member.scalable)
        if isinstance(owner, AppliedBounds) and not leaves:
            if not self._write_topology:
                raise RejectedError(f"{identity(item)} is not written for {key}: write_topology is off in the record")
            present = {name: value for name, value in annotations.items() if value is not None}
            body = owner.applied(item, member.scalable, present)
            self._patch(member, item, body, rights=owner.rights, applies=True, dry_run=dry_run)
            return
        body = owner.patch(item, member.scalable, annotations, bounds)
        if pins and bounds is not None:
            body["spec"] = owner.pin(bounds.max)
        self._patch(member, item, body, rights=owner.rights, dry_run=dry_run)

    def _patch_scalable(self, member: GroupObjects, annotations: Annotations, replicas: int | None = None) -> None:
        body: dict[str, Any] = {} if replicas is None else {"spec": {"replicas": replicas}}
        if annotations:
            body["metadata"] = {"annotations": annotations}
        self._patch(member, self._newest(member.scalable), body)

    def _newest(self, item: Object) -> Object:
        return self._answers.get(identity(item), item)

    def _patch(
        self,
        member: GroupObjects,
        item: Object,
        body: dict[str, Any],
        *,
        rights: str = "",
        applies: bool = False,
        dry_run: bool = False,
    ) -> None:
        """Send a merge patch, or a server-side apply with force. The resourceVersion prevents creating an object."""
        kind, version = _kind_of(member, item)
        namespace, name = name_of(item)
        identifying = {"kind": kind.kind, "apiVersion": f"{kind.group}/{version}"}
        metadata = body.setdefault("metadata", {})
        metadata["resourceVersion"] = resource_version(item)
        if applies:
            metadata |= {"namespace": namespace, "name": name, "uid": get_path(item, ("metadata", "uid"))}
            body = {**identifying, **body}
        path, files = _path_of(member, item), rights or RIGHTS
        try:
            answer = self._api.patch(path, body, self._remaining, applies=applies, rights=files, dry_run=dry_run)
        except ForbiddenError as error:
            if not rights:
                raise
            raise ForbiddenError(f"{kind.kind} {namespace}/{name} is not ours to write: {error}") from None
        if not dry_run:
            self._answers[identity(item)] = {**answer, **identifying}


def identity(item: Object) -> str:
    """Return API group, kind, namespace and name, which are the same in all versions that serve the object."""
    group = str(item.get("apiVersion")).partition("/")[0]
    return "/".join((group, str(item.get("kind")), *name_of(item)))


def resource_version(item: Object) -> str:
    """Return the resourceVersion. Raises RejectedError without one, because a patch could overwrite newer changes."""
    version = get_path(item, ("metadata", "resourceVersion"))
    if not isinstance(version, str) or not version:
        raise RejectedError(f"{identity(item)} has no metadata.resourceVersion: not written")
    return version


def _kind_of(member: GroupObjects, item: Object) -> tuple[Kind, str]:
    """Return an object's kind, and the version that it was read in."""
    kind = next(kind for kind in FLAVOURS[member.group.key.flavour].kinds if kind.kind == item.get("kind"))
    return kind, str(item.get("apiVersion", "")).rpartition("/")[2] or kind.versions[0]


def _path_of(member: GroupObjects, item: Object) -> str:
    kind, version = _kind_of(member, item)
    return kind.path(version, *name_of(item))


def _narrows(patch: Patch, bounds: Bounds) -> bool:
    """Return True where replicas are fixed, or the new max is below the present max or the requested replicas."""
    group = patch.plan.group
    return patch.pins or group.bounds is None or bounds.max < max(group.bounds.max, group.requested)
