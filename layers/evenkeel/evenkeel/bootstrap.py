"""The one place that connects ports to adapters. A client is created with the first use case that needs it.

A use case is imported where it is made, so that each function loads only its own modules. A stack with Auto Scaling
groups alone loads no client of Kubernetes.
"""

import gc
import json
import logging
import os
import random
from collections.abc import Mapping
from datetime import UTC, datetime
from functools import cache, cached_property
from threading import Lock
from time import sleep
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.logging.utils import copy_config_to_registered_loggers

from evenkeel.adapters.aws.queues import TRIES, EventBridgeBus, QueueUrls, SqsAlerts, SqsQueue
from evenkeel.adapters.aws.secrets import Secrets
from evenkeel.adapters.aws.store import DynamoStore
from evenkeel.adapters.aws.token_store import SealedTokens
from evenkeel.adapters.aws_session import CHECKS, RUNS, AwsSession
from evenkeel.adapters.thread_pool import all_at_once, run_in_threads
from evenkeel.application.ports import RUNBOOKS, Clock, PageStore, Remaining
from evenkeel.settings import Settings

# Checks and runs create no reference cycles, and a large cluster has a million objects. With Python's default
# thresholds, collections take a quarter of the time that a large cluster's check takes.
gc.set_threshold(50_000, 10, 50)

if TYPE_CHECKING:
    from evenkeel.adapters.auto_scaling.clusters import AutoScalingClusters
    from evenkeel.adapters.aws.batches import Inbox
    from evenkeel.adapters.aws.metrics import StackMetrics
    from evenkeel.adapters.clusters import ClustersByAccess
    from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters
    from evenkeel.application.fleet.scan import Scan
    from evenkeel.application.incidents.alerting import NotifyChannels
    from evenkeel.application.operate import Operate
    from evenkeel.application.rebalancing.check import CheckClusters
    from evenkeel.application.rebalancing.events import ReceiveEvent
    from evenkeel.application.rebalancing.failure import RecordFailure
    from evenkeel.application.rebalancing.rebalance import Rebalance


class SystemClock:
    """This machine's clock."""

    def now(self) -> datetime:
        """Return the current time in UTC."""
        return datetime.now(UTC)

    def sleep(self, seconds: float) -> None:
        """Wait for this many seconds."""
        sleep(seconds)


def log_line(fields: dict[str, Any]) -> str:
    """Return a log line as JSON, without the function's facts that its log group names or that never change."""
    kept = {name: value for name, value in fields.items() if name not in ("function_arn", "function_memory_size")}
    return json.dumps(kept, default=str, separators=(",", ":"), ensure_ascii=False)


def make_logger() -> Logger:
    """Return Powertools' logger. The standard logger of Evenkeel's modules gets Powertools' handler."""
    # The logger's name is the stack's name, from POWERTOOLS_SERVICE_NAME.
    logger = Logger(json_serializer=log_line)
    logging.getLogger("evenkeel")  # registers the logger, so that the next line can copy the handler to it
    copy_config_to_registered_loggers(logger, include={"evenkeel"})
    return logger


def make_metrics() -> "StackMetrics":
    """Return the stack's metrics, which are sent at the end of an invocation."""
    from evenkeel.adapters.aws.metrics import StackMetrics

    # Settings may be invalid here, so the environment is read directly. The invocation reports invalid settings.
    return StackMetrics(everything=lambda: os.environ.get("EVENKEEL_ALL_METRICS") == "true")


def remaining_of(context: Any) -> Remaining:
    """Return a function for the invocation's remaining seconds. Without a context (in a local call), it returns 60."""
    if context is None:
        return lambda: 60.0
    return lambda: float(context.get_remaining_time_in_millis()) / 1000


class Container:
    """The use cases of one function instance, each created at its first use."""

    def __init__(
        self, environment: Mapping[str, str] | None = None, clock: Clock | None = None, *, writes: bool = True
    ) -> None:
        """Read the settings. Raises ConfigError if a variable of the environment is missing or wrong.

        ``writes``: True if the function writes to clusters. A function that only reads clusters uses another identity.
        """
        self._writes = writes
        self._session = AwsSession()
        self._opening = Lock()  # many threads open their clusters at once, and share what opens them
        environment = os.environ if environment is None else environment
        self.settings = Settings.from_env(environment)
        self.clock: Clock = clock or SystemClock()

    def _client(self, service: str, region: str | None = None) -> Any:
        return self._session.client(service, config=RUNS if self._writes else CHECKS, region_name=region)

    @cached_property
    def _dynamodb(self) -> Any:
        return self._client("dynamodb")

    @cached_property
    def store(self) -> DynamoStore:
        """Return the store, which is the DynamoDB table."""
        return DynamoStore(self._dynamodb, self.settings.table, self.clock.now)

    @cached_property
    def _queue(self) -> SqsQueue:
        return SqsQueue(
            self._client("sqs"),
            QueueUrls(
                rebalance=self.settings.rebalance_queue_url,
                checks=self.settings.checks_queue_url,
                dead_letters=self.settings.dead_letters_url,
            ),
        )

    @cached_property
    def clusters(self) -> "ClustersByAccess":
        """Return the access to clusters. A warm function reuses its connections."""
        from evenkeel.adapters.clusters import ClustersByAccess

        return ClustersByAccess(kubernetes=self._kubernetes, auto_scaling=self._auto_scaling)

    def _kubernetes(self) -> "RecordedClusters":
        with self._opening:
            return self._kubernetes_clusters

    def _auto_scaling(self) -> "AutoScalingClusters":
        with self._opening:
            return self._auto_scaling_clusters

    @cached_property
    def _auto_scaling_clusters(self) -> "AutoScalingClusters":
        from evenkeel.adapters.auto_scaling.clusters import AutoScalingClusters
        from evenkeel.adapters.auto_scaling.node_groups import NodeGroups
        from evenkeel.adapters.aws.group_decisions import DynamoGroupDecisions
        from evenkeel.adapters.aws.node_group_store import DynamoNodeGroups

        table = (self._dynamodb, self.settings.table, self.clock.now)
        return AutoScalingClusters(
            session=self._session,
            clock=self.clock,
            drainer=lambda record, remaining: self._kubernetes().open_drainer(record, remaining),
            node_groups=NodeGroups(random=random.random, store=DynamoNodeGroups(*table), saves=self._writes),
            decisions=DynamoGroupDecisions(*table),
            writes=self._writes,
            stack=self.settings.stack,
        )

    @cached_property
    def _kubernetes_clusters(self) -> "RecordedClusters":
        from evenkeel.adapters.kubernetes.access.clusters import RecordedClusters

        return RecordedClusters(
            session=self._session,
            secret=self._secrets,
            clock=self.clock,
            writes=self._writes,
            allow_loopback=self.settings.allow_loopback,
            vault=self._vault,
        )

    @cached_property
    def _secrets(self) -> Secrets:
        return Secrets(self._client("secretsmanager"), self.clock.now)

    @cached_property
    def _vault(self) -> SealedTokens | None:
        if not self.settings.token_key:
            return None
        return SealedTokens(self._dynamodb, self._client("kms"), self.settings.table, self.settings.token_key)

    @cached_property
    def scan(self) -> "Scan":
        """Return the use case of functions/scan."""
        from evenkeel.application.fleet.scan import Scan

        return Scan(store=self.store, queue=self._queue, clock=self.clock, together=run_in_threads)

    @cached_property
    def inbox(self) -> "Inbox":
        """Return the inbox of a standard queue."""
        from evenkeel.adapters.aws.batches import Inbox

        return Inbox(queue=self._queue)

    @cached_property
    def rebalance_inbox(self) -> "Inbox":
        """Return the inbox of the rebalance queue.

        SQS moves the dead letters of a FIFO queue only to another FIFO queue, which would need an alarm of its own.
        """
        from evenkeel.adapters.aws.batches import Inbox

        return Inbox(queue=self._queue, tries=TRIES)

    @cached_property
    def _bus(self) -> EventBridgeBus:
        return EventBridgeBus(self._client("events"), self.settings.bus)

    @cached_property
    def _alerts(self) -> SqsAlerts | None:
        url = self.settings.alerts_queue_url
        return SqsAlerts(self._client("sqs"), url) if url else None

    @cached_property
    def check(self) -> "CheckClusters":
        """Return the use case of functions/check."""
        from evenkeel.application.rebalancing.check import CheckClusters

        return CheckClusters(
            store=self.store,
            clusters=self.clusters,
            queue=self._queue,
            clock=self.clock,
            dry_run=self.settings.dry_run,
            together=all_at_once,
        )

    @cached_property
    def rebalance(self) -> "Rebalance":
        """Return the use case of functions/rebalance for runs."""
        from evenkeel.application.rebalancing.rebalance import Rebalance

        return Rebalance(
            store=self.store,
            clusters=self.clusters,
            queue=self._queue,
            bus=self._bus,
            alerts=self._alerts,
            clock=self.clock,
            random_bytes=os.urandom,
            dry_run=self.settings.dry_run,
            stack=self.settings.stack,
            runbooks=self.settings.runbook_url or RUNBOOKS,
            together=run_in_threads,
        )

    @cached_property
    def record_failure(self) -> "RecordFailure":
        """Return the use case that records provisioning failures. The benchmarks call it without an event."""
        from evenkeel.application.rebalancing.failure import RecordFailure

        return RecordFailure(store=self.store, queue=self._queue, clock=self.clock)

    @cached_property
    def receive_event(self) -> "ReceiveEvent":
        """Return the use case of functions/provisioning_failure."""
        from evenkeel.adapters.aws.idempotency import DynamoIdempotency
        from evenkeel.application.rebalancing.events import ReceiveEvent
        from evenkeel.application.rebalancing.request_scale import RequestScale
        from evenkeel.application.rebalancing.zones import RecordZoneShift

        return ReceiveEvent(
            record_failure=self.record_failure,
            record_zone_shift=RecordZoneShift(store=self.store, queue=self._queue, clock=self.clock),
            request_scale=RequestScale(store=self.store, queue=self._queue, clock=self.clock),
            idempotent=DynamoIdempotency(self._dynamodb, self.settings.table, "provisioning_failure"),
        )

    @cached_property
    def notify_channels(self) -> "NotifyChannels":
        """Return the use case of functions/notify."""
        from evenkeel.adapters.alerts.channels import Alertmanager, ChatTopic, Opsgenie, PagerDuty, Shared, Slack, Teams
        from evenkeel.adapters.alerts.https import HttpsPost
        from evenkeel.adapters.aws.alert_memory import DynamoAlertMemory
        from evenkeel.application.incidents.alerting import Channel, NotifyChannels
        from evenkeel.settings import AlertSettings

        settings = AlertSettings.from_env(os.environ)
        post = HttpsPost(allow_loopback=self.settings.allow_loopback)
        shared = Shared(secret=lambda name: self._secrets(name, False), post=post, page=settings.page_url)
        channels: list[Channel] = []  # chats are first, because a slow pager may use up the remaining time
        if settings.chat_topic:
            sns = self._client("sns")
            channels.append(ChatTopic(client=sns, topic=settings.chat_topic, page=settings.page_url))
        if settings.slack_secret:
            channels.append(Slack(shared=shared, url_secret=settings.slack_secret))
        if settings.teams_secret:
            channels.append(Teams(shared=shared, url_secret=settings.teams_secret))
        if settings.pagerduty_secret:
            channels.append(PagerDuty(shared=shared, key_secret=settings.pagerduty_secret, url=settings.pagerduty_url))
        if settings.opsgenie_secret:
            channels.append(Opsgenie(shared=shared, key_secret=settings.opsgenie_secret, url=settings.opsgenie_url))
        if url := settings.alertmanager_url:
            channels.append(Alertmanager(shared=shared, url=url, header_secret=settings.alertmanager_secret))
        memory = DynamoAlertMemory(self._dynamodb, self.settings.table, self.clock.now)
        runbooks = self.settings.runbook_url or RUNBOOKS
        return NotifyChannels(channels=channels, memory=memory, clock=self.clock, runbooks=runbooks)

    @cached_property
    def operate(self) -> "Operate":
        """Return the use case of functions/admin, operator, widget and status_page."""
        from evenkeel.adapters.aws.zone_names import ZoneNames
        from evenkeel.adapters.codec import pack
        from evenkeel.application.operate import Operate

        return Operate(
            store=self.store,
            clusters=self.clusters,
            queue=self._queue,
            clock=self.clock,
            random_bytes=os.urandom,
            pack=pack,
            dry_run=self.settings.dry_run,
            zone_names=ZoneNames(lambda region: self._client("ec2", region)),
            stack=self.settings.stack,
            runbooks=self.settings.runbook_url or RUNBOOKS,
            together=run_in_threads,
        )

    @cached_property
    def shelf(self) -> PageStore:
        """Return the bucket in which functions/status_page stores the page."""
        from evenkeel.adapters.aws.page_bucket import S3PageStore

        s3 = self._client("s3")
        return S3PageStore(lambda: s3, self.settings.page)


_clock: Clock = SystemClock()


def use_clock(clock: Clock) -> None:
    """Replace the clock. The demo and tests use a clock with shorter minutes."""
    global _clock
    _clock = clock
    container.cache_clear()


@cache
def container(*, writes: bool = True) -> Container:
    """Return the container of this function instance. ``writes``: see ``Container``."""
    return Container(clock=_clock, writes=writes)
