"""The properties of a wheel's libraries: guards of stack and copies, tables of functions that
nothing can write, no symbols or paths of their builder."""

from __future__ import annotations

import io
import re
import zipfile
from pathlib import Path
from typing import Any

from elftools.elf.elffile import ELFFile

PATHS = re.compile(rb"/(?:root|home|tmp|build|usr/src|work)/[\x21-\x7e]+")
BIND_NOW, FLAG_NOW = 0x8, 0x1  # in DT_FLAGS, in DT_FLAGS_1
SHADOW_STACK = 0x2  # in GNU_PROPERTY_X86_FEATURE_1_AND


def faults(wheel: Path) -> list[str]:
    """The faults of all libraries in a wheel; a wheel without libraries is one, too."""
    with zipfile.ZipFile(wheel) as archive:
        libraries = {name: archive.read(name) for name in archive.namelist() if ".so" in name}
    found = [f"{name}: {fault}" for name, data in libraries.items() for fault in of_library(data)]
    return found if libraries else [f"{wheel.name} has no library"]


def of_library(data: bytes) -> list[str]:
    elf: Any = ELFFile(io.BytesIO(data))
    segments = {segment["p_type"]: segment for segment in elf.iter_segments()}
    tags = {tag.entry.d_tag: tag for tag in segments["PT_DYNAMIC"].iter_tags()}
    sections = {section.name for section in elf.iter_sections()}
    called = {symbol.name for symbol in elf.get_section_by_name(".dynsym").iter_symbols()}
    flags, flags_1 = (
        tags[name].entry.d_val if name in tags else 0 for name in ("DT_FLAGS", "DT_FLAGS_1")
    )
    checks = {
        "its functions are not bound at the start (-z now)": flags & BIND_NOW
        and flags_1 & FLAG_NOW,
        "its tables stay writable (-z relro)": "PT_GNU_RELRO" in segments,
        "its stack is executable": not segments["PT_GNU_STACK"]["p_flags"] & 1,
        "a segment is writable and executable": all(
            segment["p_flags"] & 3 != 3 for segment in elf.iter_segments("PT_LOAD")
        ),
        "its stack has no guard (-fstack-protector-strong)": "__stack_chk_fail" in called,
        "its copies are not checked (_FORTIFY_SOURCE)": any(n.endswith("_chk") for n in called),
        "it is not stripped": not {".symtab", ".debug_info"} & sections,
        "it has a RUNPATH": not {"DT_RPATH", "DT_RUNPATH"} & set(tags),
        "it has no shadow stack (-z shstk)": has_shadow_stack(elf),
    }
    found = [fault for fault, good in checks.items() if not good]
    return found + [f"it names {path.decode()}" for path in sorted(set(PATHS.findall(data)))]


def has_shadow_stack(elf: Any) -> bool:
    if elf["e_machine"] != "EM_X86_64":
        return True
    for section in elf.iter_sections("SHT_NOTE"):
        for note in section.iter_notes():
            properties = note["n_desc"] if note["n_type"] == "NT_GNU_PROPERTY_TYPE_0" else []
            for each in properties:
                if each["pr_type"] == "GNU_PROPERTY_X86_FEATURE_1_AND":
                    return bool(each["pr_data"] & SHADOW_STACK)
    return False
