"""Who owns a field of an object, as its ``metadata.managedFields`` say. Looks do without them; runs have them.

Whoever sends an object by server-side apply declares that the fields in it are his: whatever he applies next puts them
back, and a controller does so within seconds (sigs.k8s.io/structured-merge-diff). Whoever updates has only written
them once.
"""

from collections.abc import Iterable

from evenkeel.adapters.kubernetes.objects import Object, Path, entries_of, get_path, mapping

US = "evenkeel"
# kubectl apply --server-side: a person, who is told of the conflict the next time and decides.
_PEOPLE = ("kubectl",)


def last_writer(item: Object, paths: Iterable[Path]) -> str:
    """Who, besides us, last wrote any of these fields; empty where nobody says, as in a look."""
    wanted = tuple(paths)
    others = [
        entry
        for entry in entries_of(item, ("metadata", "managedFields"))
        if entry.get("manager") != US and any(_has(entry, path) for path in wanted)
    ]
    latest = max(others, key=lambda entry: str(entry.get("time")), default=None)
    return str(get_path(latest, ("manager",)) or "")


def controller_of_field(item: Object, path: Path) -> str | None:
    """Who will put the field back when it is written; empty where nobody will, None where that is not known."""
    entries = entries_of(item, ("metadata", "managedFields"))
    if not entries:
        return None
    appliers = (
        str(entry.get("manager"))
        for entry in entries
        if entry.get("operation") == "Apply" and entry.get("manager") not in (US, *_PEOPLE) and _has(entry, path)
    )
    return next(appliers, "")


def applied_by_us(item: Object, path: Path) -> list[str]:
    """The fields below this one that we have applied, and nobody has changed since: left out next time, they go."""
    ours = (
        entry
        for entry in entries_of(item, ("metadata", "managedFields"))
        if entry.get("manager") == US and entry.get("operation") == "Apply"
    )
    fields = (mapping(get_path(entry, ("fieldsV1", *path))) for entry in ours)
    return [name.removeprefix("f:") for of_entry in fields for name in of_entry if name.startswith("f:")]


def _has(entry: Object, path: Path) -> bool:
    return get_path(entry, ("fieldsV1", *path)) is not None
