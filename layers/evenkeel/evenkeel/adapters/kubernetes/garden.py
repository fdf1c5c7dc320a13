"""The garden, which is the cluster whose API server has the Shoots of a Gardener seed.

Evenkeel writes one worker's maximum to a Shoot by a merge patch. A merge patch replaces lists, so it contains the whole
list of workers. It also contains the Shoot's resourceVersion. Custom resources support no strategic merge patch. A JSON
patch would not show a conflict, because the API server answers 422 both to a failed ``test`` and to a refusal by a
quota.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING, Any

from evenkeel.adapters.kubernetes.objects import (
    Object,
    annotations_of,
    entries_of,
    get_path,
    is_being_deleted,
    mapping,
    name_of,
)
from evenkeel.adapters.kubernetes.owners.base import ref_of
from evenkeel.adapters.kubernetes.owners.worker import SHOOT, read_worker
from evenkeel.application.errors import EvenkeelError, RejectedError, contained
from evenkeel.capabilities.relief import ShootRelief
from evenkeel.domain.model.groups import shoot_of_namespace
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.values import quote
from evenkeel.domain.relief.model import ReliefStep, Shoot, Shoots
from evenkeel.domain.relief.relief import shoots_asked_for

if TYPE_CHECKING:  # plans from files read Shoots, and need no client
    from evenkeel.adapters.kubernetes.client.api import KubernetesApi
    from evenkeel.application.ports import Remaining

_VERSION = SHOOT.versions[0]
_WORKERS = ("spec", "provider", "workers")
_IGNORE = "shoot.gardener.cloud/ignore"
# Gardener applies a change late or never while the control plane moves to another seed, or after a failed operation.
_HELD_BY_TYPE, _HELD_BY_STATE = ("Migrate", "Restore", "Delete"), ("Failed", "Aborted")
# The limit of one GET, in seconds. The check needs most of its eight seconds for the seed itself.
_READ_SECONDS = 3.0


class Garden:
    """The Shoots of one check."""

    def __init__(self, open_api: "Callable[[], KubernetesApi]", relief: ShootRelief, remaining: "Remaining") -> None:
        self._open_api = open_api
        self._relief = relief
        self._remaining = remaining
        self._items: dict[str, Object] = {}  # the Shoots that were read, by ``ref.id``

    def read(self, state: ClusterState, now: datetime) -> Shoots | None:
        """Return the Shoots that relief needs now, with one request for each. Most checks need none."""
        namespaces = shoots_asked_for(state, now)
        return Shoots(of=self.shoots(namespaces)) if namespaces else None

    def shoots(self, namespaces: Collection[str]) -> dict[str, Shoot | Reason]:
        """Return for each namespace of a seed its Shoot, or why the Shoot is unreadable. Stops at the first error."""
        found: dict[str, Shoot | Reason] = {}

        def read() -> None:
            self._api = self._open_api()
            for namespace in sorted(namespaces):
                found[namespace] = self._shoot(namespace)

        try:
            contained("garden", "its Shoots were read", read)
        except EvenkeelError as error:
            return dict.fromkeys(namespaces, Reason.of(Rule.SHOOT_UNREAD, said=str(error))) | found
        return found

    def _shoot(self, namespace: str) -> Shoot | Reason:
        place = self._place(namespace)
        if place is None:
            return Reason.of(Rule.SHOOT_UNNAMED, namespace=namespace)
        path = SHOOT.path(_VERSION, *place)
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
        """Return a Shoot's namespace and name: from the record, else from the name of the seed's namespace."""
        recorded = self._relief.shoots.get(namespace)
        if recorded is not None:
            project, _, name = recorded.partition("/")
            return project, name
        return shoot_of_namespace(namespace)

    def write(self, step: ReliefStep) -> None:
        """Write one worker's maximum. Raises ConflictError, RejectedError, ClusterUnavailableError, AccessError."""
        shoot, item = step.shoot, self._items[step.shoot.ref.id]
        version = get_path(item, ("metadata", "resourceVersion"))
        if not isinstance(version, str) or not version:
            raise RejectedError(f"{shoot.ref} has no metadata.resourceVersion: not written")
        workers = [
            {**entry, "maximum": step.maximum} if get_path(entry, ("name",)) == step.worker else entry
            for entry in get_path(item, _WORKERS)
        ]
        body: dict[str, Any] = {"metadata": {"resourceVersion": version}, "spec": {"provider": {"workers": workers}}}
        self._api.patch(SHOOT.path(_VERSION, shoot.ref.namespace, shoot.ref.name), body, self._remaining)


def read_shoot(item: Mapping[str, Any], profile: object = None) -> Shoot:
    """Return a Shoot from its object, or from its copy in a seed's Cluster. ``profile``: its CloudProfile, or None."""
    generation = get_path(item, ("metadata", "generation"))
    observed = get_path(item, ("status", "observedGeneration"))
    workers = (read_worker(entry) for entry in entries_of(item, _WORKERS))
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
    """Return Shoots by their namespace in the seed, from Shoot objects and from the copies in the seed's Clusters.

    A Shoot object is newer than its copy, and replaces it.
    """
    by_namespace: dict[str, Shoot] = {}
    for item in clusters:
        copy = get_path(item, ("spec", "shoot"))
        if isinstance(copy, dict):
            by_namespace[name_of(item)[1]] = read_shoot(copy, get_path(item, ("spec", "cloudProfile")))
    for item in shoots:
        project, name = name_of(item)
        technical_id = get_path(item, ("status", "technicalID"))
        namespace = str(technical_id or f"shoot--{project.removeprefix('garden-')}--{name}")
        copied = by_namespace.get(namespace)
        by_namespace[namespace] = replace(read_shoot(item), most_nodes=copied.most_nodes if copied else None)
    return by_namespace


def _obstacle(item: Mapping[str, Any]) -> Reason | None:
    """Return the reason why Gardener would not apply a change soon, or why Evenkeel must make none; else None."""
    if is_being_deleted(item):
        return Reason.of(Rule.OBJECT_BEING_DELETED)
    if str(annotations_of(item).get(_IGNORE, "")).lower() in ("true", "1", "t"):
        return Reason.of(Rule.SHOOT_IGNORED)
    if get_path(item, ("spec", "hibernation", "enabled")) is True or get_path(item, ("status", "hibernated")) is True:
        return Reason.of(Rule.SHOOT_ASLEEP)
    if get_path(item, ("spec", "maintenance", "confineSpecUpdateRollout")) is True:
        return Reason.of(Rule.SHOOT_CONFINED)
    last = mapping(get_path(item, ("status", "lastOperation")))
    if last.get("type") in _HELD_BY_TYPE or last.get("state") in _HELD_BY_STATE:
        return Reason.of(Rule.SHOOT_OPERATION, type=str(last.get("type")), state=str(last.get("state")))
    return None
