"""Names of the caches of several clusters: one for each context of a kubeconfig."""

from __future__ import annotations

import hashlib
import re

from shmcache.memory.segments import MAX_NAME

_OTHER = re.compile(r"[^A-Za-z0-9._-]+")
_HASH = 8


def context_name(base: str, context: str) -> str:
    """The name of a context's cache: web and staging give web-staging.

    A context whose name cannot be part of a cache's, such as an ARN, gets a digest behind what is
    left of it, so that two contexts never share a cache.
    """
    if not context:
        raise ValueError(f"a context must be the name of one in a kubeconfig, not {context!r}")
    plain = _OTHER.sub("-", context)
    room = MAX_NAME - len(base.rpartition("/")[2]) - 1
    if plain != context or len(plain) > room:
        digest = hashlib.sha256(context.encode()).hexdigest()[:_HASH]
        plain = f"{plain[: max(0, room - _HASH - 1)].strip('-')}-{digest}"
    return f"{base.rstrip('/')}-{plain}"
