"""Several clusters: a child process with a reflector for each context, under one supervisor.

A context whose server, credentials or names are wrong ends its own child alone, which is started
again with pauses; the other contexts go on.
"""

from __future__ import annotations

import os
from dataclasses import replace
from functools import partial

from shmcache.engine import service
from shmcache.engine.config import Configuration
from shmcache.memory.contexts import context_name
from shmcache.processes.supervisor import Supervisor


def each_context(configuration: Configuration) -> list[Configuration]:
    """One configuration for each context, with a cache of its own."""
    return [
        replace(
            configuration,
            contexts=(),
            context=each,
            name=context_name(configuration.name, each),
            recorder=_recorder_of(configuration, each),
        )
        for each in configuration.contexts
    ]


def _recorder_of(configuration: Configuration, context: str) -> str:
    """A directory in that of all contexts."""
    if not configuration.recorder:
        return ""
    cache = os.path.basename(context_name(configuration.name, context))
    return os.path.join(configuration.recorder, cache)


def run(configuration: Configuration) -> int:
    """Until SIGTERM or SIGINT; the exit status. Main thread only."""
    bodies = [partial(service.run, each) for each in each_context(configuration)]
    return Supervisor(bodies, name="reflector").run()
