"""The environment of the functions."""

from collections.abc import Mapping
from typing import Self

from pydantic import Field

from evenkeel.validation import ConfigError, Strict, read_model


class _Environment(Strict):
    """The environment variables of a function."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Return the settings. Raises ConfigError with each variable that is missing or wrong."""
        faults, values = [], {}
        for field, about in cls.model_fields.items():
            name = f"EVENKEEL_{field.upper()}"
            if env.get(name):
                values[field] = env[name]
            elif about.is_required():
                faults.append(f"environment variable {name} is missing")
        if faults:
            raise ConfigError(faults)
        return read_model(cls, values, "environment")


class Settings(_Environment):
    """The variables that the template sets for every function."""

    table: str = Field(min_length=1)
    rebalance_queue_url: str = Field(min_length=1)
    checks_queue_url: str = Field(min_length=1)
    dead_letters_url: str = Field(min_length=1)
    alerts_queue_url: str = ""  # only for rebalance; empty: the stack notifies no chat and no pager
    bus: str = Field(min_length=1)
    dry_run: bool
    stack: str = "NAME"  # the stack's name, for commands in error texts
    runbook_url: str = ""  # empty: the file of the repository
    token_key: str = ""  # ARN of the KMS key that encrypts tokens; empty: there is none
    page: str = ""  # the object of the status page, s3://BUCKET/KEY; empty: no page
    all_metrics: bool = False  # True: metrics without an alarm are sent, too; CloudWatch bills each
    allow_loopback: bool = False  # True: clusters may be on this machine; only the sandbox sets it


class AlertSettings(_Environment):
    """The variables of ``notify``, one or two for each channel. A channel whose variable is empty is not used."""

    chat_topic: str = ""  # ARN of the SNS topic
    slack_secret: str = ""  # name of a secret in Secrets Manager, as in the other fields ``*_secret``
    teams_secret: str = ""
    pagerduty_secret: str = ""
    pagerduty_url: str = ""
    opsgenie_secret: str = ""
    opsgenie_url: str = ""
    alertmanager_url: str = ""
    alertmanager_secret: str = ""
    page_url: str = ""  # the address of the status page
