"""`evenkeel apply` and `evenkeel export`: store records from files, and write stored records to files."""

import json
import os
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import typer
import yaml

from evenkeel.application.fleet.records import fleet_schema, read_fleet
from evenkeel.texts.english import counted
from evenkeel.validation import ConfigError
from evenkeel_cli.inputs import read_yaml, refuse_empty
from evenkeel_cli.stack_client import ask_of_all, pages, unchanged_since
from evenkeel_cli.terminal import CANNOT_READ, confirm, fail, fail_without_clusters, say, say_lines, write_text

_ENDINGS = (".yaml", ".yml", ".json")
SCHEMA = "fleet.schema.json"
_HEADER = f"# yaml-language-server: $schema={SCHEMA}\n"
_MARKS = {"added": "+", "changed": "~"}
_Json = Mapping[str, Any]


def apply_command(  # noqa: PLR0913  one parameter per option
    stack: str,
    file: str,
    *,
    prune: bool,
    force: bool,
    selector: str | None,
    verify: bool,
    diff: bool,
    yes: bool,
    reason: str | None,
) -> None:
    """Store the records of a file or folder; with ``--prune``, unregister clusters that no file names."""
    records = read_files(file)
    if not records:
        fail([f"{file}: there is no cluster in it: nothing is done"])
    listed = ask_of_all("apply", stack, {"records": records, "list": True, "verify": verify})["clusters"]
    missing = [id for id in _registered(stack, selector) if id not in records]
    removed = ask_of_all("unregister", stack, {"clusters": missing, "list": True})["clusters"] if missing else []
    to_store = [cluster["cluster"] for cluster in listed if cluster.get("change") in _MARKS]
    if faults := _show(listed, removed, prune=prune):
        fail(faults)
    if diff or not (to_store or (removed and prune)):
        return
    unregistering = f", unregister {len(removed)}" if removed and prune else ""
    confirm(f"store {counted(len(to_store), 'record')}{unregistering}", yes=yes)
    before = {cluster["cluster"]: cluster["before"] for cluster in listed if cluster["cluster"] in to_store}
    chosen = {id: records[id] for id in to_store}
    fields = {"records": chosen, "before": before, "verify": verify, "reason": reason}
    done = ask_of_all("apply", stack, fields)["clusters"] if chosen else []
    is_stored = all(cluster["ok"] for cluster in done)
    if removed and prune and is_stored:
        done += _unregistered(stack, removed, {"force": force, "reason": reason})
    for cluster in done:
        say(cluster["message"], err=not cluster["ok"])
    # Unregister no cluster now: the files may name one of these clusters by a new id whose record is not stored yet.
    if removed and prune and not is_stored:
        say("nothing is unregistered while a record is not stored: apply once more", err=True)
    if not all(cluster["ok"] for cluster in done):
        raise typer.Exit(CANNOT_READ)


def _unregistered(stack: str, removed: Sequence[_Json], fields: _Json) -> list[_Json]:
    """Unregister the clusters that were listed without an error. Return an answer for each cluster in ``removed``."""
    confirmed = {cluster["cluster"]: cluster for cluster in removed if cluster["ok"]}
    done = [cluster for cluster in removed if not cluster["ok"]]
    if confirmed:
        fields = {**fields, "clusters": [*confirmed], **unchanged_since(confirmed.values())}
        done += ask_of_all("unregister", stack, fields)["clusters"]
    return done


def _show(listed: Iterable[_Json], removed: Iterable[_Json], *, prune: bool) -> list[str]:
    """Print the changes, and return the faults. If there is a fault, the caller must make no change."""
    faults, same = [], 0
    for cluster in listed:
        if not cluster["ok"]:
            faults.append(cluster["message"])
            continue
        faults += [f"{cluster['cluster']}: {fault}" for fault in cluster["faults"]]
        if cluster["change"] not in _MARKS:
            same += 1
            continue
        say(f"{_MARKS[cluster['change']]} {cluster['cluster']}")
        for change in cluster["changes"]:
            values = [value for value in (change["from"], change["to"]) if value is not None]
            gone = " (taken out)" if change["to"] is None else ""
            say(f"    {change['field']}: {' -> '.join(values)}{gone}")
    for cluster in removed:
        say(f"- {cluster['message']}" if prune else f"  {cluster['message']}: in no file; --prune unregisters it")
    say(f"{counted(same, 'cluster')} as in the files")
    return faults


def read_files(place: str) -> dict[str, Any]:
    """Return the records of a file or a folder, by cluster id. Raises ConfigError."""
    refuse_empty(place)
    # pathlib raises for an unusable name. os.path returns False, and the fault is reported when the file is read.
    is_folder = os.path.isdir(place)  # noqa: PTH112
    files = _files_in(Path(place)) if is_folder else [place]
    folder = place if is_folder else str(Path(place).parent)

    def read(file: str) -> object:
        if file != os.path.normpath(place):
            _refuse_outside(file, folder)
            _refuse_special(file)
        return read_yaml(file)

    def included(file: str, path: str) -> str:
        return os.path.normpath(Path(file).parent / path)

    return read_fleet([os.path.normpath(file) for file in files], read, included)


def _refuse_outside(file: str, folder: str) -> None:
    """Raise ConfigError for an included file outside of the folder.

    The author of the include may lack the right to read that file.
    """
    try:
        is_outside = not Path(os.path.realpath(file)).is_relative_to(os.path.realpath(folder))
    except ValueError:  # the name contains a zero byte, which is reported when the file is read
        is_outside = False
    if is_outside:
        raise ConfigError([f"{file}: it is outside of {folder}: keep the files of a fleet in one folder"])


def _refuse_special(file: str) -> None:
    """Raise ConfigError for a special file, such as a named pipe, because reading it may never end."""
    if os.path.exists(file) and not os.path.isfile(file) and not os.path.isdir(file):  # noqa: PTH110, PTH112, PTH113
        raise ConfigError([f"{file}: it is no regular file: remove it, or write a file in its place"])


def _files_in(folder: Path) -> list[str]:
    """Return the files of a folder. Raises ConfigError if a subfolder is unreadable or a link.

    If its files were ignored, `--prune` would unregister their clusters.
    """
    paths: list[Path] = []
    links: list[Path] = []

    def refuse(error: OSError) -> None:
        raise ConfigError([f"{error.filename}: cannot be read: {error.strerror or error}"])

    for inner, folders, files in os.walk(folder, onerror=refuse):
        folders[:] = [name for name in folders if not name.startswith(".")]
        links += [path for name in folders if (path := Path(inner, name)).is_symlink()]
        paths += [
            Path(inner, name)
            for name in files
            if name.endswith(_ENDINGS) and not name.startswith(".") and not name.endswith(".schema.json")
        ]
    if links:
        raise ConfigError([f"{link}: a link to a folder is not followed: include its files" for link in sorted(links)])
    return sorted(map(str, paths))


def _registered(stack: str, selector: str | None) -> list[str]:
    exported = pages("export", stack, "*", {"selector": selector})
    return [id for page in exported for id in (*(record["id"] for record in page["records"]), *page["unread"])]


def export_command(stack: str, cluster: str, selector: str | None, out: str) -> None:
    """Print the records as a fleet file, or write them to a file and their schema to the same folder."""
    exported = pages("export", stack, cluster, {"selector": selector})
    unread = [line for page in exported for line in page["unread"].values()]
    records = [record for page in exported for record in page["records"]]
    fail_without_clusters(selector, records)
    text = fleet_yaml(records)
    if out == "-":
        say_lines(text)
    else:
        write_text(out, text)
        write_text(str(Path(out).parent / SCHEMA), json.dumps(fleet_schema(), indent=1) + "\n")
        say(f"{counted(len(records), 'cluster')}: {out}")
    if unread:
        fail(unread)


def fleet_yaml(records: Iterable[_Json], comments: Iterable[str] = ()) -> str:
    """Return the text of a fleet file for `evenkeel apply`."""
    lines = "".join(f"# {' '.join(line.split())}\n" for line in comments)
    document = json.loads(json.dumps({"clusters": list(records)}))  # only types that YAML represents
    return _HEADER + lines + yaml.safe_dump(document, sort_keys=False, allow_unicode=False, width=100)
