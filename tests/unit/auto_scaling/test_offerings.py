"""What operators read about groups whose launches do not show which machine type is sold out."""

from tests.auto_scaling_groups import Stage
from tests.house import House

PART = "It takes no part in capacity reports: its machine type is in its launch template"


def explained(stage: Stage) -> str:
    names = stage.pool()
    stack = House(store=stage.store, clock=stage.clock, clusters=stage.clusters)  # type: ignore[arg-type]
    return str(stack.ask("explain", group=names[0])["message"])


def test_explain_says_why_a_group_takes_no_part_in_capacity_reports() -> None:
    assert PART in explained(Stage(autoscaler="none"))


def test_explain_is_silent_where_the_record_shares_no_reports() -> None:
    assert "capacity reports" not in explained(Stage(autoscaler="none", share_offerings=False))
