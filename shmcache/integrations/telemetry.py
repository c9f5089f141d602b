"""OpenTelemetry: the metrics of a cache as asynchronous instruments, and spans around functions.

    from shmcache.integrations import telemetry

    telemetry.observe(cache)          # in one process: the metrics are those of all processes

    @telemetry.traced
    def reconcile(key, cache): ...           # also handlers, and coroutine functions

Only the API of OpenTelemetry is imported. The SDK of the program decides about exporters, resources
and sampling; without one, nothing is exported.

    OTEL1  One collection looks at the cache once: an instrument that has had its numbers of a look
           causes the next one, and the others take theirs from it.
    OTEL2  A metric that appears later, such as that of a new queue, is in the next collection. Its
           instrument is made outside of callbacks, where the SDK holds its lock.
"""

from __future__ import annotations

import functools
import logging
import threading
from collections.abc import Callable, Iterable
from typing import Any, TypeVar

from opentelemetry import metrics as otel
from opentelemetry import trace

from shmcache import __version__
from shmcache.callables import is_coroutine_function
from shmcache.errors import ClosedError, ShmCacheError
from shmcache.monitor.families import Families
from shmcache.monitor.metering import Meter
from shmcache.reader.cache import Cache

logger = logging.getLogger(__name__)

SCOPE = "shmcache"
_UNITS = {"_seconds": "s", "_bytes": "By"}

Instrument = tuple[str, str]
"""A family of metrics, and the part of it: "", or _sum, _count, _bucket of a histogram."""
Wrapped = TypeVar("Wrapped", bound=Callable[..., Any])


def observe(cache: Cache, provider: otel.MeterProvider | None = None) -> Observer:
    """Offers all metrics of a cache to OpenTelemetry: those of `shmcache metrics`.

    Counters lose their suffix `_total`, which exporters add. A histogram comes as counters with the
    suffixes `_bucket` (attribute `le`), `_sum` and `_count`, since its buckets are in shared memory
    already. Call it in one process; a closed cache has no metrics any more.
    """
    return Observer(cache, provider)


class Observer:
    """The instruments of one cache."""

    def __init__(self, cache: Cache, provider: otel.MeterProvider | None = None) -> None:
        self._name = cache.name
        self._meter = Meter(cache)
        self._otel = otel.get_meter(SCOPE, __version__, meter_provider=provider)
        self._lock = threading.Lock()
        self._made: set[Instrument] = set()
        self._look: Families | None = None
        self._served: set[Instrument] = set()
        self._make(self._meter.families())

    def _make(self, families: Families) -> None:
        """Instruments for metrics that have none yet."""
        for name, family in families.items():
            for suffix in {suffix for suffix, _, _ in family.samples}:
                which = (name, suffix)
                with self._lock:
                    if which in self._made:
                        continue
                    self._made.add(which)
                gauge = family.kind == "gauge"
                make = (
                    self._otel.create_observable_gauge
                    if gauge
                    else self._otel.create_observable_counter
                )
                make(
                    name.removesuffix("_total") + suffix,
                    callbacks=[functools.partial(self._measure, which)],
                    unit="" if suffix in {"_bucket", "_count"} else _unit(name),
                    description=family.help,
                )

    def _measure(self, which: Instrument, _options: otel.CallbackOptions) -> Iterable[Any]:
        name, suffix = which
        family = self._families(which).get(name)
        for part, labels, value in family.samples if family is not None else ():
            if part == suffix:
                yield otel.Observation(value, labels)

    def _families(self, which: Instrument) -> Families:
        """OTEL1."""
        with self._lock:
            if self._look is None or which in self._served:
                self._look = self._looked()
                self._served = set()
                self._appeared(self._look)
            self._served.add(which)
            return self._look

    def _looked(self) -> Families:
        """All metrics; of a cache that cannot be read that it is down, and of a closed one none."""
        try:
            return self._meter.families()
        except ClosedError:
            return Families()
        except ShmCacheError as error:
            logger.warning("no metrics of %s: %s", self._name, error)
            found = Families()
            found.gauge("shmcache_up", "").add(0, cache=self._name)
            return found

    def _appeared(self, families: Families) -> None:
        """OTEL2."""
        found = {(name, part) for name, one in families.items() for part, _, _ in one.samples}
        if found - self._made:
            threading.Thread(
                target=self._make, args=(families,), name="shmcache telemetry", daemon=True
            ).start()


def _unit(name: str) -> str:
    bare = name.removesuffix("_total")
    return next((unit for suffix, unit in _UNITS.items() if bare.endswith(suffix)), "")


# ---- spans ---------------------------------------------------------------------------------------


def traced(function: Wrapped, provider: trace.TracerProvider | None = None) -> Wrapped:
    """The function with a span around each call: a handler, a reconcile, a recover().

    The span has the name of the function. Its attribute `shmcache.key` is the key of a reconcile or
    of the handler's object, `shmcache.resource_version` the version of that object, and
    `shmcache.result` what a reconcile returned, such as `Requeue(after=5)`. An exception ends the
    span with an error and is raised as before.
    """
    tracer = trace.get_tracer(SCOPE, __version__, tracer_provider=provider)
    name = getattr(function, "__qualname__", type(function).__qualname__)

    def span(arguments: tuple[Any, ...]) -> Any:
        return tracer.start_as_current_span(name, attributes=_attributes(arguments))

    if is_coroutine_function(function):

        @functools.wraps(function)
        async def awaited(*arguments: Any, **named: Any) -> Any:
            with span(arguments) as current:
                return _noted(current, await function(*arguments, **named))

        return awaited  # type: ignore[return-value] # the same signature

    @functools.wraps(function)
    def called(*arguments: Any, **named: Any) -> Any:
        with span(arguments) as current:
            return _noted(current, function(*arguments, **named))

    return called  # type: ignore[return-value] # the same signature


def _attributes(arguments: tuple[Any, ...]) -> dict[str, str]:
    """Of the key or the newest object among the arguments."""
    found: dict[str, str] = {}
    for one in arguments:
        if isinstance(one, str):
            found.setdefault("shmcache.key", one)
        elif metadata := _metadata(one):
            space, name = metadata.get("namespace"), metadata.get("name")
            found["shmcache.key"] = f"{space}/{name}" if space else str(name)
            found["shmcache.resource_version"] = str(metadata.get("resourceVersion", ""))
    return found


def _metadata(one: Any) -> Any:
    """The metadata of an object or of the last known object of a tombstone; None of others."""
    one = getattr(one, "obj", one)
    try:
        metadata = one["metadata"]
    except (TypeError, KeyError, IndexError):
        return None
    return metadata if "name" in metadata else None


def _noted(span: Any, result: Any) -> Any:
    if result is not None:
        span.set_attribute("shmcache.result", repr(result))
    return result
