"""Amounts of resources, as objects of the API state them."""

import re
from fractions import Fraction
from typing import Any

from evenkeel.adapters.kubernetes.objects import Reading, mapping
from evenkeel.domain.model.values import BadValueError
from evenkeel.domain.rebalancing.membership.quantities import read_quantity

_WHOLE = re.compile(r"[+-]?[0-9]{1,18}", re.ASCII)


def read_amount(value: object) -> Fraction:
    """A quantity of Kubernetes. Raises BadValueError also where it is negative."""
    amount = read_quantity(value)
    if amount < 0:
        raise BadValueError("negative: write 0 or more")
    return amount


def read_pieces(value: object) -> Fraction:
    """Cluster Autoscaler reads counts with Go's ``strconv.ParseInt``: no units."""
    if not isinstance(value, str) or not _WHOLE.fullmatch(value):
        raise BadValueError("not a whole number: write it without a unit, such as 8")
    return read_amount(int(value))


def read_resources(where: str, value: Any, reading: Reading) -> dict[str, Fraction]:
    """Amounts by resource; an amount of zero is as good as none, as it is for Cluster Autoscaler."""
    amounts = {key: reading.read(f"{where}.{key}", text, read_amount) for key, text in mapping(value).items()}
    return {str(key): amount for key, amount in amounts.items() if amount}
