"""Invariant tested: a model view equals the model that the library itself makes of the object.

`make models` runs the whole comparison, for each version of each library.
"""

from __future__ import annotations

import random

import models as campaign
import pytest

from shmcache.models.dialect import dialect_of
from shmcache.models.tables import LIBRARIES, ModelTable, model_name, release_of

SOME = 30  # objects and kinds: a second or two


@pytest.mark.slow
@pytest.mark.parametrize("library", LIBRARIES)
def test_every_attribute_of_a_view_is_that_of_the_librarys_own_model(
    library: str, name: str, rng: random.Random
) -> None:
    counts = campaign.run(library, 1, rng, name, SOME)

    assert counts["objects"] > SOME
    assert counts["attributes"] > 1000


@pytest.mark.parametrize("library", LIBRARIES)
def test_the_table_in_the_package_is_the_one_that_the_installed_library_gives(library: str) -> None:
    campaign.check_table(dialect_of(library))


def test_a_version_has_its_own_table_a_newer_one_the_newest_an_older_one_the_oldest() -> None:
    assert [release_of("kubernetes", one) for one in ("31.0.0", "35.0.0", "36.0.3", "99.1")] == [
        "35",
        "35",
        "36",
        "37",
    ]
    assert "V1PodStatus" in ModelTable("kubernetes", "35")


@pytest.mark.parametrize(
    ("api_version", "kind", "expected"),
    [
        ("v1", "Pod", "V1Pod"),
        ("v1", "Event", "CoreV1Event"),
        ("events.k8s.io/v1", "Event", "EventsV1Event"),
        ("serving.knative.dev/v1", "Service", None),
        ("apps/v9", "Deployment", None),
    ],
)
def test_a_kind_has_the_model_of_its_group(
    api_version: str, kind: str, expected: str | None
) -> None:
    table = ModelTable("kubernetes", "37")

    assert expected == model_name(table, api_version, kind, library="kubernetes")
