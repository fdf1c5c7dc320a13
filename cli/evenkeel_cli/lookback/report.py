"""The answer of `evenkeel lookback`: three sentences and a table, or JSON."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from rich.console import Console

from evenkeel.texts.english import counted, rfc3339
from evenkeel_cli.console import Table, print_line, print_table
from evenkeel_cli.lookback.demand import need_of
from evenkeel_cli.lookback.history import History, area, moment, total
from evenkeel_cli.lookback.outages import Outage
from evenkeel_cli.lookback.replay import Answer, Figures
from evenkeel_cli.simulation.scenario import write_duration

_HOUR, _MINUTE = 3600, 60
_LEGEND = "waited, replay without and with Evenkeel: node-minutes; nodes·h: more with Evenkeel; times are UTC"
_ALWAYS_UNKNOWN = (
    "demand above the maxima of all groups, and pods bound to a zone that never had to wait",
    "the time from an instance in service to a ready node, which is in no figure here",
)


@dataclass(frozen=True)
class Report:
    """What is known about a history."""

    history: History
    outages: Sequence[Outage]
    answers: Sequence[Answer]

    @property
    def has_verdict(self) -> bool:
        """Return True if there is a verdict about each outage."""
        return not any(answer.missing for answer in self.answers) and not self.doubts()

    def doubts(self) -> list[str]:
        """Return why there is no verdict about pools without outages."""
        pools = set(self.history.pools).difference(*(answer.window.pools for answer in self.answers))
        groups = [group for group in self.history.groups if group.pool in pools]
        doubts = [] if self.answers else [doubt.text for group in groups for doubt in group.doubts]
        return [*dict.fromkeys(doubts)] + [
            f"pods of {pool} may have waited at the maximum of their zone, unseen: {bound[0]}"
            for pool in sorted(pools)
            if (bound := need_of(self.history.of_pool(pool), self.history.since, self.history.until).bound_full)
        ]

    def chosen(self, number: int | None) -> Answer | None:
        """Return the answer with this number in the table, or the one with the most waiting; None: there is none."""
        if number is not None:
            return self.answers[number - 1] if 1 <= number <= len(self.answers) else None
        return max(self.answers, key=lambda answer: answer.happened.waiting, default=None)

    # Sentences

    def sentences(self) -> Iterator[str]:
        """Yield what happened, how exact a replay is, and what Evenkeel would have changed."""
        since, until = (f"{moment(at):%Y-%m-%d}" for at in (self.history.since, self.history.until))
        groups = f"{counted(len(self.history.groups), 'group')} of {counted(len(self.history.pools), 'pool')}"
        if not self.outages:
            yield f"From {since} to {until}, no launch of {groups} was refused."
            doubts = self.doubts()
            yield "There is no verdict about Evenkeel." if doubts else "So there is nothing to replay."
            yield f"The reason: {doubts[0]}." if doubts else "Evenkeel would have changed nothing."
            return
        waited = sum(answer.happened.waiting for answer in self.answers)
        yield (
            f"From {since} to {until}, {counted(len(self.outages), 'outage')} met {groups}: "
            f"{counted(sum(outage.refused for outage in self.outages), 'launch', 'launches')} refused, "
            f"and pods waited {_at_least(self.answers)}{waited / _MINUTE:.0f} node-minutes."
        )
        judged = [answer for answer in self.answers if not answer.missing]
        yield self._exactness(judged)
        chosen = self.chosen(None)
        yield _effect(judged) if judged or chosen is None else f"The reason: {chosen.missing[0]}."

    def _exactness(self, judged: Sequence[Answer]) -> str:
        if not judged:
            return "There is no verdict about Evenkeel."
        waiting = _off(sum(one.usual.waiting for one in judged), sum(one.happened.waiting for one in judged))
        hours = _off(sum(one.usual.nodes for one in judged), sum(one.happened.nodes for one in judged))
        of = "" if len(judged) == len(self.answers) else f" for {len(judged)} of {len(self.answers)} rows"
        return f"A replay without Evenkeel is {waiting} off in waiting and {hours} in node-hours{of}."

    def notes(self) -> Iterator[str]:
        """Yield what else was seen, and what is not known."""
        for number, answer in enumerate(self.answers, 1):
            for missing in answer.missing[:2]:
                yield f"no verdict for {number}: {missing}"
            if answer.full:
                yield (
                    f"at least, for {number}: pods of {', '.join(answer.full)} needed all nodes that the maxima allow, "
                    "and perhaps more, which Evenkeel cannot give them either"
                )
        yield from (f"no verdict: {doubt}" for doubt in self.doubts())
        if full := _orders_at_maximum(self.history):
            yield f"{counted(full, 'order')} filled a group up to its maximum"
        if boots := _boots(self.history):
            yield f"a launch took {boots[0]} s, and 95 of 100 at most {boots[1]} s"
        yield "not known: " + "; ".join([*self.history.unknown, *_ALWAYS_UNKNOWN])

    # Forms

    def print(self, console: Console) -> None:
        """Print the sentences, a row per time of outages, and notes."""
        for sentence in self.sentences():
            print_line(console, sentence)
        if self.answers:
            numbers = ("refused", "waited", "replay", "Evenkeel", "nodes·h")
            rows = Table(("", "from", "for", "outage", "pool", *numbers), right=numbers)
            print_line(console, "")
            for number, answer in enumerate(self.answers, 1):
                rows.add_row(*self._cells(number, answer))
            print_table(console, rows)
            print_line(console, _LEGEND, "dim")
        print_line(console, "")
        for note in self.notes():
            print_line(console, note, "dim")

    def _cells(self, number: int, answer: Answer) -> list[str]:
        outages, pools = answer.window.outages, answer.window.pools
        first, last = outages[0].since, max(outage.last for outage in outages)
        replay, own = [one.waiting for one in answer.alone], answer.evenkeel
        return [
            str(number),
            f"{moment(first):%m-%dT%H:%M}",
            write_duration((last - first) // 60 * 60),
            " ".join(
                [*sorted({self._short(outage.zone) for outage in outages}), *sorted({o.kind.value for o in outages})]
            ),
            " ".join(pools) if len(pools) < 3 else f"{len(pools)} pools",
            str(sum(outage.refused for outage in outages)),
            f"{answer.happened.waiting / _MINUTE:.0f}",
            _range(replay).replace(" to ", "-") if replay else "-",
            "no verdict" if answer.missing else _range([each.waiting for each in own]).replace(" to ", "-"),
            "-" if answer.missing else f"{(median(each.nodes for each in own) - answer.usual.nodes) / _HOUR:+.1f}",
        ]

    def _short(self, zone: str) -> str:
        """Return the part of a zone's name that tells it from the others, such as 1a."""
        zones = {zone for group in self.history.groups for zone in group.zones}
        last = {name.rpartition("-")[2] for name in zones}
        return (zone.rpartition("-")[2] if len(last) == len(zones) else zone) or "Region"

    def json(self) -> dict[str, Any]:
        """Return the answer of ``-o json``."""
        running = total(group.running for group in self.history.groups)
        nodes = area(running, self.history.since, self.history.until)
        return {
            "source": self.history.source,
            "since": _moment(self.history.since),
            "until": _moment(self.history.until),
            "sentences": [*self.sentences()],
            "happened": {
                "nodeHours": round(nodes / _HOUR, 2),
                "ordersAtMaximum": _orders_at_maximum(self.history),
                "provisionSeconds": dict(zip(("median", "p95"), _boots(self.history), strict=False)),
                "outages": [_outage_json(outage) for outage in self.outages],
            },
            "rows": [_answer_json(number, answer) for number, answer in enumerate(self.answers, 1)],
            "unknown": [*self.doubts(), *self.history.unknown, *_ALWAYS_UNKNOWN],
        }


def _at_least(answers: Sequence[Answer]) -> str:
    return "at least " if any(answer.full for answer in answers) else ""


def _effect(judged: Sequence[Answer]) -> str:
    verdicts = {answer.verdict for answer in judged}
    if verdicts == {"nothing"}:
        return "Evenkeel would have changed nothing worth naming."
    alone, own = (_sum(getattr(answer, which) for answer in judged) for which in ("alone", "evenkeel"))
    usual = median(one.nodes for one in alone)
    more = _range([one.nodes - usual for one in own], _HOUR, ".1f")
    at_least = _at_least(judged)
    start = "With Evenkeel," if "changed" in verdicts else "Evenkeel may have changed nothing: with it,"
    return (
        f"{start} pods would have waited {at_least}{_range([one.waiting for one in own])} node-minutes instead "
        f"of {at_least}{_range([one.waiting for one in alone])} in the replay, with {more} more node-hours."
    )


def _sum(many: Iterable[tuple[Figures, ...]]) -> list[Figures]:
    """Return the sums over rows, guess by guess."""
    return [
        Figures(sum(one.waiting for one in same), sum(one.nodes for one in same)) for same in zip(*many, strict=True)
    ]


def _range(numbers: Sequence[float], unit: int = _MINUTE, form: str = ".0f") -> str:
    low, high = (f"{number / unit:{form}}" for number in (min(numbers), max(numbers)))
    return low if low == high else f"{low} to {high}"


def _answer_json(number: int, answer: Answer) -> dict[str, Any]:
    def figures(one: Figures) -> dict[str, float]:
        return {
            "waitingNodeMinutes": round(one.waiting / _MINUTE, 1),
            "nodeHours": round(one.nodes / _HOUR, 2),
        }

    return {
        "row": number,
        "from": _moment(answer.window.since),
        "to": _moment(answer.window.until),
        "pools": [*answer.window.pools],
        "outages": [_outage_json(outage) for outage in answer.window.outages],
        "happened": figures(answer.happened),
        "replay": [figures(one) for one in answer.alone],
        "evenkeel": [figures(one) for one in answer.evenkeel],
        "verdict": answer.verdict,
        "missing": [*answer.missing],
        "atMaxima": [*answer.full],
    }


def _outage_json(outage: Outage) -> dict[str, Any]:
    return {
        "pool": outage.pool,
        "zone": outage.zone or None,
        "class": outage.kind.value,
        "from": _moment(outage.since),
        "until": _moment(outage.last),
        "untilAtMost": None if outage.until is None else _moment(outage.until),
        "refused": outage.refused,
        "message": outage.text,
    }


def _orders_at_maximum(history: History) -> int:
    return sum(
        order.total >= group.bounds_at(order.at).max
        for group in history.groups
        for order in group.orders
        if order.at >= history.since
    )


def _boots(history: History) -> tuple[int, ...]:
    """Return the median and the 95th percentile of seconds until a node runs; empty: there is none."""
    launches = [launch for group in history.groups for launch in group.launches]
    times = [*history.provision] or sorted(
        launch.runs - launch.ordered for launch in launches if launch.ordered is not None
    )
    return (times[len(times) // 2], times[len(times) * 95 // 100]) if times else ()


def _off(replayed: float, seen: float) -> str:
    return f"{abs(replayed - seen) / max(seen, 1) * 100:.1f} %"


def _moment(at: int) -> str:
    return rfc3339(moment(at))
