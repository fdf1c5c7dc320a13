"""Read Auto Scaling groups of AWS itself, with the caller's own credentials."""

import random
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import timedelta
from typing import Any, TypeVar

from botocore.config import Config
from botocore.exceptions import NoCredentialsError, NoRegionError

from evenkeel.access_config import ROLE_ARN
from evenkeel.adapters.auto_scaling.api import AutoScalingApi, Filters
from evenkeel.adapters.auto_scaling.cluster import AutoScalingCluster
from evenkeel.adapters.auto_scaling.node_groups import NodeGroups
from evenkeel.adapters.auto_scaling.read import Described
from evenkeel.adapters.aws_faults import AWS_ERRORS, part_of
from evenkeel.adapters.thread_pool import THREADS
from evenkeel.application.errors import AccessError
from evenkeel.application.ports import Remaining
from evenkeel.application.rebalancing.observe import read_cluster
from evenkeel.bootstrap import SystemClock
from evenkeel.domain.model.choices import DemandStage
from evenkeel.domain.model.observations import Observation
from evenkeel.domain.model.reasons import Reason, Rule
from evenkeel.domain.model.states import ClusterState
from evenkeel.domain.model.values import quote
from evenkeel_cli.aws_documents import AwsDocuments, is_of_cluster, not_of_clusters
from evenkeel_cli.cluster_file import ClusterFile
from evenkeel_cli.stack_client import CannotAskError, service_error, session
from evenkeel_cli.terminal import BAD_INPUT

_PATIENCE = timedelta(minutes=2)
# AutoScalingApi repeats calls.
_CONFIG = Config(connect_timeout=5, read_timeout=20, retries={"total_max_attempts": 1}, max_pool_connections=THREADS)


class Reader:
    """A client of AWS. For a fault of the caller's credentials, rights or network, it raises AccessError."""

    def __init__(self, aws: Any, service: str) -> None:
        self._client, self._service = aws.client(service, config=_CONFIG), service

    def __getattr__(self, operation: str) -> Callable[..., Any]:
        def call(**request: Any) -> Any:
            name = "".join(word.title() for word in operation.split("_"))
            try:
                return getattr(self._client, operation)(**{key: value for key, value in request.items() if value != []})
            except AWS_ERRORS as error:
                fault = service_error(error, self._service, f"{self._service}:{name}")
                if fault is None:
                    raise
            raise AccessError(str(fault))

        return call


class _Groups(AutoScalingApi):
    """Reads the groups that a record selects by discovery or, without discovery, all groups of Kubernetes clusters."""

    discovers = False  # True: the record has discovery
    others = 0  # the groups without a tag of a cluster
    read: Sequence[dict[str, Any]] = ()  # the groups that ``groups`` has returned

    def groups(self, filters: Filters) -> list[Described]:
        """Return the groups."""
        groups = super().groups(filters if self.discovers else ())
        chosen = [group for group in groups if self.discovers or is_of_cluster(group)]
        self.others = len(groups) - len(chosen)
        self.read = [{**group} for group in chosen]
        return chosen


def own_session(role_arn: str | None) -> Any:
    """Return a session with the caller's credentials, or with those of a role that the caller may assume.

    Raises:
        CannotAskError: There are no credentials or no Region, or the role cannot be assumed.
    """
    import boto3

    if role_arn is not None and re.fullmatch(ROLE_ARN, role_arn) is None:
        raise CannotAskError(f"--role-arn is {quote(role_arn)}: write arn:aws:iam::ACCOUNT:role/NAME", BAD_INPUT)
    try:
        aws = session()
        if aws.region_name is None:
            raise NoRegionError
        if aws.get_credentials() is None:
            raise NoCredentialsError
        if role_arn is None:
            return aws
        answer = aws.client("sts", config=_CONFIG).assume_role(RoleArn=role_arn, RoleSessionName="evenkeel")
        keys = part_of(answer, "Credentials")
    except AWS_ERRORS as error:
        fault = service_error(error, "AWS", "sts:AssumeRole", f" for {role_arn}") or CannotAskError(
            f"role {role_arn}: {error}"
        )
        raise fault from None
    return boto3.Session(
        aws_access_key_id=keys["AccessKeyId"],
        aws_secret_access_key=keys["SecretAccessKey"],
        aws_session_token=keys["SessionToken"],
        region_name=aws.region_name,
    )


def read_all_groups(aws: Any) -> list[Described]:
    """Return all Auto Scaling groups of a session's account and Region.

    Raises:
        AccessError, ClusterUnavailableError: no valid credentials, no rights, or AWS does not answer.
    """
    return _api(AutoScalingApi, aws).groups(())


def observe(policy: ClusterFile, state: ClusterState, aws: Any, of_aws: AwsDocuments | None = None) -> Observation:
    """Return an observation of the Auto Scaling groups of a session's account and Region. Add them to ``of_aws``.

    Raises:
        AccessError, ClusterUnavailableError: no valid credentials, no rights, or AWS does not answer.
    """
    api = _api(_Groups, aws)
    api.discovers = bool(policy.discovery)
    policy = policy.model_copy(update={"region": aws.region_name})
    observation = read_cluster(api.name, AutoScalingCluster(api, policy, {}, consistent=False), state)
    is_off = policy.demand_stage is DemandStage.OFF
    error = "plan --auto-scaling reads no pods: let the stack plan"
    unread = None if is_off else Reason.of(Rule.WORKLOAD_UNREAD, error=error)
    skipped = (*not_of_clusters(api.others), *observation.skipped)
    if of_aws is not None:
        of_aws.groups += api.read
    return replace(observation, skipped=skipped, workload_unread=unread)


_Api = TypeVar("_Api", bound=AutoScalingApi)


def _api(kind: type[_Api], aws: Any) -> _Api:
    clock = SystemClock()
    end = clock.now() + _PATIENCE
    remaining: Remaining = lambda: (end - clock.now()).total_seconds()  # noqa: E731
    groups, eks = Reader(aws, "autoscaling"), Reader(aws, "eks")
    return kind(
        f"Auto Scaling in {aws.region_name}",
        auto_scaling=lambda: groups,
        eks=lambda: eks,
        node_groups=NodeGroups(random=random.random, share=1),
        clock=clock,
        remaining=remaining,
    )
