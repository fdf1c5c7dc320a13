"""Clients have the models of botocore's own session, with fewer folders opened."""

import os
from typing import Any

import botocore.session
import pytest
from botocore.awsrequest import AWSPreparedRequest
from botocore.config import Config
from botocore.exceptions import DataNotFoundError, UnknownServiceError
from botocore.handlers import BUILTIN_HANDLERS
from botocore.hooks import BaseEventHooks, EventAliaser

from evenkeel.adapters.aws import session
from evenkeel.adapters.aws.session import open_session

SERVICES = ("dynamodb", "sqs", "events", "secretsmanager", "eks", "sts", "ssm", "kms")


@pytest.fixture(autouse=True)
def as_in_lambda(monkeypatch: pytest.MonkeyPatch) -> None:
    variables = {"DEFAULT_REGION": "eu-central-1", "ACCESS_KEY_ID": "test", "SECRET_ACCESS_KEY": "test"}
    for name, value in variables.items():
        monkeypatch.setenv(f"AWS_{name}", value)


@pytest.mark.parametrize("service", SERVICES)
def test_a_client_has_the_model_of_botocore(service: str) -> None:
    ours, theirs = (session.create_client(service).meta for session in (open_session(), botocore.session.Session()))
    assert ours.service_model.api_version == theirs.service_model.api_version
    assert ours.service_model.operation_names == theirs.service_model.operation_names
    assert ours.endpoint_url == theirs.endpoint_url


REQUESTS: dict[str, tuple[str, dict[str, str]]] = {
    "dynamodb": ("list_tables", {}),
    "sqs": ("list_queues", {}),
    "events": ("list_rules", {}),
    "secretsmanager": ("list_secrets", {}),
    "sns": ("list_topics", {}),
    "kms": ("list_keys", {}),
    "s3": ("put_object", {"Bucket": "bucket", "Key": "index.html", "Body": ""}),
    "ec2": ("describe_availability_zones", {}),
    "eks": ("list_clusters", {}),
    "sts": ("get_caller_identity", {}),
}


class _NotSentError(Exception):
    pass


def request_of(session: botocore.session.Session, service: str, region: str, config: Config) -> tuple[str, str]:
    """The URL of a request, and the scope of its signature."""
    requests: list[tuple[str, str]] = []

    def keep(request: AWSPreparedRequest, **_: Any) -> None:
        signature = request.headers["Authorization"]
        text = signature.decode() if isinstance(signature, bytes) else signature
        requests.append((request.url, text.split("/", 2)[2].partition(",")[0]))
        raise _NotSentError

    client = session.create_client(service, region_name=region, config=config)
    client.meta.events.register("before-send", keep)
    operation, parameters = REQUESTS[service]
    with pytest.raises(_NotSentError):
        getattr(client, operation)(**parameters)
    (request,) = requests
    return request


@pytest.mark.parametrize(
    ("region", "config"),
    [
        *((region, Config()) for region in ("eu-central-1", "us-east-1", "us-gov-west-1", "cn-north-1", "xx-new-1")),
        *(("us-east-1", Config(use_fips_endpoint=True, use_dualstack_endpoint=dual)) for dual in (False, True)),
        ("eu-central-1", Config(use_dualstack_endpoint=True)),
    ],
)
def test_a_request_goes_where_botocore_sends_it(region: str, config: Config) -> None:
    ours, theirs = open_session(), botocore.session.Session()
    for service in REQUESTS:
        assert request_of(ours, service, region, config) == request_of(theirs, service, region, config)


class _Names(BaseEventHooks):  # type: ignore[misc]
    def emit(self, event_name: str, **_: Any) -> Any:
        return event_name


def test_no_handler_of_a_called_operation_has_a_former_name_of_a_service() -> None:
    called = {"auto-scaling"}
    for service in REQUESTS:
        called.add(open_session().create_client(service).meta.service_model.service_id.hyphenize())
    events = [event for event, *_ in BUILTIN_HANDLERS if "." in event and not event.startswith("docs.")]
    present = {event: EventAliaser(_Names()).emit(event) for event in events}
    former = [event for event, name in present.items() if event != name and name.split(".")[1] in called]
    assert former == ["before-parameter-build.autoscaling.CreateLaunchConfiguration"]


def test_an_unknown_service_or_model_is_an_error() -> None:
    with pytest.raises(UnknownServiceError, match="dynamo-db"):
        open_session().create_client("dynamo-db")
    with pytest.raises(DataNotFoundError):
        open_session().get_component("data_loader").load_service_model("sqs", "no-such-type-1")


def test_no_other_services_folder_is_opened(monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[str] = []
    listdir = os.listdir

    def counted(path: Any = ".") -> list[str]:
        opened.append(str(path))
        return listdir(path)

    monkeypatch.setattr(os, "listdir", counted)
    session._ModelsOfServices.cache_clear()  # type: ignore[attr-defined]  # conftest.py caches it
    open_session().create_client("sqs")
    services = {path for path in opened if f"{os.sep}botocore{os.sep}data{os.sep}" in path}
    assert {os.path.basename(path) for path in services} == {"sqs"}  # noqa: PTH119  as botocore joins them
