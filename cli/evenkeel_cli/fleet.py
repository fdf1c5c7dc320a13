"""`evenkeel apply` and `evenkeel export`: the records of a fleet as files."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer
import yaml

from evenkeel.application.fleet.records import fleet_schema, read_fleet
from evenkeel.texts.english import counted
from evenkeel.validation import ConfigError
from evenkeel_cli.inputs import read_yaml, refuse_empty, refuse_nobody
from evenkeel_cli.stack_client import as_shown, ask_of_all, ask_or_fail, confirm, in_parts
from evenkeel_cli.terminal import BAD_INPUT, CANNOT_READ, fail, say

_ENDINGS = (".yaml", ".yml", ".json")
SCHEMA = "fleet.schema.json"
_HEADER = f"# yaml-language-server: $schema={SCHEMA}\n"
_MARKS = {"added": "+", "changed": "~"}
_Stack = Annotated[str, typer.Option("--stack", help="Name of the CloudFormation stack.")]
_Json = Mapping[str, Any]


def apply_command(  # noqa: PLR0913 (its options)
    stack: _Stack,
    file: Annotated[str, typer.Option("--file", "-f", help="A file of a fleet, or a folder of such files.")],
    prune: Annotated[bool, typer.Option("--prune", help="Unregister the clusters that no file names.")] = False,
    force: Annotated[
        bool, typer.Option("--force", help="With --prune: also clusters where bounds of ours stand.")
    ] = False,
    selector: Annotated[
        str | None, typer.Option("--selector", help="With --prune: of the registered clusters only these.")
    ] = None,
    verify: Annotated[
        bool, typer.Option("--verify/--no-verify", help="Whether each cluster is tried before it is stored.")
    ] = True,
    diff: Annotated[bool, typer.Option("--diff", help="Show what differs, and do nothing.")] = False,
    yes: Annotated[bool, typer.Option("--yes", help="Do it without asking.")] = False,
    reason: Annotated[str | None, typer.Option("--reason", help="Why; kept with what was done.")] = None,
) -> None:
    try:
        records = read_files(file)
    except ConfigError as error:
        fail(error.faults)
    if not records:
        fail([f"{file}: there is no cluster in it: nothing is done"])
    listed = [
        found
        for part in in_parts(records)
        for found in ask_of_all("apply", stack, {"records": part, "list": True, "verify": verify})["clusters"]
    ]
    missing = [id for id in _registered(stack, selector) if id not in records]
    removed = ask_of_all("unregister", stack, {"clusters": missing, "list": True})["clusters"] if missing else []
    to_store = [found["cluster"] for found in listed if found.get("change") in _MARKS]
    if faults := _show(listed, removed, prune=prune):
        fail(faults)
    if diff or not (to_store or (removed and prune)):
        return
    unregistering = f", unregister {len(removed)}" if removed and prune else ""
    confirm(f"store {counted(len(to_store), 'record')}{unregistering}", yes=yes)
    before = {found["cluster"]: found["before"] for found in listed if found["cluster"] in to_store}
    chosen = {id: records[id] for id in to_store}
    done = _stored(stack, chosen, before, {"verify": verify, "reason": reason})
    is_stored = all(found["ok"] for found in done)
    if removed and prune and is_stored:
        done += _unregistered(stack, removed, {"force": force, "reason": reason})
    for found in done:
        say(found["message"], err=not found["ok"])
    if removed and prune and not is_stored:  # what is to go may be what was to come, under its old name
        say("nothing is unregistered while a record is not stored: apply once more", err=True)
    if not all(found["ok"] for found in done):
        raise typer.Exit(CANNOT_READ)


def _stored(stack: str, records: Mapping[str, Any], before: Mapping[str, Any], fields: _Json) -> list[_Json]:
    """What was said of each. ``before``: what was shown of it, and must still be so."""
    done: list[_Json] = []
    for part in in_parts(records):
        quote = {id: before[id] for id in part}
        done += ask_of_all("apply", stack, {"records": part, "before": quote, **fields})["clusters"]
    return done


def _unregistered(stack: str, removed: Sequence[_Json], fields: _Json) -> list[_Json]:
    """What was said of each. What could not be shown nobody has agreed to, and it is told once more."""
    agreed = {found["cluster"]: found for found in removed if found["ok"]}
    done = [found for found in removed if not found["ok"]]
    if agreed:
        fields = {**fields, "clusters": [*agreed], **as_shown(agreed.values())}
        done += ask_of_all("unregister", stack, fields)["clusters"]
    return done


def _show(listed: Iterable[_Json], removed: Iterable[_Json], *, prune: bool) -> list[str]:
    """What would be done. Returns what speaks against it."""
    faults, same = [], 0
    for found in listed:
        if not found["ok"]:
            faults.append(found["message"])
            continue
        faults += [f"{found['cluster']}: {fault}" for fault in found["faults"]]
        if found["change"] not in _MARKS:
            same += 1
            continue
        say(f"{_MARKS[found['change']]} {found['cluster']}")
        for change in found["changes"]:
            values = [value for value in (change["from"], change["to"]) if value is not None]
            gone = " (taken out)" if change["to"] is None else ""
            say(f"    {change['field']}: {' -> '.join(values)}{gone}")
    for found in removed:
        say(f"- {found['message']}" if prune else f"  {found['message']}: in no file; --prune unregisters it")
    say(f"{counted(same, 'cluster')} as in the files")
    return faults


def read_files(place: str) -> dict[str, Any]:
    """The records of a file or a folder by id. Raises ConfigError."""
    refuse_empty(place)
    # os.path, since pathlib raises where it may not look; whoever reads it then says so.
    is_folder = os.path.isdir(place)  # noqa: PTH112
    found = _files_in(Path(place)) if is_folder else [place]
    folder = place if is_folder else str(Path(place).parent)

    def read(file: str) -> object:
        if file != os.path.normpath(place):
            _refuse_outside(file, folder)
            _refuse_special(file)
        return read_yaml(file)

    return read_fleet([os.path.normpath(file) for file in found], read, _included)


def _refuse_outside(file: str, folder: str) -> None:
    """A file of somebody else's must lead to nothing that whoever applies it may read besides. Raises ConfigError."""
    try:
        is_outside = not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))
    except ValueError:  # a name with a zero byte in it, which nobody can read
        is_outside = False
    if is_outside:
        raise ConfigError([f"{file}: it is outside of {folder}: keep the files of a fleet in one folder"])


def _refuse_special(file: str) -> None:
    """A named pipe would be waited for without end. Raises ConfigError."""
    if os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file):  # noqa: PTH110, PTH112, PTH113
        raise ConfigError([f"{file}: it is no regular file: remove it, or write a file in its place"])


def _files_in(folder: Path) -> list[str]:
    """What cannot be read in it is a fault: of a folder without it, `--prune` would make fewer clusters."""
    found: list[Path] = []
    links: list[Path] = []

    def refuse(error: OSError) -> None:
        raise ConfigError([f"{error.filename}: cannot be read: {error.strerror or error}"])

    for inner, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        links += [path for name in folders if (path := Path(inner, name)).is_symlink()]
        found += [Path(inner, name) for name in files if _is_of_fleet(name)]
    if links:
        raise ConfigError([f"{link}: a link to a folder is not followed: include its files" for link in sorted(links)])
    return sorted(map(str, found))


def _is_of_fleet(name: str) -> bool:
    return name.endswith(_ENDINGS) and not name.startswith(".") and not name.endswith(".schema.json")


def _included(file: str, path: str) -> str:
    return os.path.normpath(Path(file).parent / path)


def _registered(stack: str, selector: str | None) -> list[str]:
    return [
        id for page in _pages(stack, "*", selector) for id in (*(one["id"] for one in page["records"]), *page["unread"])
    ]


def _pages(stack: str, cluster: str, selector: str | None) -> Iterable[_Json]:
    after: str | None = None
    while True:
        page = ask_or_fail("export", stack, cluster, {"after": after, "selector": selector})
        yield page
        after = page["next"]
        if after is None:
            return


def export_command(
    stack: _Stack,
    cluster: Annotated[
        str, typer.Option("--cluster", help="The cluster's id; left out: all that are registered.")
    ] = "*",
    selector: Annotated[
        str | None, typer.Option("--selector", help="Clusters by their labels, as env=prod,tier!=test.")
    ] = None,
    out: Annotated[
        str, typer.Option("--out", help="The file to write, with its schema beside it; - is standard output.")
    ] = "-",
) -> None:
    pages = list(_pages(stack, cluster, selector))
    unread = [line for page in pages for line in page["unread"].values()]
    if selector is not None and not any(page["records"] for page in pages):
        refuse_nobody(selector)
    text = fleet_yaml([record for page in pages for record in page["records"]])
    if out == "-":
        say_lines(text)
    else:
        try:
            Path(out).write_text(text, encoding="utf-8")
            schema = json.dumps(fleet_schema(), indent=1) + "\n"
            (Path(out).parent / SCHEMA).write_text(schema, encoding="utf-8")
        except OSError as error:
            fail([f"{out}: cannot be written: {error.strerror or error}"])
        say(f"{counted(sum(len(page['records']) for page in pages), 'cluster')}: {out}")
    if unread:
        fail(unread, BAD_INPUT)


def fleet_yaml(records: Iterable[_Json], comments: Iterable[str] = ()) -> str:
    """A file of a fleet, which `apply` reads back as it is."""
    lines = "".join(f"# {' '.join(line.split())}\n" for line in comments)
    document = {"clusters": list(records)}
    return _HEADER + lines + yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=100)


def say_lines(text: str) -> None:
    for line in text.splitlines():
        say(line)
