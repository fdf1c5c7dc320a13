"""Each rule of the scheduler by which a pod does not fit a node."""

from typing import Any

import pytest

from evenkeel.domain.demand.cluster_snapshot import ClusterSnapshot
from evenkeel.domain.demand.pod_groups import PodGroups
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.demand.volumes import Volumes
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Claim,
    Container,
    HostPort,
    Node,
    NodeSelectorTerm,
    Pod,
    PodAffinityTerm,
    PodVolume,
    Requirement,
    StorageClass,
    Toleration,
    TopologySpreadConstraint,
    Volume,
    Workload,
)
from tests.builders import NOW
from tests.parts import replace
from tests.workloads import EVERYTHING, container, node, pod, requirement, said, selector, taint, why_not

TAINTED = node(taints=(taint("team=red:NoSchedule"),))


def answer(expected: object, reason: Reason | None) -> object:
    """Return the reason's rule if a rule is expected, otherwise its text."""
    return reason.rule if reason and isinstance(expected, Rule) else said(reason)


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (Toleration("team", "Equal", "red", "NoSchedule"), True),
        (Toleration("team", "", "red"), True),
        (Toleration("team", "Exists"), True),
        (Toleration("", "Exists"), True),
        (Toleration("", "Exists", effect="NoExecute"), False),
        (Toleration("team", "Equal", "blue"), False),
        (Toleration("other", "Exists"), False),
        (Toleration("", "Equal", "red"), False),
        (Toleration("team", "Gt", "1"), False),
    ],
)
def test_a_taint_is_tolerated_by_key_value_and_effect(toleration: Toleration, fits: bool) -> None:
    assert (why_not(pod(tolerations=(toleration,)), TAINTED) is None) is fits


CORDON = Toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule")


@pytest.mark.parametrize(
    ("asking", "there", "words"),
    [
        (pod(), node(unschedulable=True), "the node is cordoned"),
        (pod(tolerations=(CORDON,)), node(unschedulable=True), "fits"),
        (pod(), TAINTED, "the pod does not tolerate taint team=red:NoSchedule"),
        (pod(), node(taints=(taint("team=red:NoExecute"),)), "the pod does not tolerate taint team=red:NoExecute"),
        (pod(), node(taints=(taint("team=red:PreferNoSchedule"),)), "fits"),
        (pod(cpu="9", tolerations=EVERYTHING), TAINTED, "the pod requests 9 of cpu, and 4 of 4 are free"),
        (pod(node_selector={ZONE: "a"}), node(), "fits"),
        (
            pod(node_selector={"disk": "ssd"}),
            node(),
            "the pod's node selector requires disk ssd; on the node, disk is missing",
        ),
    ],
)
def test_cordons_taints_and_node_selectors_keep_pods_off(asking: Pod, there: Node, words: str) -> None:
    assert said(why_not(asking, there)) == words


def by_terms(*terms: NodeSelectorTerm) -> bool:
    return why_not(pod(node_terms=terms), node("n1", "a", labels={"cores": "8", "disk": "ssd"})) is None


def term(*texts: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(expressions=tuple(requirement(text) for text in texts))


def named(operator: str, *names: str) -> NodeSelectorTerm:
    return NodeSelectorTerm(fields=(Requirement("metadata.name", operator, names),))


@pytest.mark.parametrize(
    ("terms", "fits"),
    [
        ((term("disk in ssd,nvme"),), True),
        ((term("disk in hdd"),), False),
        ((term("disk notin hdd"),), True),
        ((term("gpu notin a100"),), True),
        ((term("disk notin ssd"),), False),
        ((term("disk exists"),), True),
        ((term("gpu exists"),), False),
        ((term("gpu absent"),), True),
        ((term("disk absent"),), False),
        ((term("cores > 7"),), True),
        ((term("cores > 8"),), False),
        ((term("cores < 9"),), True),
        ((term("disk > 1"),), False),
        ((term("gpu > 1"),), False),
        ((term("disk in ssd", "cores > 9"),), False),
        ((term("disk in hdd"), term("cores > 7")), True),
        ((), False),
        ((NodeSelectorTerm(),), False),
        ((term("cores > many"), term("disk exists")), True),
        ((term("cores > many"),), False),
        ((term("disk Near ssd"),), False),
        ((term("disk notin no_label!"),), False),
        ((term("disk notin hdd,-1"),), False),
        ((term("disk in ssd,no_label!"),), False),
        ((term("disk notin no_label!"), term("cores > 7")), True),
        ((term(f"disk notin {'x' * 63}"),), True),
        ((term(f"disk notin {'x' * 64}"),), False),
        ((term("no_key! absent"),), False),
        ((term("example.com/disk absent"),), True),
        ((term("Example.com/disk absent"),), False),
        ((term("cores > -1"),), False),
        ((NodeSelectorTerm((Requirement("disk", "NotIn", ("",)),)),), True),
        ((NodeSelectorTerm((Requirement("disk", "In"),)),), False),
        ((NodeSelectorTerm((Requirement("disk", "Exists", ("x",)),)),), False),
        ((named("In", "n1"),), True),
        ((named("In", "n2"),), False),
        ((named("NotIn", "n2"),), True),
        ((named("NotIn", f"n2.{'x' * 64}"),), True),
        ((named("In", "n1", "n2"),), False),
        ((NodeSelectorTerm(fields=(Requirement("metadata.namespace", "In", ("x",)),)),), False),
    ],
)
def test_node_affinity_needs_one_term_of_which_all_matches(terms: tuple[NodeSelectorTerm, ...], fits: bool) -> None:
    assert by_terms(*terms) is fits


@pytest.mark.parametrize("text", ["app notin no_label!", "app in web,no_label!", "no_key! absent", "app notin"])
def test_a_label_selector_that_does_not_parse_matches_nothing(text: str) -> None:
    """The API server treats a disruption budget so, and the binder a claim."""
    assert not matches(selector(text), {"app": "web"})


def test_an_unmet_node_affinity_names_its_keys() -> None:
    assert said(why_not(pod(node_terms=(term("disk in ssd"), named("In", "x"))), node())) == (
        "the pod's required node affinity does not match: 2 terms with keys disk, metadata.name"
    )


def on_port(number: int, protocol: str = "TCP", address: str = "") -> dict[str, tuple[Container, ...]]:
    return {"containers": (Container(ports=(HostPort(number, protocol, address),)),)}


@pytest.mark.parametrize(
    ("other", "fits"),
    [
        (on_port(80), False),
        (on_port(81), True),
        (on_port(80, "UDP"), True),
        (on_port(80, "TCP", "0.0.0.0"), False),
        (on_port(80, "TCP", "10.0.0.2"), True),
        (on_port(80, "TCP", "10.0.0.1"), False),
    ],
)
def test_two_pods_cannot_have_the_same_port_of_a_host(other: dict[str, tuple[Container, ...]], fits: bool) -> None:
    mine = pod(**on_port(80, "TCP", "10.0.0.1"))
    reason = why_not(mine, node(), standing=[pod("there", node="n", **other)])
    assert said(reason) == ("fits" if fits else "host port 80 (TCP) is taken")


NO_COUNT = replace(node(), allocatable={name: node().allocatable[name] for name in ("cpu", "memory")})


@pytest.mark.parametrize(
    ("asking", "there", "words"),
    [
        (pod(cpu="3"), node(), "fits"),
        (pod(cpu="3500m"), node(), "the pod requests 3500m of cpu, and 3 of 4 are free"),
        (pod(memory="15.5Gi"), node(), "the pod requests 15872Mi of memory, and 15Gi of 16Gi are free"),
        (pod(containers=(container(nvidia_com__gpu=1),)), node(), Rule.TOO_LITTLE_FREE),
        (pod(containers=(container(ephemeral_storage="1Gi"),)), node(), Rule.TOO_LITTLE_FREE),
        (pod(containers=(Container(),)), node(), "fits"),
        (pod(), node(size={"pods": "1"}), "the node is full: its limit is 1 pod"),
        (pod(), NO_COUNT, "the node is full: its limit is 0 pods"),
        (pod(containers=(container(memory="1Gi"),)), node(size={"cpu": "500m"}), "fits"),
    ],
)
def test_requested_resources_have_to_be_free(asking: Pod, there: Node, words: str) -> None:
    assert answer(words, why_not(asking, there, standing=[pod("there", node="n")])) == words


# ---------------------------------------------------------------- volumes

ZONAL = (NodeSelectorTerm((Requirement("topology.ebs.csi.aws.com/zone", "In", ("a",)),)),)
EBS = "ebs.csi.aws.com"
WAITS = StorageClass(name="gp3", provisioner=EBS, waits=True)


def claiming(name: str = "p", **fields: Any) -> Pod:
    return pod(name, volumes=(PodVolume("data", "persistentVolumeClaim", "data"),), **fields)


def claim(**fields: Any) -> Claim:
    return Claim(**{"namespace": "default", "name": "data", "storage_class": "gp3", **fields})


BOUND = claim(volume="pv", bound=True)
HERE = node("n", "a", labels={"topology.ebs.csi.aws.com/zone": "a"})
THERE = node("n", "b", labels={"topology.ebs.csi.aws.com/zone": "b"})


@pytest.mark.parametrize(
    ("claims", "rule"),
    [
        ((), Rule.CLAIM_MISSING),
        ((replace(BOUND, deleting=True),), Rule.CLAIM_GOING),
        ((replace(BOUND, lost=True),), Rule.CLAIM_LOST),
        ((claim(storage_class="immediate"),), Rule.CLAIM_UNBOUND),
        ((claim(storage_class="nobody-knows"),), Rule.CLAIM_UNBOUND),
        ((claim(volume="gone"),), Rule.VOLUME_MISSING),
    ],
)
def test_a_claim_without_a_reachable_volume_fits_no_node(claims: tuple[Claim, ...], rule: Rule) -> None:
    immediate = StorageClass(name="immediate", provisioner=EBS)
    reason = why_not(claiming(), HERE, claims=claims, storage_classes=(WAITS, immediate))
    assert reason is not None
    assert reason.rule is rule


@pytest.mark.parametrize(
    ("labels", "of_node", "fits"),
    [
        ({ZONE: "a"}, {}, True),
        ({ZONE: "b"}, {}, False),
        ({ZONE: "b__a"}, {}, True),
        ({"failure-domain.beta.kubernetes.io/zone": "a"}, {}, True),
        ({"failure-domain.beta.kubernetes.io/zone": "b"}, {}, False),
        ({"topology.kubernetes.io/region": "r"}, {}, False),
        ({"topology.kubernetes.io/region": "r"}, {"topology.kubernetes.io/region": "r"}, True),
    ],
)
def test_a_volumes_zone_and_region_have_to_be_the_nodes(
    labels: dict[str, str], of_node: dict[str, str], fits: bool
) -> None:
    volume = Volume(name="pv", labels=labels)
    there = node("n", "a", labels=of_node)
    assert (why_not(claiming(), there, claims=(BOUND,), volumes=(volume,)) is None) is fits


@pytest.mark.parametrize(
    ("storage", "fits_a", "fits_b"),
    [
        (WAITS, True, True),
        (replace(WAITS, allowed_topologies=(selector(f"{ZONE} in b"),)), False, True),
        (replace(WAITS, allowed_topologies=(selector(f"{ZONE} in a"), selector(f"{ZONE} in b"))), True, True),
        (replace(WAITS, allowed_topologies=(selector("topology.gke.io/zone in a"),)), False, False),
        (replace(WAITS, provisioner="kubernetes.io/no-provisioner"), False, False),
    ],
)
def test_a_claim_for_first_consumer_follows_its_storage_class(
    storage: StorageClass, fits_a: bool, fits_b: bool
) -> None:
    fits = [
        why_not(claiming(), there, claims=(claim(),), storage_classes=(storage,)) is None for there in (HERE, THERE)
    ]
    assert fits == [fits_a, fits_b]


@pytest.mark.parametrize(
    ("fields", "fits"),
    [
        ({}, True),
        ({"capacity": 5}, False),
        ({"claim": "default/other"}, False),
        ({"storage_class": "other"}, False),
        ({"access_modes": frozenset()}, False),
        ({"phase": "Released"}, False),
    ],
)
def test_without_a_provisioner_a_free_volume_that_is_large_enough_serves(fields: dict[str, Any], fits: bool) -> None:
    static = replace(WAITS, provisioner="kubernetes.io/no-provisioner")
    wants = claim(size=10, access_modes=frozenset({"ReadWriteOnce"}))
    values = {
        "capacity": 10,
        "storage_class": "gp3",
        "access_modes": frozenset({"ReadWriteOnce"}),
        "phase": "Available",
    }
    volume = Volume(name="pv", terms=ZONAL, **{**values, **fields})
    reason = why_not(claiming(), HERE, claims=(wants,), storage_classes=(static,), volumes=(volume,))
    assert (reason is None) is fits
    assert why_not(claiming(), THERE, claims=(wants,), storage_classes=(static,), volumes=(volume,)) is not None


EPHEMERAL = pod("web", volumes=(PodVolume("tmp", "ephemeral", "web-tmp"),))
OWN = {"claims": (claim(name="web-tmp", for_pod="web"),), "storage_classes": (WAITS,)}
FOREIGN = {"claims": (claim(name="web-tmp", for_pod="other"),), "storage_classes": (WAITS,)}
CHOSEN = {"claims": (claim(selected_node="n"),), "storage_classes": (WAITS,)}
IN_A = {"claims": (BOUND,), "volumes": (Volume(name="pv", driver=EBS, terms=ZONAL),)}
LABELLED = {"claims": (BOUND,), "volumes": (Volume(name="pv", labels={ZONE: "b"}),)}
OTHER = pod("other", node="n", volumes=(PodVolume("data", "persistentVolumeClaim", "other"),))
ATTACHED = {
    "claims": (BOUND, claim(name="other", volume="pv-other", bound=True)),
    "volumes": (Volume(name="pv", driver=EBS), Volume(name="pv-other", driver=EBS)),
    "standing": (OTHER,),
}
SHARED = {**ATTACHED, "standing": (claiming("there", node="n"), claiming("there-too", node="n"))}
TWICE = pod("p", volumes=(*claiming().needs.volumes, PodVolume("again", "persistentVolumeClaim", "data")))
ONE_POD = {"claims": (replace(BOUND, access_modes=frozenset({"ReadWriteOncePod"})),), "volumes": (Volume(name="pv"),)}


@pytest.mark.parametrize(
    ("asking", "nodes", "parts", "words"),
    [
        (claiming(), [HERE], IN_A, "fits"),
        (claiming(), [THERE], IN_A, "the volume of claim default/data is not reachable from this node"),
        (claiming(), [replace(node(), labels={HOSTNAME: "n"})], LABELLED, "fits"),
        (claiming(), [node("n")], CHOSEN, "fits"),
        (claiming(), [node("m")], CHOSEN, "the volume of claim default/data is being provisioned for node n"),
        (EPHEMERAL, [HERE], OWN, "fits"),
        (EPHEMERAL, [HERE], FOREIGN, Rule.CLAIM_OF_ANOTHER),
        (claiming(), [node(attach_limits={EBS: 2})], ATTACHED, "fits"),
        (claiming(), [node()], ATTACHED, "fits"),
        (claiming(), [node(attach_limits={EBS: 1})], ATTACHED, Rule.VOLUME_LIMIT),
        (claiming(), [node(attach_limits={EBS: 1})], SHARED, "fits"),
        (claiming(), [node("m", attach_limits={EBS: 0}), node("n")], SHARED, Rule.VOLUME_LIMIT),
        (replace(OTHER, node=""), [node(attach_limits={EBS: 1})], SHARED, Rule.VOLUME_LIMIT),
        (replace(OTHER, node=""), [node(attach_limits={EBS: 2})], SHARED, "fits"),
        (TWICE, [node(attach_limits={EBS: 2})], ATTACHED, "fits"),
        (claiming(), [node()], ONE_POD, "fits"),
        (claiming(), [node(), node("m")], {**ONE_POD, "standing": (claiming("there", node="m"),)}, Rule.CLAIM_IN_USE),
    ],
)
def test_volumes_bind_a_pod_to_nodes(asking: Pod, nodes: list[Node], parts: dict[str, Any], words: str) -> None:
    assert answer(words, why_not(asking, *nodes, **parts)) == words


@pytest.mark.parametrize("since", [{"deleting": True}, {"lost": True}])
def test_the_volume_of_a_running_pod_is_attached_whatever_its_claim_became(since: dict[str, bool]) -> None:
    other = replace(BOUND, name="other", volume="pv-other", **since)  # type: ignore[arg-type]
    running = pod("there", node="n", volumes=(PodVolume(name="v", kind="persistentVolumeClaim", claim="other"),))
    volumes = (Volume(name="pv", driver=EBS), Volume(name="pv-other", driver=EBS))
    parts: dict[str, Any] = {"claims": (BOUND, other), "volumes": volumes, "standing": (running,)}
    assert why_not(claiming(), node(attach_limits={EBS: 2}), **parts) is None
    assert why_not(claiming(), node(attach_limits={EBS: 1}), **parts) is not None


# ---------------------------------------------------------------- spread

WEB = {"app": "web"}
OF_WEB = selector("app in web")


def spread(**fields: Any) -> Pod:
    constraint = TopologySpreadConstraint(**{"key": ZONE, "max_skew": 1, "selector": OF_WEB, **fields})
    return pod(labels=WEB, spread=(constraint,))


def webs(*zones: str, **fields: Any) -> list[Pod]:
    return [pod(f"w{i}", labels=WEB, node=zone, **fields) for i, zone in enumerate(zones)]


A, B = (node(zone, zone) for zone in "ab")


@pytest.mark.parametrize(
    ("zones", "standing", "fields", "fits"),
    [
        ("abc", "", {}, True),
        ("ab", "ab", {}, True),
        ("abc", "ab", {}, False),
        ("abc", "abc", {}, True),
        ("abc", "abca", {}, False),
        ("abc", "a", {"max_skew": 2}, True),
        ("abc", "a", {"selector": selector("app in other")}, True),
        ("abc", "a", {"selector": None}, True),
        ("abc", "aaa", {"selector": ()}, True),
        ("abc", "abc", {"min_domains": 3}, True),
        ("abc", "abc", {"min_domains": 4}, False),
        ("abc", "", {"min_domains": 4}, True),
        ("abc", "", {"key": "rack"}, False),
    ],
)
def test_no_domain_exceeds_the_emptiest_by_more_than_max_skew(
    zones: str, standing: str, fields: dict[str, Any], fits: bool
) -> None:
    """One more pod in zone a, where each of these zones has a node."""
    first, *others = (node(zone, zone) for zone in zones)
    reason = why_not(spread(**fields), first, *others, standing=webs(*standing))
    assert (reason is None) is fits, said(reason)


BY_ZONE = TopologySpreadConstraint(key=ZONE, max_skew=1, selector=OF_WEB)
BY_HOST = TopologySpreadConstraint(key=HOSTNAME, max_skew=9, selector=OF_WEB)
BY_VERSION = replace(BY_ZONE, label_keys=("version",))
VERSIONED = {**WEB, "version": "2"}
ON_SSD = {"labels": WEB, "node_selector": {"disk": "ssd"}}
SSD = node("a", "a", labels={"disk": "ssd"})
TAINTED_B = node("b", "b", taints=(taint("x=y:NoSchedule"),))
GOING, STAYING = (replace(spread(), name=name, node="a") for name in ("going", "staying"))
GOING = replace(GOING, deleted_at=NOW)
SKEWED = f"with one more pod, {ZONE} a would have 2 more than the emptiest domain; the pod's maxSkew is 1"


@pytest.mark.parametrize(
    ("asking", "nodes", "standing", "words"),
    [
        pytest.param(spread(), [A, B], webs("a"), SKEWED, id="words"),
        pytest.param(
            spread(key="rack"), [A], [], "the pod is spread by label rack, which the node lacks", id="no such key"
        ),
        pytest.param(spread(), [A, B], webs("a", deleted_at=NOW), "fits", id="pods being deleted"),
        pytest.param(spread(), [A, B], webs("a", namespace="other"), "fits", id="pods of other namespaces"),
        pytest.param(spread(), [A, B], [GOING], "fits", id="an equal pod being deleted"),
        pytest.param(spread(), [A, B], [GOING, STAYING], Rule.SPREAD_SKEW, id="an equal pod that stays"),
        pytest.param(pod(**ON_SSD, spread=(BY_ZONE,)), [SSD, B], webs("a"), "fits", id="nodes outside its affinity"),
        pytest.param(
            pod(**ON_SSD, spread=(replace(BY_ZONE, honors_affinity=False),)),
            [SSD, B],
            webs("a"),
            Rule.SPREAD_SKEW,
            id="affinity ignored",
        ),
        pytest.param(spread(), [A, TAINTED_B], webs("a"), Rule.SPREAD_SKEW, id="tainted nodes"),
        pytest.param(spread(honors_taints=True), [A, TAINTED_B], webs("a"), "fits", id="taints honoured"),
        pytest.param(
            pod(labels=WEB, spread=(BY_ZONE, BY_HOST)),
            [A, replace(B, labels={ZONE: "b"})],
            webs("a"),
            "fits",
            id="nodes without all keys",
        ),
        pytest.param(
            pod(labels=WEB, spread=(BY_ZONE, BY_HOST)),
            [A, B, replace(B, name="c", labels={ZONE: "b"})],
            webs("a", "c"),
            Rule.SPREAD_SKEW,
            id="a node without hostname beside one with",
        ),
        pytest.param(pod(labels=VERSIONED, spread=(BY_VERSION,)), [A, B], webs("a"), "fits", id="other versions"),
        pytest.param(
            pod(labels=VERSIONED, spread=(BY_VERSION,)),
            [A, B],
            [pod("w", labels=VERSIONED, node="a")],
            Rule.SPREAD_SKEW,
            id="the same version",
        ),
    ],
)
def test_a_spread_counts_pods_and_domains(asking: Pod, nodes: list[Node], standing: list[Pod], words: str) -> None:
    assert answer(words, why_not(asking, *nodes, standing=standing)) == words


# ---------------------------------------------------------------- pods among pods


def with_web(key: str = ZONE, **fields: Any) -> PodAffinityTerm:
    return PodAffinityTerm(key=key, selector=OF_WEB, **fields)


TOGETHER = pod(affinity=(with_web(),))
FIRST = pod(labels=WEB, affinity=(with_web(),))
BOTH_TERMS = pod(affinity=(with_web(), PodAffinityTerm(key=ZONE, selector=selector("tier in front"))))
BOTH = pod("x", labels={**WEB, "tier": "front"}, node="a")
HALVES = [pod("x", labels=WEB, node="a"), pod("y", labels={"tier": "front"}, node="a")]
ALONE = pod(labels=WEB, anti_affinity=(with_web(),))
HERMIT = pod("hermit", anti_affinity=(with_web(),), node="a")


@pytest.mark.parametrize(
    ("asking", "nodes", "standing", "words"),
    [
        (TOGETHER, [A, B], webs("a"), "fits"),
        (TOGETHER, [A, B], webs("b"), f"the pod's affinity requires another pod that is not in {ZONE} a"),
        (pod(affinity=(with_web("rack"),)), [A], webs("a"), "the pod's affinity uses label rack, which the node lacks"),
        pytest.param(FIRST, [A, B], [], "fits", id="the first of a group that matches itself"),
        (TOGETHER, [A, B], [], Rule.WITHOUT_COMPANY),
        (FIRST, [A, B], webs("b"), Rule.WITHOUT_COMPANY),
        pytest.param(BOTH_TERMS, [A], [BOTH], "fits", id="one pod matches all terms"),
        pytest.param(BOTH_TERMS, [A], HALVES, Rule.WITHOUT_COMPANY, id="each term by another pod"),
        (ALONE, [A, B], webs("a"), f"the pod's anti-affinity excludes another pod in {ZONE} a"),
        (ALONE, [A, B], webs("b"), "fits"),
        (pod(labels=WEB), [A, B], [HERMIT], f"the anti-affinity of another pod in {ZONE} a excludes this pod"),
        (pod(), [A, B], [HERMIT], "fits"),
        (pod(labels=WEB), [B, A], [HERMIT], "fits"),
        pytest.param(pod(anti_affinity=(with_web("rack"),)), [A], webs("a"), "fits", id="a node without the key"),
    ],
)
def test_affinity_and_anti_affinity(asking: Pod, nodes: list[Node], standing: list[Pod], words: str) -> None:
    assert answer(words, why_not(asking, *nodes, standing=standing)) == words


@pytest.mark.parametrize(
    ("fields", "kept_away"),
    [
        ({}, False),
        ({"namespaces": frozenset({"other"})}, True),
        ({"namespace_selector": ()}, True),
        ({"namespace_selector": selector("team in red")}, True),
        ({"namespace_selector": selector("team in blue")}, False),
        ({"namespaces": frozenset({"default"})}, False),
    ],
)
def test_terms_apply_to_their_own_or_the_named_namespaces(fields: dict[str, Any], kept_away: bool) -> None:
    alone = pod(anti_affinity=(with_web(**fields),))
    namespaces = {"other": {"team": "red"}, "default": {}}
    reason = why_not(alone, A, standing=webs("a", namespace="other"), namespaces=namespaces)
    assert (reason is not None) is kept_away


def test_rules_are_checked_in_the_schedulers_order() -> None:
    wrong = pod(cpu="99", node_selector={"disk": "ssd"}, labels=WEB, anti_affinity=(with_web(),))
    rules = []
    for asking, there in (
        (wrong, TAINTED),
        (wrong, node("a")),
        (wrong, node("a", labels={"disk": "ssd"})),
        (replace(wrong, needs=replace(wrong.needs, containers=())), node("a", labels={"disk": "ssd"})),
    ):
        reason = why_not(asking, there, standing=webs("a"))
        rules.append(reason.rule if reason else None)
    assert rules == [Rule.TAINT_NOT_TOLERATED, Rule.NODE_SELECTOR, Rule.TOO_LITTLE_FREE, Rule.KEEPS_AWAY]


def test_a_pod_added_later_excludes_pods_as_well() -> None:
    snapshot, kinds = ClusterSnapshot({}), PodGroups(Volumes(Workload()))
    node_infos = [snapshot.add_node(each, {}) for each in (A, B)]
    web = kinds.of(pod(labels=WEB))
    seen = []
    for number, room in enumerate(node_infos):
        hermit = pod("hermit", cpu=f"{number}", anti_affinity=(with_web(),))
        snapshot.add_pod(kinds.of(hermit), room)
        seen.append([snapshot.failing_filter(web, each) is None for each in node_infos])
    assert seen == [[False, True], [False, False]]


@pytest.mark.parametrize(
    "asking",
    [
        pytest.param(pod(cpu="100m", labels=WEB, anti_affinity=(with_web(key="rack"),)), id="no domain of the term"),
        pytest.param(spread(selector=()), id="an empty selector"),
    ],
)
def test_pods_that_no_rule_counts_share_a_node(asking: Pod) -> None:
    snapshot, kinds = ClusterSnapshot({}), PodGroups(Volumes(Workload()))
    node_infos = [snapshot.add_node(each, {}) for each in (A, B)]
    assert snapshot.fill(kinds.of(asking), node_infos, 3) == 3
    assert [sum(each.pod_groups.values()) for each in node_infos] == [3, 0]
