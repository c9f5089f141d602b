"""Writes dashboard.json, the Grafana dashboard: `python deploy/monitoring/dashboard.py`.

A panel is a title, a unit and its queries; everything else is the same for all of them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

PLACE = Path(__file__).with_name("dashboard.json")
CACHE = 'cache=~"$cache"'
Query = tuple[str, str]
"""An expression, and the legend of its series."""
ROWS: dict[str, list[tuple[str, str, str, list[Query]]]] = {
    # row: title of a panel, its kind, its unit, its queries
    "Freshness": [
        ("Writer", "stat", "bool_on_off", [(f"shmcache_up{{{CACHE}}}", "{{cache}}")]),
        ("Resources that are not synced", "stat", "none",
         [(f'sum(shmcache_resource_state{{{CACHE},state!="synced"}})', "")]),
        ("Time since the last contact", "timeseries", "s",
         [(f"shmcache_resource_age_seconds{{{CACHE}}}", "{{resource}}")]),
        ("State of each resource", "timeseries", "none",
         [(f"shmcache_resource_state{{{CACHE}}} == 1", "{{resource}} {{state}}")]),
    ],
    "Truth": [
        ("Age of changes at their arrival", "timeseries", "s",
         [(f"shmcache_resource_stamp_age_seconds{{{CACHE}}}", "{{resource}}")]),
        ("Events that are known and not stored", "timeseries", "s",
         [(f"shmcache_resource_lag_seconds{{{CACHE}}}", "{{resource}}")]),
        ("Watches that were cut", "timeseries", "none",
         [(f"shmcache_resource_watches_cut_total{{{CACHE}}}", "{{resource}}")]),
        ("Objects that were repaired", "timeseries", "none",
         [(f"shmcache_resource_repaired_total{{{CACHE}}}", "{{resource}}")]),
    ],
    "Changes": [
        ("Events", "timeseries", "cps",
         [(f"rate(shmcache_resource_events_total{{{CACHE}}}[$__rate_interval])", "{{resource}}")]),
        ("Lists and watches that were requested", "timeseries", "cps",
         [(f"rate(reflector_lists_total{{{CACHE}}}[$__rate_interval])", "lists of {{name}}"),
          (f"rate(reflector_watches_total{{{CACHE}}}[$__rate_interval])", "watches of {{name}}")]),
        ("Errors and relists", "timeseries", "cps",
         [(f"rate(shmcache_resource_errors_total{{{CACHE}}}[$__rate_interval])",
           "errors of {{resource}}"),
          (f"rate(shmcache_resource_relists_total{{{CACHE}}}[$__rate_interval])",
           "relists of {{resource}}")]),
        ("Objects", "timeseries", "none",
         [(f"shmcache_resource_objects{{{CACHE}}}", "{{resource}}")]),
    ],
    "Memory": [
        ("Shared memory", "timeseries", "bytes",
         [(f'shmcache_memory_bytes{{{CACHE},kind!~"maximum|bytes"}}', "{{kind}}")]),
        ("Share of the maximum", "gauge", "percentunit",
         [((f'shmcache_memory_bytes{{{CACHE},kind="bytes"}} / ignoring(kind) '
           f'shmcache_memory_bytes{{{CACHE},kind="maximum"}}'), "{{cache}}")]),
        ("Memory of each resource", "timeseries", "bytes",
         [(f"sum by (resource) (shmcache_resource_bytes{{{CACHE}}})", "{{resource}}")]),
        ("Private memory of each worker", "timeseries", "bytes",
         [(f"shmcache_worker_private_bytes{{{CACHE}}}", "pid {{pid}}")]),
    ],
    "Workers": [
        ("Attached processes", "timeseries", "none",
         [(f"shmcache_workers{{{CACHE}}}", "attached"), (f"shmcache_seats{{{CACHE}}}", "seats")]),
        ("Changes taken", "timeseries", "cps",
         [(f"rate(shmcache_worker_taken_total{{{CACHE}}}[$__rate_interval])", "pid {{pid}}")]),
        ("Lag", "timeseries", "none", [(f"shmcache_worker_lag_deltas{{{CACHE}}}", "pid {{pid}}")]),
        ("Lapses", "timeseries", "none",
         [(f"shmcache_worker_lapped_total{{{CACHE}}}", "pid {{pid}}")]),
    ],
    "Queues": [
        ("Depth", "timeseries", "none", [("workqueue_depth", "{{name}}")]),
        ("Delayed and in progress", "timeseries", "none",
         [("shmcache_workqueue_delayed", "{{name}} delayed"),
          ("shmcache_workqueue_in_progress", "{{name}} in progress")]),
        ("Oldest key", "timeseries", "s", [("shmcache_workqueue_oldest_seconds", "{{name}}")]),
        ("Mean time in work", "timeseries", "s",
         [(("rate(workqueue_work_duration_seconds_sum[$__rate_interval]) / "
           "rate(workqueue_work_duration_seconds_count[$__rate_interval])"), "{{name}}")]),
    ],
}  # fmt: skip
WIDTH, HEIGHT, WHOLE = 6, 7, 24
SOURCE = {"type": "prometheus", "uid": "$datasource"}


def dashboard() -> dict[str, Any]:
    """The whole dashboard."""
    return {
        "title": "shmcache",
        "uid": "shmcache",
        "tags": ["kubernetes", "shmcache"],
        "schemaVersion": 39,
        "refresh": "10s",
        "time": {"from": "now-30m", "to": "now"},
        "templating": {"list": [_sources(), _caches()]},
        "panels": _panels(),
    }


def _sources() -> dict[str, Any]:
    return {"name": "datasource", "label": "Data source", "type": "datasource",
            "query": "prometheus"}  # fmt: skip


def _caches() -> dict[str, Any]:
    query = "label_values(shmcache_up, cache)"
    return {"name": "cache", "label": "Cache", "type": "query", "datasource": SOURCE,
            "query": query, "definition": query, "includeAll": True, "multi": True, "refresh": 2,
            "current": {"text": "All", "value": "$__all"}}  # fmt: skip


def _panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = []
    top = 0
    for row, panels in ROWS.items():
        found.append({"id": len(found) + 1, "type": "row", "title": row,
                      "gridPos": {"x": 0, "y": top, "w": WHOLE, "h": 1}})  # fmt: skip
        for at, panel in enumerate(panels):
            place = {"x": at * WIDTH % WHOLE, "y": top + 1, "w": WIDTH, "h": HEIGHT}
            found.append(_panel(len(found) + 1, panel, place))
        top += HEIGHT + 1
    return found


def _panel(
    number: int, panel: tuple[str, str, str, list[Query]], place: dict[str, int]
) -> dict[str, Any]:
    title, kind, unit, queries = panel
    targets = [
        {"refId": chr(ord("A") + at), "datasource": SOURCE, "expr": text, "legendFormat": legend}
        for at, (text, legend) in enumerate(queries)
    ]
    return {"id": number, "type": kind, "title": title, "datasource": SOURCE, "gridPos": place,
            "targets": targets, "fieldConfig": {"defaults": {"unit": unit}, "overrides": []},
            "options": {"legend": {"showLegend": True, "displayMode": "list"}}}  # fmt: skip


if __name__ == "__main__":
    PLACE.write_text(json.dumps(dashboard(), indent=1) + "\n")
