"""The processors that machine code is compiled for: this machine's own, or any with the instructions of x86-64-v3.

An image is built on one machine and runs on others. Code for x86-64-v3 runs on all Intel and AMD servers since 2015.
Nothing here needs a compiler.
"""

from __future__ import annotations

import platform
from functools import cache
from itertools import takewhile
from pathlib import Path
from typing import Final

PORTABLE: Final = "x86-64-v3"
#: The instructions of x86-64-v3 beyond those of every 64-bit processor, in the words of LLVM.
PORTABLE_FEATURES: Final = "+avx,+avx2,+bmi,+bmi2,+f16c,+fma,+lzcnt,+movbe,+popcnt,+sse3,+sse4.1,+sse4.2,+ssse3"
# The same instructions, in the words of Linux; it calls LZCNT "abm" and SSE3 "pni".
_NEEDED = {
    *("avx", "avx2", "bmi1", "bmi2", "f16c", "fma", "abm", "movbe", "popcnt", "pni", "sse4_1", "sse4_2", "ssse3")
}
# Beginnings of the names of instructions that compilers use.
_COMPILED = ("avx", "amx", "bmi", "fma")
INFO = Path("/proc/cpuinfo")


@cache
def cpu_facts() -> dict[str, str]:
    """Return what Linux says about the first processor, by its words; {} on other systems."""
    try:
        with INFO.open() as file:
            first = [line.partition(":") for line in takewhile(str.strip, file)]
    except OSError:
        return {}
    return {name.strip(): value.strip() for name, _, value in first}


def cpu_model() -> str:
    """Return the model of this machine's processors, as sellers write it."""
    facts = cpu_facts()
    arm = " ".join(facts[key] for key in ("CPU implementer", "CPU part", "CPU variant") if key in facts)
    return facts.get("model name") or arm or platform.processor() or platform.machine()


def host_processor() -> str:
    """Return a short name for processors of this model with these instructions."""
    from hashlib import sha256

    facts = cpu_facts()
    model = [platform.machine(), cpu_model(), facts.get("vendor_id"), facts.get("cpu family"), facts.get("model")]
    instructions = sorted(flag for flag in _flags() if flag.startswith(_COMPILED))
    return f"host{sha256(repr((model, instructions)).encode()).hexdigest()[:8]}"


def runs_portable_code() -> bool:
    """Return whether this machine's processors have all instructions of x86-64-v3."""
    return _flags() >= _NEEDED


def _flags() -> frozenset[str]:
    return frozenset(cpu_facts().get("flags", "").split())
