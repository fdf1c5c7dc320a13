"""A class of the domain has few fields: a larger one is composed of parts."""

import dataclasses
import importlib
import pkgutil

import evenkeel.domain

MOST_FIELDS = 20


def test_no_class_of_the_domain_has_too_many_fields() -> None:
    """Inherited fields count, because a class with many bases is as large as one with many fields."""
    names = [module.name for module in pkgutil.walk_packages(evenkeel.domain.__path__, "evenkeel.domain.")]
    values = [value for name in names for value in vars(importlib.import_module(name)).values()]
    classes = {value for value in values if isinstance(value, type) and dataclasses.is_dataclass(value)}
    sizes = {found.__name__: len(dataclasses.fields(found)) for found in classes}
    assert len(sizes) > 100, "none is overlooked"
    assert {name: size for name, size in sizes.items() if size > MOST_FIELDS} == {}
