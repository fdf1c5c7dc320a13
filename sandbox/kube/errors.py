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
    """A failed request. The server sends `headers` with it (Retry-After)."""

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
            **({} if details is None else {"details": details}),
            "code": code,
        }


def details_of(group: str, kind: str, name: str = "") -> dict[str, Json]:
    """Return the `details` of a Status, without empty fields."""
    return {key: value for key, value in (("name", name), ("group", group), ("kind", kind)) if value}


def not_found(group: str, plural: str, name: str) -> ApiError:
    """Return the answer for an object that does not exist."""
    full = f"{plural}.{group}" if group else plural
    return ApiError(404, f'{full} "{name}" not found', details=details_of(group, plural, name))


def conflict(group: str, plural: str, name: str, reason: str = "") -> ApiError:
    """Return the answer to a write that conflicts with the stored object."""
    full = f"{plural}.{group}" if group else plural
    text = reason or "the object has been modified; please apply your changes to the latest version and try again"
    message = f'Operation cannot be fulfilled on {full} "{name}": {text}'
    return ApiError(409, message, details=details_of(group, plural, name))


class FieldConflict(Protocol):
    """An applied field that another field manager owns."""

    @property
    def manager(self) -> str:
        """Return the other field manager, as the API server's message names it."""
        ...

    @property
    def field(self) -> str:
        """Return the path of the field."""
        ...


def apply_conflict(conflicts: Sequence[FieldConflict]) -> ApiError:
    """Return the answer to a server-side apply without force that has these conflicts."""
    count = "1 conflict" if len(conflicts) == 1 else f"{len(conflicts)} conflicts"
    texts = []
    for manager, group in groupby(conflicts, key=lambda item: item.manager):
        fields = [item.field for item in group]
        if len(fields) == 1:
            texts.append(f"conflict with {manager}: {fields[0]}")
        else:
            texts.append(f"conflicts with {manager}:\n" + "\n".join(f"- {field}" for field in fields))
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {item.manager}", "field": item.field}
        for item in conflicts
    ]
    return ApiError(409, f"Apply failed with {count}: " + "\n".join(texts), details={"causes": causes})


def invalid(group: str, kind: str, name: str, causes: Sequence[Cause]) -> ApiError:
    """Return the answer to an object with invalid fields."""
    texts = [f"{cause.field}: {cause.message}" for cause in causes]
    full = f"{kind}.{group}" if group else kind
    message = f'{full} "{name}" is invalid: {texts[0] if len(texts) == 1 else "[" + ", ".join(texts) + "]"}'
    return ApiError(
        422, message, details=details_of(group, kind, name) | {"causes": [cause.as_json() for cause in causes]}
    )


def invalid_patch(cause: Cause) -> ApiError:
    """Return the answer to a patch whose result has a value of the wrong type."""
    return ApiError(422, f' "" is invalid: patch: {cause.message}', details={"causes": [cause.as_json()]})


def expired(restart_token: str) -> ApiError:
    """Return the answer to a list with an expired continue token."""
    return ApiError(
        410,
        "The provided continue parameter is too old to display a consistent list result. You can start a new list "
        "without the continue parameter, or use the continue token in this response to retrieve the remainder of the "
        "results. Continuing with the provided token results in an inconsistent list - objects that were created, "
        "modified, or deleted between the time the first chunk was returned and now may show up in the list.",
        metadata={"continue": restart_token},
    )
