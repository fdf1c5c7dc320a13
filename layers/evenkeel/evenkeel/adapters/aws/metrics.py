"""Metrics as log lines (embedded metric format), and which of them are worth their price.

CloudWatch bills a metric of ours by the hour, for hours in which it is sent (Amazon CloudWatch pricing). So a zero is
not sent, and neither is what nobody reads. A line that is written anyway says the other numbers too, as plain fields.
"""

from collections.abc import Callable, Mapping

from aws_lambda_powertools.metrics import MetricUnit
from aws_lambda_powertools.metrics.provider.cloudwatch_emf.cloudwatch import AmazonCloudWatchEMFProvider

# Its zero is sent: silence is what its alarm hears.
HEARTBEAT = "ClustersScanned"
# The metrics that alarms of the template read.
ALARMED = frozenset({HEARTBEAT, "Incidents", "RunsFailed"})


class StackMetrics(AmazonCloudWatchEMFProvider):
    """Powertools' metrics. ``everything`` says whether somebody reads those without an alarm, too."""

    def __init__(self, everything: Callable[[], bool]) -> None:
        super().__init__()
        self._everything = everything

    def flush_metrics(self, raise_on_empty_metrics: bool = False) -> None:
        """At the end of an invocation, by ``log_metrics``."""
        for name, metric in list(self.metric_set.items()):
            if name == HEARTBEAT:
                continue
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
    """A line with a cluster's own metrics, zeros left out: beside the stack's, with the cluster as second dimension."""
    line = AmazonCloudWatchEMFProvider(metric_set={}, dimension_set={}, metadata_set={}, default_dimensions={})
    line.add_dimension("cluster", cluster)
    for name, count in counts.items():
        if count:
            line.add_metric(name, MetricUnit.Count, count)
    if line.metric_set:
        line.flush_metrics()
