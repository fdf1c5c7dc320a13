"""A cluster's record, which people write, and its control record, which operator actions write."""
# ruff: noqa: RUF012  (pydantic copies its defaults)

import re
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    PlainValidator,
    Tag,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)

from evenkeel.access_config import (
    AWS_REGION,
    Access,
    AutoScalingAccess,
    AwsAccess,
    KubeconfigAccess,
    SameAccess,
    SecretAccess,
    WorkloadEntry,
)
from evenkeel.capabilities import CLUSTER_SETTINGS, SETTINGS, CapabilityPoolFields, ClusterFields, RegisteredFields
from evenkeel.domain.fleet.check_times import AUTO, Interval
from evenkeel.domain.model.choices import DemandStage, Level, OnFailure, Strategy
from evenkeel.domain.model.convergence import WINDOW_PATTERN, ConvergePolicy, Window
from evenkeel.domain.model.flavours import AUTO_SCALING, FLAVOUR_NAMES, FlavourName
from evenkeel.domain.model.fleet import LABEL_KEY, LABEL_VALUE
from evenkeel.domain.model.groups import PROVISION_TIMEOUT, PoolId
from evenkeel.domain.model.incidents import TROUBLE_AFTER
from evenkeel.domain.model.origins import POOL_LABEL
from evenkeel.domain.model.policy import BackoffPolicy, Leave, Policy, PoolRule, PoolSettings
from evenkeel.domain.model.problems import Problem, ProblemKind
from evenkeel.domain.model.similarity import GARDENER, Similarity
from evenkeel.domain.model.values import LARGEST_COUNT, BadValueError, quote
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.strategies import read_strategy
from evenkeel.domain.rebalancing.dry_run import is_cluster_dry
from evenkeel.domain.rebalancing.membership.discovery import Discovery, discovery_forms
from evenkeel.domain.rebalancing.membership.pausing import lasts, still_paused
from evenkeel.domain.rebalancing.restore import is_restored
from evenkeel.validation import (
    DISCOVERED,
    LISTED,
    NUMBER,
    WORD,
    ClusterId,
    Count,
    KubernetesName,
    Moment,
    PoolName,
    Strict,
)


def _discovery(value: str) -> str:
    Discovery.read(value)
    return value


StrategyName = Annotated[
    Strategy,
    PlainValidator(read_strategy, json_schema_input_type=str),
    PlainSerializer(lambda strategy: strategy.name, return_type=str),
]
OnFailureName = Annotated[OnFailure, BeforeValidator(OnFailure.read)]
LevelName = Annotated[Level, BeforeValidator(Level.read)]
DemandName = Annotated[DemandStage, BeforeValidator(DemandStage.read)]
ConfigMapName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
        description="NAMESPACE/NAME of a ConfigMap",
    ),
]
# The form (word or number) is chosen first, so that a wrong value is reported once.
ProvisionTimeout = Annotated[
    Annotated[Literal["auto"], Tag(WORD)] | Annotated[int, Field(ge=60, le=7200), Tag(NUMBER)],
    Discriminator(lambda value: WORD if value == AUTO else NUMBER),
    Field(description="seconds within which a new node must register; auto: learned from machines, 900 at most"),
]
# The minimum is twice the smallest provision_timeout, because with a shorter time, an autoscaler deletes machines that
# still boot. The maximum is Cluster Autoscaler's default.
TroubleAfter = Annotated[int, Field(ge=0, le=86400, description="seconds until a missing node is an incident")]
MaxStep = Annotated[int, Field(ge=1, le=LARGEST_COUNT, strict=True, description="nodes that one run may add to a pool")]
Expander = Literal["least-waste", "order"]
ExpanderOrder = Annotated[tuple[PoolName, ...], Field(min_length=1, max_length=1000, description="pools by name or id")]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]  # a prefix of 253 characters, a slash and a name of 63
BuyingAccount = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z-]{0,63}$")]
ClusterLabels = Annotated[
    dict[Annotated[str, Field(pattern=f"^{LABEL_KEY}$")], Annotated[str, Field(pattern=f"^{LABEL_VALUE}$")]],
    Field(max_length=64),
]
AccountId = Annotated[str, Field(pattern=r"^[0-9]{12}$")]


def _seconds(length: timedelta) -> int:
    return int(length.total_seconds())


def _timeout(seconds: Literal["auto"] | int) -> dict[str, Any]:
    """Return the domain's settings of a provision timeout."""
    if seconds == AUTO:
        return {"provision_timeout": PROVISION_TIMEOUT, "timeout_mode": "auto"}
    return {"provision_timeout": timedelta(seconds=seconds), "timeout_mode": "set"}


class BackoffEntry(Strict):
    """Durations of the backoff, in seconds. The defaults are Cluster Autoscaler's."""

    initial: int = Field(default=_seconds(BackoffPolicy.initial), ge=30, le=3600)
    longest: int = Field(default=_seconds(BackoffPolicy.longest), ge=30, le=21600)
    forget_after: int = Field(default=_seconds(BackoffPolicy.forget_after), ge=300, le=86400)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if not self.initial <= self.longest <= self.forget_after:
            raise ValueError("it must hold that initial <= longest <= forget_after")
        return self

    def policy(self) -> BackoffPolicy:
        """Return the domain's durations."""
        return BackoffPolicy(**{name: timedelta(seconds=length) for name, length in self})


# GEP-24's field names ("Shoot Spec Enhancement") -> Evenkeel's names, under which a record is stored.
OTHER_NAMES = {
    "nodeGroupSizingStrategy": "strategy",
    "sizingStrategy": "strategy",
    "sizing": "strategy",
    "nodeGroupAutoDiscovery": "discovery",
}


def _as_usual(data: object) -> object:
    """Return the record with the flavour and the region of an access to Auto Scaling groups, if it has no others."""
    access = data.get("access") if isinstance(data, Mapping) else None
    if not isinstance(data, Mapping) or not isinstance(access, Mapping) or access.get("kind") != AUTO_SCALING:
        return data
    region = str(access.get("region"))
    usual = {"flavours": (AUTO_SCALING,), **({"region": region} if re.fullmatch(AWS_REGION, region) else {})}
    return {**usual, **data}


def _in_our_words(data: object) -> object:
    """Return the record with GEP-24's field names replaced by Evenkeel's."""
    if not isinstance(data, Mapping):
        return data
    renamed = dict(data)
    for other, name in OTHER_NAMES.items():
        if other not in renamed:
            continue
        value = renamed.pop(other)
        if name in renamed:
            raise ValueError(f"{other} is another name of {name}: keep one of the two")
        renamed[name] = (value,) if name == "discovery" and isinstance(value, str) else value
    return renamed


def _window(value: object) -> object:
    if isinstance(value, Window):
        return value
    try:
        return Window.read(str(value))
    except BadValueError as error:
        raise ValueError(str(error)) from None


WindowText = Annotated[
    Window,
    PlainValidator(_window),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": WINDOW_PATTERN}),
]


class ConvergeEntry(Strict):
    """Limits for ``level: converge``, which moves running nodes of a pool between zones. Windows are in UTC."""

    per_hour: int = Field(default=ConvergePolicy.per_hour, ge=1, le=60, description="steps that a pool may start")
    windows: tuple[WindowText, ...] = Field(default=(), max_length=20)  # when steps may start; empty: at any time
    surge: Literal[0, 1] = 0  # nodes by which one step may exceed PoolMaximum
    blind: bool = False  # True: Evenkeel may choose machines to delete without reading their pods

    def policy(self) -> ConvergePolicy:
        """Return the domain's limits."""
        return ConvergePolicy(**dict(self))


class PoolFields(Strict):
    """The fields of a pool, apart from capabilities."""

    name: str = Field(min_length=1, max_length=253)
    namespace: str | None = None
    selector: dict[str, str] = {}
    min: Count | None = None
    max: Count | None = None
    strategy: StrategyName | None = None
    on_failure: OnFailureName | None = None
    level: LevelName | None = None
    dry_run: bool | None = None  # None: the cluster's setting
    backoff: BackoffEntry | None = None
    provision_timeout: ProvisionTimeout | None = None
    max_step: MaxStep | None = None


class PoolEntry(CapabilityPoolFields, PoolFields):
    """A pool of the record: PoolMinimum, PoolMaximum and settings.

    If the pool's groups have no pool label, ``selector`` selects them.
    """

    @model_validator(mode="before")
    @classmethod
    def _as_others_say(cls, data: object) -> object:
        return _in_our_words(data)

    @model_validator(mode="after")
    def _ordered(self) -> Self:
        if self.min is not None and self.max is not None and self.min > self.max:
            raise ValueError(f"min {self.min} is larger than max {self.max}")
        return self

    def rule(self) -> PoolRule:
        """Return the domain's rule of the pool."""
        timeout = {} if self.provision_timeout is None else _timeout(self.provision_timeout)
        backoff = self.backoff.policy() if self.backoff else None
        fields = {name: value for name, value in self if name in PoolFields.model_fields}
        return PoolRule(
            **{**fields, "backoff": backoff, "provision_timeout": None, **timeout, "own": _own_settings(self)}
        )


def _own_settings(fields: Strict) -> dict[str, str]:
    """Return the settings of capabilities that a record, or a pool of it, sets."""
    values = {setting.name: getattr(fields, setting.name, None) for setting in (*SETTINGS, *CLUSTER_SETTINGS)}
    return {name: str(value) for name, value in values.items() if value is not None}


def _off(value: object) -> object:
    return "off" if value is False else value  # YAML reads off as False


class DiscoveredPools(Strict):
    """The object form of ``pools``. With it, similar groups that no other pool contains form a pool."""

    # "off": no pool is formed. A cluster sets this value to override "similar" in the defaults of a fleet file.
    discover: Annotated[Literal["similar", "off"], BeforeValidator(_off)]
    rules: tuple[PoolEntry, ...] = ()
    ignored_labels: tuple[LabelKey, ...] = ()  # ignored in addition to the labels that Cluster Autoscaler ignores
    labels: tuple[LabelKey, ...] = ()  # if set, only these labels are compared
    ratios: Literal["cluster-autoscaler", "gardener"] = "cluster-autoscaler"
    nodes: bool = False  # True: labels of running nodes are preferred to labels of templates

    @model_validator(mode="after")
    def _alone(self) -> Self:
        if self.labels and self.ignored_labels:
            raise ValueError("labels decide alone: leave ignored_labels out, or labels")
        return self

    def similarity(self) -> Similarity | None:
        """Return the rule by which groups are similar; None if pools are not discovered."""
        if self.discover == "off":
            return None
        usual = GARDENER if self.ratios == "gardener" else Similarity()
        return replace(usual, ignored_labels=frozenset(self.ignored_labels), labels=self.labels)


def _form(pools: object) -> str:
    return DISCOVERED if isinstance(pools, Mapping | DiscoveredPools) else LISTED


def _not_by_name(pools: object) -> object:
    if isinstance(pools, Mapping) and pools and all(isinstance(entry, Mapping) for entry in pools.values()):
        name = quote(next(iter(pools)))
        raise ValueError(f"no list: write each pool as an entry with its name, such as {{name: {name}}}")
    return pools


# The form (list or object) is chosen before the entries are read. So a wrong entry is reported once, not once
# for each form.
Pools = Annotated[
    Annotated[tuple[PoolEntry, ...], Tag(LISTED)] | Annotated[DiscoveredPools, Tag(DISCOVERED)],
    Discriminator(_form),
    BeforeValidator(_not_by_name),
]


# The form (word or number) is chosen first, so that a wrong value is reported once.
ScanInterval = Annotated[
    Annotated[Literal["auto"], Tag(WORD)] | Annotated[int, Field(ge=15, le=3600), Tag(NUMBER)],
    Discriminator(lambda value: WORD if value == AUTO else NUMBER),
]


def with_expander(value: tuple[str, ...] | None, others: ValidationInfo) -> tuple[str, ...] | None:
    """Return the value of ``expander_order``.

    Raises:
        ValueError: The order names a pool twice, is missing with ``expander: order``, or is set with another expander.
    """
    expander = others.data.get("expander")
    if (expander == "order") is (value is None) and "expander" in others.data:
        raise ValueError(
            "expander is order: name the pools, the first one first"
            if value is None
            else "it has no effect without expander: order; add that or remove this"
        )
    if value is not None and (twice := [name for name in value if value.count(name) > 1]):
        raise ValueError(f"it names {twice[0]!r} twice: name each pool once")
    return value


class SizingFields(Strict):
    """The fields about node groups, their strategy and their convergence."""

    flavours: tuple[FlavourName, ...] = Field(default_factory=lambda: FLAVOUR_NAMES)
    namespaces: tuple[KubernetesName, ...] = ()
    discovery: tuple[Annotated[str, AfterValidator(_discovery)], ...] = ()
    strategy: StrategyName = Field(default_factory=lambda: BALANCED)
    on_failure: OnFailureName | None = None  # None: release, or move if autoscaler is none
    level: LevelName | None = None  # None: off, or shrink if demand is on
    converge: ConvergeEntry | None = None  # None: the defaults of ConvergeEntry

    @property
    def discoveries(self) -> tuple[Discovery, ...]:
        """Return the parsed autodiscovery strings."""
        return tuple(Discovery.read(text) for text in self.discovery)


class DemandFields(Strict):
    """The fields about the autoscaler, and about nodes that Evenkeel itself orders."""

    autoscaler: Literal["cluster-autoscaler", "none"] = "cluster-autoscaler"
    demand: DemandName | None = None  # None: off
    expander: Expander | None = None  # how Evenkeel selects a pool if several fit. None: least-waste
    expander_order: ExpanderOrder | None = Field(default=None, validate_default=True)
    # Keys of taints that each new node loses by itself, as cluster-autoscaler's --startup-taint. None: none
    ignored_taints: tuple[LabelKey, ...] | None = None
    max_step: MaxStep | None = None  # nodes that one run may add to a pool. None: any number
    autoscaler_loop: int = Field(default=10, ge=1, le=600, description="the autoscaler's --scan-interval, in seconds")
    # The namespace of the ConfigMap cluster-autoscaler-status. None: this ConfigMap is not read.
    autoscaler_status: KubernetesName | None = None

    @field_validator("demand")
    @classmethod
    def _alone(cls, value: DemandStage | None, info: ValidationInfo) -> DemandStage | None:
        if value is not None and value.orders and info.data.get("autoscaler") != "none":
            raise ValueError("it needs autoscaler: none, since two that order nodes would order each of them twice")
        return value

    _order = field_validator("expander_order")(with_expander)

    @property
    def demand_stage(self) -> DemandStage:
        """Return how Evenkeel acts on pending pods and unneeded nodes."""
        return self.demand or DemandStage.OFF


class WriteFields(Strict):
    """The fields about pools, their timing, and the objects that Evenkeel may write."""

    # The ConfigMap for the cluster's status. None: no ConfigMap is written.
    status_configmap: ConfigMapName | None = None
    pools: Pools = ()
    # `validate --apply` may write to the objects that own a pool's PoolMinimum or PoolMaximum. None: false.
    fix_owners: bool | None = None
    # Evenkeel may write bounds to a Cluster's topology, and then owns the written fields. None: false.
    write_topology: bool | None = None
    # Evenkeel gives the NodePool of a fenced group fixed replicas instead of autoScaling. None: false.
    node_pool_fence: bool | None = None
    backoff: BackoffEntry = BackoffEntry()
    provision_timeout: ProvisionTimeout = AUTO

    @property
    def pool_entries(self) -> tuple[PoolEntry, ...]:
        """Return the pool entries of ``pools``, which is a list or an object."""
        return self.pools.rules if isinstance(self.pools, DiscoveredPools) else self.pools

    @property
    def discovered_pools(self) -> DiscoveredPools | None:
        """Return ``pools`` if it is an object; None if it is a list."""
        return self.pools if isinstance(self.pools, DiscoveredPools) else None


class StackFields(Strict):
    """The fields that only the deployed system uses."""

    id: ClusterId | None = None
    access: Any = None
    dry_run: bool | None = None  # None: the stack's setting
    # Seconds. "auto": 60, and 300 while the cluster is steady and its events are proven.
    scan_interval: ScanInterval = AUTO
    region: str = Field(default="", pattern=r"^([a-z]{2}(-[a-z]+)+-[0-9]+)?$")
    zone_ids: dict[str, str] = {}  # zone id -> this account's zone name: {"use1-az1": "us-east-1a"}
    names: tuple[str, ...] = ()  # other names of the cluster in AWS tags and event exporters
    event_accounts: tuple[AccountId, ...] = ()  # AWS accounts whose events are accepted; empty: the stack's account
    account: BuyingAccount | None = None  # the AWS account or Azure subscription that buys the machines
    trouble_after: TroubleAfter | None = None  # None: TROUBLE_AFTER
    dry_run_events: bool | None = None  # in dry run, Kubernetes Events report the planned writes. None: false
    # "cluster": this cluster has its own CloudWatch metrics, which AWS bills. None: only the stack's metrics.
    metrics: Literal["cluster"] | None = None
    workload: Any = None
    labels: ClusterLabels | None = None  # the labels that selectors of operator actions match


# Fields that only a machine API of Kubernetes gives a meaning, each with what an Auto Scaling group has instead.
_OF_KUBERNETES = {
    "namespaces": "Auto Scaling groups have no namespace: select groups by discovery",
    "status_configmap": "no ConfigMap is written for Auto Scaling groups",
    "write_topology": "Auto Scaling groups have no topology",
    "node_pool_fence": "Auto Scaling groups have no NodePool",
    "dry_run_events": "no Event is written for Auto Scaling groups",
}


# Pydantic orders the fields by base class. The fields of the last base class are first.
class ClusterPolicy(StackFields, WriteFields, ClusterFields, DemandFields, SizingFields):
    """The fields of a record. All are optional, because ``evenkeel plan`` needs no registered cluster."""

    @model_validator(mode="before")
    @classmethod
    def _as_others_say(cls, data: object) -> object:
        return _as_usual(_in_our_words(data))

    @field_validator(*_OF_KUBERNETES)
    @classmethod
    def _of_flavour(cls, value: object, info: ValidationInfo) -> object:
        if value and info.field_name is not None and info.data.get("flavours") == (AUTO_SCALING,):
            raise ValueError(f"{_OF_KUBERNETES[info.field_name]}: leave it out")
        return value

    @field_validator("discovery")
    @classmethod
    def _of_its_flavours(cls, value: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        """Refuse a string of another flavour, because without a string for its flavour every group is selected."""
        flavours = info.data.get("flavours", FLAVOUR_NAMES)
        for text in value:
            if not Discovery.read(text).selects_from(flavours):
                forms = " or ".join(discovery_forms(flavours))
                raise ValueError(f"{text} selects no group of flavour {' or '.join(flavours)}: write {forms}")
        return value

    def misfits(self) -> tuple[Problem, ...]:
        """Return the settings that do not fit together: docs/guides/who-writes-what.md. Defaults fit."""
        shrinks = Level.SHRINK in (self.level, *(pool.level for pool in self.pool_entries))
        releases = OnFailure.RELEASE in (self.on_failure, *(pool.on_failure for pool in self.pool_entries))
        stage, kinds = self.demand_stage, list[ProblemKind]()
        if self.autoscaler == "none":
            if releases and not stage.orders:
                kinds.append(ProblemKind.RELEASE_WITHOUT_AUTOSCALER)
            if shrinks:
                kinds.append(ProblemKind.SHRINK_WITHOUT_AUTOSCALER)
            if stage is DemandStage.ADVISE:
                kinds.append(ProblemKind.ADVICE_WITHOUT_AUTOSCALER)
        elif shrinks and stage is DemandStage.OFF:
            kinds.append(ProblemKind.SHRINK_WITHOUT_PODS)
        return tuple(map(Problem.of, kinds))

    def policy(self) -> Policy:
        """Return the domain's policy."""
        return Policy(
            write_topology=self.write_topology is True,
            demand=self.demand_stage,
            pool_order=self.expander_order or (),
            pools=tuple(entry.rule() for entry in self.pool_entries),
            similarity=self.discovered_pools.similarity() if self.discovered_pools else None,
            pins_fenced=self.node_pool_fence is True,
            settings=PoolSettings(
                strategy=self.strategy,
                on_failure=self.on_failure or (OnFailure.MOVE if self.autoscaler == "none" else OnFailure.RELEASE),
                level=self.level or (Level.OFF if self.demand_stage is DemandStage.OFF else Level.SHRINK),
                converge=self.converge.policy() if self.converge else ConvergePolicy(),
                autoscaler=self.autoscaler != "none",
                ignored_taints=frozenset(self.ignored_taints or ()),
                max_step=self.max_step,
                backoff=self.backoff.policy(),
                **_timeout(self.provision_timeout),
                autoscaler_loop=timedelta(seconds=self.autoscaler_loop),
                own=_own_settings(self),
            ),
        )


class FixEntry(Strict):
    """A higher PoolMaximum that an operator has confirmed. The fix is stored until a run has written it."""

    pool: PoolName
    # Key of the group that has the annotation; empty: the fix changes the record.
    group: Annotated[str, Field(max_length=600)] = ""
    # OwnerRef.id of the object that owns PoolMaximum. ``group`` is then a group of this owner.
    owner: Annotated[str, Field(max_length=600)] = ""
    before: Count | None = None  # PoolMaximum as the operator saw it; None: it was not set
    after: Count


class ControlRecord(Strict):
    """The pauses, restores and confirmed fixes of a cluster, as operator actions have set them."""

    paused: bool = False
    paused_until: Moment | None = None  # None: until resumed
    restoring: bool = False  # True until adopted bounds are written back; then the cluster is paused
    paused_pools: dict[PoolName, Moment | None] = {}  # pool's name or id -> end of its pause; None: until resumed
    restoring_pools: tuple[PoolName, ...] = ()  # the pools that are being restored, by name or id
    # True: a finished restore has set the pause. The function ``operator`` must not end this pause.
    restored: bool = False
    restored_pools: tuple[PoolName, ...] = ()
    # When a restore first found no group. The restore ends only if a later check finds no group, too.
    nothing_since: Moment | None = None
    fixes: tuple[FixEntry, ...] = ()  # confirmed fixes, which the next run writes
    # Pool's name or id -> when an operator requested a converge pass.
    convergence_requested: dict[PoolName, Moment] = {}
    leave: Leave | None = None  # the zone that an operator leaves, also after its end
    # True: Evenkeel writes to the cluster; False: it does not. The record's ``dry_run`` overrides this field.
    # None: the stack's setting.
    live: bool | None = None

    def is_dry(self, record: "ClusterRecord", default: bool) -> bool:
        """Return True if the cluster is in dry run, in which only restores write. ``default``: the stack's setting."""
        return is_cluster_dry(record.dry_run, self.live, default)

    def writes_nothing(self, record: "ClusterRecord", default: bool) -> bool:
        """Return True if the cluster is in dry run and not being restored; ``default``: the stack's setting."""
        return is_cluster_dry(record.dry_run, self.live, default, restoring=self.restoring)

    def is_paused(self, now: datetime) -> bool:
        """Return True if the cluster is paused now."""
        return self.paused and lasts(self.paused_until, now)

    def pools_paused(self, now: datetime) -> dict[str, datetime | None]:
        """Return the paused pools, by name or id, each with the end of its pause; None: until resumed."""
        return still_paused(self.paused_pools, now)

    @property
    def has_left(self) -> bool:
        """Return True if the cluster is being restored, or was restored and is still paused."""
        return self.restoring or (self.restored and self.paused)

    def has_left_pool(self, pool: str) -> bool:
        """Return True if the pool of this name or id is being restored, or was restored and is still paused."""
        return pool in self.restoring_pools or (pool in self.restored_pools and pool in self.paused_pools)

    def restores(self, pool: PoolId) -> bool:
        """Return True if this pool or the whole cluster is being restored."""
        return is_restored(pool, self)

    def applied_to(self, policy: Policy) -> Policy:
        """Return the policy with the pauses, restores, requested converge passes and the zone that is left."""
        return replace(
            policy,
            paused=self.paused_pools,
            restoring=self.restoring,
            restoring_pools=self.restoring_pools,
            convergence_requested=self.convergence_requested,
            leave=self.leave,
        )


class ClusterRecord(RegisteredFields, ClusterPolicy):
    """A cluster's record as a person has registered it."""

    flavours: tuple[FlavourName, ...] = Field(min_length=1)
    id: ClusterId
    access: Access

    @field_validator("access")
    @classmethod
    def _fits(cls, value: Access, info: ValidationInfo) -> Access:
        flavours = info.data.get("flavours", ())
        is_alone, is_of_it = flavours == (AUTO_SCALING,), isinstance(value, AutoScalingAccess)
        if AUTO_SCALING in flavours and not (is_alone and is_of_it):
            raise ValueError(
                f"flavour {AUTO_SCALING} goes with this kind of access only, and with no other flavour: "
                f"set kind: {AUTO_SCALING}, or register the Auto Scaling groups as another cluster"
            )
        if flavours and is_of_it and not is_alone:
            raise ValueError(f"it reads no {', '.join(flavours)}: set flavours: [{AUTO_SCALING}]")
        return value

    workload: WorkloadEntry | None = Field(default=None, validate_default=True)  # None: pods are not read

    @field_validator("workload")
    @classmethod
    def _known(cls, value: WorkloadEntry | None, info: ValidationInfo) -> WorkloadEntry | None:
        stage = info.data.get("demand") or DemandStage.OFF
        is_of_aws = isinstance(info.data.get("access"), AutoScalingAccess)
        if value is None and stage is not DemandStage.OFF:
            same = '{"access": {"kind": "eks", "name": "NAME", "region": "REGION"}} for a cluster of EKS'
            same = same if is_of_aws else '{"access": {"kind": "same"}} where the same API has them'
            raise ValueError(f"demand is {stage.value}: say where its pods are, {same}")
        if value is None and is_of_aws and info.data.get("autoscaler_status"):
            raise ValueError("autoscaler_status is set: say where that ConfigMap is, in workload.access")
        if value is not None and is_of_aws and isinstance(value.access, SameAccess | SecretAccess):
            raise ValueError(
                f"access.kind is {value.access.kind}, and Auto Scaling groups are in no API server: "
                "set eks, aws-oidc or kubeconfig"
            )
        return value

    @property
    def pools_fault(self) -> str:
        """Return why AWS would deny writes to pools of the record, and what to do; empty: it would not.

        A stored record with such a fault stays readable, so this is no validation of the model.
        """
        if not isinstance(self.access, AutoScalingAccess):
            return ""
        only = f"a stack may write only Auto Scaling groups with tag {POOL_LABEL}"
        if self.discovered_pools is not None and self.discovered_pools.discover != "off":
            return (
                f"pools: discover is similar, and {only}: set that tag (evenkeel plan --auto-scaling prints how), "
                "and discover: 'off' or no pools here"
            )
        return "; ".join(
            f"pools[{at}].selector: {only}: set {POOL_LABEL}={pool.name} on the groups, and leave selector out"
            for at, pool in enumerate(self.pool_entries)
            if pool.selector and POOL_LABEL not in pool.selector
        )

    @property
    def listed_names(self) -> tuple[str, ...]:
        """Return the names by which events find the cluster, in addition to its id."""
        return (*self.names, self.access.place) if isinstance(self.access, AutoScalingAccess) else self.names

    @property
    def opens_trouble_after(self) -> timedelta:
        """Return how long a node may be missing, or the cluster unreachable, before an incident opens."""
        return TROUBLE_AFTER if self.trouble_after is None else timedelta(seconds=self.trouble_after)

    @property
    def is_of_this_account(self) -> bool:
        """Return True if the stack's own AWS account buys the machines. The zones then have this account's names."""
        other = isinstance(self.access, AwsAccess) and self.access.role_arn is not None
        return bool(self.region) and self.account is None and not self.event_accounts and not other

    @property
    def checks_with_write_identity(self) -> bool:
        """Return True if checks and writes use the same identity. Only then can a check test if writes are allowed."""
        # AWS offers no test of a right to write to Auto Scaling groups.
        return not isinstance(self.access, AutoScalingAccess) and _has_one_identity(self.access)

    @property
    def tests_drains(self) -> bool:
        """Return True if Evenkeel drains nodes of the cluster itself, and a check can test if it may."""
        if self.workload is None or not isinstance(self.access, AutoScalingAccess):
            return False
        converges = Level.CONVERGE in (self.level, *(pool.level for pool in self.pool_entries))
        return (self.demand_stage.removes or converges) and _has_one_identity(self.workload.access)

    @field_validator("labels")
    @classmethod
    def _none_where_empty(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        return value or None

    @field_validator("scan_interval")
    @classmethod
    def _whole_minutes(cls, value: Interval) -> Interval:
        if value != AUTO and value >= 60 and value % 60:
            raise ValueError("an interval of a minute or more must be whole minutes")
        return value


def _has_one_identity(access: object) -> bool:
    """Return True if checks and writes use the same identity."""
    if isinstance(access, AwsAccess):
        return access.role_arn is not None and access.role(writes=True) == access.role(writes=False)
    return isinstance(access, KubeconfigAccess)


class ControlFields(Strict):
    """The fields of a record that are copied into its control record, which operator actions change, too."""

    paused: bool = False
    paused_until: Moment | None = None
    leaving: bool = False
    paused_pools: dict[PoolName, Moment | None] = {}
    leaving_pools: tuple[PoolName, ...] = ()
    fixes: tuple[FixEntry, ...] = ()
    live: bool | None = None


# Field of a record -> field of its control record.
CONTROL_NAMES = {
    **{name: name for name in ("paused", "paused_until", "paused_pools", "live", "fixes")},
    **{"leaving": "restoring", "leaving_pools": "restoring_pools"},
}


class Registration(ClusterRecord, ControlFields):
    """A record as ``register`` accepts it, and as the index stores it for ``scan``."""

    @classmethod
    def of(cls, record: ClusterRecord, control: ControlRecord) -> Self:
        """Return record and control as one registration, without ``fixes``, which only the next run reads."""
        fields = {field: getattr(control, name) for field, name in CONTROL_NAMES.items() if field != "fixes"}
        return cls(**dict(record), **fields)

    @property
    def record(self) -> ClusterRecord:
        """Return the record without control fields. It is not validated again."""
        return ClusterRecord.model_construct(**{name: getattr(self, name) for name in ClusterRecord.model_fields})

    def control(self, before: ControlRecord | None = None) -> ControlRecord:
        """Return the control record ``before``, changed by the control fields that this record sets."""
        named = self.model_fields_set & CONTROL_NAMES.keys()
        if named & {"paused", "paused_until"}:
            named |= {"paused", "paused_until"}
        update = {CONTROL_NAMES[field]: getattr(self, field) for field in named} | {"nothing_since": None}
        control = (before or ControlRecord()).model_copy(update=update)
        restored = tuple(name for name in control.restored_pools if name in control.paused_pools)
        update = {"restored": control.restored and control.paused, "restored_pools": restored}
        return control.model_copy(update=update)
