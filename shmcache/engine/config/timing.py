"""How long the reflectors of a process wait, and for what: the table [reflector].

The defaults are those of client-go, and of a server that sends a bookmark each minute. Shorter ones
find dead connections sooner and ask failing servers more often; a silence below a minute makes an
idle resource be listed again and again.
"""

from __future__ import annotations

from dataclasses import dataclass

from shmcache.reflector.backoff import BackoffSettings
from shmcache.reflector.retrying import ReflectorSettings
from shmcache.source.kube import LIST_SILENCE

_PATIENT, _BACKOFF = ReflectorSettings(), BackoffSettings()


@dataclass(frozen=True, slots=True, kw_only=True)
class Timing:
    """Durations in seconds, for every resource; keys.py describes each."""

    silence: float = _PATIENT.silence
    list_silence: float = LIST_SILENCE
    end_bookmark_wait: float = _PATIENT.end_bookmark_wait
    backoff_initial: float = _BACKOFF.initial
    backoff_cap: float = _BACKOFF.cap
    proof_interval: float = 300.0
    """0: content is proved only after an outage."""

    def __post_init__(self) -> None:
        for name in self.__slots__:
            if name != "proof_interval" and getattr(self, name) <= 0:
                raise ValueError(f"[reflector] {name} must be more than 0 seconds")
        if self.proof_interval < 0:
            raise ValueError("[reflector] proof_interval must not be less than 0 seconds")
        if self.backoff_cap < self.backoff_initial:
            raise ValueError("[reflector] backoff_cap must not be less than backoff_initial")

    @property
    def backoff(self) -> BackoffSettings:
        """Of each resource."""
        return BackoffSettings(initial=self.backoff_initial, cap=self.backoff_cap)
