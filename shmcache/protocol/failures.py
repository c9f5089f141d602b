"""Refusals of a server: Status bodies in the API server's own wording and shapes.

Clients decide by these texts (three spellings of "too large", Expired or Gone), and people search
for them, so they are kept to the letter.
"""

from __future__ import annotations

from typing import Any

from shmcache.protocol.selectors.labels import quoted

TEXT = "text/plain; charset=utf-8"
LIST_TOO_OLD = "The resourceVersion for the provided list is too old."
WATCH_TOO_OLD = "The resourceVersion for the provided watch is too old."
CONTINUE_TOO_OLD = (
    "The provided continue parameter is too old to display a consistent list result. You can "
    "start a new list without the continue parameter, or use the continue token in this response "
    "to retrieve the remainder of the results. Continuing with the provided token results in an "
    "inconsistent list - objects that were created, modified, or deleted between the time the "
    "first chunk was returned and now may show up in the list."
)

Cause = tuple[str, str, str]
"""reason, message, field"""


class Failure(Exception):
    """A request that ends with an error; `status` is its Status object."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        *,
        details: dict[str, Any] | None = None,
        continue_token: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.text: bytes | None = None
        """The body where the real server sends plain text instead of a Status."""
        self.status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": {"continue": continue_token} if continue_token else {},
            "status": "Failure",
            "message": message,
            "reason": reason,
            **({} if details is None else {"details": details}),
            "code": code,
        }

    @property
    def retry_after(self) -> int | None:
        """The value of the Retry-After header, if any."""
        seconds: int | None = self.status.get("details", {}).get("retryAfterSeconds")
        return seconds


def plain(code: int, text: str, *, retry_after: int | None = None) -> Failure:
    """An answer that is no Status: text, as filters in front of the API send it."""
    details = None if retry_after is None else {"retryAfterSeconds": retry_after}
    failure = Failure(code, "", text, details=details)
    failure.text = text.encode()
    return failure


def bad_request(message: str) -> Failure:
    """400: the request makes no sense."""
    return Failure(400, "BadRequest", message)


def unauthorized() -> Failure:
    """401: unknown credentials."""
    return Failure(401, "Unauthorized", "Unauthorized")


def forbidden(
    user: str, verb: str, resource: str, group: str, namespace: str, *, name: str = ""
) -> Failure:
    """403: a user that may not do this; an empty namespace is the cluster scope."""
    where = f'in the namespace "{namespace}"' if namespace else "at the cluster scope"
    what = _dotted(resource, group) + (f' "{name}"' if name else "")
    message = (
        f'{what} is forbidden: User "{user}" cannot {verb} resource '
        f'"{resource}" in API group "{group}" {where}'
    )
    return Failure(403, "Forbidden", message, details=_named(name, resource, group))


def out_of_scope(resource: str, group: str, why: str) -> Failure:
    """403: a cache does not hold this; the message names its contents."""
    message = f"{_dotted(resource, group)} is forbidden: {why}"
    return Failure(403, "Forbidden", message, details=_named("", resource, group))


def not_found(resource: str, group: str, name: str) -> Failure:
    """404: no such object."""
    message = f'{_dotted(resource, group)} "{name}" not found'
    return Failure(404, "NotFound", message, details=_named(name, resource, group))


def no_resource() -> Failure:
    """404: no such resource in a group that exists."""
    message = "the server could not find the requested resource"
    return Failure(404, "NotFound", message, details={})


def not_cached(resource: str, group: str, why: str) -> Failure:
    """404: a cache of other resources; the message says of which."""
    message = f"the server could not find the requested resource {_dotted(resource, group)}: {why}"
    return Failure(404, "NotFound", message, details=_named("", resource, group))


def no_page(why: str = "") -> Failure:
    """404: no such path at all, as of an unknown group."""
    return plain(404, f"404 page not found{why and f': {why}'}\n")


def method_not_allowed() -> Failure:
    """405: the resource has no such verb."""
    message = "the server does not allow this method on the requested resource"
    return Failure(405, "MethodNotAllowed", message, details={})


def not_acceptable(offered: str) -> Failure:
    """406: none of the media types asked for."""
    message = f"406: Not Acceptable\n\nAvailable representations: {offered}"
    return Failure(406, "NotAcceptable", message, details={})


def not_convertible(name: str, *, many: bool) -> Failure:
    """406: a request for a list's metadata in the form of one object, or the other way round."""
    what = "a list" if many else "not a list"
    message = f"you requested {name}, but the requested object is {what}"
    return Failure(406, "NotAcceptable", message)


def no_table(include: str) -> Failure:
    """400: an unknown content of rows."""
    why = "must be 'Metadata', 'Object', 'None', or empty"
    invalid_value = f"includeObject: Invalid value: {quoted(include)}: {why}"
    return bad_request(f"Unable to convert to Table as requested: {invalid_value}")


def already_exists(resource: str, group: str, name: str) -> Failure:
    """409: a create of an object that exists."""
    message = f'{_dotted(resource, group)} "{name}" already exists'
    return Failure(409, "AlreadyExists", message, details=_named(name, resource, group))


def conflict(resource: str, group: str, name: str, message: str = "") -> Failure:
    """409: the object has changed since it was read, unless the message says something else."""
    why = message or (
        "the object has been modified; please apply your changes to the latest version and try "
        "again"
    )
    text = f'Operation cannot be fulfilled on {_dotted(resource, group)} "{name}": {why}'
    return Failure(409, "Conflict", text, details=_named(name, resource, group))


def expired(message: str, continue_token: str = "") -> Failure:
    """410: a version that is not remembered any more."""
    return Failure(410, "Expired", message, continue_token=continue_token)


def too_old(version: int, oldest: int) -> Failure:
    """410: a watch from before the window; `oldest` is the first version that would do."""
    return expired(f"too old resource version: {version} ({oldest})")


def unsupported_media_type() -> Failure:
    """415: a body in a format that this verb does not take."""
    return Failure(415, "UnsupportedMediaType", "415: Unsupported Media Type", details={})


def invalid(kind: str, group: str, name: str, causes: list[Cause]) -> Failure:
    """422: fields that may not be so; each cause names its field."""
    texts = [f"{field}: {message}" for _, message, field in causes]
    listed = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
    details: dict[str, Any] = {"name": name} if name else {}
    details |= {"group": group} if group else {}
    details["kind"] = kind
    details["causes"] = [
        {"reason": reason, "message": message, "field": field} for reason, message, field in causes
    ]
    message = f'{_dotted(kind, group)} "{name}" is invalid: {listed}'
    return Failure(422, "Invalid", message, details=details)


def too_many_requests(seconds: int = 1) -> Failure:
    """429: as priority and fairness refuses, in plain text."""
    return plain(429, "Too many requests, please try again later.\n", retry_after=seconds)


def internal_error(message: str) -> Failure:
    """500: whatever went wrong inside."""
    text = f"Internal error occurred: {message}"
    return Failure(500, "InternalError", text, details={"causes": [{"message": message}]})


def not_ready(seconds: int = 5) -> Failure:
    """503: a server that is still starting."""
    message = (
        "the request has been made before all known HTTP paths have been installed, please try "
        "again"
    )
    return Failure(503, "ServiceUnavailable", message, details={"retryAfterSeconds": seconds})


def not_listed(seconds: int = 1) -> Failure:
    """429: a cache whose first list is not there yet (R-AS-07)."""
    details = {"retryAfterSeconds": seconds}
    return Failure(429, "TooManyRequests", "storage is (re)initializing", details=details)


def stale(message: str, seconds: int = 5) -> Failure:
    """503: what is cached is older than it may be."""
    return Failure(503, "ServiceUnavailable", message, details={"retryAfterSeconds": seconds})


def too_large(version: int, current: int, *, retry: bool = True) -> Failure:
    """504: a version from the future did not come in time."""
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details: dict[str, Any] = {"causes": [cause]}
    if retry:
        details["retryAfterSeconds"] = 1
    message = f"Timeout: Too large resource version: {version}, current: {current}"
    return Failure(504, "Timeout", message, details=details)


def lost_answer() -> Failure:
    """504: a write that may have been carried out, so no time to repeat it."""
    message = "the answer of the API server is lost: it may have carried the request out"
    return Failure(504, "Timeout", message, details={})


def _dotted(resource: str, group: str) -> str:
    return f"{resource}.{group}" if group else resource


def _named(name: str, resource: str, group: str) -> dict[str, Any]:
    named = {"name": name, "group": group, "kind": resource}
    return {key: value for key, value in named.items() if value}
