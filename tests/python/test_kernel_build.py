"""When the kernel is built, what depends on it, and how it is embedded."""

from __future__ import annotations

import re
import stat
import subprocess

import pytest

from kernel_code_support import ROOT, build_kernel, compilers, run, tool

# Prints how the image lies in memory, then its bytes.
PRINTER = """
#include <cstdint>
#include <iostream>

#include "cuda/kernel_image.h"

int main() {
  const auto image = evenstride::kernel_image();
  std::cout << evenstride::kernel_compiler() << '\\n'
            << reinterpret_cast<std::uintptr_t>(image.data()) % 16 << '\\n';
  std::cout.write(reinterpret_cast<const char*>(image.data()), std::ssize(image));
}
"""

pytestmark = pytest.mark.timeout(600)


@pytest.fixture
def configure(tmp_path):
    """Configure the C++ core; return the exit status and what CMake says, in one line."""

    def with_options(*options):
        command = [
            *[tool("cmake"), "-S", ROOT, "-B", tmp_path / "build", "-G", "Ninja"],
            f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}",
            *["-DEVENSTRIDE_BUILD_PYTHON=OFF", "--log-level=NOTICE", *options],
        ]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        return done.returncode, " ".join(done.stderr.split())

    return with_options


@pytest.fixture
def fake_nvcc(tmp_path):
    """Return the path of a compiler that compiles nothing, and notes when it is called."""
    path = tmp_path / "nvcc"
    answers = 'case "$1" in --version) echo V13.0.88 ;; --list-gpu-code) echo sm_90 ;;'
    path.write_text(f'#!/bin/sh\necho "$@" >> "$0.calls"\n{answers} *) exit 1 ;; esac\n')
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_another_word_than_auto_on_and_off_is_an_error(configure):
    status, said = configure("-DEVENSTRIDE_CUDA=yes")
    assert status != 0
    assert "EVENSTRIDE_CUDA must be AUTO, ON or OFF, but is 'yes'." in said


def test_without_a_compiler_one_line_says_that_the_kernel_is_left_out(configure, tmp_path):
    missing = tmp_path / "missing"
    status, said = configure("-DEVENSTRIDE_CUDA=AUTO", f"-DEVENSTRIDE_NVCC={missing}")
    why = f"{missing} does not say its version and devices"
    assert status == 0
    assert said == f"evenstride: the CUDA kernel is left out, for {why}."
    status, said = configure("-DEVENSTRIDE_CUDA=ON")
    assert status != 0
    assert f"EVENSTRIDE_CUDA is ON, but {why}." in said


def test_a_compiler_that_fails_leaves_the_kernel_out(configure, fake_nvcc):
    status, said = configure("-DEVENSTRIDE_CUDA=AUTO", f"-DEVENSTRIDE_NVCC={fake_nvcc}")
    assert status == 0
    why = rf"{fake_nvcc} \(13\.0\.88\) cannot compile it with \S+"
    assert re.fullmatch(rf"evenstride: the CUDA kernel is left out, for {why}\.", said)
    status, said = configure("-DEVENSTRIDE_CUDA=ON")
    assert status != 0
    assert re.search(rf"EVENSTRIDE_CUDA is ON, but {why}\.", said)


def test_off_looks_for_no_compiler(configure, fake_nvcc, monkeypatch):
    monkeypatch.setenv("CUDACXX", str(fake_nvcc))
    calls = fake_nvcc.with_suffix(".calls")
    assert configure("-DEVENSTRIDE_CUDA=OFF") == (0, "")
    assert not calls.exists()
    configure("-DEVENSTRIDE_CUDA=AUTO")
    assert calls.exists()


@pytest.fixture(scope="module")
def build():
    return build_kernel(max(compilers(), default=None))


@pytest.mark.compiles
def test_the_kernel_is_compiled_again_when_its_headers_change_and_not_for_others(build):
    needed = run(tool("ninja"), "-t", "deps", "csrc/kernel/cuda/pad_kernel.fatbin", cwd=build)
    own = set(re.findall(rf"{ROOT}/csrc/(\S+)", needed))
    assert {"cuda/pad_kernel.cu", "cuda/pad_tile.h", "cuda/pad_batch.h", "collate/pad.h"} <= own
    assert not {name for name in own if name.endswith(".cc") or name.startswith("core/")}


@pytest.mark.compiles
def test_the_embedded_image_is_what_the_compiler_wrote_and_aligned(build, tmp_path):
    compiled = "csrc/CMakeFiles/evenstride_cuda.dir/cuda/kernel_image.cc.o"
    run(tool("cmake"), "--build", build, "--target", compiled)
    source, program = tmp_path / "printer.cc", tmp_path / "printer"
    source.write_text(PRINTER)
    cxx = re.search(
        r"^CMAKE_CXX_COMPILER:\w+=(.+)$", (build / "CMakeCache.txt").read_text(), re.MULTILINE
    )
    run(cxx[1], "-std=c++20", f"-I{ROOT / 'csrc'}", source, build / compiled, "-o", program)
    printed = subprocess.run([program], capture_output=True, check=True).stdout
    version, misalignment, image = printed.split(b"\n", 2)
    assert version.decode() == max(compilers())
    assert misalignment == b"0"
    assert image == (build / "csrc/kernel/cuda/pad_kernel.fatbin").read_bytes()
