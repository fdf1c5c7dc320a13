"""Every source of signals, one file each: what it exports as ``ROWS`` is known from the moment that the file is here.

A source needs a rule in template.yaml too, which lets its events through to the function.
"""

from importlib import import_module
from pkgutil import iter_modules

from evenkeel.adapters.aws.signals import Rows


def collect() -> Rows:
    """The rows of every file of this folder."""
    names = [module.name for module in iter_modules(__path__)]
    return {row: parser for name in names for row, parser in import_module(f"{__name__}.{name}").ROWS.items()}


ROWS = collect()
