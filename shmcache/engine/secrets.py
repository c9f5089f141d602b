"""Secrets in the cache: only where allowed, and only where nobody else can read them."""

from __future__ import annotations

import os

from shmcache.engine.config import Configuration
from shmcache.engine.config.keys import ConfigurationError
from shmcache.writer.writer import Writer


def check_segment(configuration: Configuration, writer: Writer) -> None:
    """ConfigurationError if there will be Secrets and the memory is not ours alone.

    The configured mode is not enough: a file system may have its own idea of it.
    """
    if not any(plan.is_secret for plan in configuration.plans):
        return
    place = writer.place
    fd = place.open_data(place.current().data)
    try:
        found = os.fstat(fd)
    finally:
        os.close(fd)
    if found.st_uid != os.geteuid() or found.st_mode & 0o077:
        raise ConfigurationError(
            f"cache {writer.name!r} is to hold Secrets, but its memory has mode "
            f"{found.st_mode & 0o777:#o} and belongs to uid {found.st_uid}: use a file system that "
            "keeps mode 0600 and the owner"
        )
