"""`shmcache run --validate`: everything that can be known without caching anything."""

from __future__ import annotations

from shmcache.engine.configuration import Configuration
from shmcache.engine.opening import KubeOpener
from shmcache.engine.plans import Plan, PlanError
from shmcache.engine.service import CONFIGURATION, DRAINED, reach
from shmcache.errors import SourceError
from shmcache.indexing import resolve
from shmcache.settings import format_size
from shmcache.source.base import SourceFailed


def validate(configuration: Configuration) -> int:
    """Prints what would be cached, and whether the server has it; an exit status."""
    memory = configuration.memory
    print(f"cache {configuration.name}: at most {format_size(int(memory.arena_max))}, "
          f"mode {memory.mode:#o}, {memory.seats} seats")  # fmt: skip
    faults = [fault for plan in configuration.plans for fault in _faults(plan)]
    opener = None
    try:
        opener = KubeOpener(reach(configuration))
    except SourceError as error:
        faults.append(str(error))
    for plan in configuration.plans:
        print(f"  {_line(plan, configuration, opener)}")
    for fault in faults:
        print(f"wrong: {fault}")
    return CONFIGURATION if faults else DRAINED


def _faults(plan: Plan) -> list[str]:
    """What cannot be imported."""
    found = []
    try:
        plan.load_transform()
    except PlanError as error:
        found.append(str(error))
    for index, spec in plan.indices.items():
        try:
            resolve(index, spec)
        except (ImportError, AttributeError, TypeError) as error:
            found.append(f"{plan.name}: index {index}: {error}")
    return found


def _line(plan: Plan, configuration: Configuration, opener: KubeOpener | None) -> str:
    where = plan.namespaces or configuration.default_namespaces
    parts = [plan.name, f"in {', '.join(where)}" if where else "everywhere"]
    if plan.labels:
        parts.append(f"labels {plan.labels}")
    if plan.fields:
        parts.append(f"fields {plan.fields}")
    if plan.metadata_only:
        parts.append("metadata only")
    if plan.budget:
        parts.append(f"at most {format_size(plan.budget)} of JSON")
    if plan.indices:
        parts.append(f"indices {', '.join(plan.indices)}")
    return f"{'; '.join(parts)}: {_served(plan, opener)}"


def _served(plan: Plan, opener: KubeOpener | None) -> str:
    if opener is None:
        return "no server to ask"
    try:
        found = opener.find(plan)
    except SourceFailed as failed:
        return f"not there now: {failed}"
    scope = "namespaced" if found.namespaced else "without namespaces"
    return f"the server has {found.api_version} {found.kind}, {scope}"
