"""`--lease`: of several machines' relays the holders watch upstream, and the others follow them.

The Leases are at the last of the servers, which is the API server. lease/holders.py finds out who
holds them, upstreams.py does what follows from that (SERVERS7).
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from shmcache.engine.upstreams import Upstreams
from shmcache.errors import SourceError
from shmcache.lease.holders import Holders, HolderView
from shmcache.lease.settings import LeaseSettings
from shmcache.source.client import ApiConnection
from shmcache.source.config import ServerSettings, open_server

if TYPE_CHECKING:
    from shmcache.engine.config import Configuration

logger = logging.getLogger(__name__)

DEADLINE_SHARE, RETRY_SHARE = 2 / 3, 2 / 15
"""Of a duration, as client-go has them: 15, 10 and 2 seconds."""
PATIENCE_SHARE = 2.0
"""Without a holder that answers for so many durations, everybody asks the servers."""


def lease_settings(configuration: Configuration) -> LeaseSettings:
    """The first Lease of a configuration. ValueError for a name or times that no Lease has."""
    namespace, _, name = configuration.lease.rpartition("/")
    duration = configuration.lease_duration
    return LeaseSettings(
        name,
        namespace=namespace,
        duration=duration,
        renew_deadline=duration * DEADLINE_SHARE,
        retry_period=duration * RETRY_SHARE,
    )


class Following:
    """Tells the upstreams of a process which holders there are."""

    def __init__(
        self, configuration: Configuration, server: ApiConnection, upstreams: Upstreams
    ) -> None:
        self._configuration = configuration
        self._upstreams = upstreams
        self._holders = Holders(
            lease_settings(configuration),
            configuration.advertise.rstrip("/"),
            configuration.lease_holders,
            server,
            self._stand,
        )

    def start(self) -> None:
        """From now on this process is a candidate."""
        self._upstreams.holder_failed = self._holders.wake
        self._holders.start()

    def stop(self) -> None:
        """Releases the Lease, if it is ours."""
        self._upstreams.holder_failed = _nothing
        self._holders.stop()

    def _stand(self, standing: HolderView) -> None:
        """One who holds follows the servers alone: holders that follow each other hear nobody."""
        others = () if standing.holds else standing.others
        found = [server for url in others if (server := self._open(url)) is not None]
        self._upstreams.stand(found, leads=standing.holds)

    def _open(self, url: str) -> ApiConnection | None:
        settings = self._configuration
        if settings.server_token_file and not url.startswith("https://"):
            logger.error("holder %s: a token is sent by https only", url)
            return None
        server = open_server(
            ServerSettings(
                url=url,
                ca_file=settings.server_ca or None,
                cert_file=settings.server_cert or None,
                key_file=settings.server_key or None,
                token_file=settings.server_token_file or None,
                connect_timeout=3.0,
            )
        )
        try:
            server.access()
        except SourceError as error:
            logger.error("holder %s: %s", url, error)  # noqa: TRY400 - the text says it all
            return None
        return server


def _nothing() -> None:
    return None
