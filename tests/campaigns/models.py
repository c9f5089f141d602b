"""Model views against the models of one installed library: `make models` runs it for each version.

    python tests/campaigns/models.py kubernetes [--rounds 3]           SEED= repeats a run

Every recorded object, and generated ones of every kind, times every attribute path.
"""

from __future__ import annotations

import argparse
import os
import random
import sys
from collections import Counter
from collections.abc import Iterator
from typing import Any

import model_objects
import model_twin

import shmcache
from shmcache.models import generate
from shmcache.models.dialect import Dialect, dialect_of
from shmcache.models.tables import LIBRARIES, ModelTable, model_name

REFUSED_AT_MOST = 0.02
"""The share of generated objects that a strict library may refuse: enumerations, patterns."""


def objects(
    dialect: Dialect, rounds: int, rng: random.Random, most: int | None = None
) -> Iterator[tuple[str, Any]]:
    """(name of its model, object): the recorded ones, then `rounds` of each kind.

    `most`: so many of either, at random.
    """
    recorded, kinds = list(model_objects.recorded()), model_objects.kinds()
    if most is not None:
        recorded = rng.sample(recorded, min(most, len(recorded)))
        kinds = rng.sample(kinds, min(most, len(kinds)))
    for obj in recorded:
        name = model_name(dialect.table, obj["apiVersion"], obj["kind"], library=dialect.library)
        if name is not None:
            yield name, obj
    filled = model_objects.Filled(dialect.library, rng)
    for _ in range(rounds):
        for api_version, kind in kinds:
            name = model_name(dialect.table, api_version, kind, library=dialect.library)
            if name is not None:
                yield name, filled.object(api_version, kind, name)


def run(
    library: str, rounds: int, rng: random.Random, cache_name: str, most: int | None = None
) -> Counter[str]:
    """Compares; AssertionError at the first difference. Counts what was compared."""
    dialect, counts = dialect_of(library), Counter[str]()
    check_table(dialect)
    comparison = model_twin.Comparison()
    with (
        shmcache.Writer(cache_name, ["things"], arena_max="512MiB") as writer,
        shmcache.attach(cache_name) as cache,
    ):
        things = cache["things"].models(library)
        for number, (name, obj) in enumerate(objects(dialect, rounds, rng, most)):
            key = f"a/{number % 64}"
            try:
                theirs = dialect.decode(name, obj)
            except (ValueError, TypeError) as error:  # a strict library
                counts["refused"] += 1
                counts[f"refused {name}: {error}"] += 1
                continue
            writer.put("things", key, obj)
            ours = things[key]
            comparison.model(ours, theirs, name)
            comparison.whole(ours, theirs)
            counts["objects"] += 1
            counts[f"kind {name}"] += 1
    counts["attributes"] = comparison.attributes
    counts["kinds"] = sum(1 for name in counts if name.startswith("kind "))
    assert most is not None or counts["refused"] <= REFUSED_AT_MOST * counts["objects"], counts[
        "refused"
    ]
    return counts


def check_table(dialect: Dialect) -> None:
    """The table in the package is what the installed library gives."""
    made = generate.generate(dialect.library).splitlines()[1:]
    assert dialect.release in LIBRARIES[dialect.library]
    stored = ModelTable(dialect.library, dialect.release)
    assert [line.rstrip() for line in stored.lines.values()] == made, (
        f"the table of {dialect.name} differs: "
        f"python -m shmcache.models.generate {dialect.library} > "
        f"shmcache/models/{LIBRARIES[dialect.library][dialect.release]}.txt"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("library", choices=LIBRARIES)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    seed = int(os.environ.get("SEED") or random.SystemRandom().getrandbits(32))
    counts = run(
        options.library, options.rounds, random.Random(seed), f"models-campaign-{os.getpid()}"
    )
    sys.stdout.write(
        f"{dialect_of(options.library).name}: {counts['objects']:,} objects of {counts['kinds']} "
        f"kinds, {counts['attributes']:,} attributes equal, {counts['refused']} refused by the "
        f"library, SEED={seed}\n"
    )


if __name__ == "__main__":
    main()
