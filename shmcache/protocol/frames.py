"""The decoders of watch bodies, list bodies and chunked framing: one place to take them from."""

from __future__ import annotations

import importlib
from typing import Any

from shmcache import _hot

_decoders: Any = _hot
if not hasattr(_hot, "Frames"):  # until they are there in C, the slow ones
    _decoders = importlib.import_module("tests.unit.reference_frames")

Chunks = _decoders.Chunks
Frames = _decoders.Frames
ItemScanner = _decoders.ItemScanner
