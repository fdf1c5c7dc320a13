"""The machine APIs that Evenkeel reads and writes: one file and one entry of ``FLAVOURS`` for each."""

from collections.abc import Iterable

from evenkeel.adapters.kubernetes.flavours.base import Flavour
from evenkeel.adapters.kubernetes.flavours.cluster_api import CLUSTER_API
from evenkeel.adapters.kubernetes.flavours.gardener import GARDENER
from evenkeel.adapters.kubernetes.flavours.openshift import OPENSHIFT

FLAVOURS: dict[str, Flavour] = {flavour.name: flavour for flavour in (GARDENER, CLUSTER_API, OPENSHIFT)}


def flavours_of(names: Iterable[str]) -> list[Flavour]:
    """Return the flavours of a record that are machine APIs of Kubernetes. Auto Scaling groups are none."""
    return [FLAVOURS[name] for name in names if name in FLAVOURS]
