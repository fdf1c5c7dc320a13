"""The reasons that readers give, in words, until the fields of a node group hold reasons themselves."""

from collections.abc import Callable, Mapping

from evenkeel.domain.model.reasons import Fact, Reason, Rule

Facts = Mapping[str, Fact]
Words = str | Callable[[Facts], str]


def _with_steps(template: str) -> Words:
    def words(facts: Facts) -> str:
        return _filled(template, {**facts, "steps": "; ".join(_texts(facts["steps"]))})

    return words


WORDS: Mapping[Rule, Words] = {
    Rule.OBJECT_BEING_DELETED: "it is being deleted",
    Rule.OBJECT_PAUSED: "it is paused",
    Rule.CLUSTER_BEING_DELETED: "its Cluster {cluster} is being deleted",
    Rule.CLUSTER_PAUSED: "its Cluster {cluster} is paused",
    Rule.FROZEN_BY_CONTROLLER: "{controller} has frozen it",
    Rule.HIBERNATED: "its shoot is hibernated: the pool has no replicas although its Worker asks for some",
    Rule.NOT_AUTHORITATIVE: "{field} is {value}: another API owns it",
    Rule.OWNER_MISSING: "its bounds belong to {owner}, which is not there",
    Rule.REPLICAS_UNSET: "its spec.replicas is not set yet",
    Rule.ROLLING_SETS: "it is rolling: {sets} MachineSets hold machines",
    Rule.TOPOLOGY_ENTRY_MISSING: "it belongs to a ClusterClass, and its entry in the Cluster's topology is not there",
    Rule.TOPOLOGY_SETS_REPLICAS: "the Cluster's topology sets its replicas",
    Rule.UNSEEN_AT_ZERO: _with_steps("at zero, and Cluster Autoscaler cannot see it: {steps}"),
    Rule.UNREAD_AT_ZERO: _with_steps("at zero, and its cpu and memory are not known ({object} was not read): {steps}"),
    Rule.UNKNOWN_AT_ZERO: _with_steps("at zero, and its cpu and memory are not known: {steps}"),
    Rule.UNREADABLE_VALUE: "{object}: {field} is {value}: {problem}",
    Rule.ANNOTATE: lambda facts: f"annotate {' and '.join(_texts(facts['annotations']))}",
}


def sentence(reason: Reason) -> str:
    """A reason in words."""
    words = WORDS[reason.rule]
    return _filled(words, reason.facts) if isinstance(words, str) else words(reason.facts)


def _filled(template: str, facts: Facts) -> str:
    return template.format_map(facts)


def _texts(fact: Fact) -> list[str]:
    parts = fact if isinstance(fact, tuple) else ()
    return [sentence(part) if isinstance(part, Reason) else part for part in parts]
