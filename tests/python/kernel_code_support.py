"""Compilers of device code, and what their code looks like once it is disassembled."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
DEVICES = [75, 80, 86, 89, 90, 100, 120]
MOST_REGISTERS = 64

_LEAST_MAJOR_VERSION = 12  # Older compilers know no C++20.
_INSTRUCTION = re.compile(r"^\s+/\*[0-9a-f]{4,}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][\w.]*)([^;]*);")
_USAGE = re.compile(r"Function (\w+):\n(.*)")


def run(*command, cwd=None):
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True, check=False)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def _folders():
    homes = [os.environ.get(name) for name in ("CUDA_HOME", "CUDA_PATH")]
    return [
        *[str(Path(home) / "bin") for home in homes if home],
        str(Path(sys.executable).parent),
        *os.environ.get("PATH", "").split(os.pathsep),
        "/usr/local/cuda/bin",
        str(Path(sysconfig.get_path("purelib")) / "nvidia" / "cu13" / "bin"),
    ]


def _missing(message):
    """Skip the test; in continuous integration, let it fail."""
    (pytest.fail if os.environ.get("CI") else pytest.skip)(message)


@cache
def compilers():
    """Return the path of an nvcc by its version, one for each version that is found."""
    found = {}
    candidates = [
        os.environ.get("CUDACXX"),
        *[shutil.which("nvcc", path=folder) for folder in _folders()],
    ]
    for path in filter(None, candidates):
        version = re.search(r"V(\d+)(\.[\d.]+)", run(path, "--version"))
        if version and int(version[1]) >= _LEAST_MAJOR_VERSION:
            found.setdefault(f"{version[1]}{version[2]}", path)
    return found


def compiler(version):
    if version is None:
        _missing("No nvcc was found; `make compilers` installs one.")
    return compilers()[version]


def tool(name):
    """Return the path of a program, of whichever compiler's: they read the code of older ones."""
    path = shutil.which(name, path=os.pathsep.join(_folders()))
    if path is None:
        _missing(f"No {name} was found; `make compilers` installs one.")
    return path


def build_kernel(version, *options):
    """Build the kernel alone, as the package does, and return the folder of the build."""
    folder = ROOT / "build" / "kernel" / str(version)
    run(
        tool("cmake"),
        *["-S", ROOT, "-B", folder, "-G", "Ninja", f"-DCMAKE_MAKE_PROGRAM={tool('ninja')}"],
        *["-DEVENSTRIDE_BUILD_PYTHON=OFF", "-DEVENSTRIDE_DEVELOPER=ON", "-DEVENSTRIDE_CUDA=ON"],
        f"-DEVENSTRIDE_NVCC={compiler(version)}",
    )
    run(tool("cmake"), "--build", folder, "--target", "evenstride_kernel", *options)
    return folder


def compile_file(version, source, fatbin):
    devices = [
        option
        for device in DEVICES
        for option in ("-gencode", f"arch=compute_{device},code=sm_{device}")
    ]
    flags = ["-std=c++20", "-O3", "--threads", "0", "-Wno-deprecated-gpu-targets"]
    run(
        compiler(version),
        *["-fatbin", *flags, "-Werror", "all-warnings", f"-I{ROOT / 'csrc'}", *devices],
        *["-o", fatbin, source],
    )


@dataclass(frozen=True)
class Code:
    """A kernel as one kind of device runs it."""

    instructions: list[tuple[str, str]]  # Opcode and operands.
    usage: dict[str, int]  # Of registers and memory.

    def opcodes(self, root):
        return [opcode for opcode, _ in self.instructions if opcode.split(".")[0] == root]

    def narrow_stores(self):
        return [opcode for opcode in self.opcodes("STG") if "128" not in opcode.split(".")]

    def faults(self):
        found = set()
        for opcode, operands in self.instructions:
            root = opcode.split(".")[0]
            if root in {"LD", "ST"}:
                found.add("generic access")
            # A call within the kernel is a branch. Divisions of 64 bits are a function.
            if root == "RET" or (root == "CALL" and "`(.L_" not in operands):
                found.add("call")
            if root in {"LDL", "STL"}:
                found.add("local memory")
        if self.usage["STACK"] or self.usage["LOCAL"]:
            found.add("local memory")
        if self.usage["REG"] > MOST_REGISTERS:
            found.add("registers")
        return found


def codes_in(fatbin, folder):
    """Return the code of each kernel in a file, by kernel and device; `folder` is for scratch."""
    cuobjdump, nvdisasm = tool("cuobjdump"), tool("nvdisasm")
    run(cuobjdump, "--extract-elf", "all", fatbin, cwd=folder)
    codes = {}
    for cubin in folder.glob("*.cubin"):
        device = int(re.search(r"sm_(\d+)", cubin.name)[1])
        usages = dict(_USAGE.findall(run(cuobjdump, "--dump-resource-usage", cubin)))
        # A section of code for each kernel, in which other functions are too.
        listing = run(nvdisasm, "--print-code", cubin)
        for section in re.split(r"^\.text\.", listing, flags=re.MULTILINE)[1:]:
            name = section.partition(":")[0]
            matches = map(_INSTRUCTION.match, section.splitlines())
            usage = {key: int(value) for key, value in re.findall(r"(\w+):(\d+)", usages[name])}
            # Some devices' code says so in every access: seen by the whole system.
            instructions = [(match[1].removesuffix(".SYS"), match[2]) for match in matches if match]
            codes[name, device] = Code(instructions, usage)
    return codes
