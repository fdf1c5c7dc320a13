"""Clients have the models of botocore's own session, with fewer folders opened."""

import os
from typing import Any

import botocore.session
import pytest
from botocore.exceptions import DataNotFoundError, UnknownServiceError

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
