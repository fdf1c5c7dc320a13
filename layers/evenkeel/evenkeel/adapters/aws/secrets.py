"""Reads the kubeconfigs of clusters, and the keys of notification channels, from Secrets Manager."""

from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from evenkeel.adapters.aws_faults import AWS_ERRORS, access_error, text_of
from evenkeel.application.errors import AccessError

# How long a secret is cached: long enough for a burst of runs to share one read, and short enough to read a rotated
# secret soon.
_KEPT = timedelta(minutes=5)


class Secrets:
    """Returns secrets by name. Each secret is cached for five minutes."""

    def __init__(self, client: Any, now: Callable[[], datetime]) -> None:
        self._client = client
        self._now = now
        self._read: dict[str, tuple[str, datetime]] = {}

    def __call__(self, name: str, fresh: bool) -> str:
        """Return the secret's text. If ``fresh``, do not use the cache. Raises AccessError."""
        kept = self._read.get(name)
        if fresh or kept is None or self._now() >= kept[1]:
            kept = self._read[name] = (self._ask(name), self._now() + _KEPT)
        return kept[0]

    def _ask(self, name: str) -> str:
        try:
            answer = self._client.get_secret_value(SecretId=name)
        except AWS_ERRORS as error:
            kind, problem = access_error(error), text_of(error)
        else:
            if isinstance(text := answer.get("SecretString"), str):
                return text
            kind, problem = AccessError, "it is binary: store the text itself"
        raise kind(f"secret {name} cannot be read: {problem}")
