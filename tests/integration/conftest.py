"""AWS endpoints for the integration tests: moto's server."""

import os
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from sandbox.aws import AwsEndpoints, Deployment
from sandbox.localstack import emulators
from sandbox.triggers import InProcess


@pytest.fixture(scope="session")
def aws() -> Iterator[AwsEndpoints]:
    with ExitStack() as stack:
        if os.environ.get("EVENKEEL_LOCALSTACK"):
            patch = stack.enter_context(pytest.MonkeyPatch.context())
            for name, url in stack.enter_context(emulators()).items():
                patch.setenv(name, url)
        yield stack.enter_context(AwsEndpoints())


@pytest.fixture
def deployment(aws: AwsEndpoints) -> Iterator[Deployment]:
    """Yield an empty stack made from template.yaml for this test, whose clusters are written."""
    with aws.deploy(parameters={"DryRun": "false"}) as made:
        yield made


@pytest.fixture
def dry_deployment(aws: AwsEndpoints) -> Iterator[Deployment]:
    """Yield the same with the template's defaults: no cluster is written."""
    with aws.deploy() as made:
        yield made


@pytest.fixture
def functions(deployment: Deployment) -> Iterator[InProcess]:
    """Yield the handlers, callable by their logical ids in the template."""
    with InProcess(deployment) as handlers:
        yield handlers


@pytest.fixture
def as_deployed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Set the variables that Powertools reads, for handlers that are loaded without a deployment."""
    variables = {"SERVICE_NAME": "evenkeel", "METRICS_NAMESPACE": "Evenkeel", "LOG_LEVEL": "CRITICAL"}
    for name, value in variables.items():
        monkeypatch.setenv(f"POWERTOOLS_{name}", value)
