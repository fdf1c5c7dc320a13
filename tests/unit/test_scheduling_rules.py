"""Does a pod fit a node? Each rule of the scheduler, row by row, and the words of the first that fails."""

from dataclasses import replace
from typing import Any

import pytest

from evenkeel.domain.demand.cluster_snapshot import ClusterSnapshot
from evenkeel.domain.demand.pod_groups import PodGroups
from evenkeel.domain.demand.selectors import matches
from evenkeel.domain.demand.volumes import Volumes
from evenkeel.domain.model.reasons import Rule
from evenkeel.domain.model.workload import (
    HOSTNAME,
    ZONE,
    Claim,
    Container,
    HostPort,
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
from tests.workloads import EVERYTHING, container, node, pod, requirement, said, selector, taint, why_not

TAINTED = node(taints=(taint("team=red:NoSchedule"),))


def test_a_cordoned_node_takes_whoever_tolerates_that() -> None:
    cordoned = node(unschedulable=True)
    assert said(why_not(pod(), cordoned)) == "the node is cordoned"
    tolerating = Toleration("node.kubernetes.io/unschedulable", "Exists", effect="NoSchedule")
    assert why_not(pod(tolerations=(tolerating,)), cordoned) is None


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


def test_the_first_taint_that_is_not_tolerated_is_named_and_a_preference_filters_nothing() -> None:
    assert said(why_not(pod(), TAINTED)) == "it does not tolerate taint team=red:NoSchedule"
    assert why_not(pod(), node(taints=(taint("team=red:NoExecute"),))) is not None
    assert why_not(pod(), node(taints=(taint("team=red:PreferNoSchedule"),))) is None


def test_every_label_of_the_node_selector_has_to_be_there() -> None:
    assert why_not(pod(node_selector={ZONE: "a"}), node()) is None
    assert said(why_not(pod(node_selector={"disk": "ssd"}), node())) == (
        "its node selector requires disk ssd, which is missing"
    )


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
def test_node_affinity_is_any_term_of_which_all_holds(terms: tuple[NodeSelectorTerm, ...], fits: bool) -> None:
    assert by_terms(*terms) is fits


@pytest.mark.parametrize("text", ["app notin no_label!", "app in web,no_label!", "no_key! absent", "app notin"])
def test_a_label_selector_that_does_not_parse_matches_nothing(text: str) -> None:
    """As the API server has it of a disruption budget, and the binder of a claim."""
    assert not matches(selector(text), {"app": "web"})


def test_an_unmet_affinity_names_what_it_asks_for() -> None:
    assert said(why_not(pod(node_terms=(term("disk in ssd"), named("In", "x"))), node())) == (
        "no required node affinity term matches, of 2 terms (keys: disk, metadata.name)"
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
    assert said(reason) == ("fits" if fits else "port 80 (TCP) of the host is taken")


def test_the_number_of_pods_is_asked_first_and_nothing_said_is_none() -> None:
    one = node(size={"pods": "1"})
    there = pod("there", node="n")
    assert said(why_not(pod(), one, standing=[there])) == "the node is full: it runs 1 pod at most"
    unsaid = replace(node(), allocatable={name: node().allocatable[name] for name in ("cpu", "memory")})
    assert said(why_not(pod(), unsaid)) == "the node is full: it runs 0 pods at most"


@pytest.mark.parametrize(
    ("asking", "words"),
    [
        (pod(cpu="3"), "fits"),
        (pod(cpu="3500m"), "it requests 3500m of cpu, and 3 of 4 are free"),
        (pod(memory="15.5Gi"), "it requests 15872Mi of memory, and 15Gi of 16Gi are free"),
        (pod(containers=(container(nvidia_com__gpu=1),)), "it requests 1 of nvidia.com/gpu, and 0 of 0 are free"),
        (
            pod(containers=(container(ephemeral_storage="1Gi"),)),
            "it requests 1Gi of ephemeral.storage, and 0 of 0 are free",
        ),
        (pod(containers=(Container(),)), "fits"),
    ],
)
def test_what_is_asked_for_has_to_be_free(asking: Pod, words: str) -> None:
    assert said(why_not(asking, node(), standing=[pod("there", node="n")])) == words


def test_what_is_not_asked_for_is_not_looked_at() -> None:
    crowded = [pod("there", cpu="9", node="n")]
    assert why_not(pod(containers=(container(memory="1Gi"),)), node(), standing=crowded) is None


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
def test_a_claim_without_a_volume_that_may_be_reached_fits_no_node(claims: tuple[Claim, ...], rule: Rule) -> None:
    immediate = StorageClass(name="immediate", provisioner=EBS)
    reason = why_not(claiming(), HERE, claims=claims, storage_classes=(WAITS, immediate))
    assert reason is not None
    assert reason.rule is rule


def test_a_bound_volume_is_reached_where_its_affinity_says() -> None:
    volume = Volume(name="pv", driver=EBS, terms=ZONAL)
    assert why_not(claiming(), HERE, claims=(BOUND,), volumes=(volume,)) is None
    assert said(why_not(claiming(), THERE, claims=(BOUND,), volumes=(volume,))) == (
        "the volume of its claim default/data is not reachable from there"
    )


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
def test_zone_and_region_of_a_volume_have_to_be_the_nodes(
    labels: dict[str, str], of_node: dict[str, str], fits: bool
) -> None:
    volume = Volume(name="pv", labels=labels)
    there = node("n", "a", labels=of_node)
    assert (why_not(claiming(), there, claims=(BOUND,), volumes=(volume,)) is None) is fits


def test_a_node_without_zone_and_region_passes_for_the_labels_of_volumes() -> None:
    nowhere = replace(node(), labels={HOSTNAME: "n"})
    volume = Volume(name="pv", labels={ZONE: "b"})
    assert why_not(claiming(), nowhere, claims=(BOUND,), volumes=(volume,)) is None


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
def test_a_claim_that_waits_for_its_pod_goes_where_a_volume_may_be_made(
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
def test_without_a_provisioner_a_free_volume_serves_that_is_large_enough(fields: dict[str, Any], fits: bool) -> None:
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


def test_a_volume_that_is_being_made_for_a_node_keeps_its_pod_there() -> None:
    chosen = claim(selected_node="n")
    parts = {"claims": (chosen,), "storage_classes": (WAITS,)}
    assert why_not(claiming(), node("n"), **parts) is None
    assert said(why_not(claiming(), node("m"), **parts)) == (
        "the volume of its claim default/data is being provisioned for node n"
    )


def test_an_ephemeral_volume_is_a_claim_that_the_pod_itself_owns() -> None:
    asking = pod("web", volumes=(PodVolume("tmp", "ephemeral", "web-tmp"),))
    own = claim(name="web-tmp", for_pod="web")
    assert why_not(asking, HERE, claims=(own,), storage_classes=(WAITS,)) is None
    reason = why_not(asking, HERE, claims=(replace(own, for_pod="other"),), storage_classes=(WAITS,))
    assert said(reason) == "claim default/web-tmp has the name of its ephemeral volume and belongs to another object"


def test_a_driver_attaches_no_more_volumes_than_its_limit() -> None:
    volume = Volume(name="pv", driver=EBS)
    running = claiming("there", node="n")
    parts = {"claims": (BOUND,), "volumes": (volume,), "standing": (running,)}
    assert why_not(claiming(), node(attach_limits={EBS: 2}), **parts) is None
    assert why_not(claiming(), node(), **parts) is None
    assert said(why_not(claiming(), node(attach_limits={EBS: 1}), **parts)) == (
        "it needs 1 volume of ebs.csi.aws.com, and 1 of 1 are attached"
    )


@pytest.mark.parametrize("since", [{"deleting": True}, {"lost": True}])
def test_the_volume_of_a_pod_that_runs_is_attached_whatever_has_become_of_its_claim_since(
    since: dict[str, bool],
) -> None:
    other = replace(BOUND, name="other", volume="pv-other", **since)  # type: ignore[arg-type]
    running = pod("there", node="n", volumes=(PodVolume(name="v", kind="persistentVolumeClaim", claim="other"),))
    volumes = (Volume(name="pv", driver=EBS), Volume(name="pv-other", driver=EBS))
    parts: dict[str, Any] = {"claims": (BOUND, other), "volumes": volumes, "standing": (running,)}
    assert why_not(claiming(), node(attach_limits={EBS: 2}), **parts) is None
    assert why_not(claiming(), node(attach_limits={EBS: 1}), **parts) is not None


def test_a_claim_for_one_pod_is_used_by_one_pod_wherever_that_is() -> None:
    alone = replace(BOUND, access_modes=frozenset({"ReadWriteOncePod"}))
    parts = {"claims": (alone,), "volumes": (Volume(name="pv"),)}
    assert why_not(claiming(), node(), **parts) is None
    reason = why_not(claiming(), node(), node("m"), standing=(claiming("there", node="m"),), **parts)
    assert said(reason) == "claim default/data is limited to one pod, and another pod uses it"


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
def test_no_domain_gets_more_above_the_emptiest_than_is_allowed(
    zones: str, standing: str, fields: dict[str, Any], fits: bool
) -> None:
    """One more pod in zone a, where each of these zones has a node."""
    first, *others = (node(zone, zone) for zone in zones)
    reason = why_not(spread(**fields), first, *others, standing=webs(*standing))
    assert (reason is None) is fits, said(reason)


def test_a_spread_that_is_broken_says_where_and_by_how_much() -> None:
    assert said(why_not(spread(), A, B, standing=webs("a"))) == (
        f"one more in {ZONE} a would be 2 more than in the emptiest domain, and its maxSkew is 1"
    )
    assert said(why_not(spread(key="rack"), A)) == "it is spread by rack, which the node lacks"


def test_pods_that_go_and_pods_of_other_namespaces_do_not_count() -> None:
    assert why_not(spread(), A, B, standing=webs("a", deleted_at=NOW)) is None
    assert why_not(spread(), A, B, standing=webs("a", namespace="other")) is None


def test_of_equal_pods_those_that_go_do_not_count_and_those_that_stay_do() -> None:
    going, staying = (replace(spread(), name=name, node="a") for name in ("going", "staying"))
    going = replace(going, deleted_at=NOW)
    assert why_not(spread(), A, B, standing=[going]) is None
    assert why_not(spread(), A, B, standing=[going, staying]) is not None


def test_nodes_that_its_affinity_leaves_out_are_no_domain_unless_it_says_so() -> None:
    constraint = TopologySpreadConstraint(key=ZONE, max_skew=1, selector=OF_WEB)
    asking = pod(labels=WEB, spread=(constraint,), node_selector={"disk": "ssd"})
    there = node("a", "a", labels={"disk": "ssd"})
    assert why_not(asking, there, B, standing=webs("a")) is None
    ignoring = replace(asking, needs=replace(asking.needs, spread=(replace(constraint, honors_affinity=False),)))
    assert why_not(ignoring, there, B, standing=webs("a")) is not None


def test_tainted_nodes_are_a_domain_unless_it_honours_taints() -> None:
    tainted = node("b", "b", taints=(taint("x=y:NoSchedule"),))
    assert why_not(spread(), A, tainted, standing=webs("a")) is not None
    assert why_not(spread(honors_taints=True), A, tainted, standing=webs("a")) is None


def test_nodes_without_the_keys_of_all_constraints_are_no_domain() -> None:
    bare = replace(B, labels={ZONE: "b"})
    by_host = TopologySpreadConstraint(key=HOSTNAME, max_skew=9, selector=OF_WEB)
    both = pod(labels=WEB, spread=(TopologySpreadConstraint(key=ZONE, max_skew=1, selector=OF_WEB), by_host))
    assert why_not(both, A, bare, standing=webs("a")) is None


def test_match_label_keys_let_only_pods_of_the_same_version_count() -> None:
    constraint = TopologySpreadConstraint(key=ZONE, max_skew=1, selector=OF_WEB, label_keys=("version",))
    asking = pod(labels={**WEB, "version": "2"}, spread=(constraint,))
    assert why_not(asking, A, B, standing=webs("a")) is None
    same = pod("w", labels={**WEB, "version": "2"}, node="a")
    assert why_not(asking, A, B, standing=[same]) is not None


# ---------------------------------------------------------------- pods among pods


def with_web(key: str = ZONE, **fields: Any) -> PodAffinityTerm:
    return PodAffinityTerm(key=key, selector=OF_WEB, **fields)


def test_a_pod_stands_where_those_are_that_it_has_to_be_with() -> None:
    asking = pod(affinity=(with_web(),))
    assert why_not(asking, A, B, standing=webs("a")) is None
    assert said(why_not(asking, A, B, standing=webs("b"))) == f"no pod that its affinity requires is in {ZONE} a"
    rack = pod(affinity=(with_web("rack"),))
    assert said(why_not(rack, A, standing=webs("a"))) == "its pod affinity uses rack, which the node lacks"


def test_the_first_of_a_group_needs_no_company_but_its_own() -> None:
    first = pod(labels=WEB, affinity=(with_web(),))
    assert why_not(first, A, B) is None
    assert why_not(pod(affinity=(with_web(),)), A, B) is not None
    assert why_not(first, A, B, standing=webs("b")) is not None


def test_company_has_to_match_all_terms_at_once() -> None:
    asking = pod(affinity=(with_web(), PodAffinityTerm(key=ZONE, selector=selector("tier in front"))))
    both = pod("x", labels={**WEB, "tier": "front"}, node="a")
    halves = [pod("x", labels=WEB, node="a"), pod("y", labels={"tier": "front"}, node="a")]
    assert why_not(asking, A, standing=[both]) is None
    assert why_not(asking, A, standing=halves) is not None


def test_anti_affinity_works_both_ways() -> None:
    alone = pod(labels=WEB, anti_affinity=(with_web(),))
    assert said(why_not(alone, A, B, standing=webs("a"))) == f"its anti-affinity excludes a pod in {ZONE} a"
    assert why_not(alone, A, B, standing=webs("b")) is None
    hermit = pod("hermit", anti_affinity=(with_web(),), node="a")
    assert (
        said(why_not(pod(labels=WEB), A, B, standing=[hermit])) == f"the anti-affinity of a pod in {ZONE} a excludes it"
    )
    assert why_not(pod(), A, B, standing=[hermit]) is None
    assert why_not(pod(labels=WEB), B, A, standing=[hermit]) is None


def test_a_node_without_the_key_is_far_from_everybody() -> None:
    alone = pod(anti_affinity=(with_web("rack"),))
    assert why_not(alone, A, standing=webs("a")) is None


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
def test_terms_speak_of_their_own_namespace_or_of_those_they_name(fields: dict[str, Any], kept_away: bool) -> None:
    alone = pod(anti_affinity=(with_web(**fields),))
    namespaces = {"other": {"team": "red"}, "default": {}}
    reason = why_not(alone, A, standing=webs("a", namespace="other"), namespaces=namespaces)
    assert (reason is not None) is kept_away


def test_the_scheduler_s_order_decides_which_rule_is_named() -> None:
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


def test_who_tolerates_everything_still_needs_room() -> None:
    assert said(why_not(pod(cpu="9", tolerations=EVERYTHING), TAINTED)) == "it requests 9 of cpu, and 4 of 4 are free"


def test_whoever_comes_later_keeps_pods_away_as_well() -> None:
    snapshot, kinds = ClusterSnapshot({}), PodGroups(Volumes(Workload()))
    node_infos = [snapshot.add_node(each, {}) for each in (A, B)]
    web = kinds.of(pod(labels=WEB))
    seen = []
    for number, room in enumerate(node_infos):
        hermit = pod("hermit", cpu=f"{number}", anti_affinity=(with_web(),))
        snapshot.add_pod(kinds.of(hermit), room)
        seen.append([snapshot.failing_filter(web, each) is None for each in node_infos])
    assert seen == [[False, True], [False, False]]
