"""Lists the objects of one check."""

from collections.abc import Iterable
from urllib.parse import quote as url_quote

from evenkeel.adapters.kubernetes.client.api import KubernetesApi
from evenkeel.adapters.kubernetes.client.lists import ReceivedList
from evenkeel.adapters.kubernetes.client.transport import Allowance
from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.machine_object import MachineObject
from evenkeel.adapters.kubernetes.objects import NODE, Kind, Object, get_path
from evenkeel.application.errors import AccessRefusedError, ClusterUnavailableError
from evenkeel.application.ports import Remaining
from evenkeel.domain.model.groups import GroupKey, NodeGroup

Lists = dict[str, list[ReceivedList]]
"""The lists by kind: one list for each namespace."""

# A selector with this many names is well below 8 KB, the limit of proxies for a URL.
_NAMES_PER_SELECTOR = 50


class ObjectLister:
    """Lists objects in the namespaces that the record names, or in all namespaces.

    ``allowance``: the bytes and values that all lists of a check may have together; None: a run.
    """

    def __init__(
        self, api: KubernetesApi, namespaces: Iterable[str] | None, remaining: Remaining, allowance: Allowance | None
    ) -> None:
        self._api = api
        self._namespaces = tuple(dict.fromkeys(namespaces or ()))  # a repeated name would list its objects twice
        self._remaining = remaining
        self._allowance = allowance
        self.refused: set[Kind] = set()  # kinds that the check omits, because listing them is forbidden

    def version(self, kind: Kind) -> str | None:
        """Return the version to use: the kind's only version, or its first version that the server serves."""
        if len(kind.versions) == 1:
            return kind.versions[0]
        served = self._api.served(kind.group, self._remaining)
        return next((version for version in kind.versions if version in served), None)

    def list_flavour(self, flavour: Flavour) -> Lists | None:
        """Return all objects of a flavour except machines; None where the cluster does not serve the flavour."""
        lists: Lists = {}
        for kind in flavour.kinds:
            if kind.named_by and not _is_named(kind, lists):
                continue
            received = self._list_kind(kind)
            if received is not None:
                lists[kind.kind] = received
            elif not kind.optional:
                return None
        return lists

    def _list_kind(self, kind: Kind) -> list[ReceivedList] | None:
        """Return all objects of a kind; None where the cluster does not serve it.

        Raises:
            ClusterUnavailableError: also where the kind is served and its list was not found. If the list were treated
                as empty, scalables would seem to own their bounds.
        """
        version = self.version(kind)
        lists = self.list_version(kind, version) if version else None
        if lists is None and kind not in self.refused:
            self._check_absence(kind)
        return lists

    def list_version(self, kind: Kind, version: str, *, metadata_only: bool = False) -> list[ReceivedList] | None:
        """Return one list for each namespace of the record; None where a list is not found or is refused."""
        lists: list[ReceivedList] = []
        for namespace in (self._namespaces if kind.namespaced else ()) or (None,):
            path = kind.path(version, namespace)
            received = self._list_path(path, optional=kind.may_be_refused, metadata_only=metadata_only)
            if received is None and kind.may_be_refused:
                try:
                    received = self._list_path(path)  # this request shows if the list is not found or forbidden
                except AccessRefusedError:
                    self.refused.add(kind)
            if received is None:
                return None
            lists.append(received)
        return lists

    def _list_path(
        self, path: str, selector: str | None = None, *, optional: bool = False, metadata_only: bool = False
    ) -> ReceivedList | None:
        return self._api.list_all(
            path, self._remaining, selector, optional=optional, allowance=self._allowance, metadata_only=metadata_only
        )

    def _check_absence(self, kind: Kind) -> None:
        """Raise ClusterUnavailableError unless API discovery confirms that the cluster does not serve the kind."""
        groups = self._discovered("/apis", "groups")
        if groups is not None and kind.group not in groups:
            return
        served = self._api.served(kind.group, self._remaining)
        if groups is None and not served:
            return
        paths = [f"/apis/{url_quote(kind.group)}/{version}" for version in kind.versions if version in served]
        listed = [self._discovered(path, "resources") for path in paths]
        if served and all(names is not None and kind.plural not in names for names in listed):
            return
        raise ClusterUnavailableError(
            f"{self._api.name} serves {kind.plural} of {kind.group} and does not find them: nothing follows from that"
        )

    def _discovered(self, path: str, key: str) -> set[str] | None:
        """Return the names in a discovery document; None where it could not be read."""
        entries = get_path(self._api.get(path, self._remaining), (key,))
        return {str(get_path(entry, ("name",))) for entry in entries} if isinstance(entries, list) else None

    def list_if_allowed(self, kind: Kind) -> list[Object] | None:
        """Return all objects of a kind, in its first served version; None if not served or forbidden."""
        lists = self._lists_if_allowed(kind)
        return None if lists is None else [item for received in lists for item in received.objects()]

    def list_machines_if_allowed(self, flavour: Flavour) -> list[MachineObject] | None:
        """Return all machines of a flavour; None if not served or forbidden."""
        lists = self._lists_if_allowed(flavour.machines.kind)
        return None if lists is None else [item for each in lists for item in each.machines(flavour.machines.shape)]

    def _lists_if_allowed(self, kind: Kind) -> list[ReceivedList] | None:
        preferred = self.version(kind) if kind.versions else None
        for version in [preferred] if preferred else self._api.served(kind.group, self._remaining):
            lists: list[ReceivedList] = []
            for namespace in (() if kind is NODE else self._namespaces) or (None,):
                received = self._list_path(kind.path(version, namespace), optional=True)
                if received is None:
                    break
                lists.append(received)
            else:
                return lists
        return None

    def list_machines(self, flavour: Flavour, groups: Iterable[NodeGroup]) -> dict[GroupKey, list[MachineObject]]:
        """Return each group's machines: from one list per namespace and kind of scalable, by label."""
        machines: dict[GroupKey, list[MachineObject]] = {}
        by_kind: dict[tuple[str, str], dict[str, list[MachineObject]]] = {}
        for group in groups:
            of_kind = by_kind.setdefault((group.key.namespace, group.identity.kind), {})
            machines[group.key] = of_kind[group.key.name] = []
        api = flavour.machines
        for (namespace, kind), of_kind in by_kind.items():
            label, names = api.labels.get(kind), list(of_kind)
            selectors: list[str | None] = [
                f"{label} in ({','.join(names[i : i + _NAMES_PER_SELECTOR])})"
                for i in range(0, len(names), _NAMES_PER_SELECTOR)
            ]
            for selector in selectors if label is not None else [None]:
                received = self._list_path(api.kind.path(self.machine_version(flavour), namespace), selector)
                if received is None:
                    raise ClusterUnavailableError(f"{self._api.name} does not serve {api.kind.plural}")
                for machine in received.machines(api.shape):
                    name = api.scalable_of(machine, kind)
                    if name in of_kind and machine.metadata.namespace == namespace:
                        of_kind[name].append(machine)
        return machines

    def machine_version(self, flavour: Flavour) -> str:
        """Return the version of the machines' API to use."""
        return self.version(flavour.machines.kind) or flavour.machines.kind.versions[0]


def _is_named(kind: Kind, lists: Lists) -> bool:
    """Return True where a list contains ``kind.named_by``, the sign of a kind that few clusters have."""
    text = kind.named_by.encode()
    return any(text in page for of_kind in lists.values() for received in of_kind for page in received.pages)
