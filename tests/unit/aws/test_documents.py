"""YAML and JSON from users: read completely or refused quickly, in one line without any of the text."""

import json
from contextlib import nullcontext, suppress
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from evenkeel.adapters.documents import UnreadableError, read_document, read_documents
from evenkeel_cli.main import app

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=6), inner, max_size=3),
    max_leaves=10,
)


def bomb(line: str, *, levels: int = 30, each: int = 9) -> str:
    """Return lines that each repeat the previous one ``each`` times: {n} is a line's number, {again} the repeats."""
    lines = [line.format(n=0, again="x: 1" if "<<" not in line else "{x: 1}").replace("<<: [{x: 1}]", "x: 1")]
    lines += [line.format(n=n, again=", ".join([f"*a{n - 1}"] * each)) for n in range(1, levels)]
    return "\n".join(lines)


BOMBS = {
    "lists": bomb("b{n}: &a{n} [{again}]"),
    "merged keys": bomb("b{n}: &a{n} {{<<: [{again}]}}"),
    "wide": "a: &a [" + "x, " * 5_000 + "x]\nb: [" + ", ".join(["*a"] * 3) + "]",
}


def test_aliases_and_merge_keys_are_read() -> None:
    text = "usual: &usual {min: 1, max: 3}\npools: [{name: a, <<: *usual}, {name: b, <<: *usual}]"
    assert read_document(text)["pools"][1] == {"name": "b", "min": 1, "max": 3}


@pytest.mark.parametrize(
    ("text", "says"),
    [
        *((bomb, "its aliases expand to more than 10000 values: write them out") for bomb in BOMBS.values()),
        *(
            (text, "an alias leads nowhere or to an object around it")
            for text in ("a: *nowhere", "&a [*a]", "a: &a {b: *a}", "--- &a [1]\n--- *a")
        ),
        *((f"a: {text}{'7' * 1_000}", "a number has more than 1000 digits") for text in ("", "-0x", "!!int 0x", "1:")),
        *((text * 10_000, "nested more than 200 levels deep") for text in ("[", "{", "- ", '{"a":')),
    ],
    ids=range(15),
)
def test_texts_that_would_take_too_much_are_refused(text: str, says: str) -> None:
    with pytest.raises(UnreadableError, match=says):
        read_documents(text)


def test_a_long_text_in_quotes_is_no_number() -> None:
    assert read_document(f"a: '{'7' * 1_000}'\nb: {'f7' * 1_000}") == {"a": "7" * 1_000, "b": "f7" * 1_000}


def test_several_documents_are_read_where_several_are_expected() -> None:
    assert read_documents("a: 1\n---\nb: 2\n") == [{"a": 1}, {"b": 2}]
    assert read_documents('{"a": 1}\n{\n  "b": 2\n}\n[{"c": 3}]\n') == [{"a": 1}, {"b": 2}, [{"c": 3}]]
    with pytest.raises(UnreadableError, match="several documents"):
        read_document("a: 1\n---\nb: 2\n")


@given(VALUES)
def test_a_text_without_aliases_is_read_as_by_the_library(value: object) -> None:
    class Plain(yaml.SafeDumper):
        def ignore_aliases(self, data: object) -> bool:
            return True

    text = yaml.dump(value, Dumper=Plain, allow_unicode=True)
    assert read_document(text) == yaml.safe_load(text)
    assert read_document(json.dumps({"value": value})) == {"value": value}


@given(st.text(min_size=6, max_size=40).filter(lambda text: len(set(text)) > 4), st.integers(0, 6))
def test_an_unreadable_text_is_never_quoted(secret: str, shape: int) -> None:
    shapes = ("{}: [", "*{}", "!!{} x", "&{} a: b: c", '"\\q{}', "!{} [", "\t{}: x: y")
    wrong = None
    try:
        read_documents(shapes[shape].format(secret))
    except UnreadableError as error:
        wrong = error
    if wrong is not None:
        assert secret not in str(wrong)
        assert "\n" not in str(wrong)
        assert (wrong.__cause__, wrong.__context__) == (None, None), "errors of the library carry the text along"


@pytest.mark.parametrize("text", BOMBS.values(), ids=BOMBS)
@pytest.mark.parametrize("option", ["--record", "-f", "--kubeconfig"])
def test_a_bomb_on_the_command_line_is_one_line(tmp_path: Path, option: str, text: str) -> None:
    file, objects = tmp_path / "bomb.yaml", tmp_path / "objects.yaml"
    file.write_text(text)
    objects.write_text('{"apiVersion": "v1", "kind": "List", "items": []}')
    more = ["-f", str(objects)] if option == "--record" else []
    result = CliRunner().invoke(app, ["plan", option, str(file), *more], env={"COLUMNS": "300"})
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr == f"evenkeel: {file}: its aliases expand to more than 10000 values: write them out\n"


@pytest.mark.parametrize(
    ("text", "twice"),
    [
        ("{a: 1, b: {a: 1}, c: [{a: 1}, {a: 2}]}", False),
        ("a: b\nb: a\n", False),
        ("base: &base {x: 1}\none: {<<: *base, x: 2}\ntwo: {<<: *base, y: 2}\n", False),
        ("a: 1\nb: [x, y]\na: 2\n", True),
        ("a: {b: {c: 1}, b: 2}", True),
        ("- {[a, b]: 1, a: 1, a: 2}", True),
        ('{"a": {"b": 1, "b": 1}}', True),
        ('{"a": 1,\n\t"b": {"a": 1}}', False),
    ],
)
def test_a_name_twice_in_one_object_is_refused_with_once(text: str, twice: bool) -> None:
    with pytest.raises(UnreadableError, match="occurs twice") if twice else nullcontext():
        read_document(text, once=True)
    with suppress(UnreadableError):  # a name that is a list is refused
        read_document(text)
