"""Sets of similar groups on random clusters: every group is in one set, all of a set are similar, in any order."""

from fractions import Fraction
from itertools import combinations

from hypothesis import event, given
from hypothesis import strategies as st

from evenkeel.domain.model.similarity import GARDENER, IGNORED_LABELS, Similarity
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.rebalancing.membership.similarity import find_sets

GIB = 1024**3


def _floating(a: int, b: int, ratio: float) -> bool:
    larger, smaller = max(float(a * 1000), float(b * 1000)), min(float(a * 1000), float(b * 1000))
    return larger - smaller <= larger * ratio


# Amounts so close that some pairs are within a ratio and some are not.
near_amounts = st.sampled_from([Fraction(n) for n in (900, 940, 960, 970, 980, 985, 990, 1000, 1010, 1020)])
some_amounts = st.none() | st.fixed_dictionaries({"memory": near_amounts}, optional={"cpu": near_amounts})
templates = st.builds(
    NodeTemplate,
    capacity=st.fixed_dictionaries(
        {"cpu": st.sampled_from([Fraction(4), Fraction(8)]), "memory": near_amounts},
        optional={"nvidia.com/gpu": st.just(Fraction(1))},
    )
    | st.just({"cpu": Fraction(4)}),
    allocatable=some_amounts,
    free=some_amounts,
    labels=st.dictionaries(
        st.sampled_from(["team", "topology.kubernetes.io/zone", "kubernetes.io/hostname", "custom"]),
        st.sampled_from("ab"),
        max_size=3,
    ),
)
of_one_kind = st.builds(
    NodeTemplate,
    capacity=near_amounts.map(lambda memory: {"cpu": Fraction(4), "memory": memory}),
    allocatable=st.none() | near_amounts.map(lambda memory: {"memory": memory}),
    free=st.none() | near_amounts.map(lambda memory: {"memory": memory}),
)
worlds = st.one_of(st.dictionaries(st.integers(0, 99), kinds, max_size=14) for kinds in (templates, of_one_kind))
rules = st.sampled_from(
    [
        Similarity(),
        GARDENER,
        Similarity(memory_ratio=Fraction(0), allocatable_ratio=Fraction(1), free_ratio=Fraction(1, 50)),
        Similarity(ignored_labels=frozenset({"custom"})),
        Similarity(labels=("team",)),
        Similarity(labels=("team", "custom")),
    ]
)


@given(worlds, rules)
def test_every_group_is_in_exactly_one_set_and_all_are_in_order(world, rule) -> None:
    sets = find_sets(world, rule)
    assert sorted(key for members in sets for key in members) == sorted(world)
    assert all(list(members) == sorted(members) for members in sets)
    assert sets == sorted(sets)


@given(worlds, rules)
def test_all_members_of_a_set_are_similar_to_one_another(world, rule) -> None:
    sets = find_sets(world, rule)
    event(f"largest set: {max(map(len, sets), default=0)}")
    for members in sets:
        for a, b in combinations(members, 2):
            assert rule.similar(world[a], world[b])


def _reversed(template: NodeTemplate) -> NodeTemplate:
    """Return the template with labels and resources in another order."""
    capacity, labels = (dict(reversed(items.items())) for items in (template.capacity, template.labels))
    allocatable, free = (
        amounts and dict(reversed(amounts.items())) for amounts in (template.allocatable, template.free)
    )
    return NodeTemplate(capacity=capacity, allocatable=allocatable, free=free, labels=labels)


@given(worlds, rules, st.randoms(use_true_random=False))
def test_names_and_the_order_of_groups_labels_and_resources_change_nothing(world, rule, random) -> None:
    names, order = random.sample(list(world), len(world)), random.sample(list(world), len(world))
    renamed = dict(zip(world, names, strict=True))
    sets = find_sets({renamed[key]: _reversed(world[key]) for key in order}, rule)
    assert sets == sorted(tuple(sorted(renamed[key] for key in members)) for members in find_sets(world, rule))


@given(worlds, rules)
def test_no_two_sets_could_be_one(world, rule) -> None:
    for one, other in combinations(find_sets(world, rule), 2):
        assert not all(rule.similar(world[a], world[b]) for a in one for b in other)


@given(worlds, st.data())
def test_an_ignored_label_changes_no_set(world, data) -> None:
    rule = data.draw(rules.filter(lambda rule: not rule.labels))
    labels = st.dictionaries(st.sampled_from(sorted(IGNORED_LABELS)), st.sampled_from("abc"))
    elsewhere = {
        key: NodeTemplate(
            capacity=template.capacity,
            allocatable=template.allocatable,
            free=template.free,
            labels={
                **{label: value for label, value in template.labels.items() if label not in IGNORED_LABELS},
                **data.draw(labels),
            },
        )
        for key, template in world.items()
    }
    assert find_sets(elsewhere, rule) == find_sets(world, rule)


def _all_pairs(world: dict[int, NodeTemplate], rule: Similarity) -> list[tuple[int, ...]]:
    """Return each template's similar ones by comparing all pairs: classes, if similarity is an equivalence."""
    keys = sorted(world)
    return sorted({tuple(b for b in keys if a == b or rule.similar(world[a], world[b])) for a in keys})


# Distant machine types, and the smaller amounts of single machines of a type: within the ratios in each pair.
apart = st.builds(
    lambda cpu, gib, kept, missing, gpu, team, says: NodeTemplate(
        capacity={
            "cpu": Fraction(cpu),
            "memory": Fraction(gib * GIB - missing * GIB // 100),
            **({"nvidia.com/gpu": Fraction(1)} if gpu else {}),
        },
        allocatable={"cpu": Fraction(cpu), "memory": Fraction(gib * kept * GIB, 10)} if says else None,
        labels={"team": team} | ({"pool": "x"} if not says else {}),
    ),
    cpu=st.sampled_from([2, 4]),
    gib=st.sampled_from([8, 16, 32]),
    kept=st.sampled_from([6, 8, 10]),
    missing=st.integers(0, 10),
    gpu=st.booleans(),
    team=st.sampled_from("ab"),
    says=st.booleans(),
)


@given(st.dictionaries(st.integers(0, 999), apart, max_size=40))
def test_sets_are_the_classes_of_an_equivalence(world) -> None:
    sets = find_sets(world, Similarity())
    event(f"sets: {len(sets)} of {len(world)}")
    assert sets == _all_pairs(world, Similarity())


@given(
    st.integers(0, 8 * 1024 * GIB),
    st.sampled_from([(15, 1000), (5, 100), (1, 2)]),
    st.integers(-2, 2),
    st.integers(0, 10**6),
)
def test_similarity_decides_as_cluster_autoscalers_floats(larger, ratio, off, part) -> None:
    """Right at the limit and elsewhere, up to 8 TiB."""
    share = Fraction(*ratio)
    smaller = max(0, larger - int(larger * share * Fraction(part, 10**6) * 2 if part else larger * share) + off)
    rule = Similarity(memory_ratio=share)
    a, b = (NodeTemplate(capacity={"cpu": Fraction(1), "memory": Fraction(n)}) for n in (larger, smaller))
    assert rule.similar(a, b) == _floating(larger, smaller, ratio[0] / ratio[1])
