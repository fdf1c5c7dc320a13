"""Settings for access to a cluster's machine objects, or its Auto Scaling groups, and to its pods and nodes."""

import base64
import binascii
import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from evenkeel.domain.model.flavours import AUTO_SCALING
from evenkeel.domain.model.servers import read_server
from evenkeel.validation import KubernetesName, Strict

AWS_REGION = r"^[a-z]{2}(-[a-z]+)+-[0-9]+$"
AwsRegion = Annotated[str, Field(pattern=AWS_REGION)]
ROLE_ARN = r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]{1,512}$"
RoleArn = Annotated[str, Field(pattern=ROLE_ARN)]


class AwsAccess(Strict):
    """The Region and the roles with which Evenkeel calls AWS. A role of another account gives access to it."""

    region: AwsRegion
    role_arn: RoleArn | None = None  # the role for writes; None: the function's own role
    check_role_arn: RoleArn | None = None  # the role for checks; None: role_arn
    external_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$")

    @model_validator(mode="after")
    def _whose(self) -> Self:
        if self.role_arn is None and (self.check_role_arn or self.external_id):
            raise ValueError("check_role_arn and external_id go with role_arn: name that too")
        return self

    def role(self, *, writes: bool) -> str | None:
        """Return the ARN of the role to assume for writes or for checks; None: the function's own role."""
        return self.role_arn if writes else self.check_role_arn or self.role_arn


class EksAccess(AwsAccess):
    """Access to an EKS cluster. AWS returns the cluster's endpoint, and a presigned STS token is the credential.

    For a cluster in another account, Evenkeel assumes a role of that account to get the endpoint and the token.
    """

    kind: Literal["eks"]
    name: str = Field(pattern=r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$")


class AutoScalingAccess(AwsAccess):
    """Access to the EC2 Auto Scaling groups of an account and a Region, plain or behind EKS managed node groups."""

    kind: Literal["auto-scaling"]

    @property
    def place(self) -> str:
        """Return the name by which events of these Auto Scaling groups find the cluster."""
        return auto_scaling_place(self.region, self.role_arn.split(":")[4] if self.role_arn else "")


def auto_scaling_place(region: str, account: str = "") -> str:
    """Return the stored name of an account and Region with Auto Scaling groups.

    The store lists clusters by it. ``account`` is empty for the stack's own account, whose number no record has.
    """
    return f"{AUTO_SCALING}/{account}/{region}"


def _server(value: object) -> str:
    return read_server(value)


def _base64(value: object) -> tuple[str, bytes]:
    """Return the text without white space, and the bytes that it encodes; empty bytes if it is not base64."""
    text = "".join(value.split()) if isinstance(value, str) else ""
    try:
        return text, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text, b""


def _ca_data(value: object) -> str:
    """Return the text if it is base64 of a PEM certificate. The TLS library validates the certificate later."""
    text, pem = _base64(value)
    if not re.search(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", pem):
        raise ValueError("must be the authority's PEM certificate in base64, as certificate-authority-data is")
    return text


class AwsOidcAccess(Strict):
    """An API server that trusts the tokens that AWS issues to the function's role (IAM outbound identity federation).

    Tokens for writes have the audience of this server only. So have tokens for checks, unless ``audience`` names one
    that several servers of a trust domain share. It contains no slash, so it never equals that of a single server.
    """

    kind: Literal["aws-oidc"]
    endpoint: Annotated[str, BeforeValidator(_server)]
    ca_data: Annotated[str, BeforeValidator(_ca_data), Field(max_length=65_536)]
    audience: str | None = Field(default=None, pattern=r"^evenkeel:[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?$")


def _sealed(value: object) -> str:
    """Return the value if ``aws kms encrypt`` may have made it. A token that is not encrypted is refused."""
    text, sealed = _base64(value)
    if not 0 < len(sealed) <= 6144 or sealed.startswith(b"ey"):
        raise ValueError("must be what aws kms encrypt made of it, in base64: a token itself is never stored")
    return text


class ServiceAccountAccess(Strict):
    """A ServiceAccount whose token Evenkeel renews. ``token`` is the first token, encrypted for this endpoint."""

    kind: Literal["service-account"]
    endpoint: Annotated[str, BeforeValidator(_server)]
    ca_data: Annotated[str, BeforeValidator(_ca_data), Field(max_length=65_536)]
    token: Annotated[str, BeforeValidator(_sealed)]
    namespace: KubernetesName = "evenkeel"


class KubeconfigAccess(Strict):
    """A kubeconfig in Secrets Manager. Only its inline data is used."""

    kind: Literal["kubeconfig"]
    secret: str = Field(min_length=1, max_length=2048, description="name or ARN of the secret")
    context: str | None = None


ApiAccess = Annotated[EksAccess | AwsOidcAccess | ServiceAccountAccess | KubeconfigAccess, Field(discriminator="kind")]
"""Access to an API server."""
Access = Annotated[
    EksAccess | AwsOidcAccess | ServiceAccountAccess | KubeconfigAccess | AutoScalingAccess, Field(discriminator="kind")
]


class SameAccess(Strict):
    """One API server has the machine objects, the pods and the nodes (OpenShift, a self-managed cluster)."""

    kind: Literal["same"]


class SecretAccess(Strict):
    """A kubeconfig in a Secret of the cluster with the machine objects, such as the one that Cluster API creates."""

    kind: Literal["secret"]
    namespace: KubernetesName
    name: KubernetesName
    key: str = Field(default="value", pattern=r"^[A-Za-z0-9._-]{1,253}$")


# ServiceAccountAccess is not accepted, because only runs renew its token, and the token might expire before the next
# run.
WorkloadAccess = Annotated[
    SameAccess | SecretAccess | EksAccess | AwsOidcAccess | KubeconfigAccess, Field(discriminator="kind")
]


class WorkloadEntry(Strict):
    """Access to pods and nodes, and limits on both. If the cluster has more, a check uses no pods and no nodes."""

    access: WorkloadAccess
    most_nodes: int = Field(default=5000, ge=1, le=5000)
    most_pods: int = Field(default=150_000, ge=1, le=150_000)
