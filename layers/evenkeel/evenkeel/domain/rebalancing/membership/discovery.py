"""Cluster Autoscaler's auto-discovery strings, so that Evenkeel accepts the same settings as the autoscaler.

Cluster Autoscaler reads two kinds of text: ``clusterapi:namespace=ns,clusterName=c,label=value``
(cloudprovider/clusterapi/clusterapi_autodiscovery.go:37-75), and ``asg:tag=key,key=value`` for Auto Scaling groups
(cloudprovider/aws/aws_manager.go, parseASGAutoDiscoverySpec). GEP-24 section 2 defines
``mcm:k8s.io/cluster-autoscaler/<shoot>``. That string names a shoot, whose machine objects are in one namespace of the
seed.
"""

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Self

from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.values import BadValueError

_MCM_KEY = "k8s.io/cluster-autoscaler/"
_PROVIDERS = {"clusterapi": ("cluster-api", "openshift"), "mcm": ("gardener",), "asg": (AUTO_SCALING,)}
_FORMS = {
    "clusterapi": "clusterapi:namespace=...,clusterName=...,label=value",
    "mcm": f"mcm:{_MCM_KEY}<shoot>",
    "asg": "asg:tag=key,key=value",
}


def discovery_forms(flavours: Collection[str]) -> list[str]:
    """Return the forms of the strings that select groups of these flavours."""
    return [_FORMS[provider] for provider, of_it in _PROVIDERS.items() if not set(of_it).isdisjoint(flavours)]


@dataclass(frozen=True, kw_only=True)
class Discovery:
    """The objects that one auto-discovery string selects. A field that is None or empty matches every object."""

    flavours: tuple[str, ...]
    namespace: str | None = None
    cluster: str | None = None
    shoot: str | None = None
    labels: Mapping[str, str] = field(default_factory=dict)
    tags: Mapping[str, str] = field(default_factory=dict)  # of Auto Scaling groups; an empty value matches any value

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the parsed string. Raises BadValueError for an unknown provider or a part that is not key=value."""
        provider, colon, rest = text.partition(":")
        if not colon or provider not in _PROVIDERS:
            raise BadValueError("a discovery string starts with clusterapi:, mcm: or asg:")
        flavours = _PROVIDERS[provider]
        if provider == "mcm":
            shoot = rest.removeprefix(_MCM_KEY)
            if not rest.startswith(_MCM_KEY) or not shoot:
                raise BadValueError(f"write {_FORMS[provider]}")
            return cls(flavours=flavours, shoot=shoot)
        if provider == "asg":
            return cls._of_tags(rest)
        parts: dict[str, str] = {}
        for part in filter(None, rest.split(",")):
            key, equals, value = part.partition("=")
            if not equals or not key:
                raise BadValueError(f"write {_FORMS[provider]}")
            parts[key] = value
        # An empty namespace or clusterName matches every object. A label without a value matches an empty value.
        namespace, cluster = parts.pop("namespace", "") or None, parts.pop("clusterName", "") or None
        return cls(flavours=flavours, namespace=namespace, cluster=cluster, labels=parts)

    @classmethod
    def _of_tags(cls, text: str) -> Self:
        kind, _, tags = text.partition("=")
        pairs = [tag.partition("=") for tag in tags.split(",") if tag]
        if kind != "tag" or not pairs or not all(key for key, _, _ in pairs):
            raise BadValueError(f"write {_FORMS['asg']}")
        return cls(flavours=(AUTO_SCALING,), tags={key: value for key, _, value in pairs})

    def selects_from(self, flavours: Collection[str]) -> bool:
        """Return True if the string can select groups of one of these flavours."""
        return not set(self.flavours).isdisjoint(flavours)

    def matches(self, *, flavour: str, namespace: str, cluster: str, labels: Mapping[str, str]) -> bool:
        """Return True if an autoscaler with this string would discover the object."""
        if flavour not in self.flavours:
            return False
        if self.shoot is not None:
            return (
                namespace == self.shoot or namespace.endswith(f"--{self.shoot}") or f"{_MCM_KEY}{self.shoot}" in labels
            )
        return (
            self.namespace in (None, namespace)
            and self.cluster in (None, cluster)
            and all(labels.get(key) == value for key, value in self.labels.items())
        )


def joined_tags(discoveries: Iterable[Discovery]) -> Mapping[str, str]:
    """Return the tags that an Auto Scaling group must have; an empty value matches any value.

    Cluster Autoscaler joins the tags of all its flags. Of a key in two flags, the last value counts
    (cloudprovider/aws/auto_scaling_groups.go, buildAsgTags).
    """
    return {key: value for discovery in discoveries for key, value in discovery.tags.items()}


def discovered(
    discoveries: Iterable[Discovery], *, flavour: str, namespace: str, cluster: str, labels: Mapping[str, str]
) -> bool:
    """Return True if any string matches the object, or if there is no string for the object's flavour.

    An Auto Scaling group must have the tags of all strings.
    """
    if flavour == AUTO_SCALING:
        tags = joined_tags(discoveries)
        return all(key in labels and value in ("", labels[key]) for key, value in tags.items())
    matches = [
        discovery.matches(flavour=flavour, namespace=namespace, cluster=cluster, labels=labels)
        for discovery in discoveries
        if flavour in discovery.flavours
    ]
    return not matches or any(matches)
