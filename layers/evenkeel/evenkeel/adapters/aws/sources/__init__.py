"""The sources of signals. Each file of this folder exports its parsers as ``ROWS``.

A source also needs a rule in template.yaml, which sends its events to the function.
"""

from importlib import import_module
from pkgutil import iter_modules

from evenkeel.adapters.aws.signals import Rows


def collect() -> Rows:
    """Return the rows of every file of this folder."""
    names = [module.name for module in iter_modules(__path__)]
    return {row: parser for name in names for row, parser in import_module(f"{__name__}.{name}").ROWS.items()}


ROWS = collect()
