"""Writes the stub of the compiled module, or checks that the committed one is up to date.

`python tools/stubs.py` writes python/evenstride/_core.pyi. With `--check` it writes nothing; where
the file is out of date it shows the difference and exits with 1.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
from pathlib import Path

from generated import write_or_check

MODULE = "evenstride._core"
STUB = Path(__file__).resolve().parents[1] / "python" / "evenstride" / "_core.pyi"


def generate() -> str:
    """Return the formatted stub of the module that is installed."""
    with tempfile.TemporaryDirectory() as folder:
        stubgen = [sys.executable, "-m", "pybind11_stubgen", MODULE, "--output-dir", folder]
        subprocess.run([*stubgen, "--exit-code"], check=True)
        draft = Path(folder, *MODULE.split(".")).with_suffix(".pyi").read_text(encoding="utf-8")
    # The values of constants, such as the version, are those of this build alone.
    draft = re.sub(r"^(\w+: \w+) = .*$", r"\1", draft, flags=re.MULTILINE)
    ruff = [sys.executable, "-m", "ruff", "format", "--no-cache", "--stdin-filename", "_core.pyi"]
    run = subprocess.run(
        [*ruff, "-"], input=draft, check=True, capture_output=True, encoding="utf-8"
    )
    return run.stdout


if __name__ == "__main__":
    sys.exit(write_or_check(STUB, generate, __doc__, "make stubs"))
