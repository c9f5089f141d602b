"""The settings of a Lease: its name, its times, and the server that keeps it.

The times are checked as client-go checks its own, and once more: TIMES1.

    TIMES1  A holder stops by its own clock `renew_deadline` after it sent its last successful
        renewal. Others wait for `duration` after they saw it. So clocks may differ by any
        amount, and run at different rates up to duration / renew_deadline.
"""

from __future__ import annotations

import math
import os
import socket
import time
import uuid
from dataclasses import KW_ONLY, dataclass

TYPE_CHECKING = False
if TYPE_CHECKING:
    from shmcache.source.config import ServerSettings

JITTER = 1.2
"""A candidate waits for its period and, at random, up to so many periods more."""
_MAX_SECONDS = (1 << 31) - 1
_NAME_LENGTH = 253
_LABEL = frozenset("abcdefghijklmnopqrstuvwxyz0123456789-")
KUBE = "kube"
"""Stands for the server of the kubeconfig, as in the configuration of a cache."""
OLDEST = "OldestEmulationVersion"
"""The strategy of KEP-4355 that servers know."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidacy:
    """Coordinated leader election (KEP-4355): the server chooses among candidates.

    Where the server does not serve LeaseCandidates, the Lease is a plain one.
    """

    binary_version: str
    emulation_version: str = ""
    strategy: str = OLDEST

    def __post_init__(self) -> None:
        if not self.binary_version:
            raise ValueError("a candidate needs its binary_version, such as '1.4.0'")
        if not self.strategy:
            raise ValueError(f"a candidate needs a strategy, such as {OLDEST!r}")
        if self.strategy == OLDEST and not self.emulation_version:
            raise ValueError(f"the strategy {OLDEST} needs an emulation_version")


@dataclass(frozen=True, slots=True)
class LeaseSettings:
    """A Lease of an API server: its name, its times in seconds, and how to reach the server."""

    name: str
    _: KW_ONLY
    namespace: str = ""
    """By default that of the kubeconfig's context, or of the Pod."""
    duration: float = 15.0
    """Seconds that others wait after the last renewal that they saw."""
    renew_deadline: float = 10.0
    """Seconds that the holder goes on after its last renewal."""
    retry_period: float = 2.0
    """Seconds between two attempts."""
    identity: str = ""
    """The name of this holder; by default the host's with a random part. Never two at a time."""
    candidacy: Candidacy | None = None
    """For coordinated leader election."""
    server: str = ""
    """URL of the API server; as `--server`, and SHMCACHE_SERVER, of whose list the last one counts:
    relays come first, and keep no Leases. `kube` is the server of the kubeconfig."""
    kubeconfig: str = ""
    """As `--kubeconfig`, and SHMCACHE_KUBECONFIG."""
    context: str = ""
    """As `--context`, and SHMCACHE_CONTEXT."""

    def __post_init__(self) -> None:
        check_name(self.name)
        if self.namespace:
            check_name(self.namespace)
        if self.identity:
            check_name(self.identity, "an identity")
        self._check_times()

    def _check_times(self) -> None:
        for name in ("duration", "renew_deadline", "retry_period"):
            value = getattr(self, name)
            if not (isinstance(value, int | float) and 0 < value <= _MAX_SECONDS):
                raise ValueError(f"{name} must be greater than zero, in seconds: not {value!r}")
        if self.duration < 1:
            raise ValueError(f"duration must be at least one second: not {self.duration:g}")
        if self.duration <= self.renew_deadline:
            raise ValueError(
                f"duration ({self.duration:g} s) must be greater than renew_deadline "
                f"({self.renew_deadline:g} s)"
            )
        if self.renew_deadline <= JITTER * self.retry_period:
            raise ValueError(
                f"renew_deadline ({self.renew_deadline:g} s) must be greater than {JITTER:g} x "
                f"retry_period ({self.retry_period:g} s)"
            )

    @property
    def seconds(self) -> int:
        """The duration as the Lease has it: whole seconds, never less than asked for."""
        return math.ceil(self.duration)

    @property
    def request_timeout(self) -> float:
        """Seconds for one request: several fit into the time until the renewal is due."""
        return max(self.retry_period, self.renew_deadline / 3)

    def access(self) -> ServerSettings:
        """How to reach the server."""
        from shmcache.source.config import ServerSettings

        def given(value: str, name: str) -> str | None:
            return value or os.environ.get(name) or None

        urls = self.server or (
            "" if self.kubeconfig or self.context else os.environ.get("SHMCACHE_SERVER", "")
        )
        url = next((part.strip() for part in reversed(urls.split(",")) if part.strip()), KUBE)
        return ServerSettings(
            url=None if url == KUBE else url,
            kubeconfig=given(self.kubeconfig, "SHMCACHE_KUBECONFIG"),
            context=given(self.context, "SHMCACHE_CONTEXT"),
            connect_timeout=self.request_timeout,
        )


def check_name(name: str, what: str = "the name of a Lease") -> None:
    """ValueError for a text that can be no name of an object (RFC 1123)."""
    parts = name.split(".")
    valid = len(name) <= _NAME_LENGTH and all(
        part and _LABEL.issuperset(part) and part[0] != "-" and part[-1] != "-" for part in parts
    )
    if not valid:
        raise ValueError(
            f"{what} must have letters a-z, digits, '-' and '.', and begin and end with a letter "
            f"or a digit, not {name!r}"
        )


def new_identity() -> str:
    """A name that no other holder ever has, and that an object can have."""
    host = "".join(
        letter if letter in _LABEL else "-" for letter in socket.gethostname().lower()
    ).strip("-")
    return f"{host[:100] or 'host'}-{uuid.uuid4()}"


def boot_seconds() -> float:
    """Seconds since the machine started, counting those in which it was suspended.

    The monotonic clock stands still in a suspended machine: a holder that wakes would take its
    Lease for valid long after others took it. Where the system has no such clock, as macOS, its
    monotonic one counts suspensions.
    """
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))
