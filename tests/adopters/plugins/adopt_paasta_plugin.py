"""For pytest: PaaSTA's KubeClient asks the cache first."""

from shmcache.integrations.paasta import adopt

adopt("no-such-cache")
