"""The kernel under compute-sanitizer: a short run of the vectors under each of its tools."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

TOOLS = ("memcheck", "racecheck", "initcheck")
KERNEL = "evenstride_pad"
NAME = "compute-sanitizer"
ERRORS = {
    "memcheck": re.compile(r"ERROR SUMMARY: (\d+) error"),
    "racecheck": re.compile(r"RACECHECK SUMMARY: (\d+) hazard"),
    "initcheck": re.compile(r"ERROR SUMMARY: (\d+) error"),
}
REFUSALS = ("Device not supported", "Unable to find injection", "not supported on")
"""What the tool says where it cannot look into a device."""


@dataclass(frozen=True)
class Finding:
    """What a tool found. Nothing if `errors` is None: then it could not look."""

    tool: str
    errors: int | None
    detail: str


def find_tool(folders: Sequence[str] = ("/usr/local/cuda/bin", "/opt/cuda/bin")) -> str | None:
    """Return where the tool is."""
    home = os.environ.get("CUDA_HOME")
    places = [*([f"{home}/bin"] if home else []), *folders]
    return shutil.which(NAME) or shutil.which(NAME, path=os.pathsep.join(places))


def command_of(program: str, tool: str, arguments: Sequence[str]) -> list[str]:
    """Return the command that runs a module of ours under a tool."""
    options = ["--tool", tool, "--print-limit", "5", "--launch-timeout", "120"]
    # What the slab holds is written by a copy, and errors of calls are the package's to report.
    options += ["--target-processes", "application-only"]
    options += ["--kernel-name", f"kernel_substring={KERNEL}"]
    if tool == "memcheck":
        options += ["--report-api-errors", "no"]
    return [program, *options, sys.executable, "-m", *arguments]


def read_finding(tool: str, output: str) -> Finding:
    """Return what a tool's output says."""
    said = [line.lstrip("= ") for line in output.splitlines() if line.startswith("=====")]
    summary = ERRORS[tool].search(output)
    for refusal in REFUSALS:
        if refusal in output:
            return Finding(tool, None, f"{NAME} cannot look into this device: {refusal}.")
    if summary is None:
        why = next((line for line in said if "Error" in line), "it said nothing of an error")
        return Finding(tool, None, f"{NAME} came to no summary: {why[:200]}")
    errors = int(summary[1])
    detail = next((line for line in said if line and NAME.upper() not in line), "")
    return Finding(tool, errors, detail if errors else summary[0])


def run_tools(
    program: str, arguments: Sequence[str], environment: dict[str, str], seconds: float
) -> list[Finding]:
    """Run all tools at once, each for so long at most."""
    # Blocks of their own for all tensors, so that the end of each is seen.
    environment = {**environment, "PYTORCH_NO_CUDA_MEMORY_CACHING": "1"}
    with tempfile.TemporaryDirectory() as folder:
        running = {}
        for tool in TOOLS:
            log = (Path(folder) / tool).open("w+", encoding="utf-8", errors="replace")
            out = ["--out", str(Path(folder) / f"{tool}.json")]
            command = command_of(program, tool, [*arguments, *out])
            running[tool] = (
                subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment),  # noqa: S603
                log,
            )
        found = []
        for tool in TOOLS:
            output = _wait(*running[tool], seconds)
            results = Path(folder) / f"{tool}.json"
            written = results.read_text(encoding="utf-8") if results.exists() else "{}"
            found.append(judged(read_finding(tool, output), json.loads(written)))
        return found


def judged(finding: Finding, results: dict[str, Any]) -> Finding:
    """Return a finding in the light of what the vectors themselves found: whether they ran."""
    if finding.errors is None:
        return finding
    checks = results.get("checks", [])
    wrong = [check["claim"] for check in checks if not check["passed"]]
    if wrong:
        return Finding(finding.tool, finding.errors + len(wrong), f"under it: {wrong[0]}")
    if not checks or not results["details"].get("ended"):
        return Finding(finding.tool, None, "the vectors did not come to their end under it")
    return finding


def _wait(process: subprocess.Popen[bytes], log: IO[str], seconds: float) -> str:
    """Return what a process has written when it ends, or its time is over."""
    try:
        process.wait(seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    log.seek(0)
    with log:
        return log.read()
