"""How a cluster is reached: its API server, and the one that has its pods and nodes."""

import base64
import binascii
import re
from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from evenkeel.domain.model.servers import read_server
from evenkeel.validation import KubernetesName, Strict

RoleArn = Annotated[str, Field(pattern=r"^arn:aws[a-z-]*:iam::[0-9]{12}:role/[A-Za-z0-9_+=,.@/-]{1,512}$")]


class EksAccess(Strict):
    """An EKS cluster: AWS returns its endpoint, and a presigned STS token is the credential.

    For a cluster in another account, a role of that account makes both calls.
    """

    kind: Literal["eks"]
    name: str = Field(pattern=r"^[0-9A-Za-z][A-Za-z0-9_-]{0,99}$")
    region: str = Field(pattern=r"^[a-z]{2}(-[a-z]+)+-[0-9]+$")
    role_arn: RoleArn | None = None  # for writes; for checks as well without look_role_arn
    look_role_arn: RoleArn | None = None
    external_id: str | None = Field(default=None, pattern=r"^[A-Za-z0-9_+=,.@:/-]{2,1224}$")

    @model_validator(mode="after")
    def _whose(self) -> Self:
        if self.role_arn is None and (self.look_role_arn or self.external_id):
            raise ValueError("look_role_arn and external_id go with role_arn: name that too")
        return self

    def role(self, *, writes: bool) -> str | None:
        """Return the ARN of the role to assume for this purpose; None: the function's own role."""
        return self.role_arn if writes else self.look_role_arn or self.role_arn


def _server(value: object) -> str:
    return read_server(value)


def _base64(value: object) -> tuple[str, bytes]:
    """Return the text without white space, and its bytes; none if it is no base64."""
    text = "".join(value.split()) if isinstance(value, str) else ""
    try:
        return text, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return text, b""


def _ca_data(value: object) -> str:
    """Return base64 of a text that has the form of PEM. The TLS library checks the certificate."""
    text, pem = _base64(value)
    if not re.search(rb"-----BEGIN CERTIFICATE-----[^-]+-----END CERTIFICATE-----", pem):
        raise ValueError("must be the authority's PEM certificate in base64, as certificate-authority-data is")
    return text


class AwsOidcAccess(Strict):
    """An API server that trusts the tokens that AWS issues to the function's role (IAM outbound identity federation).

    The servers of a trust domain share ``audience`` for checks. Writes, and checks without it, use the server's own.
    It has no slash, so it can never be the audience of a server.
    """

    kind: Literal["aws-oidc"]
    endpoint: Annotated[str, BeforeValidator(_server)]
    ca_data: Annotated[str, BeforeValidator(_ca_data), Field(max_length=65_536)]
    audience: str | None = Field(default=None, pattern=r"^evenkeel:[a-z0-9]([a-z0-9._-]{0,98}[a-z0-9])?$")


def _sealed(value: object) -> str:
    """Return the output of ``aws kms encrypt``. A token itself is refused: no record may hold a secret."""
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
    """A kubeconfig in Secrets Manager. Only its inline data is used."""

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


# No service-account: runs renew its token, and a run may not open the workload cluster for a long time.
WorkloadAccess = Annotated[
    SameAccess | SecretAccess | EksAccess | AwsOidcAccess | KubeconfigAccess, Field(discriminator="kind")
]


class WorkloadEntry(Strict):
    """The API server with the pods and nodes, and how many are read at most. With more, none are evaluated."""

    access: WorkloadAccess
    most_nodes: int = Field(default=1000, ge=1, le=5000)
    most_pods: int = Field(default=30_000, ge=1, le=150_000)
