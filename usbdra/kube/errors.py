# SPDX-License-Identifier: Apache-2.0
"""What the API server, or the way to it, can answer instead of an object."""

from __future__ import annotations

from typing import Any, ClassVar

from ..errors import UsbdraError


class ApiError(UsbdraError):
    """A `Status` answer. `status` is the HTTP code, `api_reason` the API's own word."""

    reason: ClassVar[str] = "ApiError"
    exit_code: ClassVar[int] = 10

    def __init__(self, what: str, status: int, api_reason: str, message: str) -> None:
        super().__init__(f"{what}: {message or api_reason or status}")
        self.status = status
        self.api_reason = api_reason


class ApiNotFound(ApiError):
    """404: the object, or the kind itself, is not there."""

    reason = "ApiNotFound"


class ApiConflict(ApiError):
    """409: somebody else wrote meanwhile, or the name is taken; read again and decide."""

    reason = "ApiConflict"


class ApiForbidden(ApiError):
    """401 or 403: the remedy is a role, not a retry."""

    reason = "ApiForbidden"


class ApiInvalid(ApiError):
    """400 or 422: the object itself is refused; the same object will be refused again."""

    reason = "ApiInvalid"


class ApiExpired(ApiError):
    """410: the resource version of a watch is too old; list again."""

    reason = "ApiExpired"


class ApiUnavailable(ApiError):
    """No answer, 429 or 5xx: try again later; nothing is known about the request."""

    reason = "ApiUnavailable"


def from_status(what: str, code: int, body: dict[str, Any] | None) -> ApiError:
    """The exception for an HTTP code and, if there was one, the Status object of the body."""
    body = body or {}
    kind = {
        400: ApiInvalid,
        401: ApiForbidden,
        403: ApiForbidden,
        404: ApiNotFound,
        409: ApiConflict,
        410: ApiExpired,
        422: ApiInvalid,
        429: ApiUnavailable,
    }.get(code, ApiUnavailable if code >= 500 else ApiError)
    return kind(what, code, str(body.get("reason", "")), str(body.get("message", "")))
