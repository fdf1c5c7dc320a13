"""The page in a bucket, for all its readers: written by hand, or each minute by the page's function."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner, Result

from evenkeel.adapters.alerts.channels import PagerDuty
from evenkeel.adapters.aws.incident_events import read_alert
from evenkeel.application.errors import AccessError
from evenkeel.application.incidents.notify import incident_json
from evenkeel.bootstrap import SystemClock, use_clock
from evenkeel.domain.model.failures import FailureClass
from evenkeel.domain.model.incidents import Incident, IncidentKind
from evenkeel_cli.main import app
from sandbox.aws import AwsEndpoints, Deployment
from sandbox.triggers import InProcess, Triggers
from tests.alerts import alert, detail_of
from tests.builders import NOW
from tests.fakes import FakeClock
from tests.integration.staging import EVENTS
from tests.pages import Seen
from tests.unit.incidents.test_alerting import sent_by
from tests.unit.page.test_page import plan_answer

BUCKET, PAGE_URL = "pages-of-a-test", "https://fleet.example/"
TICK = EVENTS["status-page-schedule"]


@pytest.fixture(autouse=True)
def bucket(aws: AwsEndpoints) -> Iterator[None]:
    use_clock(SystemClock())
    s3 = aws.client("s3")
    s3.create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": aws.region})
    yield
    for found in s3.list_objects_v2(Bucket=BUCKET).get("Contents", []):
        s3.delete_object(Bucket=BUCKET, Key=found["Key"])
    s3.delete_bucket(Bucket=BUCKET)
    use_clock(SystemClock())


@pytest.fixture
def deployment(aws: AwsEndpoints) -> Iterator[Deployment]:
    with aws.deploy(parameters={"DryRun": "false", "PageBucket": BUCKET, "PageUrl": PAGE_URL}) as made:
        yield made


def stored(aws: AwsEndpoints) -> dict[str, Any]:
    s3 = aws.client("s3")
    found = s3.list_objects_v2(Bucket=BUCKET).get("Contents", [])
    return {each["Key"]: s3.get_object(Bucket=BUCKET, Key=each["Key"]) for each in found}


def register_dark(functions: InProcess, cluster: str) -> None:
    access = {"kind": "eks", "name": cluster, "region": "eu-central-1"}
    record = {"flavours": ["cluster-api"], "access": access}
    answer = functions("AdminFunction", {"action": "register", "cluster": cluster, "record": record})
    assert answer["ok"], answer


def test_each_minute_the_page_of_all_clusters_is_put_at_its_place(
    aws: AwsEndpoints, deployment: Deployment, functions: InProcess
) -> None:
    register_dark(functions, "blue")
    clock = FakeClock(datetime.now(UTC))
    use_clock(clock)
    triggers = Triggers(
        deployment, lambda name, event: functions(name, event) if name == "StatusPageFunction" else None
    )
    for minute in range(2):
        clock.at += timedelta(minutes=1)
        triggers.tick(clock.at)
        (place,) = (found := stored(aws))
        assert place == f"{deployment.stack}/index.html"
        assert (found[place]["ContentType"], found[place]["CacheControl"]) == ("text/html; charset=utf-8", "no-cache")
        html = found[place]["Body"].read().decode()
        assert html.startswith("<!DOCTYPE html>"), minute
        assert 'aria-label="blue"' in html
        assert f"{clock.at:%H:%M:%S} UTC" in html


def test_the_link_in_an_alert_opens_the_runbook_at_the_end_of_the_page(
    aws: AwsEndpoints, deployment: Deployment, functions: InProcess
) -> None:
    functions("StatusPageFunction", TICK)
    ((_, found),) = stored(aws).items()
    page = Seen(found["Body"].read().decode())
    sections = {value for tag, name, value in page.attributes if (tag, name) == ("h3", "id")}
    (runbooks,) = {
        deployment.environment(function)["EVENKEEL_RUNBOOK_URL"] for function in ("CheckFunction", "RebalanceFunction")
    }
    incidents = [Incident(kind=kind, since=NOW) for kind in IncidentKind]
    incidents += [Incident(kind=IncidentKind.MISSING, since=NOW, failure_class=each) for each in FailureClass]
    incidents += [Incident(kind=IncidentKind.MISSING, since=NOW, is_rollout=True)]
    for incident in incidents:
        opened = {**detail_of(alert()), **incident_json(incident, "blue", NOW, "evenkeel", runbooks)}
        _, body, _ = sent_by(PagerDuty, read_alert(json.dumps(opened)), key_secret="pd", url="https://events.example/")
        (address,) = [link["href"] for link in body["links"] if link["text"] == "Runbook"]
        assert address.removeprefix(f"{PAGE_URL}#") in sections, address


def test_a_page_that_cannot_be_put_is_an_error(functions: InProcess, aws: AwsEndpoints) -> None:
    aws.client("s3").delete_bucket(Bucket=BUCKET)
    try:
        with pytest.raises(AccessError, match=rf"s3://{BUCKET}/.*/index.html cannot be written: .*NoSuchBucket"):
            functions("StatusPageFunction", TICK)
    finally:
        aws.client("s3").create_bucket(Bucket=BUCKET, CreateBucketConfiguration={"LocationConstraint": aws.region})


def publish(aws: AwsEndpoints, place: str, *more: str) -> Result:
    environment = {**aws.environment(), "AWS_MAX_ATTEMPTS": "1"}
    arguments = ["report", "--plan", "-", "--publish", place, *more]
    result = CliRunner().invoke(app, arguments, input=json.dumps(plan_answer()), env=environment)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exc_info
    return result


def test_a_page_is_put_by_hand_with_the_callers_own_credentials(aws: AwsEndpoints, tmp_path: Any) -> None:
    file = tmp_path / "report.html"
    result = publish(aws, f"s3://{BUCKET}/night/plan.html", "--out", str(file))
    assert result.exit_code == 0, result.output
    assert result.stdout.splitlines() == [
        f"{file}: 1 pool, 1 zone fenced",
        f"s3://{BUCKET}/night/plan.html: 1 pool, 1 zone fenced",
    ]
    assert stored(aws)["night/plan.html"]["Body"].read() == file.read_bytes()


def test_a_bucket_that_is_not_there_is_one_line(aws: AwsEndpoints) -> None:
    result = publish(aws, "s3://no-such-bucket-here/x.html")
    (line,) = result.stderr.splitlines()
    assert result.exit_code == 1
    assert line.startswith("evenkeel: s3://no-such-bucket-here/x.html cannot be written: ")
    with pytest.raises(ClientError):
        aws.client("s3").head_bucket(Bucket="no-such-bucket-here")
