"""Fill the templates of reasons and problems, and write numbers, times and lists as English.

The templates are the JSON files of this folder. A template is a sentence with facts in braces:

- ``{zone}``: the fact ``zone``. A list is joined by commas, a time is in RFC 3339, a reason becomes its own sentence.
- ``{count:replica}``: a number with its noun, "1 replica" or "2 replicas".
- ``{pods:pod waits/pods wait}``: the same, with the plural in the template.
- ``{names:quoted}``: the list with quoted names.
- ``{names:and}``, ``{names:;}``: the list, joined by "and" or by semicolons.
- ``[ until {until}| for good]``: the part before the bar if all its facts are set and not 0, else the part after
  the bar.
- ``{fact:?}``: an empty text. In brackets, it makes the part before the bar depend on this fact.

The templates use the words of Kubernetes. The section ``words`` has the words of a flavour that replace them.

The program never parses these sentences, so a changed template affects only what people read.
"""

import json
import re
import string
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from pathlib import Path
from typing import Any

from evenkeel.domain.model.moves import FOR_PODS, UNNEEDED_NODES
from evenkeel.domain.model.outcomes import Outcome
from evenkeel.domain.model.problems import Problem
from evenkeel.domain.model.reasons import Fact, Reason
from evenkeel.domain.model.values import quote

Facts = Mapping[str, Fact]

# The most names in a list. A pool may have thousands of members.
MOST_NAMED = 12
_REQUEST_ID = re.compile(r"\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b", re.IGNORECASE)
_OPTIONAL = re.compile(r"\[([^]|]*)(?:\|([^]]*))?\]")


def rfc3339(at: datetime) -> str:
    """Return a time as Kubernetes writes it: UTC, whole seconds, Z."""
    return at.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def clock_text(skew: timedelta) -> str:
    """Return how far an API server's clock is from Evenkeel's; empty if they agree."""
    minutes = round(abs(skew).total_seconds() / 60, 1)
    return f"is {minutes:g} min {'ahead of' if skew > timedelta(0) else 'behind'} ours" if skew else ""


def ago(length: timedelta) -> str:
    """Return how long ago something was, in its largest unit."""
    seconds = int(length.total_seconds())
    for unit, size in (("day", 86400), ("hour", 3600), ("minute", 60)):
        if seconds >= size:
            return f"{counted(seconds // size, unit)} ago"
    return "just now"


def lasting(length: timedelta) -> str:
    """Return how long something lasts, in its largest unit."""
    for unit, size in (("days", timedelta(days=1)), ("h", timedelta(hours=1))):
        if length >= 2 * size:
            return f"for {length // size} {unit}"
    return f"for {max(0, length // timedelta(minutes=1))} min"


def duration(seconds: float) -> str:
    """Return a length of time in its two largest units: 45 s, 12 min, 2 h 05 min, 3 d 4 h."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes_left = divmod(minutes, 60)
    days, hours_left = divmod(hours, 24)
    if days:
        return f"{days} d {hours_left} h" if hours_left else f"{days} d"
    if hours:
        return f"{hours} h {minutes_left:02} min" if minutes_left else f"{hours} h"
    if minutes:
        return f"{minutes} min {rest:02} s" if rest else f"{minutes} min"
    return f"{rest} s"


def some_names(names: Sequence[str]) -> str:
    """Return the first names as text, and the number of further names."""
    return ", ".join(names[:MOST_NAMED]) + (f" and {len(names) - MOST_NAMED} more" if len(names) > MOST_NAMED else "")


def unknown_text(clusters: Sequence[str]) -> str:
    """Return the warning about clusters whose labels are unknown because their records cannot be read."""
    return f"left out, since their labels cannot be read: {some_names(clusters)}"


def counted(number: int, noun: str = "node", plural: str = "") -> str:
    """Return a number without its sign, and the noun in the singular or plural."""
    return f"{abs(number)} {noun if abs(number) == 1 else plural or f'{noun}s'}"


def without_request_ids(text: str) -> str:
    """Return a cloud's message without request ids, so that alike messages are equal."""
    return _REQUEST_ID.sub("…", text)


@cache
def texts() -> Mapping[str, Mapping[str, Any]]:
    """Return the templates of all capabilities by section, such as ``rules``. The files are read only once."""
    sections: dict[str, dict[str, Any]] = {}
    for path in sorted(Path(__file__).parent.glob("*.json")):
        for section, entries in json.loads(path.read_text(encoding="utf-8")).items():
            sections.setdefault(section, {}).update(entries)
    return sections


@cache
def in_words(template: str, flavour: str) -> str:
    """Return a template in the words of a flavour: a tag instead of an annotation, for example."""
    words: Mapping[str, str] = texts()["words"].get(flavour, {})
    if not words:
        return template
    any_word = "|".join(map(re.escape, words))
    return re.sub(rf"(?<![\w./{{-])(?:{any_word})(?![\w/-])", lambda found: words[found[0]], template)


def sentence(reason: Reason, flavour: str = "") -> str:
    """Return the sentence of a reason, without a full stop, in the words of a flavour."""
    return fill(texts()["rules"][reason.rule.value], reason.facts, flavour)


def sentences(reasons: Iterable[Reason], flavour: str = "") -> list[str]:
    """Return the sentence of each reason."""
    return [sentence(reason, flavour) for reason in reasons]


def problem_text(problem: Problem, flavour: str = "") -> str:
    """Return the sentence of a problem, without a full stop, in the words of a flavour."""
    return fill(texts()["problems"][problem.kind.value], problem.facts, flavour)


def outcome_text(outcome: Outcome) -> str:
    """Return the result of a write, with its detail, such as a refusal of the API server."""
    return f"{outcome.result.value}: {outcome.detail}" if outcome.detail else outcome.result.value


def fill(template: str, facts: Facts, flavour: str = "") -> str:
    """Return a template with its facts filled in, in the words of a flavour. The facts keep their words.

    Raises KeyError if the template names a fact that is neither given nor derived.
    """
    return "".join(
        _write(text if all(_has(facts, name) for name in needed) else otherwise, facts, flavour)
        for text, needed, otherwise in _parts(in_words(template, flavour) if flavour else template)
    )


def fact_names(template: str) -> set[str]:
    """Return the names of the facts and derived facts that a template uses."""
    return {name for _, name, _, _ in string.Formatter().parse(template) if name}


@cache
def _parts(template: str) -> tuple[tuple[str, frozenset[str], str], ...]:
    """Return the parts of a template, each with the facts that it needs and the text to use if a fact is missing."""
    parts, end = [], 0
    for match in _OPTIONAL.finditer(template):
        parts.append((template[end : match.start()], frozenset[str](), ""))
        parts.append((match[1], frozenset(fact_names(match[1])), match[2] or ""))
        end = match.end()
    return (*parts, (template[end:], frozenset(), ""))


def _write(text: str, facts: Facts, flavour: str) -> str:
    return "".join(
        [before + form(_fact(facts, name), flavour) if name else before for before, name, form in _fields(text)]
    )


@cache
def _fields(text: str) -> tuple[tuple[str, str, Callable[[Fact, str], str]], ...]:
    """Return the facts of a text: the literal before each fact, its name, and the function that formats it."""
    return tuple(
        (before, name or "", _FORMS.get(form or "", partial(_counted, form=form or "")))
        for before, name, form, _ in string.Formatter().parse(text)
    )


def _fact(facts: Facts, name: str) -> Fact:
    return facts[name] if name in facts else DERIVED[name](facts)


def _has(facts: Facts, name: str) -> bool:
    """Return True if the fact is set, and neither empty nor 0."""
    return (name in facts or name in DERIVED) and bool(_fact(facts, name))


def _counted(fact: Fact, _flavour: str, *, form: str) -> str:
    return counted(int(str(fact)), *form.split("/"))


def _shown(fact: Fact, flavour: str = "") -> str:
    if isinstance(fact, Reason):
        return sentence(fact, flavour)
    if isinstance(fact, datetime):
        return rfc3339(fact)
    return ", ".join(_list(fact, flavour)) if isinstance(fact, tuple) else str(fact)


def _list(fact: Fact, flavour: str = "") -> list[str]:
    return [_shown(part, flavour) for part in fact] if isinstance(fact, tuple) else []


def _quoted(fact: Fact, _flavour: str) -> str:
    return ", ".join(quote(name) for name in fact) if isinstance(fact, tuple) else quote(fact)


_FORMS: Mapping[str, Callable[[Fact, str], str]] = {
    "": _shown,
    "?": lambda _, __: "",
    "quoted": _quoted,
    "and": lambda fact, flavour: " and ".join(_list(fact, flavour)),
    ";": lambda fact, flavour: "; ".join(_list(fact, flavour)),
    "length": lambda fact, _: duration(int(str(fact))),
}


def _number(facts: Facts, name: str) -> int:
    return int(str(facts[name]))


def _request(facts: Facts) -> str:
    """Return the phrase that names a scale request within other sentences."""
    own = {FOR_PODS: "for-pods", UNNEEDED_NODES: "unneeded"}.get(str(facts["request"]))
    phrase = own or ("scale-up" if _number(facts, "nodes") >= 0 else "scale-down")
    return fill(texts()["phrases"][phrase], facts)


def _remedy(facts: Facts) -> str:
    remedies = texts()["remedies"]
    return fill(remedies.get(str(facts["manager"]), remedies["other"]), facts)


def _pending(facts: Facts) -> str:
    """Return the pods that a problem names, the number of further pods, and the verb "waits" or "wait"."""
    names, count = _list(facts["pods"]), _number(facts, "count")
    more = f" and {count - len(names)} more" if count > len(names) else ""
    return f"{', '.join(names)}{more} {'waits' if count == 1 else 'wait'}"


def _daemon_sets(facts: Facts) -> str:
    claims = zip(_list(facts["daemons"]), _list(facts["claims"]), strict=True)
    return ", ".join(f"{name} ({claim})" if claim else name for name, claim in claims)


def _sizing(facts: Facts) -> str:
    """Return the sentence with which the pool's strategy explains the sizes."""
    from evenkeel.domain.rebalancing.bounds.strategies import STRATEGIES  # with the classes of a plan

    template = next(strategy.sentence for strategy in STRATEGIES if strategy.name == facts["strategy"])
    return fill(template, facts)


# Facts that templates may name in addition to the facts of their rule. They are derived from the rule's facts.
DERIVED: Mapping[str, Callable[[Facts], Fact]] = {
    "what": _request,
    "removes": lambda facts: int(_number(facts, "nodes") < 0),
    "remedy": _remedy,
    "waiting": _pending,
    "daemon_sets": _daemon_sets,
    "several": lambda facts: int(_number(facts, "pods") > 1),
    "sizing": _sizing,
}
