"""The description of a resource by its server, stored for readers: names, kind, columns.

Readers answer for the server, so they need what it knows: names from the discovery that the source
has read anyhow; printer columns and selectable fields of a custom resource from its definition, by
one request.

DEF1  A resource is described once its first list is stored, and again after a watch of a custom
      resource has begun again: the server ends its watches when the definition changes.
DEF2  A definition that may not be read costs its columns and nothing else.
"""

from __future__ import annotations

import logging
from typing import Any

from shmcache.engine.open_source import KubeOpener, Opener, RecordingOpener
from shmcache.engine.plans import Plan
from shmcache.engine.switching import SwitchingSource
from shmcache.protocol import describing
from shmcache.source.base import SourceFailed
from shmcache.source.failures import garbage
from shmcache.source.kube import KubeSource

logger = logging.getLogger(__name__)
UNREADABLE = frozenset({401, 403, 404})


def described(opener: Opener, plan: Plan) -> dict[str, Any]:
    """The description of a plan's resource; empty where nothing knows it. SourceFailed.

    May ask the server.
    """
    if isinstance(opener, RecordingOpener):
        return described(opener.inner, plan)
    if not isinstance(opener, KubeOpener):
        return {}
    source = opener.open(plan, "")
    try:
        found = source.resource()
        if describing.is_builtin(found.group, found.plural):
            stated = describing.columns_of(None, found.version)
        else:
            stated = _stated(source, plan, found.version)
    finally:
        source.close()
    names = {
        "group": found.group,
        "version": found.version,
        "plural": found.plural,
        "kind": found.kind,
        "singular": found.singular or found.kind.lower(),
        "namespaced": found.namespaced,
        "short_names": list(found.short_names),
        "categories": list(found.categories),
    }
    return names | stated


def _stated(source: KubeSource | SwitchingSource, plan: Plan, version: str) -> dict[str, Any]:
    """The columns and selectable fields in the definition of a custom resource."""
    try:
        return describing.columns_of(source.definition(), version)
    except (AttributeError, KeyError, TypeError) as error:
        raise garbage(
            f"the definition of {plan.name}", f"not as it should be: {error!r}"
        ) from error
    except SourceFailed as failed:
        if failed.failure.code not in UNREADABLE:
            raise
        logger.info("%s: its tables show NAME and AGE only: %s", plan.name, failed)
        return describing.columns_of(None, version)
