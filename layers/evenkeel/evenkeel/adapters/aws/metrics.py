"""Writes metrics as log lines in CloudWatch's embedded metric format.

CloudWatch bills a custom metric for each hour in which it is sent. So zeros are not sent, and metrics without an alarm
are sent only if the stack's settings request them. Otherwise, their values are plain fields in the log line.
"""

from collections.abc import Callable, Mapping

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

# The template has alarms on these metrics.
ALARMED = frozenset({"Incidents", "RunsFailed"})


class StackMetrics(AmazonCloudWatchEMFProvider):
    """Powertools' metrics. If ``everything`` returns True, metrics without an alarm are sent too."""

    def __init__(self, everything: Callable[[], bool]) -> None:
        super().__init__()
        self._everything = everything

    def flush_metrics(self, raise_on_empty_metrics: bool = False) -> None:
        """Send the metrics of an invocation. ``log_metrics`` calls it at the end."""
        for name, metric in list(self.metric_set.items()):
            if not any(metric["Value"]):
                del self.metric_set[name]
            elif name not in ALARMED and not self._everything():
                del self.metric_set[name]
                self.add_metadata(name, metric["Value"])
        if self.metric_set:
            super().flush_metrics(raise_on_empty_metrics)
        else:
            self.clear_metrics()


def write_metrics_of(cluster: str, counts: Mapping[str, int]) -> None:
    """Write a log line with a cluster's metrics, except zeros. The cluster is a second dimension of these metrics."""
    line = AmazonCloudWatchEMFProvider(metric_set={}, dimension_set={}, metadata_set={}, default_dimensions={})
    line.add_dimension("cluster", cluster)
    for name, count in counts.items():
        if count:
            line.add_metric(name, MetricUnit.Count, count)
    if line.metric_set:
        line.flush_metrics()
