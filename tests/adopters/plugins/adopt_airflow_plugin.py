"""For pytest: Airflow's watcher and trigger are those of the adapter."""

from shmcache.integrations.airflow import adopt

adopt()
