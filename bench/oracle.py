"""Compare the plans and the stored state of random worlds with a recording (bench/oracle_worlds.py).

The repository keeps one digest per world. A file that ``--write`` makes has every line, so that another commit can say
what differs, and where.
"""

from __future__ import annotations

import gzip
import hashlib
import json
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Literal, TextIO

from bench.oracle_worlds import World
from bench.rows import Rows

DIGESTS = Path(__file__).with_name("oracle.txt")
_SHOWN_WORLDS, _SHOWN_PATHS = 5, 20  # of a comparison with a file
Line = dict[str, Any]


def play(seed: int) -> tuple[list[Line], Counter[str]]:
    """Return the lines of a world, one per check, and how often what happened. An error is the last line."""
    lines: list[Line] = []
    happened: Counter[str] = Counter()
    try:
        world = World(seed)
        happened = world.happened
        for number, document in enumerate(world.play()):
            lines.append({"seed": seed, "check": number, **document})
    except Exception as error:
        lines.append({"seed": seed, "check": len(lines), "error": f"{type(error).__name__}: {error}"})
        happened["errors"] += 1
    return lines, happened


def text(line: Line) -> str:
    """Return a line as text, with sorted keys."""
    return json.dumps(line, sort_keys=True, ensure_ascii=False, separators=(",", ":"))


def digest(lines: Sequence[Line]) -> str:
    """Return a short digest of a world's lines."""
    return hashlib.sha256("\n".join(map(text, lines)).encode()).hexdigest()[:10]


def recorded() -> dict[int, str]:
    """Return the kept digests by seed."""
    pairs = [line.split() for line in DIGESTS.read_text(encoding="utf-8").splitlines()]
    return {int(seed): kept for seed, kept in pairs}


def oracle(
    worlds: int = 1000,
    first: int = 0,
    record: bool = False,
    write: str = "",
    against: str = "",
    rename: str = "",
    drop: str = "",
) -> Rows:
    """Compare whole plans and stored states of random worlds with a recording.

    Without options, each world is compared with its digest in bench/oracle.txt; --record renews these digests.
    --write FILE writes one JSON line for each world and check, --against FILE compares with such a file path by path;
    both compress a file whose name ends in .gz. --rename OLD=NEW,OLD=NEW renames keys and
    whole texts of the file; an OLD that ends in # is the beginning of a key. --drop KEY,KEY leaves keys out on both
    sides, such as digest, the hash of a report.
    """
    happened: Counter[str] = Counter()
    digests: dict[int, str] = {}
    comparison = _Comparison(rename, drop) if against else None
    before = _worlds_of(against) if against else None
    file = _open(write, "wt") if write else None
    for seed in range(first, first + worlds):
        lines, counts = play(seed)
        happened.update(set(+counts))
        digests[seed] = digest(lines)
        if file is not None:
            file.writelines(f"{text(line)}\n" for line in lines)
        if comparison is not None and before is not None:
            as_read = [json.loads(text(line)) for line in lines]  # lists instead of tuples
            yield from comparison.of_world(seed, _of_seed(before, seed), as_read)
    if file is not None:
        file.close()
    yield "happened in worlds"
    for name, count in sorted(happened.items()):
        yield name, {"worlds": count}
    yield "recording"
    if comparison is not None:
        yield from comparison.rows()
        differing = comparison.seeds
    elif record:
        kept = {**(recorded() if first else {}), **digests}
        DIGESTS.write_text("".join(f"{seed} {kept[seed]}\n" for seed in sorted(kept)), encoding="utf-8")
        differing = []
    elif write:
        differing = []
    else:
        kept = recorded()
        differing = [seed for seed, found in digests.items() if kept.get(seed) != found]
    seeds = " ".join(map(str, differing[:100])) or "none"
    yield f"seeds {first} to {first + worlds - 1}", {"differ": len(differing), "seeds": seeds}
    if differing:
        raise SystemExit(1)


# --- comparison with a file


def _open(name: str, mode: Literal["rt", "wt"]) -> TextIO:
    if name.endswith(".gz"):
        return gzip.open(Path(name), mode, encoding="utf-8")
    return Path(name).open(mode, encoding="utf-8")


def _worlds_of(name: str) -> Iterator[tuple[int, list[Line]]]:
    """Yield the recorded worlds by seed, which a file has in ascending order."""
    with _open(name, "rt") as file:
        for seed, lines in groupby(map(json.loads, file), key=lambda line: int(line["seed"])):
            yield seed, list(lines)


def _of_seed(found: Iterator[tuple[int, list[Line]]], seed: int) -> list[Line]:
    """Return the lines of a seed; empty: the file does not have it."""
    return next((lines for number, lines in found if number == seed), [])


class _Comparison:
    """The differences between recorded lines and present ones."""

    def __init__(self, rename: str, drop: str) -> None:
        self._names = dict(pair.split("=", 1) for pair in rename.split(",") if pair)
        self._dropped = {key for key in drop.split(",") if key}
        self._paths: Counter[str] = Counter()
        self.seeds: list[int] = []

    def of_world(self, seed: int, before: Sequence[Line], after: Sequence[Line]) -> Rows:
        """Compare one world; yield the differences of the first worlds that differ."""
        checks = max(len(before), len(after))
        found: list[tuple[int, str, Any, Any]] = []
        for number in range(checks):
            one = self._plain(before[number], self._names) if number < len(before) else None
            other = self._plain(after[number], {}) if number < len(after) else None
            found += [(number, *each) for each in differences(one, other)]
        if not found:
            return
        self.seeds.append(seed)
        self._paths.update({path for _, path, _, _ in found})
        if len(self.seeds) <= _SHOWN_WORLDS:
            yield f"world {seed}: check and path"
            for number, path, old, new in found[:_SHOWN_PATHS]:
                yield f"{number} {path}", {"before": _short(old), "after": _short(new)}

    def rows(self) -> Rows:
        """Yield how many worlds differ at each path."""
        yield "path that differs"
        for path, count in self._paths.most_common(100):
            yield path, {"worlds": count}

    def _plain(self, value: Any, names: Mapping[str, str]) -> Any:
        """Return a value with its keys and texts renamed, and without the keys that are left out."""
        if isinstance(value, dict):
            return {
                self._renamed(key, names): self._plain(item, names)
                for key, item in value.items()
                if key not in self._dropped
            }
        if isinstance(value, list):
            return [self._plain(item, names) for item in value]
        return names.get(value, value) if isinstance(value, str) else value

    @staticmethod
    def _renamed(key: str, names: Mapping[str, str]) -> str:
        beginning = next((old for old in names if old.endswith("#") and key.startswith(old)), None)
        return names.get(key, key) if beginning is None else names[beginning] + key.removeprefix(beginning)


_MISSING = "(missing)"


def differences(before: Any, after: Any, path: str = "") -> Iterator[tuple[str, Any, Any]]:
    """Yield the path, the old and the new value of each difference between two JSON values."""
    if isinstance(before, dict) and isinstance(after, dict):
        for key in sorted(before.keys() | after.keys()):
            yield from differences(before.get(key, _MISSING), after.get(key, _MISSING), f"{path}/{key}")
    elif isinstance(before, list) and isinstance(after, list) and len(before) == len(after):
        for number, (old, new) in enumerate(zip(before, after, strict=True)):
            yield from differences(old, new, f"{path}/{number}")
    elif before != after or type(before) is not type(after):
        yield path or "/", before, after


def _short(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, sort_keys=True)[:300].replace("|", "¦")
