"""`shmcache inspect`: verifies a whole cache through a reader's map, and says all that is known."""

from __future__ import annotations

import json
import os

from shmcache.cli.output import finding, report
from shmcache.cli.output.finding import DONE, MISSING
from shmcache.cli.output.grid import Grid
from shmcache.monitor import observing
from shmcache.reasons import file_shown

TYPE_CHECKING = False
if TYPE_CHECKING:
    import argparse
    from typing import Any

    from shmcache.monitor.observing import Observed, Survey
    from shmcache.reader.cache import Cache

HELP = "Verifies a cache block by block and shows everything about it; status 1 if it is broken."


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Which cache, in which form."""
    parser.add_argument("-o", "--output", choices=["json"], help="print JSON instead of tables")
    finding.add_cache(parser)


def run(options: argparse.Namespace) -> int:
    """The whole command; its exit status."""
    return _inspect(options)


def _inspect(options: argparse.Namespace) -> int:
    with finding.open_cache(options.cache) as cache:
        finding.warn_without_writer(cache)
        survey = observing.survey(cache)
        at = observing.observe(cache)
        if options.output:
            found = report.as_json(at, survey, observing.queues(cache))
            found["verified"] = {"fault": survey.fault, "seconds": survey.seconds, **survey.total}
            found["indices"] = _indices(cache)
            found["files"] = _files(cache)
            print(json.dumps(found, indent=4, sort_keys=True))
        else:
            _print(cache, at, survey)
    return MISSING if survey.fault else DONE


def _print(cache: Cache, at: Observed, survey: Survey) -> None:
    total = survey.total
    well = f"BROKEN: {survey.fault}" if survey.fault else "everything agrees"
    print(
        f"cache     {at.name}, instance {at.instance}\n"
        f"verified  {total['blocks']:,} blocks and {total['window']:,} changes of generation "
        f"{total['generation']:,} in {survey.seconds:.2f} s: {well}\n"
        f"writer    {report.writer(at)}; incarnation {at.writer.incarnation}\n"
        f"memory    {report.memory(at)}\n"
        f"ring      {at.head - at.tail:,} changes of at most {at.ring_slots // 2:,}, "
        f"{at.tail:,} to {at.head:,}\n"
        f"seats     {len(at.workers)} taken of {at.seats}\n"
        + (f"recorder  {report.recorder(at)}\n" if at.recorder is not None else "")
    )
    print(report.resources(at, survey))
    indices = _indices(cache)
    if any(indices.values()):
        rows = [["INDEX", "OF", "ENTRIES", "DECLARED AS"]]
        rows += [
            [index["name"], name, f"{index['entries']:,}", index["settings"] or "-"]
            for name, found in indices.items()
            for index in found
        ]
        print(Grid().lines(rows))
    print(report.workers(at))
    queues = report.queues(observing.queues(cache))
    if queues:
        print(queues)
    rows = [["FILE", "MEMORY", "MODE", "UID"]]
    rows += [
        [name, report.size(f["memory"]), f["mode"], str(f["uid"])]
        for name, f in _files(cache).items()
    ]
    print(Grid().lines(rows), end="")


def _indices(cache: Cache) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for name in cache.resources:
        found[name] = [
            {"name": index, "settings": settings, "entries": entries}
            for index, settings, entries in cache[name].record()["indices"]
        ]
    return found


def _files(cache: Cache) -> dict[str, dict[str, Any]]:
    """Size, mode and owner of each file; memory is what the file really uses."""
    place = cache.place
    found: dict[str, dict[str, Any]] = {}
    for name in place.location.names(place.stem + "."):
        path = place.location.file(name)
        try:
            stat = os.stat(path, follow_symlinks=False)
        except FileNotFoundError:
            continue
        found[file_shown(path)] = {
            "memory": stat.st_blocks * 512,
            "mode": f"{stat.st_mode & 0o777:04o}",
            "uid": stat.st_uid,
        }
    return found
