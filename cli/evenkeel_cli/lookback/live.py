"""Read activities from AWS, slowly, so that cluster-autoscaler keeps its share of the account's calls.

The caller needs autoscaling:DescribeAutoScalingGroups and autoscaling:DescribeScalingActivities. Activities are read
day by day for the account and Region, because this is the only way to those of deleted groups. A cache directory keeps
each day that is read, in the form of the AWS command line.
"""

import json
import time
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from botocore.exceptions import ClientError

from evenkeel.adapters.aws_faults import code_of, part_of
from evenkeel.application.errors import ClusterUnavailableError
from evenkeel_cli.auto_scaling import Reader
from evenkeel_cli.console import progress
from evenkeel_cli.lookback.auto_scaling import Answers
from evenkeel_cli.terminal import write_text

_PAGE = 100
_THROTTLED = ("Throttl", "RequestLimitExceeded", "TooManyRequests")
_PATIENCE = 5  # repeated calls, each after twice the time
_FIRST_WAIT = 5.0


class SlowReader:
    """Calls EC2 Auto Scaling at most ``rate`` times a second. ``sleep`` waits for seconds."""

    def __init__(self, aws: Any, rate: float, sleep: Any = time.sleep) -> None:
        self._reader = Reader(aws, "autoscaling")
        self._apart, self._sleep = 1 / rate, sleep

    def pages(self, operation: str, part: str, **request: Any) -> list[dict[str, Any]]:
        """Return the items of all pages of an answer. A page may be short: only NextToken says that more follow."""
        items: list[dict[str, Any]] = []
        while True:
            answer = self._call(operation, {**request, "MaxRecords": _PAGE})
            items += part_of(answer, part)
            if not answer.get("NextToken"):
                return items
            request["NextToken"] = answer["NextToken"]

    def _call(self, operation: str, request: Mapping[str, Any]) -> Mapping[str, Any]:
        wait = _FIRST_WAIT
        for _ in range(_PATIENCE):
            self._sleep(self._apart)
            try:
                answer: Mapping[str, Any] = getattr(self._reader, operation)(**request)
                return answer
            except ClientError as error:
                if not code_of(error).startswith(_THROTTLED):
                    raise ClusterUnavailableError(f"AWS refused {operation}: {error}") from None
            self._sleep(wait)
            wait *= 2
        raise ClusterUnavailableError("AWS throttles the account: repeat the command later, with the same --cache")


def read_live(reader: SlowReader, days: int, cache: Path | None, now: datetime) -> Answers:
    """Return the answers of AWS about the last days. Days that the cache has are not read again.

    Raises:
        AccessError, ClusterUnavailableError, CommandError: AWS does not answer, or the cache cannot be written.
    """
    answers = Answers()
    answers.has_activities = True
    answers.groups += reader.pages("describe_auto_scaling_groups", "AutoScalingGroups")
    start = (now - timedelta(days=days)).astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    with progress("activities", "days", days + 1) as report:
        for number in range(days + 1):
            day = start + timedelta(days=number)
            answers.activities += _read_day(reader, day, cache, now)
            report(number + 1)
    return answers


def _read_day(reader: SlowReader, day: datetime, cache: Path | None, now: datetime) -> list[dict[str, Any]]:
    until = day + timedelta(days=1)
    name = None if cache is None else cache / f"activities-{day:%Y-%m-%d}.json"
    if name is not None and name.is_file():
        kept = Answers()
        kept.read_files([(str(name), name.read_text(encoding="utf-8"))])
        return kept.activities
    span = {"StartTimeLowerBound": day, "StartTimeUpperBound": until - timedelta(seconds=1)}
    filters = [{"Name": key, "Values": [f"{at:%Y-%m-%dT%H:%M:%SZ}"]} for key, at in span.items()]
    found = reader.pages("describe_scaling_activities", "Activities", IncludeDeletedGroups=True, Filters=filters)
    if name is not None and until < now - timedelta(hours=1):  # activities of an unfinished day would be lost
        name.parent.mkdir(parents=True, exist_ok=True)
        write_text(str(name), json.dumps({"Activities": found}, default=lambda moment: moment.isoformat()))
    return found
