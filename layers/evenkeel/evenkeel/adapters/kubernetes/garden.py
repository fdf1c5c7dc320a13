"""The garden: the cluster whose API server has the Shoots of a Gardener seed.

What is written there is one worker's maximum, by a merge patch with the whole list of workers as it was read, under
its resourceVersion: a merge patch replaces lists, servers of custom resources refuse a strategic one, and a JSON patch
whose ``test`` fails is answered 422, which would be taken for a quota's refusal.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any
from urllib.parse import quote as url_quote

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.objects import Object, entries_of, get_path, mapping, name_of
from evenkeel.adapters.kubernetes.owners.base import ref_of
from evenkeel.adapters.kubernetes.owners.worker import SHOOT
from evenkeel.application.errors import EvenkeelError, RejectedError
from evenkeel.application.ports import Remaining
from evenkeel.domain.model.groups import Shoot, ShootWorker, shoot_of_namespace
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.values import BadValueError, quote, read_count
from evenkeel.record import ShootRelief

_WORKERS = ("spec", "provider", "workers")
_IGNORE = "shoot.gardener.cloud/ignore"
# While the control plane moves to another seed, or nothing is tried any more, a change is carried out late or never.
_HELD_BY_TYPE, _HELD_BY_STATE = ("Migrate", "Restore", "Delete"), ("Failed", "Aborted")
# A look has eight seconds for its own cluster.
_READ_SECONDS = 3.0


class Garden:
    """The Shoots of one look, as they were read."""

    def __init__(self, api: KubernetesApi, relief: ShootRelief, remaining: Remaining) -> None:
        self._api = api
        self._relief = relief
        self._remaining = remaining
        self._items: dict[str, Object] = {}  # by the id of their ref

    def shoots(self, namespaces: Collection[str]) -> dict[str, Shoot | Reason]:
        """The Shoots of these namespaces of the seed; else why one cannot be read. A garden is waited for once."""
        found: dict[str, Shoot | Reason] = {}
        for namespace in sorted(namespaces):
            try:
                found[namespace] = self._shoot(namespace)
            except EvenkeelError as error:
                return dict.fromkeys(namespaces, Reason.of(Rule.SHOOT_UNREAD, said=str(error))) | found
        return found

    def _shoot(self, namespace: str) -> Shoot | Reason:
        place = self._place(namespace)
        if place is None:
            return Reason.of(Rule.SHOOT_UNNAMED, namespace=namespace)
        path = _path(*place)
        item = self._api.get(path, lambda: min(_READ_SECONDS, self._remaining()))
        if item is None:
            return Reason.of(Rule.SHOOT_UNREAD, said=f"GET {path} of {self._api.name}: not found, or not allowed")
        shoot = read_shoot(item)
        technical_id = get_path(item, ("status", "technicalID"))
        if technical_id != namespace:
            return Reason.of(Rule.SHOOT_OF_ANOTHER, shoot=str(shoot.ref), namespace=quote(technical_id))
        self._items[shoot.ref.id] = item
        return shoot

    def _place(self, namespace: str) -> tuple[str, str] | None:
        """Namespace and name of a Shoot, by the record, or by how Gardener calls namespaces of seeds."""
        said = self._relief.shoots.get(namespace)
        if said is not None:
            project, _, name = said.partition("/")
            return project, name
        return shoot_of_namespace(namespace)

    def write_maximum(self, shoot: Shoot, worker: str, maximum: int) -> None:
        """Raises ConflictError, RejectedError, ClusterUnavailableError, AccessError."""
        item = self._items[shoot.ref.id]
        version = get_path(item, ("metadata", "resourceVersion"))
        if not isinstance(version, str) or not version:
            raise RejectedError(f"{shoot.ref} has no metadata.resourceVersion: not written")
        workers = [
            {**entry, "maximum": maximum} if get_path(entry, ("name",)) == worker else entry
            for entry in get_path(item, _WORKERS)
        ]
        body: dict[str, Any] = {"metadata": {"resourceVersion": version}, "spec": {"provider": {"workers": workers}}}
        self._api.patch(_path(shoot.ref.namespace, shoot.ref.name), body, self._remaining)


def _path(namespace: str, name: str) -> str:
    group, version = SHOOT.group, SHOOT.versions[0]
    return f"/apis/{group}/{version}/namespaces/{url_quote(namespace)}/{SHOOT.plural}/{url_quote(name)}"


def read_shoot(item: Mapping[str, Any], profile: object = None) -> Shoot:
    """A Shoot, from the garden or as a seed's Cluster has a copy of it. ``profile``: its CloudProfile, where known."""
    generation = get_path(item, ("metadata", "generation"))
    observed = get_path(item, ("status", "observedGeneration"))
    workers = (_worker(entry) for entry in entries_of(item, _WORKERS))
    limit = get_path(profile, ("spec", "limits", "maxNodesTotal"))
    return Shoot(
        ref=ref_of(SHOOT, item),
        workers=tuple(worker for worker in workers if worker is not None),
        generation=generation if isinstance(generation, int) else 0,
        observed=not isinstance(observed, int) or not isinstance(generation, int) or observed >= generation,
        obstacle=_obstacle(item),
        most_nodes=limit if isinstance(limit, int) and not isinstance(limit, bool) else None,
    )


def shoots_in(clusters: Iterable[Object], shoots: Iterable[Object]) -> dict[str, Shoot]:
    """Shoots that somebody hands in, by their namespaces in the seed, and those that a seed's Clusters have copies of.

    Of the two, the Shoot is the newer one.
    """
    found: dict[str, Shoot] = {}
    for item in clusters:
        copy = get_path(item, ("spec", "shoot"))
        if isinstance(copy, dict):
            found[name_of(item)[1]] = read_shoot(copy, get_path(item, ("spec", "cloudProfile")))
    for item in shoots:
        project, name = name_of(item)
        technical_id = get_path(item, ("status", "technicalID"))
        namespace = str(technical_id or f"shoot--{project.removeprefix('garden-')}--{name}")
        shoot = read_shoot(item)
        found[namespace] = replace(shoot, most_nodes=found[namespace].most_nodes if namespace in found else None)
    return found


def _worker(entry: Object) -> ShootWorker | None:
    """None: its numbers cannot be read."""
    zones = entry.get("zones")
    try:
        low, high = read_count(entry.get("minimum")), read_count(entry.get("maximum"))
    except BadValueError:
        return None
    return ShootWorker(
        name=str(entry.get("name")),
        minimum=low,
        maximum=high,
        zones=tuple(str(zone) for zone in zones) if isinstance(zones, list) else (),
    )


def _obstacle(item: Mapping[str, Any]) -> Reason | None:
    """Why a change would not be carried out soon, or must not be made."""
    if get_path(item, ("metadata", "deletionTimestamp")):
        return Reason.of(Rule.OBJECT_BEING_DELETED)
    if str(mapping(get_path(item, ("metadata", "annotations"))).get(_IGNORE, "")).lower() in ("true", "1", "t"):
        return Reason.of(Rule.SHOOT_IGNORED)
    if get_path(item, ("spec", "hibernation", "enabled")) is True or get_path(item, ("status", "hibernated")) is True:
        return Reason.of(Rule.SHOOT_ASLEEP)
    if get_path(item, ("spec", "maintenance", "confineSpecUpdateRollout")) is True:
        return Reason.of(Rule.SHOOT_CONFINED)
    last = mapping(get_path(item, ("status", "lastOperation")))
    if last.get("type") in _HELD_BY_TYPE or last.get("state") in _HELD_BY_STATE:
        return Reason.of(Rule.SHOOT_OPERATION, type=str(last.get("type")), state=str(last.get("state")))
    return None
