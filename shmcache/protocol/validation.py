"""List and watch parameters as a server reads them, with its refusals and their messages.

R-AS-05: a refusal with 422 is what tells a client that WatchList is not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NoReturn

from shmcache.errors import InvalidSelector
from shmcache.protocol import failures
from shmcache.protocol.options import ListOptions
from shmcache.protocol.selectors.shards import ShardSelector

EXACT = "Exact"
NOT_OLDER = "NotOlderThan"
FORBIDDEN = "FieldValueForbidden"
FALSE = frozenset({"0", "false"})
MOST = (1 << 64) - 1
MOST_SIGNED = (1 << 63) - 1
LONGEST = 200
"""Digits: longer numbers are not even made."""


def parse_options(query: Mapping[str, str], *, watch_list: bool = True) -> ListOptions:
    """The options of a query, checked; a Failure (400, 422) where they cannot be.

    Without `watch_list` it refuses like a server whose WatchList feature is off.
    """
    asked = _read(query)
    _check(asked, watch_list=watch_list)
    _check_version(asked)
    return asked


def numeric(version: str) -> int:
    """A resourceVersion of a request as the number that it is to this server; "" is 0."""
    if not version:
        return 0
    if not (version.isascii() and version.isdigit()):
        _refuse_version(version, "invalid syntax")
    if len(version) > LONGEST or int(version) > MOST:
        _refuse_version(version, "value out of range")
    return int(version)


def _read(query: Mapping[str, str]) -> ListOptions:
    initial = query.get("sendInitialEvents")
    timeout = query.get("timeoutSeconds")
    return ListOptions(
        watch=is_set(query.get("watch", "false")),
        resource_version=query.get("resourceVersion", ""),
        resource_version_match=query.get("resourceVersionMatch", ""),
        limit=_number(query.get("limit", "0")),
        continue_token=query.get("continue", ""),
        label_selector=query.get("labelSelector", ""),
        field_selector=query.get("fieldSelector", ""),
        allow_bookmarks=is_set(query.get("allowWatchBookmarks", "false")),
        send_initial_events=None if initial is None else is_set(initial),
        timeout_seconds=None if timeout is None else _number(timeout),
        shard_selector=query.get("shardSelector", ""),
    )


def shard_of(asked: ListOptions) -> ShardSelector | None:
    """The shard selector of a request (R-AS-23); a Failure (400) if it is invalid."""
    if not asked.shard_selector:
        return None
    try:
        return ShardSelector.parse(asked.shard_selector)
    except InvalidSelector as error:
        raise failures.bad_request(f"invalid shardSelector: {error}") from error


def shard_info(shard: ShardSelector) -> dict[str, str]:
    """metadata.shardInfo of a list: it has the objects of this shard only."""
    return {"selector": str(shard)}


def is_set(text: str) -> bool:
    """The value of a flag: every text that is not a false one is true, as in the API server."""
    return text.lower() not in FALSE


def _number(text: str) -> int:
    digits = text[1:] if text[:1] in {"+", "-"} else text
    if not (digits.isascii() and digits.isdigit()):
        raise failures.bad_request(f'strconv.ParseInt: parsing "{text}": invalid syntax')
    if len(text) > LONGEST or not -MOST_SIGNED - 1 <= int(text) <= MOST_SIGNED:
        raise failures.bad_request(f'strconv.ParseInt: parsing "{text}": value out of range')
    return int(text)


def _check(asked: ListOptions, *, watch_list: bool) -> None:
    causes = _watch_causes(asked, watch_list=watch_list) if asked.watch else _list_causes(asked)
    if causes:
        raise failures.invalid("ListOptions", "meta.k8s.io", "", causes)


def _watch_causes(asked: ListOptions, *, watch_list: bool) -> list[failures.Cause]:
    match, initial, causes = asked.resource_version_match, asked.send_initial_events, []
    if initial is not None and match != NOT_OLDER:
        text = "sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"
        causes.append(_match(text))
    if initial is not None and not watch_list:
        text = "sendInitialEvents is forbidden for watch unless the WatchList feature gate is "
        causes.append(_initial(text + "enabled"))
    if match and initial is None:
        text = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(_match(text))
    if match and match != NOT_OLDER:
        causes.append(_unsupported(match, NOT_OLDER))
    if match and asked.continue_token:
        causes.append(_match("resourceVersionMatch is forbidden when continue is provided"))
    return causes


def _list_causes(asked: ListOptions) -> list[failures.Cause]:
    match, version, causes = asked.resource_version_match, asked.resource_version, []
    if match and not version:
        causes.append(
            _match("resourceVersionMatch is forbidden unless resourceVersion is provided")
        )
    if match and asked.continue_token:
        causes.append(_match("resourceVersionMatch is forbidden when continue is provided"))
    if match not in {"", EXACT, NOT_OLDER}:
        causes.append(_unsupported(match, EXACT, NOT_OLDER, ""))
    if match == EXACT and version == "0":
        causes.append(_match('resourceVersionMatch "exact" is forbidden for resourceVersion "0"'))
    if asked.send_initial_events is not None:
        causes.append(_initial("sendInitialEvents is forbidden for list"))
    return causes


def _match(text: str) -> failures.Cause:
    return (FORBIDDEN, f"Forbidden: {text}", "resourceVersionMatch")


def _initial(text: str) -> failures.Cause:
    return (FORBIDDEN, f"Forbidden: {text}", "sendInitialEvents")


def _unsupported(value: str, *supported: str) -> failures.Cause:
    listed = ", ".join(f'"{name}"' for name in supported)
    text = f'Unsupported value: "{value}": supported values: {listed}'
    return ("FieldValueNotSupported", text, "resourceVersionMatch")


def _check_version(asked: ListOptions) -> None:
    if asked.continue_token and not asked.watch:
        if asked.resource_version not in {"", "0"}:
            text = "specifying resource version is not allowed when using continue"
            raise failures.bad_request(text)
        return
    numeric(asked.resource_version)


def _refuse_version(version: str, why: str) -> NoReturn:
    raise failures.bad_request(
        f'invalid resource version: resourceVersion: Invalid value: "{version}": '
        f'strconv.ParseUint: parsing "{version}": {why}'
    )
