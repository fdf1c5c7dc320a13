"""The bounds that cluster-autoscaler reports, in both formats of its status; anything else is no status."""

import pytest

from evenkeel.adapters.auto_scaling.autoscaler_status import bounds_of
from evenkeel.domain.model.groups import Bounds

TEXT = """Cluster-autoscaler status at 2024-01-01 00:00:00.000000000 +0000 UTC:
Cluster-wide:
  Health:      Healthy (ready=3 unready=0 cloudProviderTarget=3 (minSize=1, maxSize=2))

NodeGroups:
  Name:        workers a
  Health:      Healthy (ready=1 unready=0 cloudProviderTarget=1 (minSize=0, maxSize=9))
               LastProbeTime:      2024-01-01 00:00:00 +0000 UTC
  ScaleUp:     NoActivity (ready=1 cloudProviderTarget=1)

  Name:        workers-b
  Health:      <unknown>

  Name:        workers-c
  Health:      Unhealthy (ready=1 unready=0 cloudProviderTarget=1 (minSize=2, maxSize=3))
"""


def test_the_text_of_old_releases() -> None:
    assert bounds_of(TEXT) == {"workers a": Bounds(0, 9), "workers-c": Bounds(2, 3)}


def test_the_yaml_of_new_releases() -> None:
    text = (
        "nodeGroups:\n- name: workers-a\n  health: {status: Healthy, minSize: 0, maxSize: 9}\n- name: x\n  health: {}\n"
    )
    assert bounds_of(text) == {"workers-a": Bounds(0, 9)}


@pytest.mark.parametrize(
    "text", ["", "x", "[", "nodeGroups: 1", "nodeGroups: [1, {health: 2}, {health: {minSize: true, maxSize: 3}}]"]
)
def test_anything_else_has_no_bounds(text: str) -> None:
    assert bounds_of(text) == {}
