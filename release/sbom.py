"""The software bill of materials of a wheel: CycloneDX, in `.dist-info/sboms/` (PEP 770).

setup.py calls it when a wheel is built. The wheel contains nothing of another project, so its
components are what it needs at run time, without versions: an installation decides about those.
The text depends on the project's metadata alone, so that wheels stay reproducible.
"""

from __future__ import annotations

import json
import re
import uuid
from typing import Any

FILE = "shmcache.cdx.json"
_NAMESPACE = uuid.UUID("6f0c9cb1-27a5-4d6e-9d0e-1c5f3f0f6a55")
_REQUIREMENT = re.compile(r"(?P<name>[A-Za-z0-9._-]+)(?:\[[^\]]*\])?\s*(?P<range>[^;]*)")


def text(name: str, version: str, licence: str, requirements: list[str]) -> str:
    """The whole document as JSON."""
    own = f"pkg:pypi/{name}@{version}"
    needed = [_component(one) for one in sorted(requirements)]
    document: dict[str, Any] = {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "serialNumber": f"urn:uuid:{uuid.uuid5(_NAMESPACE, own + repr(sorted(requirements)))}",
        "version": 1,
        "metadata": {
            "component": {
                "type": "library",
                "bom-ref": own,
                "name": name,
                "version": version,
                "purl": own,
                "licenses": [{"license": {"id": licence}}],
            },
        },
        "components": needed,
        "dependencies": [
            {"ref": own, "dependsOn": [one["bom-ref"] for one in needed]},
            *({"ref": one["bom-ref"]} for one in needed),
        ],
    }
    return json.dumps(document, indent=2) + "\n"


def _component(requirement: str) -> dict[str, Any]:
    found = _REQUIREMENT.match(requirement)
    if found is None:
        raise ValueError(f"{requirement!r} is not a requirement")
    name = re.sub(r"[-_.]+", "-", found["name"]).lower()
    return {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}",
        "name": name,
        "purl": f"pkg:pypi/{name}",
        "scope": "required",
        "properties": [{"name": "shmcache:requirement", "value": requirement}],
    }
