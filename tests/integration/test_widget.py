"""The CloudWatch widget: HTML for readers of a dashboard, which cannot change anything."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import Any

import pytest

from evenkeel.bootstrap import SystemClock, use_clock
from sandbox.aws import Deployment
from sandbox.kube.world import Cluster, World
from sandbox.triggers import InProcess
from tests.integration.staging import EVENTS, put_kubeconfig

EVENT = EVENTS["widget"]
CLUSTER = EVENT["cluster"]


@pytest.fixture(autouse=True)
def _parts_of_this_test() -> Iterator[None]:
    use_clock(SystemClock())  # the functions keep their connections, and another test's lead to its table
    yield
    use_clock(SystemClock())


@pytest.fixture
def cluster(deployment: Deployment, functions: InProcess) -> Iterator[Cluster]:
    """Yield a registered cluster with the id in the event."""
    with World(clusters=["cluster-api"], clock=lambda: datetime.now(UTC)) as world:
        found = world.clusters["cluster-api"]
        record = {"flavours": ["cluster-api"], "access": put_kubeconfig(deployment, CLUSTER, found)}
        answer = functions("AdminFunction", {"action": "register", "cluster": CLUSTER, "record": record})
        assert answer["ok"], answer
        yield found


@contextmanager
def unchanged(deployment: Deployment) -> Iterator[None]:
    """Check that no stored item changes, and that no message is sent."""
    before = table(deployment), waiting(deployment)
    yield
    assert (table(deployment), waiting(deployment)) == before


def table(deployment: Deployment) -> list[Any]:
    items = deployment.aws.client("dynamodb").scan(TableName=deployment.table)["Items"]
    return sorted(items, key=json.dumps)


def waiting(deployment: Deployment) -> int:
    names = ["ApproximateNumberOfMessages", "ApproximateNumberOfMessagesDelayed"]
    found = [
        deployment.aws.client("sqs").get_queue_attributes(QueueUrl=deployment.physical(queue), AttributeNames=names)
        for queue in ("RebalanceQueue", "ChecksQueue")
    ]
    return sum(int(number) for one in found for number in one["Attributes"].values())


def test_the_widget_draws_the_pools_of_the_cluster_that_it_is_asked_for(functions: InProcess, cluster: Cluster) -> None:
    html = functions("WidgetFunction", EVENT)
    assert html.startswith('<div class="cwdb-no-default-styles">')
    assert "<script" not in html
    for view in cluster.groups():
        assert view.name in html


def test_without_parameters_it_shows_every_cluster_and_opens_none(functions: InProcess, cluster: Cluster) -> None:
    html = functions("WidgetFunction", {"widgetContext": {"theme": "light"}})
    assert f">{CLUSTER}<" in html
    assert "0 of 1 cluster with incidents; 1 not checked yet" in html
    assert list(cluster.api.requests) == []


WANTED = {"zone": "eu-central-1a", "until": "2099-01-01T00:00:00Z", "nodes": 5, "pool": "workers", "record": {}}


@pytest.mark.parametrize("action", ["pause", "restore", "register", "fence-zone", "scale-up", "scale-down", "resume"])
def test_an_action_that_writes_changes_nothing_and_is_refused_without_a_dashboard(
    functions: InProcess, cluster: Cluster, deployment: Deployment, action: str
) -> None:
    with unchanged(deployment):
        html = functions("WidgetFunction", {**EVENT, **WANTED, "action": action})
        answer = functions("WidgetFunction", {"action": action, "cluster": CLUSTER, **WANTED})
    assert "Evenkeel status" in html
    assert {request.method for request in cluster.api.requests} <= {"GET"}
    assert (answer["ok"], answer["retry"]) == (False, False)
    function = "admin" if action in ("register", "restore") else "operator"
    assert answer["message"] == f"action {action} writes: this function only reads; ask the {function} function"


@pytest.mark.parametrize(
    ("action", "fields"),
    [("status", {}), ("plan", {}), ("validate", {}), ("record", {}), ("explain", {"pool": "workers"})],
)
def test_without_a_dashboard_it_answers_what_an_operator_may_read(
    functions: InProcess, cluster: Cluster, action: str, fields: dict[str, str]
) -> None:
    answer = functions("WidgetFunction", {"action": action, "cluster": CLUSTER, **fields})
    assert (answer["ok"], answer["action"], answer["cluster"]) == (True, action, CLUSTER)


@pytest.mark.parametrize("action", [7, None, ["pause"], {"a": 1}, "none of them", "x" * 10_000])
def test_an_unknown_action_is_one_line(functions: InProcess, action: Any) -> None:
    answer = functions("WidgetFunction", {"action": action, "cluster": CLUSTER})
    assert answer["ok"] is False
    assert "\n" not in answer["message"]
    assert len(answer["message"]) < 1000


def test_while_the_cluster_is_away_it_shows_what_the_table_holds(
    functions: InProcess, cluster: Cluster, deployment: Deployment
) -> None:
    deployment.aws.client("secretsmanager").put_secret_value(
        SecretId=f"evenkeel/{deployment.stack}-{CLUSTER}", SecretString="no kubeconfig"
    )
    html = functions("WidgetFunction", EVENT)
    assert "access refused for 0 min" in html
    assert "Fix the secret, role or access entry" in html
    assert "no kubeconfig" not in html


def test_it_describes_itself_as_the_console_asks_it_to(functions: InProcess) -> None:
    answer = functions("WidgetFunction", {"describe": True, "widgetContext": {}})
    assert list(answer) == ["markdown"]
    assert "**cluster**" in answer["markdown"]


@pytest.mark.parametrize(
    "event", [{"cluster": "<script>x</script>"}, {"cluster": 7}, {"cluster": ["a"]}, [], "x", None]
)
def test_any_request_is_answered_with_escaped_html(functions: InProcess, event: Any) -> None:
    html = functions("WidgetFunction", event)
    assert html.startswith("<div")
    assert "<script" not in html
