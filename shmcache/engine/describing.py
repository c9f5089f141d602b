"""What a resource is at its server, told to readers: its names, its kind, its scope.

Beside what its content depends on: whoever answers for the server needs to know how it is called
there. Found by the discovery that its source has read anyhow.
"""

from __future__ import annotations

from typing import Any

from shmcache.engine.opening import KubeOpener, Opener, RecordingOpener
from shmcache.engine.plans import Plan


def described(opener: Opener, plan: Plan) -> dict[str, Any]:
    """Of a plan's resource; empty where nobody knows. SourceFailed while the server does not say.

    May ask the server, if nothing has asked for the resource yet.
    """
    if isinstance(opener, RecordingOpener):
        return described(opener.inner, plan)
    if not isinstance(opener, KubeOpener):
        return {}
    found = opener.find(plan)
    plain = {found.plural, found.kind.lower()}
    return {
        "group": found.group,
        "version": found.version,
        "plural": found.plural,
        "kind": found.kind,
        "namespaced": found.namespaced,
        "short_names": sorted(found.names - plain),
    }
