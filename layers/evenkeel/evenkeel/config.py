"""Settings, and the records that people, other programs and actions write down for us, checked in one place.

Every bad value is named in one error, one line each: where it stands, what it is, what is wrong with it.
"""

import base64
import binascii
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, Literal, Self, TypeVar

from pydantic import (
    AfterValidator,
    AwareDatetime,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Discriminator,
    Field,
    InstanceOf,
    PlainSerializer,
    Tag,
    ValidationError,
    ValidationInfo,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from evenkeel.adapters.kubernetes.flavours import FLAVOURS
from evenkeel.domain.model.choices import DemandStage, Level, OnFailure, Strategy
from evenkeel.domain.model.convergence import WINDOW_PATTERN, ConvergePolicy, Window
from evenkeel.domain.model.fleet import LABEL_KEY, LABEL_VALUE
from evenkeel.domain.model.groups import PoolId
from evenkeel.domain.model.incidents import TROUBLE_AFTER
from evenkeel.domain.model.moves import ScaleRequest
from evenkeel.domain.model.policy import BackoffPolicy, Policy, PoolRule
from evenkeel.domain.model.servers import read_server
from evenkeel.domain.model.similarity import GARDENER, Similarity
from evenkeel.domain.model.values import LARGEST_COUNT, BadValueError, near, quote
from evenkeel.domain.rebalancing.bounds.balanced import BALANCED
from evenkeel.domain.rebalancing.bounds.strategies import read_strategy
from evenkeel.domain.rebalancing.membership.discovery import Discovery
from evenkeel.domain.rebalancing.membership.pausing import lasts, still_paused
from evenkeel.domain.rebalancing.restore import is_restored


class ConfigError(ValueError):
    """Something written down is wrong. ``faults`` has one line per bad value."""

    def __init__(self, faults: list[str]) -> None:
        super().__init__("; ".join(faults))
        self.faults = faults


class Strict(BaseModel):
    """A record as it must be: no field is unknown, none changes."""

    # Built when first used: a function that starts reads a few of all the records there are.
    model_config = ConfigDict(frozen=True, extra="forbid", populate_by_name=True, defer_build=True)


Model = TypeVar("Model", bound=BaseModel)


# Of one text. A wrong file has one for each of its lines, and nobody reads them all.
_MOST_TOLD = 50


def read_model(model: type[Model], data: object, where: str) -> Model:
    """``data`` as ``model``.

    Raises:
        ConfigError: one line per bad value, each starting with ``where``.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faults: list[dict[str, Any]] = [dict(fault) for fault in error.errors(include_url=False)]
        # A list whose only entry is wrong is also "too short": said once, by the entry.
        inside = {fault["loc"][:end] for fault in faults for end in range(len(fault["loc"]))}
        faults = [fault for fault in faults if fault["type"] != "too_short" or fault["loc"] not in inside]
        told = [_line(where, fault, model) for fault in faults[:_MOST_TOLD]]
        more = len(faults) - len(told)
        raise ConfigError([*told, *([f"{where}: {more} more values are bad"] if more else [])]) from None


def _fields_at(model: type[BaseModel], path: Sequence[str | int]) -> list[str]:
    """The names that are valid at a place of a model; none where the place cannot be told."""
    root = schema = model.model_json_schema()
    form: dict[str, Any]
    for part in (*path, None):
        while "$ref" in schema or "anyOf" in schema:
            # Of several forms, an error speaks of the one with fields.
            forms = schema.get("anyOf", [schema])
            form = next((form for form in forms if "$ref" in form or form.get("type") in ("object", "array")), {})
            schema = root["$defs"][form["$ref"].rpartition("/")[2]] if "$ref" in form else form
        if part is not None:
            inner = schema.get("items") if isinstance(part, int) else schema.get("properties", {}).get(part)
            schema = inner or {}
    return list(schema.get("properties", ()))


def read_json(model: type[Model], text: str, where: str) -> Model:
    """A JSON text as ``model``; raises ConfigError also where it is no JSON."""
    return read_model(model, parse_json(text, where), where)


def parse_json(text: str, where: str) -> Any:
    """Raises ConfigError."""
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as error:
        raise ConfigError([f"{where}: not JSON: {error}"]) from None


_ACCESSES = (("access",), ("shoot_relief", "garden"), ("workload", "access"))
_KINDS = "'eks', 'aws-oidc', 'service-account', 'kubeconfig'"
# Names of the two forms of a record's pools. They stand in pydantic's paths, and nowhere in what people write.
_LISTED, _DISCOVERED = _FORMS = ("<list>", "<object>")


# Where a password, a token or a key lands that was put into the wrong field: named, never quoted.
_UNTOLD = ("endpoint", "ca_data", "token")


def _line(where: str, fault: dict[str, Any], model: type[BaseModel]) -> str:
    if fault["type"] in ("union_tag_invalid", "union_tag_not_found"):
        return _unknown_kind(where, fault)
    # The kind of an access is a part of pydantic's path, and of nothing that people write.
    loc = fault["loc"]
    parts = [part for place, part in enumerate(loc) if part not in _FORMS and loc[:place] not in _ACCESSES]
    path = ".".join(map(str, parts)) or "the whole"
    problem = str(fault["msg"]).removeprefix("Value error, ")
    if fault["type"].startswith(("datetime_", "timezone_")):
        problem = "no moment with a time zone: write RFC 3339, such as 2026-01-31T12:00:00Z"
    if fault["type"] in ("model_type", "model_attributes_type", "dataclass_type", "dict_type"):
        problem = "no object: write it with named fields"
    if fault["type"] in ("tuple_type", "list_type"):
        problem = "no list: write it as one"
    if fault["type"] == "too_short" and not fault["input"]:
        problem = "empty: write one or more"
    if fault["type"] == "missing":
        return f"{where}: {path} is missing"
    if fault["type"] == "extra_forbidden":
        *parents, name = fault["loc"]
        hint = near(name, _fields_at(model, parents))
        return f"{where}: {path} is not a field of this record: remove it or correct its name{hint}"
    if loc in (*_ACCESSES, ("shoot_relief",)) or (loc and loc[-1] in _UNTOLD):
        return f"{where}: {path}: {problem}"
    if fault["type"] == "value_error" and fault["input"] is None:
        return f"{where}: {path} is missing: {problem}"
    choices = re.findall("'([^']+)'", str(fault.get("ctx", {}).get("expected", "")))
    choices = choices or list(getattr(fault.get("ctx", {}).get("error"), "choices", ()))
    return f"{where}: {path} is {quote(fault['input'])}: {problem}{near(fault['input'], choices)}"


def _unknown_kind(where: str, fault: dict[str, Any]) -> str:
    """An access of no kind that there is. The rest of it is not told: it may hold a token."""
    choices = re.findall("'([^']+)'", str(fault.get("ctx", {}).get("expected_tags", _KINDS)))
    kinds, path = ", ".join(choices), ".".join(map(str, fault["loc"]))
    if fault["type"] == "union_tag_not_found":
        return f"{where}: {path}.kind is missing: it is one of {kinds}"
    kind = fault["ctx"]["tag"]
    return f"{where}: {path}.kind is {quote(kind)}: it is one of {kinds}{near(kind, choices)}"


def _flavour(value: object) -> object:
    if not isinstance(value, str) or value not in FLAVOURS:
        *names, last = (f"'{name}'" for name in FLAVOURS)
        raise PydanticKnownError("literal_error", {"expected": f"{', '.join(names)} or {last}"})
    return value


FlavourName = Annotated[str, BeforeValidator(_flavour), WithJsonSchema({"type": "string", "enum": [*FLAVOURS]})]


def _discovery(value: str) -> str:
    Discovery.read(value)
    return value


_LONG_AGO = datetime(2000, 1, 1, tzinfo=UTC)
# A moment with its time zone, kept in UTC. Beyond these years, adding a backoff or an offset could leave the calendar.
Moment = Annotated[
    AwareDatetime,
    Field(gt=_LONG_AGO, lt=datetime(2200, 1, 1, tzinfo=UTC)),
    AfterValidator(lambda moment: moment.astimezone(UTC)),
]
Count = Annotated[int, Field(ge=0, le=LARGEST_COUNT, strict=True)]
StrategyName = Annotated[
    InstanceOf[Strategy],
    BeforeValidator(read_strategy, json_schema_input_type=str),
    PlainSerializer(lambda strategy: strategy.name, return_type=str),
]
OnFailureName = Annotated[OnFailure, BeforeValidator(OnFailure.read)]
LevelName = Annotated[Level, BeforeValidator(Level.read)]
DemandName = Annotated[DemandStage, BeforeValidator(DemandStage.read)]
KubernetesName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$")]
ConfigMapName = Annotated[
    str,
    Field(
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?/[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
        description="NAMESPACE/NAME of a ConfigMap",
    ),
]
ProvisionTimeout = Annotated[int, Field(ge=60, le=7200, description="seconds until a node must have come")]
# Twice what provision_timeout must be at least: an autoscaler that gave machines up sooner would kill those that boot.
# At most what Cluster Autoscaler waits unless told otherwise.
SuspectProvisionTime = Annotated[int, Field(ge=120, le=900, description="seconds for a node of a suspect group")]
TroubleAfter = Annotated[int, Field(ge=0, le=86400, description="seconds a node may be missing")]
MaxStep = Annotated[int, Field(ge=1, le=LARGEST_COUNT, strict=True, description="nodes that one run may add to a pool")]
PoolName = Annotated[str, Field(min_length=1, max_length=600)]
Expander = Literal["least-waste", "order"]
ExpanderOrder = Annotated[tuple[PoolName, ...], Field(min_length=1, max_length=1000, description="pools by name or id")]
LabelKey = Annotated[str, Field(min_length=1, max_length=317)]  # prefix of 253, a slash, name of 63
ClusterId = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9._]{0,98}[a-z0-9])?$")]
BuyingAccount = Annotated[str, Field(pattern=r"^[0-9A-Za-z][0-9A-Za-z-]{0,63}$")]
Sharing = Literal[True, False, "anonymous"]
MetricsOf = Literal["cluster"]
ClusterLabels = Annotated[
    dict[Annotated[str, Field(pattern=f"^{LABEL_KEY}$")], Annotated[str, Field(pattern=f"^{LABEL_VALUE}$")]],
    Field(max_length=64),
]
AccountId = Annotated[str, Field(pattern=r"^[0-9]{12}$")]
RoleArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]{1,512}$")]


class _Environment(Strict):
    """Variables of a function."""

    @classmethod
    def from_env(cls, env: Mapping[str, str]) -> Self:
        """Raises ConfigError that names each variable that is missing or wrong."""
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
    """What the template tells every function."""

    table: str = Field(min_length=1)
    rebalance_queue_url: str = Field(min_length=1)
    rebalance_dlq_url: str = Field(min_length=1)
    recheck_queue_url: str = Field(min_length=1)
    checks_queue_url: str = Field(min_length=1)
    bus: str = Field(min_length=1)
    dry_run: bool
    stack: str = "NAME"  # what it is called, for commands that people are to type
    token_key: str = ""  # ARN of the KMS key of tokens; empty: the stack has none
    page: str = ""  # where the page goes, s3://BUCKET/KEY; empty: nowhere
    all_metrics: bool = False  # whether those that no alarm reads are sent too: CloudWatch bills each
    allow_loopback: bool = False  # clusters on this machine: the sandbox's alone, no deployment sets it


class AlertSettings(_Environment):
    """What the template tells ``alert`` besides: where people are told. Empty: not there."""

    chat_topic: str = ""  # ARN
    slack_secret: str = ""  # names of secrets
    teams_secret: str = ""
    pagerduty_secret: str = ""
    pagerduty_url: str = ""
    opsgenie_secret: str = ""
    opsgenie_url: str = ""
    page_url: str = ""  # where the page is published


class EksAccess(Strict):
    """An EKS cluster: AWS says where it is, and a presigned STS token says who we are.

    In another account it is asked for, and signed for, as a role of that account.
    """

    kind: Literal["eks"]
    name: str = Field(pattern=r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$")
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$")
    role_arn: RoleArn | None = None  # assumed by the function that writes, and by those that look where they have none
    look_role_arn: RoleArn | None = None
    external_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$")

    @model_validator(mode="before")
    @classmethod
    def _as_aws_says(cls, data: object) -> object:
        # Older records name both, and could name anything: whoever wrote them would be sent our token.
        obsolete = ("endpoint", "ca_data")
        return {key: data[key] for key in data if key not in obsolete} if isinstance(data, Mapping) else data

    @model_validator(mode="after")
    def _whose(self) -> Self:
        if self.role_arn is None and (self.look_role_arn or self.external_id):
            raise ValueError("look_role_arn and external_id go with role_arn: name that too")
        return self

    def role(self, *, writes: bool) -> str | None:
        """The ARN of the role that is assumed for this purpose; None: the function's own is used."""
        return self.role_arn if writes else self.look_role_arn or self.role_arn


def _server(value: object) -> str:
    return read_server(value)


def _base64(value: object) -> tuple[str, bytes]:
    """The text without white space, and what it stands for; nothing, where it is no base64."""
    text = "".join(value.split()) if isinstance(value, str) else ""
    try:
        return text, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text, b""


def _ca_data(value: object) -> str:
    """Base64 of something that has the form of PEM; whether it is a certificate is seen where it is used."""
    text, pem = _base64(value)
    if not re.search(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", pem):
        raise ValueError("must be the authority's PEM certificate in base64, as certificate-authority-data is")
    return text


class AwsOidcAccess(Strict):
    """An API server that trusts the tokens which AWS issues to the function's role (IAM outbound identity federation).

    ``audience`` is for looks, and shared by the servers of a trust domain; without it, looks have the server's own as
    writes have. It has no slash, so that it can never be the audience of a server.
    """

    kind: Literal["aws-oidc"]
    endpoint: Annotated[str, BeforeValidator(_server)]
    ca_data: Annotated[str, BeforeValidator(_ca_data), Field(max_length=65_536)]
    audience: str | None = Field(default=None, pattern=r"^evenkeel:[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?$")


def _sealed(value: object) -> str:
    """What ``aws kms encrypt`` prints of a token; the token itself is refused: records are no place for secrets."""
    text, sealed = _base64(value)
    if not 0 < len(sealed) <= 6144 or sealed.startswith(b"ey"):
        raise ValueError("must be what aws kms encrypt made of it, in base64: a token itself is never stored")
    return text


class ServiceAccountAccess(Strict):
    """A ServiceAccount whose token renews itself. ``token`` is the first one, encrypted for this endpoint."""

    kind: Literal["service-account"]
    endpoint: Annotated[str, BeforeValidator(_server)]
    ca_data: Annotated[str, BeforeValidator(_ca_data), Field(max_length=65_536)]
    token: Annotated[str, BeforeValidator(_sealed)]
    namespace: KubernetesName = "evenkeel"


class KubeconfigAccess(Strict):
    """A kubeconfig in Secrets Manager. Only inline data is taken from it."""

    kind: Literal["kubeconfig"]
    secret: str = Field(min_length=1, max_length=2048, description="name or ARN of the secret")
    context: str | None = None


Access = Annotated[EksAccess | AwsOidcAccess | ServiceAccountAccess | KubeconfigAccess, Field(discriminator="kind")]


class SameAccess(Strict):
    """The workload cluster's API is the one that holds the machine objects (OpenShift, a self-managed cluster)."""

    kind: Literal["same"]


class SecretAccess(Strict):
    """A kubeconfig in a Secret of the cluster that holds the machine objects, as Cluster API keeps one."""

    kind: Literal["secret"]
    namespace: KubernetesName
    name: KubernetesName
    key: str = Field(default="value", pattern=r"^[A-Za-z0-9._-]{1,253}$")


# A ServiceAccount's token is renewed by runs, and none of them opens a workload cluster while nothing follows from it.
WorkloadAccess = Annotated[
    SameAccess | SecretAccess | EksAccess | AwsOidcAccess | KubeconfigAccess, Field(discriminator="kind")
]


class WorkloadEntry(Strict):
    """Where pods and nodes are, and how many of them are read: one more, and nothing is said of any."""

    access: WorkloadAccess
    most_nodes: int = Field(default=1000, ge=1, le=5000)
    most_pods: int = Field(default=30_000, ge=1, le=150_000)


def _seconds(length: timedelta) -> int:
    return int(length.total_seconds())


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
        return BackoffPolicy(
            initial=timedelta(seconds=self.initial),
            longest=timedelta(seconds=self.longest),
            forget_after=timedelta(seconds=self.forget_after),
        )


# As GEP-24 calls them ("Shoot Spec Enhancement"); stored is our name.
OTHER_NAMES = {
    "nodeGroupSizingStrategy": "strategy",
    "sizingStrategy": "strategy",
    "sizing": "strategy",
    "nodeGroupAutoDiscovery": "discovery",
}


def _in_our_words(data: object) -> object:
    """A record with the fields that it has in the proposal's words under our names."""
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
    InstanceOf[Window],
    BeforeValidator(_window),
    PlainSerializer(str, return_type=str),
    WithJsonSchema({"type": "string", "pattern": WINDOW_PATTERN}),
]


class ConvergeEntry(Strict):
    """How running nodes are moved home, in pools whose level is converge. The windows are in UTC."""

    per_hour: int = Field(default=ConvergePolicy.per_hour, ge=1, le=60, description="steps that a pool may begin")
    windows: tuple[WindowText, ...] = Field(default=(), max_length=20)  # none: always
    surge: Literal[0, 1] = 0  # nodes above PoolMaximum, for one step
    blind: bool = False  # consent to choose machines without knowing their pods

    def policy(self) -> ConvergePolicy:
        return ConvergePolicy(**dict(self))


class PoolEntry(Strict):
    """A pool in the cluster's record: numbers for a labelled pool, and who belongs to it where labels are missing."""

    name: str = Field(min_length=1, max_length=253)
    namespace: str | None = None
    selector: dict[str, str] = {}
    min: Count | None = None
    max: Count | None = None
    strategy: StrategyName | None = None
    on_failure: OnFailureName | None = None
    level: LevelName | None = None
    dry_run: bool | None = None  # None: what the cluster is
    backoff: BackoffEntry | None = None
    provision_timeout: ProvisionTimeout | None = None
    max_step: MaxStep | None = None

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
        timeout = None if self.provision_timeout is None else timedelta(seconds=self.provision_timeout)
        backoff = self.backoff.policy() if self.backoff else None
        return PoolRule(**{**dict(self), "backoff": backoff, "provision_timeout": timeout})


def _off(value: object) -> object:
    return "off" if value is False else value  # YAML's reading of off


class DiscoveredPools(Strict):
    """Pools in the cluster's record, where groups that nobody assigns to a pool make pools with those like them."""

    # off: no pool is made so, whatever the defaults of a file say
    discover: Annotated[Literal["similar", "off"], BeforeValidator(_off)]
    rules: tuple[PoolEntry, ...] = ()
    ignored_labels: tuple[LabelKey, ...] = ()  # besides those that Cluster Autoscaler ignores
    labels: tuple[LabelKey, ...] = ()  # these decide alone
    ratios: Literal["cluster-autoscaler", "gardener"] = "cluster-autoscaler"
    nodes: bool = False  # what running nodes look like goes before what templates say

    @model_validator(mode="after")
    def _alone(self) -> Self:
        if self.labels and self.ignored_labels:
            raise ValueError("labels decide alone: leave ignored_labels out, or labels")
        return self

    def similarity(self) -> Similarity | None:
        """Return when groups are alike; None if pools are not discovered."""
        if self.discover == "off":
            return None
        usual = GARDENER if self.ratios == "gardener" else Similarity()
        return replace(usual, ignored_labels=frozenset(self.ignored_labels), labels=self.labels)


def _form(pools: object) -> str:
    return _DISCOVERED if isinstance(pools, Mapping | DiscoveredPools) else _LISTED


# One form is chosen before it is read, so that a wrong entry is one fault and not one for each form.
Pools = Annotated[
    Annotated[tuple[PoolEntry, ...], Tag(_LISTED)] | Annotated[DiscoveredPools, Tag(_DISCOVERED)], Discriminator(_form)
]


class ShootRelief(Strict):
    """Gardener: a Shoot's maximum is raised while zones are dead. Its garden is another API server than the seed."""

    garden: Access | None = None  # a cluster's record must name it, a file for `evenkeel plan` need not
    enabled: bool = True  # False: what was raised is taken back, and nothing else
    # <namespace>/<name> of Shoots by their namespaces in the seed, where shoot--<project>--<name> does not tell
    shoots: dict[KubernetesName, Annotated[str, Field(pattern=r"^[a-z0-9-]{1,63}/[a-z0-9-]{1,63}$")]] = {}


def with_expander(value: tuple[str, ...] | None, others: ValidationInfo) -> tuple[str, ...] | None:
    """Return the order of pools; it goes with ``expander: order``, and names each pool once."""
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


class ClusterPolicy(Strict):
    """The part of a cluster's record that plans are made from."""

    flavours: tuple[FlavourName, ...] = Field(default_factory=lambda: tuple(FLAVOURS))
    namespaces: tuple[KubernetesName, ...] = ()
    discovery: tuple[Annotated[str, AfterValidator(_discovery)], ...] = ()
    strategy: StrategyName = Field(default_factory=lambda: BALANCED)
    on_failure: OnFailureName | None = None  # release; move where there is no autoscaler
    level: LevelName | None = None  # none said: off; shrink where pods are seen
    converge: ConvergeEntry | None = None  # None: as its defaults, and the release before reads what this one stores
    autoscaler: Literal["cluster-autoscaler", "none"] = "cluster-autoscaler"
    demand: DemandName | None = None  # none said: off
    expander: Expander | None = None  # which pool gets nodes where several fit. None: least-waste
    expander_order: ExpanderOrder | None = Field(default=None, validate_default=True)
    max_step: MaxStep | None = None  # nodes that one run may add to a pool. None: any number
    autoscaler_loop: int = Field(default=10, ge=1, le=600, description="seconds; its --scan-interval")
    autoscaler_status: KubernetesName | None = None  # namespace of ConfigMap cluster-autoscaler-status, where readable
    status_configmap: ConfigMapName | None = None  # where the cluster's status is written to. None: nowhere
    pools: Pools = ()
    # Whether `validate --apply` may write to the objects that own a pool's numbers. None: false, and the release before
    # reads what this one stores.
    fix_owners: bool | None = None
    # Whether bounds may be written to a Cluster's topology: it takes the keys from whoever applied them. None: false.
    write_topology: bool | None = None
    # Whether a fenced group's NodePool holds its replicas, in the place of autoScaling. None: false, as above.
    node_pool_fence: bool | None = None
    shoot_relief: ShootRelief | None = None
    backoff: BackoffEntry = BackoffEntry()
    provision_timeout: ProvisionTimeout = 900
    suspect_provision_time: SuspectProvisionTime | None = None  # None: an autoscaler waits as long as ever

    @field_validator("suspect_provision_time")
    @classmethod
    def _shorter(cls, value: int | None, others: ValidationInfo) -> int | None:
        if value is None:
            return None
        if not any(FLAVOURS[name].autoscaler.keeps_options for name in others.data.get("flavours", FLAVOURS)):
            raise ValueError("Gardener takes such an annotation off again: leave it out")
        timeout = others.data.get("provision_timeout", value + 1)
        if value >= timeout:
            raise ValueError(f"must be less than provision_timeout, {timeout}")
        return value

    @model_validator(mode="before")
    @classmethod
    def _as_others_say(cls, data: object) -> object:
        return _in_our_words(data)

    @field_validator("demand")
    @classmethod
    def _alone(cls, value: DemandStage | None, info: ValidationInfo) -> DemandStage | None:
        if value is not None and value.orders and info.data.get("autoscaler") != "none":
            raise ValueError("it needs autoscaler: none, since two that order nodes would order each of them twice")
        return value

    _order = field_validator("expander_order")(with_expander)

    @property
    def demand_stage(self) -> DemandStage:
        """What is made of pods that wait and of nodes that nobody needs."""
        return self.demand or DemandStage.OFF

    @property
    def discoveries(self) -> tuple[Discovery, ...]:
        return tuple(Discovery.read(text) for text in self.discovery)

    @property
    def pool_entries(self) -> tuple[PoolEntry, ...]:
        """The entries of ``pools``, in whichever form they are written."""
        return self.pools.rules if isinstance(self.pools, DiscoveredPools) else self.pools

    @property
    def discovered_pools(self) -> DiscoveredPools | None:
        """``pools`` in the form of an object; None in that of a list."""
        return self.pools if isinstance(self.pools, DiscoveredPools) else None

    def policy(self) -> Policy:
        return Policy(
            strategy=self.strategy,
            on_failure=self.on_failure or (OnFailure.MOVE if self.autoscaler == "none" else OnFailure.RELEASE),
            level=self.level or (Level.OFF if self.demand_stage is DemandStage.OFF else Level.SHRINK),
            converge=(self.converge or ConvergeEntry()).policy(),
            autoscaler=self.autoscaler != "none",
            write_topology=self.write_topology is True,
            suspect_provision_time=None
            if self.suspect_provision_time is None
            else timedelta(seconds=self.suspect_provision_time),
            demand=self.demand_stage,
            pool_order=self.expander_order or (),
            max_step=self.max_step,
            pools=tuple(entry.rule() for entry in self.pool_entries),
            similarity=self.discovered_pools.similarity() if self.discovered_pools else None,
            backoff=self.backoff.policy(),
            provision_timeout=timedelta(seconds=self.provision_timeout),
            autoscaler_loop=timedelta(seconds=self.autoscaler_loop),
            pins_fenced=self.node_pool_fence is True,
            shoot_relief=self.shoot_relief is not None and self.shoot_relief.enabled,
        )


class FixEntry(Strict):
    """A PoolMaximum that an operator has agreed to raise, until the next run has written it."""

    pool: PoolName
    group: Annotated[str, Field(max_length=600)] = ""  # whose annotation it is; empty: the record's own number
    owner: Annotated[str, Field(max_length=600)] = ""  # OwnerRef.id of whose number it is: then the group is one of its
    before: Count | None = None  # as it stood when the operator agreed; None: nowhere
    after: Count


class ControlRecord(Strict):
    """What actions have said about a cluster: what is paused, what is being restored, which fixes are agreed to."""

    paused: bool = False
    paused_until: Moment | None = None  # None while paused: until resumed
    restoring: bool = False  # adopted bounds are being put back; then the cluster is paused
    paused_pools: dict[PoolName, Moment | None] = {}  # by name or id; None: until resumed
    restoring_pools: tuple[PoolName, ...] = ()  # the same for pools; then each is paused
    # That a pause is the end of a restore: who is on duty does not end that one.
    restored: bool = False
    restored_pools: tuple[PoolName, ...] = ()
    nothing_since: Moment | None = None  # when a restore first found nothing of what no check had found before
    fixes: tuple[FixEntry, ...] = ()  # written by the next run
    # Pools, by name or id, for which a pass of converge was asked for, and when.
    convergence_requested: dict[PoolName, Moment] = {}
    live: bool | None = None  # whether it is written, where its record does not say; None: what the stack says
    rollout: str = ""  # id of the rollout that has said so last

    def is_dry(self, record: "ClusterRecord", default: bool) -> bool:
        """Whether nothing is written to the cluster; ``default``: what the stack says."""
        return record.is_dry(default if self.live is None else not self.live)

    def is_paused(self, now: datetime) -> bool:
        """Whether the cluster is paused: for good, or until a moment that has not come yet."""
        return self.paused and lasts(self.paused_until, now)

    def pools_paused(self, now: datetime) -> dict[str, datetime | None]:
        """The pools whose pause is not over, by name or id, each with its end; None: until resumed."""
        return still_paused(self.paused_pools, now)

    @property
    def has_left(self) -> bool:
        """Whether the cluster is being restored, or was, and is paused since then."""
        return self.restoring or (self.restored and self.paused)

    def has_left_pool(self, pool: str) -> bool:
        """The same of a pool, as actions call it."""
        return pool in self.restoring_pools or (pool in self.restored_pools and pool in self.paused_pools)

    def restores(self, pool: PoolId) -> bool:
        """Whether this pool is being restored: by itself, or with the whole cluster."""
        return is_restored(pool, self)

    def applied_to(self, policy: Policy) -> Policy:
        """The policy with what is paused and what is being restored."""
        return replace(
            policy,
            paused=self.paused_pools,
            restoring=self.restoring,
            restoring_pools=self.restoring_pools,
            convergence_requested=self.convergence_requested,
        )


class ClusterRecord(ClusterPolicy):
    """A cluster as a person has registered it."""

    id: ClusterId
    flavours: tuple[FlavourName, ...] = Field(min_length=1)
    access: Access
    dry_run: bool | None = None  # None: what the stack says
    scan_interval: int = Field(default=60, ge=15, le=3600, description="seconds")
    region: str = Field(default="", pattern=r"^([a-z]{2}(-[a-z]+)+-[0-9]+)?$")
    zone_ids: dict[str, str] = {}  # AWS's ids to this account's names: {"use1-az1": "us-east-1a"}
    names: tuple[str, ...] = ()  # what AWS tags and event exporters call the cluster, besides its id
    event_accounts: tuple[AccountId, ...] = ()  # whose events about it are believed; none named: the stack's own
    # Whether other clusters hear of a zone without machines, and who says so; "anonymous": that one does, not which.
    # None, as they are where nobody has set them: the release before reads what this one stores.
    share_offerings: Sharing | None = None  # None: true
    account: BuyingAccount | None = None  # who buys its machines: AWS account, Azure subscription
    trouble_after: TroubleAfter | None = None  # None: TROUBLE_AFTER
    dry_run_events: bool | None = None  # whether Kubernetes Events say in dry run what would be written. None: no
    metrics: MetricsOf | None = None  # cluster: it has metrics of its own, which are billed. None: the stack's alone
    workload: WorkloadEntry | None = Field(default=None, validate_default=True)  # None: nobody asks for demand
    # What people call several clusters by, at once. None where there are none: as share_offerings.
    labels: ClusterLabels | None = None

    @field_validator("workload")
    @classmethod
    def _known(cls, value: WorkloadEntry | None, info: ValidationInfo) -> WorkloadEntry | None:
        stage = info.data.get("demand") or DemandStage.OFF
        if value is None and stage is not DemandStage.OFF:
            same = '{"access": {"kind": "same"}}'
            raise ValueError(f"demand is {stage.value}: say where its pods are, {same} where the same API has them")
        return value

    @property
    def opens_trouble_after(self) -> timedelta:
        """How long a node may be missing, or the cluster silent, before that is trouble."""
        return TROUBLE_AFTER if self.trouble_after is None else timedelta(seconds=self.trouble_after)

    @property
    def is_of_this_account(self) -> bool:
        """Whether the stack's own AWS account buys its machines, so that zones have the names that it has for them."""
        other = isinstance(self.access, EksAccess) and self.access.role_arn is not None
        return bool(self.region) and self.account is None and not self.event_accounts and not other

    @property
    def looks_as_it_writes(self) -> bool:
        """Whether the API server sees one identity in both: only then can who looks ask for the writer's rights."""
        if isinstance(self.access, EksAccess):
            return self.access.role_arn is not None and self.access.role(writes=True) == self.access.role(writes=False)
        return isinstance(self.access, KubeconfigAccess)

    def is_dry(self, default: bool) -> bool:
        """What the record says, else ``default``. Whether nothing is written: ``is_dry``."""
        return default if self.dry_run is None else self.dry_run

    @property
    def shares_offerings(self) -> bool:
        """Whether it hears what other clusters say of what it buys, and they hear it, by name or without."""
        return self.share_offerings is not False

    @field_validator("shoot_relief")
    @classmethod
    def _with_garden(cls, value: ShootRelief | None, others: ValidationInfo) -> ShootRelief | None:
        if value is None:
            return None
        if "gardener" not in others.data.get("flavours", ("gardener",)):
            raise ValueError("flavours has no gardener, and nothing else has Shoots: leave it out")
        if value.garden is None:
            raise ValueError("garden is missing: say how the garden cluster is reached, as access does for the seed")
        return value

    @field_validator("labels")
    @classmethod
    def _none_where_empty(cls, value: dict[str, str] | None) -> dict[str, str] | None:
        return value or None

    @field_validator("scan_interval")
    @classmethod
    def _whole_minutes(cls, value: int) -> int:
        if value >= 60 and value % 60:
            raise ValueError("an interval of a minute or more must be whole minutes")
        return value


class _Controls(Strict):
    """What a record that is handed in may say about pauses, restores and fixes, in the words it has for them."""

    paused: bool = False
    paused_until: Moment | None = None
    leaving: bool = False
    paused_pools: dict[PoolName, Moment | None] = {}
    leaving_pools: tuple[PoolName, ...] = ()
    mending: tuple[FixEntry, ...] = ()
    live: bool | None = None


class Registration(ClusterRecord, _Controls):
    """A record as it is handed in, as ``scan`` finds it, and as releases without a control record have stored it."""

    @classmethod
    def of(cls, record: ClusterRecord, control: ControlRecord) -> Self:
        """Both in one. Fixes are left out: they are the next run's alone."""
        return cls(
            **dict(record),
            paused=control.paused,
            paused_until=control.paused_until,
            leaving=control.restoring,
            paused_pools=control.paused_pools,
            leaving_pools=control.restoring_pools,
            live=control.live,
        )

    @property
    def record(self) -> ClusterRecord:
        """The part of it that a person has registered; its fields have been checked with the whole."""
        return ClusterRecord.model_construct(**{name: getattr(self, name) for name in ClusterRecord.model_fields})

    def control(self, before: ControlRecord | None = None) -> ControlRecord:
        """``before``, but for what is named here."""
        before = before or ControlRecord()
        given_fields = self.model_fields_set
        pause = self if given_fields & {"paused", "paused_until"} else before
        paused_pools = self.paused_pools if "paused_pools" in given_fields else before.paused_pools
        return ControlRecord(
            paused=pause.paused,
            paused_until=pause.paused_until,
            restoring=self.leaving if "leaving" in given_fields else before.restoring,
            paused_pools=paused_pools,
            restoring_pools=self.leaving_pools if "leaving_pools" in given_fields else before.restoring_pools,
            restored=before.restored and pause.paused,
            restored_pools=tuple(name for name in before.restored_pools if name in paused_pools),
            fixes=self.mending if "mending" in given_fields else before.fixes,
            convergence_requested=before.convergence_requested,
            live=self.live if "live" in given_fields else before.live,
            rollout="" if "live" in given_fields else before.rollout,
        )


class ClusterFile(ClusterPolicy, _Controls):
    """A record as ``evenkeel plan --record`` takes it: what only the deployed system needs may be left out."""

    id: ClusterId | None = None
    access: dict[str, Any] | None = None
    dry_run: bool | None = None
    scan_interval: int | None = None
    region: str = ""
    zone_ids: dict[str, str] = {}
    names: tuple[str, ...] = ()
    event_accounts: tuple[AccountId, ...] = ()
    share_offerings: Sharing | None = None
    account: BuyingAccount | None = None
    trouble_after: TroubleAfter | None = None
    dry_run_events: bool | None = None
    metrics: MetricsOf | None = None
    workload: dict[str, Any] | None = None
    labels: ClusterLabels | None = None


class ImpairedZone(Strict):
    """An impaired zone, as files and releases before this one have it."""

    impaired_until: Moment
    said_at: Moment | None = None
    by: str = ""


class ZoneStatement(Strict):
    """What one source last said about a zone."""

    until: Moment  # impaired until then; where that was over when it was said, the zone is well again
    said_at: Moment | None = None  # a later word of the source replaces an earlier one


class ZoneRecord(Strict):
    """What is said about a zone, by source: an operator, ARC's autoshift, ARC's zonal shift, and so on.

    The zone is impaired while any of the words holds. Releases before this one stored a single word.
    """

    words: dict[str, ZoneStatement] = Field(min_length=1)

    @model_validator(mode="before")
    @classmethod
    def _single(cls, data: object) -> object:
        if not isinstance(data, Mapping) or "impaired_until" not in data:
            return data
        single = {"until": data["impaired_until"], "said_at": data.get("said_at")}
        rest = {name: value for name, value in data.items() if name not in ImpairedZone.model_fields}
        return {**rest, "words": {str(data.get("by", "")): single}}

    @property
    def impaired_until(self) -> datetime:
        """The latest end of all words; a past one: the zone is well."""
        return max(statement.until for statement in self.words.values())

    def holding(self, now: datetime) -> dict[str, ZoneStatement]:
        """The words that fence the zone now, by source."""
        return {source: statement for source, statement in self.words.items() if now < statement.until}

    def since(self, now: datetime) -> datetime | None:
        """When the first of the words was said that fence the zone now."""
        return min((statement.said_at for statement in self.holding(now).values() if statement.said_at), default=None)

    def merged(self, other: Self) -> Self:
        """The words of both; of each source the later one."""
        statements = dict(self.words)
        for source, statement in other.words.items():
            earlier = statements.get(source)
            if earlier is None or (statement.said_at or _LONG_AGO) > (earlier.said_at or _LONG_AGO):
                statements[source] = statement
        return self.model_copy(update={"words": statements})


class EventCheckRecord(Strict):
    """The last look at a cluster that an event has asked for."""

    at: Moment  # when it is due
    by: str  # id of the event


class ScaleRequestRecord(Strict):
    """Nodes that somebody asked for, or (negative) gives back, until it is done."""

    id: str = Field(min_length=1, max_length=128, pattern=r"^[A-Za-z0-9._:-]+$")
    nodes: int = Field(ge=-LARGEST_COUNT, le=LARGEST_COUNT, strict=True)
    pool: str = Field(default="", max_length=600)
    group: str = Field(default="", max_length=600)
    only: tuple[Annotated[str, Field(min_length=1, max_length=600)], ...] = Field(default=(), max_length=1000)
    at: Moment
    by: str = Field(default="", max_length=2048)  # who asked, as they say it; of an event: its account and source
    done: bool = False
    result: str = ""
    left: int | None = Field(default=None, ge=0, le=LARGEST_COUNT, strict=True)  # for later runs; None: not divided
    stepped_at: Moment | None = None  # when a run last added a part of it
    less: dict[str, int] = Field(default_factory=dict)  # nodes taken off it, by the id of the request that gave them
    unfound_since: Moment | None = None  # when a check first found no node group at all

    @model_validator(mode="after")
    def _whose(self) -> Self:
        if bool(self.pool) == bool(self.group):
            raise ValueError("name either a pool or one of its groups")
        if not self.nodes:
            raise ValueError("nodes is 0: ask for at least one")
        return self

    @property
    def added(self) -> int:
        """Return how many nodes the runs have added of a request that max_step has divided."""
        return 0 if self.left is None else self.nodes - self.left - sum(self.less.values())

    def asks_the_same(self, other: "ScaleRequestRecord") -> bool:
        """Return whether two records are of one request, whatever has become of it and whenever it was sent."""
        named = [(each.id, each.nodes, each.pool, each.group, set(each.only)) for each in (self, other)]
        return named[0] == named[1]

    def scale_request(self) -> ScaleRequest:
        return ScaleRequest(
            id=self.id,
            nodes=self.nodes if self.left is None else self.left,
            at=self.stepped_at or self.at,
            is_rest=self.left is not None,
            less=self.less,
            unfound_since=self.unfound_since,
            pool=self.pool,
            group=self.group,
            only=frozenset(self.only),
        )
