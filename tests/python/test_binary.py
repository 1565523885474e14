"""What the compiled module needs of a machine, and a wheel without the kernel."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path

import pyarrow as pa
import pytest

from evenstride import _core
from evenstride.cuda import is_built
from kernel_code_support import ROOT, run

# Of the GNU and the musl C library; the linker's own name has the architecture in it.
ALLOWED = re.compile(
    r"(libstdc\+\+|libgcc_s|libm|libc|libpthread|libdl|ld-linux[-\w]*|libc\.musl-\w+)\.so[.\d]*"
)

# The first bytes of every fat binary: a number, a version, and the size of this header.
IMAGE = bytes.fromhex("50ed55ba 0100 1000")

USE = """
import sys

sys.path[:0] = sys.argv[1:]

import numpy as np

import evenstride as es
from evenstride.cuda import is_built

assert not is_built()
collate = es.PadCollator({"ids": es.Field(padding_value=0)}, pad_to_multiple_of=4)
data = es.RaggedDataset.from_lists([{"ids": [1, 2, 3]}, {"ids": [4, 5]}])
batch = collate(data.__getitems__([1, 0]))
assert batch["ids"].tolist() == [[4, 5, 0, 0], [1, 2, 3, 0]], batch
assert len(es.plan_epoch(np.arange(1, 9), token_budget=16)) > 0
print(es._core.__file__)
"""


def needed_by(library):
    if shutil.which("readelf") is None:
        message = "There is no readelf; it comes with a compiler's binutils."
        (pytest.fail if os.environ.get("CI") else pytest.skip)(message)
    return re.findall(r"\(NEEDED\).*\[(.*)\]", run("readelf", "--dynamic", "--wide", library))


def unexpected_of(libraries):
    return [library for library in libraries if not ALLOWED.fullmatch(library)]


def test_the_module_needs_the_c_and_cpp_libraries_and_nothing_else():
    libraries = needed_by(_core.__file__)
    assert any(library.startswith("libc.") for library in libraries)
    assert unexpected_of(libraries) == []


def test_the_check_of_needed_libraries_finds_others():
    others = ["libcuda.so.1", "libcudart.so.13", "libtorch.so", "libcupti.so", "libcrypt.so.1"]
    assert unexpected_of([*others, "libc.so.6", "ld-linux-x86-64.so.2"]) == others
    assert unexpected_of(needed_by(pa.lib.__file__)) != []  # A module that needs more.


def test_the_module_contains_the_kernel_if_it_says_so():
    assert (IMAGE in Path(_core.__file__).read_bytes()) == is_built()


@pytest.fixture(scope="module")
def unpacked(tmp_path_factory):
    """Return the folder of a wheel that was built without the kernel, and unpacked.

    In the build folder of all wheels, where only the kernel is another one.
    """
    folder = tmp_path_factory.mktemp("wheel")
    pip = [sys.executable, "-m", "pip", "--disable-pip-version-check"]
    run(
        *[*pip, "wheel", "--quiet", "--no-build-isolation", "--no-deps", "--wheel-dir", folder],
        *["--config-settings", "cmake.define.EVENSTRIDE_CUDA=OFF"],
        ROOT,
        cwd=ROOT,
    )
    (wheel,) = folder.glob("*.whl")
    run(*pip, "install", "--quiet", "--no-deps", "--target", folder / "site", wheel)
    return folder / "site"


@pytest.mark.compiles
@pytest.mark.timeout(900)
def test_a_wheel_without_the_kernel_works(unpacked):
    # Without the site's own start, which would bring in the package that is tested otherwise.
    command = [sys.executable, "-I", "-S", "-c", USE, unpacked, sysconfig.get_path("purelib")]
    used = subprocess.run(command, capture_output=True, text=True, check=False)
    assert used.returncode == 0, used.stderr
    module = Path(used.stdout.strip())
    assert module.is_relative_to(unpacked)
    assert IMAGE not in module.read_bytes()
    assert unexpected_of(needed_by(module)) == []
