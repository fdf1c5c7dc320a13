"""Return the history that samples of node groups' metrics tell. Objects and other series add zones and bounds."""

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise
from math import gcd
from statistics import median

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.domain.model.failures import FailureClass, classify
from evenkeel.domain.model.groups import GroupKey, Identity, NodeGroup
from evenkeel.validation import ConfigError, read_model
from evenkeel_cli.aws_names import stems, without_zone
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.lookback.activities import text_of
from evenkeel_cli.lookback.history import Doubt, GroupHistory, History, KnownBounds, Refusal
from evenkeel_cli.lookback.prometheus import (
    BOUNDS,
    FAILURES,
    JOINED,
    MACHINE_CREATED,
    MACHINES,
    NODE,
    NODE_CREATED,
    NODE_LABELS,
    SOURCES,
    Samples,
    Source,
    label_of,
)
from evenkeel_cli.lookback.replicas import GIVEN_UP_AFTER, Replicas, usual_boot
from evenkeel_cli.objects import read_objects

_HOUR, _DAY = 3600, 86400
_CLUSTER_API = "cluster-api"
_AWS = "aws:///"
# AWS: not where a machine controller writes only the Region.
_PROVIDER_ID = re.compile(rf"{_AWS}([a-z]{{2}}(?:-[a-z]+)+-\d[^/]+)/|gce://[^/]+/([^/]+)/")
_ZONE_LABELS = ("failure_domain", "label_topology_kubernetes_io_zone", "label_failure_domain_beta_kubernetes_io_zone")
_GROUP_LABEL = re.compile(
    r"label_.*(?:node_?group|node_?pool|instance_?group|agent_?pool|machine_?deployment)(?:_name)?"
)
_ORDINAL = re.compile(r"[-._](?:[a-z]|(?:az|zone|z)?[0-9]{1,2})$")
_FEW = 10  # changes that may fall on the same raster by chance


def read_history(samples: Samples, objects: Sequence[tuple[str, str]], days: int, now: datetime | None) -> History:
    """Return the history of the groups. ``objects``: files with the groups' objects, which have bounds and zones.

    Raises ConfigError if the replicas of groups are missing, or if an object is bad.
    """
    name, source = _source(samples)
    requested = samples.numbers[source.requested]
    last = max(at for values in requested.values() for at in values)
    until = min(last, int(now.timestamp())) if now else last
    since = until - days * _DAY
    requested = {key: cut for key, values in requested.items() if (cut := _cut(values, since, until))}
    if not requested:
        raise ConfigError([f"{source.requested} has no sample from {text_of(since)} to {text_of(until)}: query others"])
    known = _Groups(samples, _read_objects(objects, until), sorted(requested))
    running = known.count_nodes(requested) if source.running == (NODE,) else _running(samples, name, source)
    running = {key: _cut(running.get(key, {}), since, until) for key in requested}
    step = _step([*requested.values(), *running.values()])
    boot = usual_boot([(requested[key], running[key]) for key in requested], step)
    pools = known.pools()
    first = min(at for values in requested.values() for at in values)
    return History(
        source=f"Prometheus, {name}",
        since=max(since, first),
        until=until,
        step=step,
        groups=tuple(
            _group(known, key, pools[key], requested[key], running[key], (first, until, step, boot))
            for key in sorted(requested)
        ),
        flavour=_CLUSTER_API,
        provision=tuple(known.provision_times()),
        unknown=tuple(known.unknown()),
    )


def _source(samples: Samples) -> tuple[str, Source]:
    for name, source in SOURCES.items():
        if samples.numbers.get(source.requested):
            return name, source
    names = ", ".join(source.requested for source in SOURCES.values())
    raise ConfigError(
        [
            f"replicas by group are missing, no answer has samples of one of {names}: query an exporter that has them "
            "(cluster-autoscaler has them with --emit-per-nodegroup-metrics)"
        ]
    )


def _running(samples: Samples, name: str, source: Source) -> Mapping[str, Mapping[int, int]]:
    for metric in source.running:
        if metric in samples.numbers:
            return samples.numbers[metric]
    raise ConfigError([f"no answer has {source.running[0]}: --print-queries {name} prints the query"])


def _cut(values: Mapping[int, int], since: int, until: int) -> dict[int, int]:
    return {at: values[at] for at in values if since <= at <= until}


def _step(every: Sequence[Mapping[int, int]]) -> int:
    """Return the seconds between two samples. Changes on a wider raster show that the exporter is read less often."""
    step = round(median([after - at for own in every for at, after in pairwise(sorted(own))] or [0]))
    changes = sorted({b for own in every for a, b in pairwise(sorted(own)) if own[a] != own[b]})
    raster = gcd(*(after - at for at, after in pairwise(changes)))
    return max(1, raster if len(changes) > _FEW and raster >= 3 * step else step)


def _gaps(name: str, own: Mapping[int, int], step: int, until: int) -> Iterator[Doubt]:
    """Yield the times without samples in which something may have changed."""
    since = None
    for at, after in pairwise([*sorted(own), until + 1, 2**62]):
        if 3 * step < after - at and at < until:
            since = at if since is None else since
        elif since is not None and at > until:
            yield Doubt(at, f"{name} has no sample after {text_of(since)}: query it again, unless it is deleted", since)
        elif since is not None:
            yield Doubt(at, f"samples from {text_of(since)} to {text_of(at)} are missing: query them again", since)
            since = None


def _group(
    known: "_Groups",
    key: str,
    pool: str,
    requested: Mapping[int, int],
    running: Mapping[int, int],
    times: tuple[int, int, int, int],
) -> GroupHistory:
    """Return one group's history. ``times``: the first and the last sample, the step, and what a node takes."""
    first, until, step, boot = times
    zones, bounds = known.zones(key), known.bounds(key)
    # Before its first sample, a group was not created.
    whole = requested if first in requested else {first: 0, min(requested) - 1: 0, **requested}
    found = Replicas(zones[0], boot, step).read(whole, running)
    doubts = [Doubt(until + 1, text) for text in known.doubts()]
    if not running:
        doubts.append(Doubt(until + 1, f"no sample tells how many nodes of {_short(key)} run"))
    if not bounds and found.orders:
        text = f"the bounds of {_short(key)} are missing: add {BOUNDS[1]}, or its object as kubectl prints it"
        doubts.append(Doubt(until + 1, text))
    doubts += [doubt for samples in (requested, running) for doubt in _gaps(_short(key), samples, step, until)]
    refusals = [
        Refusal(at, zones[0], *known.why(key, at, last, is_heard=last in found.given_up), last)
        for at, last in found.refused
    ]
    return GroupHistory(
        name=_short(key),
        pool=pool,
        zones=zones,
        bounds=bounds or (KnownBounds(0, 0, 0),),
        running=found.running,
        requested=found.requested,
        orders=tuple(found.orders),
        removals=tuple(found.removals),
        losses=tuple(found.losses),
        given_up=tuple(found.given_up),
        refusals=tuple(refusals),
        launches=tuple(found.launches),
        doubts=tuple(doubts),
    )


def _read_objects(files: Sequence[tuple[str, str]], until: int) -> dict[str, NodeGroup]:
    """Return the groups of files by namespace and name."""
    policy = read_model(ClusterFile, {"pools": {"discover": "similar"}, "flavours": [*FLAVOURS]}, "record")
    observed = read_objects(files, policy, datetime.fromtimestamp(until, UTC))
    return {f"{group.key.namespace}/{group.key.name}": group for group in observed.groups}


class _Groups:
    """What answers and objects tell about groups, beside their replicas."""

    def __init__(self, samples: Samples, objects: Mapping[str, NodeGroup], keys: Sequence[str]) -> None:
        self._samples, self._objects, self._keys = samples, objects, keys
        self._unplaced = 0  # nodes of no single group
        nodes = [*samples.of(NODE, NODE_LABELS)]
        of_aws = any(label_of(one.labels, "provider_id").startswith(_AWS) for one in nodes)
        self._is_auto_scaling = of_aws and not any("/" in key for key in keys)  # other APIs have namespaces
        self._node_zones = {label_of(one.labels, "node"): zone for one in nodes if (zone := _zone_of(one.labels))}
        self._zones: dict[str, set[str]] = {}
        for one in samples.of(*MACHINES):
            name = label_of(one.labels, "name")
            node = label_of(one.labels, "node_name", "node") or name
            zone = _zone_of(one.labels) or self._node_zones.get(node, "")
            if zone and (key := self._group_of(name)):
                self._zones.setdefault(key, set()).add(zone)
        self._failures = [
            (at, self._group_of(label_of(one.labels, "name")) or one.labels.get("node_group", ""), text)
            for metric, label in FAILURES.items()
            for one in samples.of(metric)
            if (text := one.labels.get(label))
            for at in one.times
        ]

    def _group_of(self, machine: str) -> str:
        """Return the group whose name a machine's name begins with; empty: none."""
        fitting = [key for key in self._keys if f"{machine}-".startswith(f"{_short(key)}-")]
        return max(fitting, key=lambda key: len(_short(key)), default="")

    def zones(self, key: str) -> tuple[str, ...]:
        """Return the zones of a group: of its object, its machines or its name. Without one, the name replaces it."""
        own = self._objects.get(key)
        if own is not None and own.identity.zone:
            return (own.identity.zone,)
        if found := self._zones.get(key):
            return tuple(sorted(found))
        every = set(self._node_zones.values()).union(*self._zones.values())
        named = [zone for zone in every if without_zone(key, zone) is not None]
        return (named[0],) if len(named) == 1 else (_plain(_short(key)),)

    def _is_unplaced(self, key: str) -> bool:
        return self.zones(key) == (_plain(_short(key)),)

    def pools(self) -> dict[str, str]:
        """Return the pool of each group: its label, else what the names of groups in several zones share."""
        placed = {
            key: GroupKey(_CLUSTER_API, *key.rpartition("/")[::2]) for key in self._keys if not self._is_unplaced(key)
        }
        names = stems(
            NodeGroup(key=own, identity=Identity(kind="MachineDeployment", zone=self.zones(key)[0]))
            for key, own in placed.items()
        )
        found = {key: names[placed[key]] if key in placed else _ORDINAL.sub("", _short(key)) for key in self._keys}
        labels = {key: own.identity.pool_label for key, own in self._objects.items() if own.identity.pool_label}
        return {key: _plain(labels.get(key) or pool) for key, pool in found.items()}

    def bounds(self, key: str) -> tuple[KnownBounds, ...]:
        """Return the bounds of a group: those that cluster-autoscaler counted, else those of its object."""
        least, most = (self._counted(metric, key) for metric in BOUNDS)
        found: list[KnownBounds] = []
        for at in sorted(most):
            known = KnownBounds(at, least.get(at, 0), most[at])
            if not found or replace(known, at=found[-1].at) != found[-1]:
                found.append(known)
        own = self._objects.get(key)
        if not found and own is not None and own.bounds is not None:
            found.append(KnownBounds(0, own.bounds.min, own.bounds.max))
        return tuple(found)

    def _counted(self, metric: str, key: str) -> Mapping[int, int]:
        ends = (f"/{_short(key)}", f".{_short(key)}")
        named = self._samples.numbers.get(metric, {})
        return next((named[name] for name in named if name in (key, _short(key)) or name.endswith(ends)), {})

    def count_nodes(self, requested: Mapping[str, Mapping[int, int]]) -> dict[str, dict[int, int]]:
        """Return the nodes of each group at each sample, where an exporter tells nodes only.

        Nodes beyond the usual target size, such as those of a control plane, are of no group.
        """
        labels = {label_of(one.labels, "node"): one.labels for one in self._samples.of(NODE_LABELS)}
        nodes: dict[str, set[int]] = {}
        for one in self._samples.of(NODE):
            nodes.setdefault(label_of(one.labels, "node"), set()).update(one.times)
        times = set[int]().union(*nodes.values())
        counts = {key: dict.fromkeys(times, 0) for key in self._keys}
        for node, seen in nodes.items():
            zone = self._node_zones.get(node, "")
            fitting = self._groups_of_node(labels.get(node, {}), zone)
            self._unplaced += len(fitting) > 1
            for key in fitting if len(fitting) == 1 else ():
                if zone:
                    self._zones.setdefault(key, set()).add(zone)
                for at in seen:
                    counts[key][at] += 1
        for key, own in counts.items():
            others = max(0, round(median([own[at] - size for at, size in requested[key].items() if at in own] or [0])))
            counts[key] = {at: max(0, nodes - others) for at, nodes in own.items()}
        return counts

    def _groups_of_node(self, labels: Mapping[str, str], zone: str) -> list[str]:
        names = [value for label, value in labels.items() if value and _GROUP_LABEL.fullmatch(label)]
        fitting = [key for key in self._keys if any(name in key for name in names)] if names else [*self._keys]
        return [key for key in fitting if zone and without_zone(key, zone) is not None] or fitting

    def provision_times(self) -> Iterator[int]:
        """Yield the seconds from machines to their nodes. Clocks that are apart give none."""
        created = {label_of(one.labels, "node"): one.value for one in self._samples.of(NODE_CREATED)}
        pairs = ((created.get(label_of(one.labels, "node"), 0), one.value) for one in self._samples.of(MACHINE_CREATED))
        every = [node - machine for node, machine in pairs] + [one.value for one in self._samples.of(JOINED)]
        yield from sorted(round(seconds) for seconds in every if 0 < seconds <= _HOUR)

    def why(self, key: str, since: int, until: int, *, is_heard: bool) -> tuple[FailureClass, str]:
        """Return class and text of a refusal. An order that is given up soon was refused; else there was silence."""
        near = [entry for entry in self._failures if since - _HOUR <= entry[0] <= until + _HOUR]
        own = [entry for entry in near if entry[1] and entry[1].endswith(_short(key))]
        for _, _, text in own or [entry for entry in near if not entry[1]]:
            if (kind := classify(text)) is not FailureClass.UNKNOWN:
                return kind, text
        if is_heard and until - since < GIVEN_UP_AFTER:
            return FailureClass.CAPACITY, "the autoscaler gave the order up at once"
        return FailureClass.TIMEOUT, "no node joined in time"

    def doubts(self) -> Iterator[str]:
        """Yield why no group can be replayed."""
        yield from self._samples.doubts
        if self._is_auto_scaling:
            yield "on AWS, cluster-autoscaler takes refused nodes back between two samples: use --auto-scaling instead"
        if self._unplaced:
            yield f"{self._unplaced} nodes fit no single group: add {NODE_LABELS} with the label of their group"

    def unknown(self) -> Iterator[str]:
        """Yield what the answers lack."""
        if not self._failures:
            yield "why launches failed: Evenkeel would have learned of silent failures late"
        if unknown := [_short(key) for key in self._keys if self._is_unplaced(key)]:
            yield f"the zones of {len(unknown)} groups, which count as zones of their own: {unknown[0]}"
        if not any(metric in self._samples.numbers for metric in BOUNDS):
            yield "former bounds (cluster-autoscaler has them with --emit-per-nodegroup-metrics)"


def _zone_of(labels: Mapping[str, str]) -> str:
    found = _PROVIDER_ID.match(label_of(labels, "provider_id", "spec_provider_id"))
    return label_of(labels, *_ZONE_LABELS) or (next(filter(None, found.groups())) if found else "")


def _short(key: str) -> str:
    return key.rpartition("/")[2]


def _plain(name: str) -> str:
    """Return a name that a scenario may use."""
    return re.sub(r"[^a-z0-9.-]+", "-", name.lower())[-63:].strip("-.") or "workers"
