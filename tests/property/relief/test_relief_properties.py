"""A Shoot's maximum, whatever happens around it: Evenkeel loses no node and no operator's value."""

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from evenkeel.domain.relief.model import Relief
from evenkeel.domain.relief.relief import PATIENCE, least_that_keeps, least_that_suffices, shares
from tests.unit.relief.test_relief import Seed

REPLICAS = st.lists(st.integers(0, 12), min_size=1, max_size=6)


@given(REPLICAS)
def test_least_that_keeps_is_minimal(replicas: list[int]) -> None:
    least, zones = least_that_keeps(replicas), len(replicas)
    assert all(share >= count for share, count in zip(shares(least, zones), replicas, strict=True))
    if least:
        assert any(share < count for share, count in zip(shares(least - 1, zones), replicas, strict=True))


@given(st.integers(0, 60), st.integers(1, 6), st.data())
def test_least_that_suffices_is_minimal(nodes: int, zones: int, data: st.DataObject) -> None:
    alive = sorted(data.draw(st.sets(st.integers(0, zones - 1), min_size=1)))
    least = least_that_suffices(nodes, zones, alive)
    assert sum(shares(least, zones)[index] for index in alive) == nodes
    assert least <= zones * -(-nodes // len(alive))
    if least:
        assert sum(shares(least - 1, zones)[index] for index in alive) < nodes


class Reliefs(RuleBasedStateMachine):
    """Zones that die and recover, nodes that join and end, operators, Gardener, and runs that may end at their write.

    The model is the operators' last value. A node may be removed if operators lower the maximum, never if Evenkeel
    does.
    """

    @initialize(replicas=st.tuples(*[st.integers(0, 4)] * 3), minimum=st.integers(0, 2), more=st.integers(0, 4))
    def begin(self, replicas: tuple[int, int, int], minimum: int, more: int) -> None:
        self.user_max = max(least_that_keeps(replicas), minimum, 3) + more
        self.seed = Seed(*replicas, minimum=minimum, maximum=self.user_max)
        self.asked = False  # operators have set the number, and nodes may be removed for it

    @rule(minutes=st.integers(1, 20), dies=st.sampled_from(["", "", "before", "after"]))
    def run(self, minutes: int, dies: str) -> None:
        seed, before = self.seed, self.seed.maximum
        written = seed.write(minutes, dies=dies)
        if written is None:
            assert seed.maximum == before
            return
        replicas = [max(seed.replicas[zone], seed.running[zone]) for zone in seed.zones]
        assert written >= least_that_keeps(replicas), "no node goes"
        if written < before:
            assert written == self.user_max, "lower than before is only what people want"
            assert not seed.dead, "and only when every zone is healthy"
            return
        assert written > max(before, self.user_max - 1)
        relief = next(iter(seed.state.pools.values())).parts.of(Relief)
        assert written in relief.ours
        if written > seed.copied:  # otherwise it is only adopted again, so that nodes stay
            dead = {zone for zone, since in relief.dead.items() if seed.now - since >= PATIENCE}
            alive = [index for index, zone in enumerate(seed.zones) if zone not in dead]
            left = sum(seed.running[zone] for zone in dead)
            assert sum(shares(written, 3)[index] for index in alive) >= self.user_max - left

    @rule(zones=st.sets(st.sampled_from("abc"), max_size=2))
    def die(self, zones: set[str]) -> None:
        self.seed.outage(*zones)

    @rule(zone=st.sampled_from("abc"), nodes=st.integers(0, 6))
    def scale(self, zone: str, nodes: int) -> None:
        share = shares(self.seed.copied, 3)["abc".index(zone)]
        self.seed.replicas[zone] = self.seed.running[zone] = min(nodes, share)

    @rule()
    def gardener(self) -> None:
        """Let Gardener reconcile the Shoot, minutes after its write, so that a check is in between."""
        seed = self.seed
        if not self.asked:
            seed.write(1)
        before = sum(seed.replicas.values())
        seed.follow()
        assert self.asked or sum(seed.replicas.values()) == before, "what we wrote deletes nodes"
        seed.running = {zone: min(nodes, seed.replicas[zone]) for zone, nodes in seed.running.items()}
        self.asked = False

    @precondition(lambda self: self.seed.copied == self.seed.maximum)
    @rule(number=st.integers(3, 30))
    def desired_anew(self, number: int) -> None:
        pools = self.seed.state.pools.values()
        if any((relief := pool.parts.of(Relief)) is not None and number in relief.ours for pool in pools):
            return  # equal to Evenkeel's value by chance: it is taken for Evenkeel's, a known limit
        self.asked = True
        self.user_max = self.seed.maximum = number

    @invariant()
    def what_people_want_counts(self) -> None:
        """For any stored value. Before Gardener has reconciled it, the previous number counts."""
        if hasattr(self, "seed") and self.seed.copied == self.seed.maximum:
            assert self.seed.check().max == self.user_max


Reliefs.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestReliefs = Reliefs.TestCase
