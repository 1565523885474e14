"""The machine that is checked: its card, driver and compilers, and whether the kernel serves it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import torch

from evenstride import _core
from evenstride.device_memory import why_not
from gpu.section import Section, run_section
from harness import environment


def run(section: Section) -> None:
    found: dict[str, Any] = environment(("numpy", "torch", "fbgemm-gpu"))
    found["cuda_compiler"] = _core.cuda_compiler
    found["package"] = str(Path(_core.__file__).resolve())
    found["card"] = "none"
    if section.is_cuda:
        properties = torch.cuda.get_device_properties(section.device)
        found["card"] = properties.name
        found["device"] = {
            "memory_gib": round(properties.total_memory / 2**30, 1),
            "multiprocessors": properties.multi_processor_count,
            "capability": f"{properties.major}.{properties.minor}",
            "driver": _driver(),
            "cuda_of_torch": torch.version.cuda,
        }
        section.note(
            f"{found['card']}, driver {found['device']['driver']}, torch for {torch.version.cuda}; "
            f"kernel by nvcc {_core.cuda_compiler}, the rest by {found['compiler']}."
        )
        reason = why_not(section.device)
        section.check("The kernel serves this device", reason is None, reason or found["card"])
    section.keep("machine", found)


def _driver() -> str:
    command = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=True, timeout=20)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return "unknown"
    return done.stdout.partition("\n")[0].strip()


if __name__ == "__main__":
    sys.exit(run_section(run, __doc__))
