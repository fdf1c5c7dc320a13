"""Write the reference and the schemas from the code, and the page of the runbooks: ``python docs/generate.py``."""

import ast
import json
import re
import textwrap
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from enum import Enum
from fractions import Fraction
from functools import cache, partial
from html import escape
from inspect import Parameter, getsource, signature
from itertools import pairwise
from os.path import relpath
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, get_args, get_origin

from markdown_it import MarkdownIt
from markdown_it.token import Token
from pydantic import BaseModel, TypeAdapter
from typer import Typer
from typer.models import ArgumentInfo

from evenkeel import record
from evenkeel.application.actions.table import ACTIONS
from evenkeel.application.fleet.records import fleet_schema, record_schema
from evenkeel.application.plan_documents import DecisionDocument, PlanDocument
from evenkeel.domain.demand.simulation import Simulation
from evenkeel.domain.model.demand import DemandPolicy, GroupOffer, PoolOffer
from evenkeel.domain.model.groups import GroupKey, PoolId
from evenkeel.domain.model.templates import NodeTemplate
from evenkeel.domain.model.values import LARGEST_COUNT
from evenkeel.domain.model.workload import HOSTNAME, ZONE, Container, Needs, Node, Owner, Pod, Resources, Workload
from evenkeel.domain.survival.counts import Share, fewest
from evenkeel.domain.survival.pods import needs_of
from evenkeel.domain.survival.zone_loss import guard_zones
from evenkeel.record import Registration
from evenkeel.validation import Strict
from evenkeel_cli.main import app

REFERENCE = Path(__file__).resolve().parent / "reference"
COST = "../operate/cost.md"  # of which only the table of survival is written
FIGURES = "../design/figures.md"  # of which only the values that bench/figures.json has are written
RUNBOOKS = "../operate/runbooks.md"
PAGE_OF_RUNBOOKS = "../../layers/evenkeel/evenkeel/adapters/page/templates/runbooks.html"
_SHARED_BY = 2  # an option that so many commands have alike is in the list of shared options

_CLI = """# Command line

After this page you know each command of `evenkeel` and its options. `docs/generate.py` writes it from the code.

`evenkeel COMMAND --help` prints the same text. Options with `=` take a value; `…` means that you can repeat them.
As a plug-in of kubectl: `kubectl evenkeel COMMAND`. Exit codes: [errors.md](errors.md#on-the-command-line).
`evenkeel --version` prints the version. `evenkeel --install-completion` installs completion for your shell.
"""

_RECORD = """# Cluster record

After this page you can write a cluster's record. `docs/generate.py` writes it from the code.

Register a record with `evenkeel register --stack NAME --cluster ID --record FILE`, or keep many in
[fleet files](../guides/fleet.md). `evenkeel plan --record FILE` reads the same file.
The [schema](schemas/record.schema.json) has the patterns of all texts. Bad values: [errors.md](errors.md).

An [annotation](annotations.md) on a node group overrides a `pools` entry, and that overrides the field of the cluster.
A boolean is `false` unless its default is given. An object with `kind` has a section for each kind.

The shortest record, with a kubeconfig in Secrets Manager:

```json record
{"flavours": ["gardener"], "access": {"kind": "kubeconfig", "secret": "evenkeel/seed-1"}}
```

A record with every field that you can set:

```json record
{
  "flavours": ["cluster-api", "gardener"], "namespaces": ["prod"],
  "access": {"kind": "eks", "name": "management", "region": "eu-central-1"},
  "discovery": ["clusterapi:namespace=prod,clusterName=blue"],
  "dry_run": true, "scan_interval": "auto", "strategy": "Balanced", "on_failure": "release", "level": "off",
  "converge": {"per_hour": 4, "windows": ["Mon-Fri 22:00-05:00", "Sat,Sun 00:00-24:00"], "surge": 0, "blind": false},
  "autoscaler": "cluster-autoscaler", "autoscaler_loop": 10, "autoscaler_status": "kube-system",
  "demand": "advise", "expander": "order", "expander_order": ["workers", "gpu"], "max_step": 20,
  "ignored_taints": ["recycle"],
  "survive_zones": "1",
  "minimum_at": [{"days": ["Mon-Fri"], "from": "08:00", "until": "10:00", "time_zone": "Europe/Berlin", "min": 12}],
  "workload": {"access": {"kind": "secret", "namespace": "prod", "name": "blue-kubeconfig"}, "most_nodes": 1000},
  "backoff": {"initial": 300, "longest": 1800, "forget_after": 10800},
  "provision_timeout": "auto",
  "write_topology": false, "fix_owners": false, "node_pool_fence": false,
  "region": "eu-central-1", "zone_ids": {"euc1-az2": "eu-central-1a", "euc1-az3": "eu-central-1b"},
  "names": ["blue-management"], "event_accounts": ["123456789012"], "account": "123456789012",
  "trouble_after": 300, "metrics": "cluster", "labels": {"env": "prod", "team": "data"},
  "dry_run_events": true, "status_configmap": "evenkeel/evenkeel-status",
  "shoot_relief": {"garden": {"kind": "kubeconfig", "secret": "evenkeel/garden"}},
  "pools": [
    {"name": "workers", "min": 3, "max": 12},
    {"name": "gpu", "namespace": "prod", "selector": {"role": "gpu"}, "max": 6, "strategy": "Adaptive"}
  ]
}
```
"""


def pages() -> dict[str, Callable[[], str]]:
    """Return what makes each generated page, by the path below docs/reference."""
    schemas: dict[str, Callable[[], Mapping[str, Any]]] = {
        "record": record_schema,
        "fleet": fleet_schema,
        "decision": lambda: _schema(DecisionDocument),
        "plan": lambda: _schema(PlanDocument),
    }
    return {
        "cli.md": _cli,
        "record.md": _record,
        COST: _cost,
        FIGURES: _figures,
        PAGE_OF_RUNBOOKS: _runbooks,
        **{f"schemas/{name}.schema.json": partial(_json, schema) for name, schema in schemas.items()},
    }


def main() -> None:
    """Write the pages."""
    for name, page in pages().items():
        (REFERENCE / name).write_text(page(), encoding="utf-8")


def _schema(document: Any) -> Mapping[str, Any]:
    schema = TypeAdapter(document).json_schema(by_alias=True, mode="serialization")
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", **schema}


def _json(schema: Callable[[], Mapping[str, Any]]) -> str:
    return json.dumps(schema(), indent=1) + "\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [head, ["--"] * len(head), *([cell.replace("|", "\\|") for cell in row] for row in rows)]
    return "\n".join(f"| {' | '.join(line)} |".replace("|  |", "| |").replace("| -- ", "|--") for line in lines)


# --- The figures of bench/figures.json


def _figures() -> str:
    """Return the page of figures. The lines about what bench/figures.json has get its values."""
    kept = json.loads((REFERENCE.parents[1] / "bench" / "figures.json").read_text(encoding="utf-8"))

    def value(name: str, unit: str = "cpu_ms") -> str:
        number = kept[name][unit]
        return f"{number:.1f}" if number < 100 else f"{number:,.0f}"

    def seconds(name: str) -> str:
        return f"{kept[name]['cpu_s']:.2g} s"

    cells = {
        "read 300 Auto Scaling groups, quick and full": f"{kept['full auto-scaling 300']['calls']} calls; processor "
        f"{value('quick auto-scaling 300')} ms and {value('full auto-scaling 300')} ms; of managed node groups "
        f"{kept['full managed node groups 300']['eks_calls']} calls of EKS in a full check",
        "one tick of `scan`, 10,000 clusters": f"{kept['scan 10000']['cpu']:.2f} s of processor",
        "checks of 10,000 clusters, all connections new": f"{10 * kept['minute 10000']['cpu_ms']:.0f} s of processor",
        "read 5,000 nodes, 150,000 pods": f"{value('workload view 5000 150000', 'cpu_s')} s",
        "judge them": f"{value('workload view 5000 150000', 'advice_cpu_s')} s",
        "a group, of 300; of 30,000": "; ".join(
            f"{kept[f'plan quiet, {pools} pools']['µs per group']:.0f} µs" for pools in (100, 10_000)
        ),
        "5,000 pods of 500 groups, 3 pools": seconds("5000 pods of 500 kinds, 3 pools, no kind spread over zones"),
        "50 pools; every tenth group spread over zones; a mix of rules about other pods; all spread": "; ".join(
            seconds(f"5000 pods of 500 kinds, 50 pools, {kinds}")
            for kinds in (
                "no kind spread over zones",
                "every tenth kind spread over zones",
                "a mix",
                "every kind spread over zones",
            )
        ),
        "300 groups, 1,000 nodes, 30,000 pods, next to cluster-autoscaler; with `demand: full`": "; ".join(
            seconds(f"forecast 300 groups, 1000 nodes, 30000 pods, {autoscaler}")
            for autoscaler in ("next to cluster-autoscaler", "demand: full")
        ),
    }
    for groups, chunk in ((3, 50), (30, 50), (300, 50), (3_000, 1)):
        checks = [f"{check} {way} {groups} {chunk}" for check in ("quick", "full") for way in ("kept", "met anew")]
        most = max(kept[check]["peak_mib"] for check in checks)
        cells[f"{groups:,}"] = " | ".join([*map(value, checks), f"{most:.0f} MiB"])
    page = (REFERENCE / FIGURES).read_text(encoding="utf-8")
    for measured, cell in cells.items():
        page, found = re.subn(rf"(?m)^(\| (?:[^|]+ \| )?{re.escape(measured)} \| ).+ \|$", rf"\g<1>{cell} |", page)
        assert found == 1, measured
    return page


# --- The runbooks on the status page


def _runbooks() -> str:
    """Return the runbooks as HTML below the page's own heading. A link to another page of docs/ becomes its path."""
    markdown = MarkdownIt().enable("table")
    source = (REFERENCE / RUNBOOKS).read_text(encoding="utf-8").removeprefix("# Runbooks\n")
    tokens, heading = list[Token](), ""
    for before, token in pairwise([Token("", "", 0), *markdown.parse(source), Token("", "", 0)]):
        if before.type == "heading_open":
            heading = token.content
            before.attrSet("id", _anchor(heading).removeprefix("#"))
        if token.type.startswith("heading"):
            token.tag = f"h{int(token.tag[1]) + 1}"
        if token.type == "th_open":
            token.attrSet("scope", "col")
        if token.children:
            token.children = list(_without_files(token.children))
        if token.type == "table_open":
            region = f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(heading)}">'
            tokens.append(Token("html_block", "", 0, content=f"{region}\n"))
        tokens += [token] if token.type else []
        if token.type == "table_close":
            tokens.append(Token("html_block", "", 0, content="</div>\n"))
    return str(markdown.renderer.render(tokens, markdown.options, {}))


def _without_files(inline: Sequence[Token]) -> Iterator[Token]:
    """Yield the parts of a text. The file of a link follows the link's text."""
    file = ""
    for token in inline:
        place = str(token.attrGet("href") or "")
        if place and not place.startswith(("#", "https:")):
            file = relpath(REFERENCE / RUNBOOKS / ".." / place, REFERENCE.parents[1])
        elif token.type == "link_close" and file:
            yield Token("text", "", 0, content=f" ({file})")
            file = ""
        else:
            yield token


# --- The cost of survival

_LEVEL_NODES = 12  # divisible by the numbers of zones
_PER_NODE = 10  # pods on a full node


def _cost() -> str:
    """Return the page about costs with the nodes that survive the loss of a zone."""
    zones = (2, 3, 4)
    rows = [
        [f"PoolMinimum {minimum}", *(_survive_by_minimum(minimum, count) for count in zones)]
        for minimum in (3, 6, 12, 24)
    ]
    rows += [
        [
            f"pods: {_LEVEL_NODES} nodes, {used * 100 // _PER_NODE}% used",
            *(_survive_by_pods(used, count) for count in zones),
        ]
        for used in (5, 6, 7, 8, 9, 10)
    ]
    table = _table(["nodes with `survive-zones`", *(f"{count} zones" for count in zones)], rows)
    before, heading, after = (REFERENCE / COST).read_text(encoding="utf-8").partition("## Surviving a zone\n")
    text, _, rest = after.partition("\n| ")
    return f"{before}{heading}{text}\n{table}\n\n{rest.partition(chr(10) * 2)[2]}"


def _survive_by_minimum(minimum: int, zones: int) -> str:
    """Return the nodes of a pool without a workload view, and how many more than PoolMinimum they are."""
    nodes = fewest([Share(zone=str(zone), least=0, most=LARGEST_COUNT) for zone in range(zones)], minimum)
    assert nodes is not None  # the zones have no limits
    return f"{sum(nodes)} (+{sum(nodes) - minimum})"


def _survive_by_pods(used: int, zones: int) -> str:
    """Return the nodes that the pods of a pool need, if each of its level nodes has ``used`` pods."""
    size = {"cpu": Fraction(_PER_NODE), "memory": Fraction(2**40), "pods": Fraction(110)}
    needs = Needs(resources=Resources(containers=(Container(requests={"cpu": Fraction(1)}),)))
    moment, nodes, pods, groups = datetime(2026, 1, 1, tzinfo=UTC), [], [], []
    for zone in map(str, range(zones)):
        key = GroupKey("cluster-api", "default", zone)
        template = NodeTemplate(capacity=size, allocatable=size, labels={ZONE: zone})
        count = _LEVEL_NODES // zones
        groups.append(GroupOffer(group=key, zone=zone, template=template, room=100, requested=count))
        for name in (f"{zone}-{number}" for number in range(count)):
            labels = {ZONE: zone, HOSTNAME: name}
            nodes.append(Node(name=name, labels=labels, capacity=size, allocatable=size, group=key, created_at=moment))
            owner = Owner("ReplicaSet", "web")
            pods += [
                Pod(
                    namespace="default",
                    name=f"{name}-{i}",
                    created_at=moment,
                    needs=needs,
                    node=name,
                    owner=owner,
                    phase="Running",
                )
                for i in range(used)
            ]
    pool = PoolOffer(pool=PoolId.read("cluster-api/default/workers"), groups=tuple(groups), room=100, guard=guard_zones)
    simulation = Simulation(Workload(nodes=tuple(nodes), pods=tuple(pods)), [pool], DemandPolicy(), moment)
    more = needs_of(simulation, [pool])[pool.pool].missing.total()
    return f"{_LEVEL_NODES + more} (+{more})"


# --- The command line

_Row = tuple[str, ...]
_REQUIRED = "Required."
_CLUSTER = "The cluster's id in its record."


def _cli() -> str:
    commands = dict(_commands(app))
    rows = {
        name: [_option(name, param) for param in signature(call).parameters.values()] for name, call in commands.items()
    }
    uses = Counter(row for options in rows.values() for row in options)
    shared = [row for row in uses if uses[row] >= _SHARED_BY and row == _most_used(row[0], uses)]
    parts = [_CLI, "## Options that commands share\n", *_list(shared), ""]
    for name, command in commands.items():
        own = [row for row in rows[name] if row not in shared]
        others = [row[0].rpartition(", ")[2].partition("=")[0].strip("`") for row in rows[name] if row in shared]
        parts += [f"## {name}\n", _plain((command.__doc__ or "").partition("\n\n")[0]), ""]
        parts += [*_list(own), ""] if own else []
        parts += [f"Shared: {', '.join(f'`{other}`' for other in others)}.", ""] if others else []
    return "\n".join(parts)


def _list(rows: Sequence[_Row]) -> list[str]:
    return [f"- {option}: {description}" for option, description in rows]


def _commands(group: Typer, before: str = "") -> Iterator[tuple[str, Callable[..., Any]]]:
    """Yield the functions of the commands of a group and of its groups, each with its full name."""
    for command in group.registered_commands:
        if command.callback is not None:
            yield before + (command.name or command.callback.__name__.replace("_", "-")), command.callback
    for inner in group.registered_groups:
        if inner.typer_instance is not None:
            yield from _commands(inner.typer_instance, f"{before}{inner.name} ")


def _most_used(name: str, uses: Mapping[_Row, int]) -> _Row:
    return max((row for row in uses if row[0] == name), key=uses.__getitem__)


def _option(command: str, param: Parameter) -> _Row:
    """Return the row of an option or argument."""
    form, info = get_args(param.annotation)[:2]
    # The first name of an annotated option is where typer has the default of another form.
    names = tuple(part for part in (info.default, *(info.param_decls or ())) if isinstance(part, str))
    names = names or (f"--{param.name.replace('_', '-')}",)
    if isinstance(info, ArgumentInfo):
        names = (param.name.upper(),)
    argument = isinstance(info, ArgumentInfo)
    shown = ", ".join(f"`{name}`" for name in names[:-1]) + ", " * (len(names) > 1)
    shown += f"`{names[-1]}{'' if argument else _values(form)}`"
    help = info.help or ""
    default = _option_default(command, param, names[-1])
    if info.envvar:
        default = f"{default.rstrip('.')}{', or' if default else 'Or'} `{info.envvar}`."
    if "--cluster" in names and default in ("", _REQUIRED) and help == _CLUSTER:
        default = _REQUIRED.replace(".", ", unless --all or --selector is given.")
    return shown, f"{help} {default}".strip() if "default:" not in help or info.envvar else help


def _values(form: Any) -> str:
    """Return what an option takes, after its name: nothing for a flag."""
    forms = [part for part in get_args(form) if part is not NoneType] if isinstance(form, UnionType) else [form]
    many = get_origin(forms[0]) is list
    kind = get_args(forms[0])[0] if many else forms[0]
    words = {bool: "", int: "=N", float: "=N"}.get(kind, "=")
    if isinstance(kind, type) and issubclass(kind, Enum):
        words = "=" + ",".join(str(choice.value) for choice in kind)
    return f"{words}…" if many else words


def _option_default(command: str, param: Parameter, option: str) -> str:
    """Return the option's default; if it has none, that of the action's field."""
    default = param.default
    if default is Parameter.empty:
        return _REQUIRED
    if default is None and command in ACTIONS:
        fields = ACTIONS[command].fields
        name = fields.names().get(option.removeprefix("--").replace("-", "_"))
        default = None if name is None else fields.model_fields[name].get_default(call_default_factory=True)
    if default in (None, "", False) or default == ():
        return ""
    if default is True:
        return "Default: on."
    return f"Default: `{_length(default) if isinstance(default, timedelta) else getattr(default, 'value', default)}`."


def _length(length: timedelta) -> str:
    """Return a duration as commands take it."""
    units = {"d": timedelta(days=1), "h": timedelta(hours=1), "m": timedelta(minutes=1)}
    return next(f"{length // size}{unit}" for unit, size in units.items() if not length % size)


# --- The record

_ACTIONS_SET = (
    "Operator actions set these fields, which the schema describes. A new record that omits them keeps them: {}."
)
_CONTROL = "ControlFields"
_SECTIONS = {
    "StackFields": "Access, account and schedule",
    "SizingFields": "Node groups and strategy",
    "DemandFields": "Autoscaler and demand",
    "ClusterFields": "Capabilities",
    "WriteFields": "Pools and writes",
    _CONTROL: "Fields that actions set",
}


def _record() -> str:
    bases = {base.__name__: base for base in Registration.__mro__}
    parts, nested = [_RECORD], dict[type[BaseModel], str]()
    for base, title in _SECTIONS.items():
        names = [name for name in Registration.model_fields if name in bases[base].model_fields]
        if base == _CONTROL:
            lead = textwrap.fill(_ACTIONS_SET.format(", ".join(f"`{name}`" for name in names)), 120)
            parts += [f"## {title}\n", f"{lead}\n"]
        else:
            parts += _section(title, "", Registration, names, nested)
    written = set[type[BaseModel]]()
    while waiting := [model for model in nested if model not in written]:
        model = waiting[0]
        written.add(model)
        parts += _section(nested[model], _plain(model.__doc__ or ""), model, list(model.model_fields), nested)
    return "\n".join(parts)


def _section(
    title: str, lead: str, model: type[BaseModel], names: Sequence[str], nested: dict[type[BaseModel], str]
) -> list[str]:
    """Return a heading, a sentence and the list of these fields. Adds the models of the fields to ``nested``."""
    schema, comments, defaults = _schema_of(model), _comments(model), _defaults(model)
    defs = schema.get("$defs", {})
    rows = []
    for name in names:
        if name == "kind":  # the heading has it
            continue
        field = schema["properties"][_written(model, name)]
        for entry in _models(model.model_fields[name].annotation):
            nested.setdefault(entry, _title(name, entry, field))
        _, unset = _split(comments.get(name, ""))
        unset = re.sub(r"the defaults of \w+Entry\b", f"those of [{name}](#{name})", unset)
        default = _default(model.model_fields[name].is_required(), defaults.get(name), unset)
        text = _meaning(model, name)
        if model is not Registration and text and name in Registration.model_fields:
            text = "As for the cluster." if text == _meaning(Registration, name) else text
        said = " ".join(filter(None, (text.strip(), "" if text.startswith("As for") else default)))
        rows.append(f"- `{_written(model, name)}` ({_type(field, defs, nested)}){f': {said}' if said else ''}")
    lead = textwrap.fill(lead, 120)
    return [f"## {title}\n", *([f"{lead}\n"] if lead else []), *([*rows, ""] if rows else [])]


@cache
def _schema_of(model: type[BaseModel]) -> Mapping[str, Any]:
    return model.model_json_schema()


@cache
def _meaning(model: type[BaseModel], name: str) -> str:
    """Return the description of a field as a sentence, with its other names."""
    schema, (comment, _) = _schema_of(model), _split(_comments(model).get(name, ""))
    field = schema["properties"][_written(model, name)]
    return _sentence(_description(field) or comment or _enum_description(field, schema.get("$defs", {}))) + _alias(name)


def _written(model: type[BaseModel], name: str) -> str:
    """Return a field's name in a record. It differs from the attribute's if that would be a keyword."""
    return model.model_fields[name].alias or name


def _models(annotation: object) -> Iterator[type[BaseModel]]:
    """Yield the models of an annotation's entries, in their order."""
    if isinstance(annotation, type) and issubclass(annotation, Strict):
        yield annotation
    for part in get_args(annotation):
        yield from _models(part)


def _title(field: str, model: type[BaseModel], schema: Mapping[str, Any]) -> str:
    """Return the heading of a nested model: its field, and the kind or form if the field has several."""
    if "kind" in model.model_fields:
        return f"access: {get_args(model.model_fields['kind'].annotation)[0]}"
    if f"'items': {{'$ref': '#/$defs/{model.__name__}'}}" in str(schema):
        return f"{field}: each entry"
    return f"{field}: one object" if "'array'" in str(schema) else field


def _type(schema: Mapping[str, Any], defs: Mapping[str, Any], titles: Mapping[type[BaseModel], str]) -> str:
    """Return the values of a field in plain words."""
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        title = next((title for model, title in titles.items() if model.__name__ == name), None)
        return f"[{title.rpartition(': ')[2]}]({_anchor(title)})" if title else _type(defs[name], defs, titles)
    if forms := schema.get("anyOf") or schema.get("oneOf"):
        kinds = [_type(form, defs, titles) for form in forms if form.get("type") != "null"]
        return _either(list(dict.fromkeys(kinds)))
    if "const" in schema or "enum" in schema:
        values = schema.get("enum", [schema.get("const")])
        return _either([f"`{str(value).lower() if isinstance(value, bool) else value}`" for value in values])
    match schema.get("type"):
        case "integer":
            return _numbers(schema.get("minimum"), schema.get("maximum"))
        case "boolean":
            return "boolean"
        case "array":
            return f"list: {_type(schema.get('items', {}), defs, titles)}"
        case "object":
            inner = schema.get("patternProperties") or {"": schema["additionalProperties"]}
            return f"by name: {_type(next(iter(inner.values())), defs, titles)}"
    return "time, RFC 3339" if schema.get("format") == "date-time" else "text"


def _numbers(least: int | None, most: int | None) -> str:
    if least is None or most is None:
        return "whole number"
    return f"{least} or more" if most == LARGEST_COUNT else f"{least} to {most}"


def _description(schema: Mapping[str, Any]) -> str:
    """Return the description of a field, or of its value."""
    forms = (schema, *schema.get("anyOf", ()))
    return next((str(form["description"]) for form in forms if "description" in form and "enum" not in form), "")


def _enum_description(schema: Mapping[str, Any], defs: Mapping[str, Any]) -> str:
    """Return the docstring of the enum that has the values of a field."""
    names = [str(form.get("$ref", "")).rpartition("/")[2] for form in (schema, *schema.get("anyOf", ()))]
    return next((str(defs[name]["description"]) for name in names if "enum" in defs.get(name, {})), "")


def _defaults(model: type[BaseModel]) -> dict[str, Any]:
    """Return the defaults of a model as JSON."""
    return model.model_construct().model_dump(mode="json", warnings=False)


def _default(required: bool, value: object, unset: str) -> str:
    """Return a default in words; ``unset``: the meaning of None, as the model's comment has it."""
    if required:
        return _REQUIRED
    if value is None and unset:
        if unset.strip(" .") == "false":
            return ""
        meaning = re.sub(r"\b[A-Z]+(_[A-Z]+)+\b", _constant, unset.strip(" ."))
        return f"Default: {_plain(meaning)}."
    if isinstance(value, Mapping) and value:
        return f"Default: {', '.join(f'`{name}: {part}`' for name, part in value.items())}."
    if value in (None, "", [], {}, False):
        return ""
    return f"Default: `{str(value).lower() if isinstance(value, bool) else value}`."


def _constant(name: re.Match[str]) -> str:
    """Return the value of a constant that a comment of the model names."""
    value = getattr(record, name[0])
    return f"`{int(value.total_seconds())}`" if isinstance(value, timedelta) else f"`{value}`"


def _split(comment: str) -> tuple[str, str]:
    """Return a comment and, if it ends with the meaning of None, that."""
    text, _, unset = comment.replace("none: ", "None: ").partition("None: ")
    return text.strip(" ;."), unset


@cache
def _comments(model: type[BaseModel]) -> dict[str, str]:
    """Return the comments of a model's fields: at the end of the line, else the lines before. A subclass's counts."""
    found: dict[str, str] = {}
    if model is Registration:  # its fields about control have those of the control record
        control = _comments(record.ControlRecord)
        found = {name: control.get(other, "") for name, other in record.CONTROL_NAMES.items()}
    for base in reversed(model.__mro__):
        if not base.__module__.startswith("evenkeel."):
            continue
        source = textwrap.dedent(getsource(base))
        lines = source.splitlines()
        for node in ast.parse(source).body[0].body:  # type: ignore[attr-defined]  # the class
            if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
                comment = _trailing(lines[(node.end_lineno or 0) - 1], node.end_col_offset or 0)
                if comment or (comment := _before(lines, node.lineno - 1)):
                    found[node.target.id] = comment
    return found


def _trailing(line: str, end: int) -> str:
    text = line.encode()[end:].decode().partition("#")[2].strip()
    return "" if text.startswith("noqa") else text


def _before(lines: Sequence[str], number: int) -> str:
    start = number
    while lines[start - 1].strip().startswith("#"):
        start -= 1
    return " ".join(line.strip(" #") for line in lines[start:number])


def _alias(name: str) -> str:
    """Return the other names of a field."""
    others = [f"`{other}`" for other, ours in record.OTHER_NAMES.items() if ours == name]
    return f" Also written {_either(others)}." if others else ""


# --- Words


def _either(words: Sequence[str]) -> str:
    return " or ".join(filter(None, (", ".join(words[:-1]), words[-1])))


def _anchor(title: str) -> str:
    return "#" + re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-")


def _plain(text: str) -> str:
    return " ".join(text.replace("``", "`").split())


def _sentence(text: str) -> str:
    """Return a comment as a sentence. A value or a placeholder in it becomes code."""
    text = re.sub(r"[\w-]*(?:<\w+>[\w/-]*)+", r"`\g<0>`", _plain(text).rstrip("."))
    if value := re.match(r"(\w+): ", text):
        return f"`{value[1].lower()}`: {text[value.end() :]}."
    return f"{text[0].upper()}{text[1:]}." if text else ""


if __name__ == "__main__":
    main()
