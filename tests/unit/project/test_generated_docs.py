"""The generated pages of docs/reference are up to date: `python docs/generate.py` writes them."""

import importlib.util
from collections.abc import Callable

import pytest

from tests.unit.project.test_docs import ROOT

SPEC = importlib.util.spec_from_file_location("generate", ROOT / "docs" / "generate.py")
assert SPEC is not None
assert SPEC.loader is not None
GENERATE = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(GENERATE)


@pytest.mark.parametrize(("name", "page"), GENERATE.pages().items(), ids=GENERATE.pages())
def test_a_generated_page_is_up_to_date(name: str, page: Callable[[], str]) -> None:
    written = (ROOT / "docs" / "reference" / name).read_text(encoding="utf-8")
    assert written == page(), "run: .venv/bin/python docs/generate.py"
