"""Failures of the simulated API, as the `Status` objects that a real API server answers with."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby
from typing import Protocol

from sandbox.kube.schema import Cause, Json

REASONS = {
    400: "BadRequest",
    401: "Unauthorized",
    403: "Forbidden",
    404: "NotFound",
    405: "MethodNotAllowed",
    409: "Conflict",
    410: "Expired",
    415: "UnsupportedMediaType",
    422: "Invalid",
    429: "TooManyRequests",
    500: "InternalError",
    503: "ServiceUnavailable",
    504: "Timeout",
}


class ApiError(Exception):
    """An answer that is not a success. `headers` go out with it (Retry-After)."""

    def __init__(
        self,
        code: int,
        message: str,
        *,
        reason: str | None = None,
        details: dict[str, Json] | None = None,
        metadata: dict[str, Json] | None = None,
        headers: dict[str, str] | None = None,
    ) -> None:
        super().__init__(f"{code} {message}")
        self.code = code
        self.headers = headers or {}
        self.status: dict[str, Json] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": metadata or {},
            "status": "Failure",
            "message": message,
            "reason": reason or REASONS.get(code, ""),
            "details": details,
            "code": code,
        }
        if details is None:
            del self.status["details"]


def details_of(group: str, kind: str, name: str = "") -> dict[str, Json]:
    """`details` with its empty fields left out, as the server does."""
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def not_found(group: str, plural: str, name: str) -> ApiError:
    full = f"{plural}.{group}" if group else plural
    return ApiError(404, f'{full} "{name}" not found', details=details_of(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str | None = None) -> ApiError:
    full = f"{plural}.{group}" if group else plural
    text = why or "the object has been modified; please apply your changes to the latest version and try again"
    return ApiError(
        409, f'Operation cannot be fulfilled on {full} "{name}": {text}', details=details_of(group, plural, name)
    )


class FieldConflict(Protocol):
    """A field that is applied, and owned by somebody else."""

    @property
    def who(self) -> str: ...
    @property
    def field(self) -> str: ...


def apply_conflict(conflicts: Sequence[FieldConflict]) -> ApiError:
    """The answer to a server-side apply without force."""
    count = "1 conflict" if len(conflicts) == 1 else f"{len(conflicts)} conflicts"
    texts = []
    for who, mine in groupby(conflicts, key=lambda item: item.who):
        fields = [item.field for item in mine]
        texts.append(
            f"conflict with {who}: {fields[0]}"
            if len(fields) == 1
            else f"conflicts with {who}:\n" + "\n".join(f"- {item}" for item in fields)
        )
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {item.who}", "field": item.field}
        for item in conflicts
    ]
    return ApiError(409, f"Apply failed with {count}: " + "\n".join(texts), details={"causes": causes})


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    full = f"{kind}.{group}" if group else kind
    return ApiError(
        422,
        f'{full} "{name}" is invalid: {texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"}',
        details=details_of(group, kind, name) | {"causes": [cause.as_json() for cause in causes]},
    )


def expired(restart_token: str) -> ApiError:
    return ApiError(
        410,
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        metadata={"continue": restart_token},
    )
