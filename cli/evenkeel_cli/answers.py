"""Print the answers of a stack. Pools are printed as tables, other answers as their messages."""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import chain
from typing import Any

from rich.console import Console

from evenkeel.application.plan_documents import DecisionDocument, read_decisions
from evenkeel.domain.model.groups import State
from evenkeel.domain.model.incidents import Severity
from evenkeel.domain.model.outcomes import Result
from evenkeel.domain.model.values import printable
from evenkeel.texts.english import MOST_NAMED, ago, counted, rfc3339, some_names, without_request_ids
from evenkeel.texts.incidents import KIND_NAMES, outage_text
from evenkeel_cli.console import Table, cell, print_line, print_table, terminal
from evenkeel_cli.plan_tables import (
    NUMBERS,
    group_names,
    number_text,
    print_advice,
    print_plan,
    print_pool,
    print_problems,
    print_text,
    timeouts,
)
from evenkeel_cli.terminal import Output, say, say_document

_Json = Mapping[str, Any]
_SEVERITIES: Mapping[str, str] = {Severity.CRITICAL: "bold red", Severity.WARNING: "yellow", Severity.INFO: "cyan"}
# The most healthy pools that a status prints one by one, and the most pools that it prints as a table each.
_MOST_HEALTHY, _MOST_TABLES = 3, 10
_MOST_ROWS = 10  # the most rows of pools in alike states
_MOST_TEXTS = 10  # the most texts about one pool each that a status of more pools prints
_SEVERITY_WIDTH = max(map(len, Severity))
_OUTCOMES: Mapping[str, str] = {Result.WRITTEN: "changed", Result.PLANNED: "would change"}


def print_in_form(form: Output, answer: _Json, document: _Json) -> None:
    """Print an answer as ``-o`` says. The document is what programs get of it."""
    if form.is_document:
        say_document(document, form)
    elif form is Output.NAME:
        for name in _names(answer):
            say(name)
    else:
        print_answer(answer, terminal(form))


def _names(answer: _Json) -> Iterator[str]:
    """Yield the ids of an answer's clusters; for the status or plan of one cluster, the names of its node groups.

    For an explanation of all clusters, yield the ids of those with an incident.
    """
    if answer.get("action") == "explain" and "counts" in answer:
        yield from dict.fromkeys(incident["cluster"] for incident in answer["incidents"])
    elif "clusters" in answer:
        yield from (cluster["cluster"] for cluster in answer["clusters"])
        yield from chain.from_iterable((answer.get("others") or {}).values())
    elif pools := (answer.get("plan") or answer).get("pools"):
        yield from group_names(pools)
    elif "cluster" in answer:
        yield answer["cluster"]


def print_answer(answer: _Json, console: Console | None = None) -> None:
    """Print the answer of any action, one cluster after the other."""
    console = console or terminal()
    action = answer["action"]
    if "counts" in answer and action != "explain":
        _overview(console, answer)
        return
    if action == "history":
        _history(console, answer.get("clusters", [answer]))
        return
    answers, groups = answer.get("clusters", [answer]), alike(answer.get("clusters", ()))
    for line in groups.values():
        print_text(console, line)
    _causes_of_clusters(console, answer)
    for of_cluster in answers:
        if of_cluster.get("alike") in groups:
            continue
        if action != "plan" or not of_cluster.get("ok"):
            print_text(console, of_cluster["message"] if action != "explain" else "")
        match action if of_cluster.get("ok") else "":
            case "status":
                _status(console, of_cluster)
            case "plan":
                plan = of_cluster["plan"]
                ids = of_cluster.get("poolIds") or [pool["name"] for pool in plan["pools"]]  # not of an older stack
                print_plan(console, plan, ids, of_cluster["message"])
            case "explain":
                of_groups = chain.from_iterable(of_cluster["groups"].values())
                for sentence in (*of_cluster["sentences"], *of_groups, *of_cluster["history"]):
                    print_text(console, sentence)
            case "validate":
                _findings(console, of_cluster)


def alike(answers: Iterable[_Json]) -> dict[str, str]:
    """Return one line for each text that several clusters' answers share, by text.

    The line has the text and the names of these clusters.
    """
    names: dict[str, list[str]] = {}
    for answer in answers:
        if answer.get("ok") and (text := answer.get("alike")):
            names.setdefault(text, []).append(answer["cluster"])
    return {text: f"{text}: {', '.join(clusters)}" for text, clusters in names.items() if len(clusters) > 1}


def _overview(console: Console, answer: _Json) -> None:
    """Print an outage and the causes, then one line per other cluster with an incident, and one line for all others."""
    affected = [(cluster["cluster"], each) for cluster in answer["clusters"] for each in cluster.get("incidents", ())]
    affected.sort(key=lambda of_cluster: -of_cluster[1]["missing"])
    if out := [f"{cluster}/{each['pool'].rpartition('/')[2]}" for cluster, each in affected if each["outage"]]:
        print_text(console, outage_text(out), "bold red")
    _causes_of_clusters(console, answer)
    incidents = [cluster for cluster in answer["clusters"] if cluster["state"] == "incident"]
    failing = [cluster for cluster in incidents if not cluster.get("folded")]
    width = max((len(printable(cluster["cluster"])) for cluster in failing), default=0)
    width = min(width, console.width // 3)
    is_cut = False
    for cluster in failing:
        name = printable(cluster["cluster"])
        line = cell(name.ljust(width), "bold")
        severity = printable(cluster.get("severity", ""))
        line.append(f"  {severity:{_SEVERITY_WIDTH}}", style=_SEVERITIES.get(severity, ""))
        line.append(f"  {printable(cluster['message'])}", style="not bold default")
        if len(name) < console.width < line.cell_len:
            is_cut = True
            line.truncate(line.plain.rfind(" ", len(name), console.width - 1))
            line.append(" …")
        print_line(console, line)
    if is_cut:
        print_text(console, "evenkeel explain prints each message and what to do", "dim")
    counts, rest = answer["counts"], answer["counts"]["clusters"] - len(incidents)
    states = {"well": "well", "paused": "paused", "unseen": "not checked yet"}
    of_rest = [f"{counts[state]} {words}" for state, words in states.items() if counts[state]]
    dry = f"; {counts['dryRun']} of {counts['clusters']} in dry run" if counts["dryRun"] else ""
    if not counts["clusters"]:
        print_text(console, "no cluster is registered")
        return
    whose = "other" if incidents else "cluster"
    print_text(console, f"{counted(rest, whose)}: {', '.join(of_rest)}{dry}" if rest else f"no others{dry}")
    if (oldest := answer.get("oldestCheck")) is not None:
        age = ago(datetime.fromisoformat(answer["now"]) - datetime.fromisoformat(oldest["at"]))
        print_text(console, f"oldest check: {oldest['cluster']}, {age}")


def _causes_of_clusters(console: Console, answer: _Json) -> None:
    """Print the causes of an answer about several clusters."""
    for cause in answer.get("causes", ()) if "clusters" in answer else ():
        _cause(console, cause, cause["clusters"])


def _cause(console: Console, cause: _Json, names: Sequence[str]) -> None:
    """Print what several clusters or pools share, their names, and what to do. The line of the cause wraps."""
    line = cell(f"{cause['severity']:{_SEVERITY_WIDTH}}", _SEVERITIES.get(cause["severity"], ""))
    line.append(f"  {printable(cause['message'])}", style="bold default")
    print_line(console, line)
    print_text(console, f"  {some_names(names)}", "dim")
    print_text(console, f"  What to do: {cause['todo']}:")
    print_text(console, f"    {cause['command']}")  # alone on its line, so that it is copied as a whole


def _status(console: Console, answer: _Json) -> None:
    now = datetime.fromisoformat(answer["now"])
    for cause in answer.get("causes", ()):
        of_cause = [incident for incident in answer["incidents"] if incident.get("cause") == cause["title"]]
        _cause(console, cause, [incident["pool"].rpartition("/")[2] for incident in of_cause])
    _remedies(console, [incident for incident in answer["incidents"] if "cause" not in incident])
    _pools_of_status(console, answer, now)
    print_advice(console, answer, "demand")
    pools: dict[tuple[datetime, str], list[str]] = {}  # by time and decision
    for decision in read_decisions(answer["decisions"], "status"):
        changes = "; ".join(_outcomes(decision)) or "nothing changed"
        pools.setdefault((decision.at, f"{changes} ({decision.cause})"), []).append(decision.pool.name)
    for (at, text), names in pools.items():
        print_text(console, f"{rfc3339(at)} ({ago(now - at)}) {some_names(names)}: {text}", "dim")
    for action in answer["actions"]:
        age = ago(now - datetime.fromisoformat(action["at"]))
        print_text(console, f"{action['at']} ({age}) {_action(action)}", "dim")


def _remedies(console: Console, incidents: Iterable[_Json]) -> None:
    """Print what to do, once for all incidents with the same remedy, with their pools and missing nodes."""
    groups: dict[tuple[str, ...], list[_Json]] = {}
    for incident in incidents:
        remedy = tuple(incident[name] for name in ("severity", "kind", "todo", "runbook"))
        groups.setdefault(remedy, []).append(incident)
    for (severity, kind, todo, runbook), alike in groups.items():
        missing = sum(incident["missing"] for incident in alike)
        pools = some_names([incident["pool"].rpartition("/")[2] for incident in alike if incident["pool"]])
        what = f"{counted(missing)} missing" if missing else KIND_NAMES.get(kind, kind).replace("-", " ")
        line = cell(f"{severity:{_SEVERITY_WIDTH}}", _SEVERITIES.get(severity, ""))
        line.append(printable(f"  {what}{f': {pools}' if pools else ''}"), style="not bold default")
        print_line(console, line)
        print_text(console, f"  What to do ({runbook}): {todo}:")
        print_text(console, f"    {alike[0]['command']}")


def _history(console: Console, answers: Iterable[_Json]) -> None:
    """Print the actions of all clusters in order of time, and the error of each cluster that did not answer."""
    entries = [entry for answer in answers for entry in answer.get("actions", ())]
    for entry in sorted(entries, key=lambda entry: str(entry["id"])):
        print_text(console, f"{entry['at']} {entry['cluster']} {_action(entry)}")
    for answer in answers:
        if not answer.get("ok"):
            print_text(console, answer["message"], "red")
    if not entries:
        print_text(console, "no actions in this time")


def _action(entry: _Json) -> str:
    """Return an operator's action as text, with its caller, reason and effect."""
    reason = f" ({entry['reason']})" if entry.get("reason") else ""
    return f"{entry['cause']} by {entry['by'] or 'an unnamed caller'}{reason}: {entry['what']}"


def _outcomes(decision: DecisionDocument) -> Iterator[str]:
    """Yield a text for each outcome of a decision, with the groups that have this outcome."""
    names: dict[str, list[str]] = {}
    for group in decision.pool.groups:
        if not group.is_left_alone:
            outcome = _OUTCOMES.get(group.result or "", group.outcome or "")
            names.setdefault(outcome, []).append(group.name)
    for change in decision.fixed or ():
        outcome = _OUTCOMES.get(change.result or "", change.outcome)
        names.setdefault(outcome, []).append(f"PoolMaximum of {change.object}")
    for outcome, changed in names.items():
        yield f"{', '.join(changed)} {outcome}"


def _pools_of_status(console: Console, answer: _Json, now: datetime) -> None:
    """Print pools; many healthy ones as one line, many others as one table. A text of several pools is printed once."""
    pools, left_out = answer["pools"], answer.get("healthy") or {}
    healthy = [pool for pool in pools if pool.get("healthy")]
    folded = healthy if len(healthy) > _MOST_HEALTHY else []
    shown = [pool for pool in pools if pool not in folded]
    texts = [_texts(pool) for pool in shown]
    counts = Counter(text for of_pool in texts for text in of_pool)
    own = [[text for text in of_pool if counts[text] == 1] for of_pool in texts]
    if len(shown) > _MOST_TABLES:
        _one_line_each(console, shown, answer["incidents"])
        _own_texts(console, shown, own)
    else:
        for pool, of_pool in zip(shown, own, strict=True):
            _table_of_status(console, pool, now)
            for text in of_pool:
                print_text(console, f"  {text}")
            print_problems(console, pool)
    for text, count in counts.items():
        if count > 1:
            names = [pool["name"] for pool, of_pool in zip(shown, texts, strict=True) if text in of_pool]
            print_text(console, f"  {some_names(names) if count <= MOST_NAMED else counted(count, 'pool')}: {text}")
    count = len(folded) + left_out.get("pools", 0)
    nodes = sum(group["running"] for pool in folded for group in pool["groups"]) + left_out.get("nodes", 0)
    if count:
        print_text(console, f"{counted(count, 'healthy pool')}, {counted(nodes)}", "green")


def _texts(pool: _Json) -> list[str]:
    """Return the notes of a pool, what holds its groups, and the cloud's messages; a text of several zones once."""
    zones: dict[str, list[str]] = {}
    for group in pool["groups"]:
        failure = group.get("failure") if group["state"] != State.HEALTHY else None
        message = without_request_ids(failure["message"]) if failure else ""
        said = [f"the cloud says: {message}"] if message else []
        for text in dict.fromkeys((*group.get("held", ()), *said)):
            zones.setdefault(text, []).append(group["zone"] or "?")
    notes = [f"note: {note}" for note in pool.get("notes", ())]
    notes += timeouts(pool)
    return [*notes, *(f"{', '.join(dict.fromkeys(named))}: {text}" for text, named in zones.items())]


def _table_of_status(console: Console, pool: _Json, now: datetime) -> None:
    groups = pool["groups"]
    since = [group["since"] and ago(now - datetime.fromisoformat(group["since"])) for group in groups]
    columns = {
        "since": [age or "" for age in since],
        "running": [str(group["running"]) for group in groups],
    }
    print_pool(console, pool, pool["name"], columns)


def _own_texts(console: Console, pools: Sequence[_Json], texts: Sequence[Sequence[str]]) -> None:
    """Print the first texts of pools that are about one pool each, the number of further texts, and all problems."""
    lines = [f"  {pool['name']}: {text}" for pool, of_pool in zip(pools, texts, strict=True) for text in of_pool]
    for line in lines[:_MOST_TEXTS]:
        print_text(console, line)
    if more := lines[_MOST_TEXTS:]:
        print_text(console, f"  {counted(len(more), 'more note')}: --pool NAME prints those of a pool", "dim")
    for pool in pools:
        print_problems(console, pool)


def _one_line_each(console: Console, pools: Iterable[_Json], incidents: Iterable[_Json]) -> None:
    """Print a table of pools, first those with the most missing nodes. Of pools in alike states, many are one row."""
    missing = {key: incident["missing"] for incident in incidents for key in incident["groups"] if incident["missing"]}

    def lacking(pool: _Json) -> int:
        return max((missing.get(_key(group), 0) for group in pool["groups"]), default=0)

    rows = Table(("pool", "nodes", "min", "max", "not healthy"), right=NUMBERS)
    by_states: dict[str, list[_Json]] = {}
    for pool in sorted(pools, key=lacking, reverse=True):
        by_states.setdefault(_states(pool), []).append(pool)
    for states, of_states in by_states.items():
        for pool in of_states[:_MOST_ROWS]:
            numbers = (number_text(pool[name]) for name in ("min", "max"))
            rows.add_row(pool["name"], _running([pool], lacking(pool)), *numbers, cell(states, "yellow"))
        if more := of_states[_MOST_ROWS:]:
            nodes = _running(more, sum(map(lacking, more)))
            rows.add_row(f"{len(more)} more", nodes, "", "", cell(states, "yellow"))
    print_table(console, rows)


def _states(pool: _Json) -> str:
    """Return the zones of a pool that are not healthy, with their states."""
    states = [f"{group['zone'] or '?'} {group['state']}" for group in pool["groups"] if group["state"] != State.HEALTHY]
    return ", ".join(states) or ("" if pool["valid"] else "invalid")


def _running(pools: Iterable[_Json], lacking: int) -> str:
    """Return how many nodes run of how many, and how many are missing."""
    nodes = [_nodes(group) for pool in pools for group in pool["groups"]]
    running, requested = sum(node for node, _ in nodes), sum(wanted for _, wanted in nodes)
    return f"{running} of {max(requested, running + lacking)}{f', {lacking} missing' if lacking else ''}"


def _key(group: _Json) -> str:
    return f"{group['flavour']}/{group['namespace']}/{group['name']}"


def _nodes(group: _Json) -> tuple[int, int]:
    return group["running"], group["requested"]["from"] or 0


def _findings(console: Console, answer: _Json) -> None:
    for pool in answer["pools"]:
        for problem in pool["problems"]:
            print_text(console, f"invalid: {pool['id']}: {problem}", "red")
        for warning in pool["warnings"]:
            print_text(console, f"! {pool['id']}: {warning}", "yellow")
        if pool["left"]:
            print_text(console, f"  not proposed: {pool['left']}")
    for line in answer["diff"]:
        print_text(console, line, {"+": "green", "-": "red"}.get(line[0], ""))
    for command in answer.get("commands", ()):
        print_text(console, command)
