"""Builds the package with its kernel, into a folder of its own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def find_compiler() -> str | None:
    """Return where nvcc is."""
    return shutil.which("nvcc") or shutil.which("nvcc", path="/usr/local/cuda/bin:/opt/cuda/bin")


def build(target: Path, *, with_kernel: bool, seconds: float) -> str | None:
    """Build and install into `target`; return what went wrong, if anything did.

    Fetches nothing: scikit-build-core, pybind11, CMake and Ninja have to be there.
    """
    environment = dict(os.environ)
    if (compiler := find_compiler()) is not None:
        folder = str(Path(compiler).parent)
        environment["PATH"] = os.pathsep.join([environment.get("PATH", ""), folder])
    shutil.rmtree(target, ignore_errors=True)
    command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install", "--quiet"]
    command += ["--no-build-isolation", "--no-deps", "--no-index", "--target", str(target)]
    command += [f"--config-settings=cmake.define.EVENSTRIDE_CUDA={'ON' if with_kernel else 'OFF'}"]
    try:
        done = subprocess.run(  # noqa: S603
            [*command, str(ROOT)],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"Building took more than {seconds:.0f} s."
    if done.returncode == 0:
        return None
    print(done.stdout[-4000:])
    lines = [line for line in done.stdout.splitlines() if "rror" in line]
    return lines[0].strip()[:300] if lines else f"pip ended with status {done.returncode}."
