"""The record's field about relief by a Shoot's maximum."""

from typing import Annotated

from pydantic import Field, ValidationInfo, field_validator

from evenkeel.access_config import ApiAccess
from evenkeel.validation import KubernetesName, Strict


class ShootRelief(Strict):
    """For Gardener: Evenkeel raises a Shoot's maximum while zones are dead. The Shoot is in the cluster ``garden``."""

    garden: ApiAccess | None = None  # required in a registered record
    enabled: bool = True  # False: Evenkeel only restores the Shoot's own maximum
    # Namespace in the seed -> <namespace>/<name> of its Shoot. Only for namespaces other than shoot--<project>--<name>.
    shoots: dict[KubernetesName, Annotated[str, Field(pattern=r"^[a-z0-9-]{1,63}/[a-z0-9-]{1,63}$")]] = {}  # noqa: RUF012

    def __str__(self) -> str:
        """Return the value of the setting."""
        return str(self.enabled)


class ReliefFields(Strict):
    """The field of a record."""

    shoot_relief: ShootRelief | None = None


class RegisteredReliefFields(ReliefFields):
    """The field of a registered record."""

    @field_validator("shoot_relief")
    @classmethod
    def _with_garden(cls, value: ShootRelief | None, others: ValidationInfo) -> ShootRelief | None:
        if value is None:
            return None
        if "gardener" not in others.data.get("flavours", ("gardener",)):
            raise ValueError("flavours has no gardener, and nothing else has Shoots: leave it out")
        if value.garden is None:
            raise ValueError("garden is missing: say how the garden cluster is reached, as access does for the seed")
        return value
