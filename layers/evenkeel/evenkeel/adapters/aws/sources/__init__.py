"""The sources of events. Each file of this folder exports its parsers as ``ROWS``.

A source also needs a rule in template.yaml, which sends its events to the function ``provisioning_failure``.
"""

from importlib import import_module
from pkgutil import iter_modules

from evenkeel.adapters.aws.signals import Rows


def collect() -> Rows:
    """Return the parsers of all files of this folder, by source and detail-type."""
    names = [module.name for module in iter_modules(__path__)]
    return {row: parser for name in names for row, parser in import_module(f"{__name__}.{name}").ROWS.items()}


ROWS = collect()
