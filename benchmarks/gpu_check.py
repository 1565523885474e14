"""Checks and measures the device path on a machine with a GPU, in less than six minutes.

Builds the package with its kernel; compares batches that the device makes with the host's, also
under compute-sanitizer and on streams that are used at random; times the kernel and the whole path;
trains a small model both ways. Prints a short table last, and writes all results to a file.

Exit status: 0 if every check of correctness passed, 1 if one failed, 2 if there is no GPU. Speeds
that were not reached are reported, and change no status.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpu.build import ROOT, build
from gpu.report import Report
from gpu.sanitizer import find_tool, run_tools

if TYPE_CHECKING:
    from collections.abc import Sequence

BENCHMARKS = Path(__file__).resolve().parent
NO_GPU = 2
LEAST_S = 5.0
"""A section that would have less does not begin."""

# Seconds of each section, and whether it has to come to its end for the check to pass.
SECTIONS: dict[str, tuple[float, bool]] = {
    "vectors": (70, True),
    "streams": (45, True),
    "training": (40, True),
    "kernel": (65, False),
    "whole_path": (70, False),
    "sanitizer": (90, False),
}
AT_ONCE = ("vectors", "streams", "training")
"""Nothing is timed in these."""

PROBE = """
import torch
if torch.cuda.is_available():
    print(torch.cuda.get_device_name())
elif torch.version.cuda is None:
    raise SystemExit(f"torch {torch.__version__} is built without CUDA")
else:
    raise SystemExit(f"torch {torch.__version__} finds no CUDA device")
"""


class Check:
    """A run of all sections: the time that is left, and the report."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._arguments = arguments
        self._end_s = time.monotonic() + arguments.seconds
        self._out: Path | None = arguments.out
        self.is_real = arguments.device != "cpu"
        self.report = Report()
        path = [str(BENCHMARKS), str(BENCHMARKS / "python")]
        if arguments.build:
            path.insert(0, str(arguments.target))
        if (own := os.environ.get("PYTHONPATH")) is not None:
            path.append(own)
        # Its own setting makes products of matrices the same in every run.
        self.environment = {
            **os.environ,
            "PYTHONPATH": os.pathsep.join(path),
            "CUBLAS_WORKSPACE_CONFIG": ":4096:8",
        }

    @property
    def seconds_left(self) -> float:
        """What is left for all sections."""
        return self._end_s - time.monotonic()

    def build(self) -> bool:
        """Build the package, and return whether that worked."""
        began_s = time.monotonic()
        error = build(
            self._arguments.target, with_kernel=self.is_real, seconds=self.seconds_left - 30
        )
        detail = error or f"in {time.monotonic() - began_s:.0f} s"
        self.add("build", {"checks": [_check("The package builds with its kernel", error, detail)]})
        return error is None

    def identify(self) -> None:
        """Look at the machine, and at which package is checked."""
        self.run(["machine"])
        package, target = self.report.machine.get("package"), self._arguments.target.resolve()
        if self._arguments.build and package is not None:
            error = None if Path(package).is_relative_to(target) else "another one comes first"
            claim = "What was built is what is checked"
            self.add("package", {"checks": [_check(claim, error, package)]})

    def run(self, names: Sequence[str]) -> None:
        """Run sections at once, each in a process of its own, and add what they found."""
        with tempfile.TemporaryDirectory() as folder:
            running = {}
            for name in names:
                seconds = min(SECTIONS.get(name, (60, True))[0], self.seconds_left - 2)
                if seconds < LEAST_S:
                    self.add(name, _not_run(name, "no time was left"))
                    continue
                out = Path(folder) / f"{name}.json"
                log = (Path(folder) / f"{name}.log").open("w+", encoding="utf-8", errors="replace")
                command = [sys.executable, "-m", *self.arguments_of(name, seconds)]
                running[name] = (
                    subprocess.Popen(  # noqa: S603
                        [*command, "--out", str(out)],
                        env=self.environment,
                        stdout=log,
                        stderr=subprocess.STDOUT,
                    ),
                    out,
                    log,
                    time.monotonic() + seconds + 2,
                )
            for name, (process, out, log, end_s) in running.items():
                problem = _wait(process, end_s)
                results = _read(out)
                if problem is None and "ended" not in results.get("details", {}):
                    problem = "it did not come to its end"
                if problem is not None:
                    missing = _not_run(name, problem)
                    for kind in ("checks", "notes"):
                        results.setdefault(kind, []).extend(missing.get(kind, ()))
                if problem is not None or not all(one["passed"] for one in results["checks"]):
                    log.seek(0)
                    print(f"--- {name} ---\n{log.read()[-3000:]}", flush=True)
                log.close()
                self.add(name, results)

    def arguments_of(self, name: str, seconds: float) -> list[str]:
        """Return how a section is called."""
        arguments = [f"gpu.{name}", "--device", self._arguments.device]
        arguments += ["--seconds", f"{seconds:.0f}"]
        return [*arguments, *(["--quick"] if self._arguments.quick else [])]

    def sanitize(self) -> None:
        """Run the short vectors under compute-sanitizer."""
        tool = find_tool()
        if tool is None:
            self.add(
                "sanitizer", {"notes": ["compute-sanitizer is not installed: nothing ran there."]}
            )
            return
        seconds = min(SECTIONS["sanitizer"][0], self.seconds_left - 5)
        if seconds < 15:
            self.add("sanitizer", _not_run("sanitizer", "no time was left"))
            return
        arguments = [*self.arguments_of("vectors", seconds), "--quick"]
        found = run_tools(tool, arguments, self.environment, seconds)
        self.add(
            "sanitizer",
            {
                "checks": [
                    {
                        "claim": f"compute-sanitizer's {one.tool} finds nothing",
                        "passed": one.errors == 0,
                        "detail": one.detail,
                    }
                    for one in found
                    if one.errors is not None
                ],
                "notes": [f"{one.tool}: {one.detail}" for one in found if one.errors is None],
            },
        )

    def add(self, name: str, results: dict[str, Any]) -> None:
        """Add results, and write what there is so far."""
        self.report.add(name, results)
        failed = sum(not one["passed"] for one in results.get("checks", ()))
        state = f"{failed} checks failed" if failed else "done"
        print(f"{name}: {state}, {self.seconds_left:.0f} s left", flush=True)
        # Not before the card's name is known, which names the file.
        if "machine" in self.report.sections and not self._arguments.no_file:
            self.report.write(self.out)

    @property
    def out(self) -> Path:
        """Where the results go."""
        if self._out is not None:
            return self._out
        card = self.report.machine.get("card", "unknown").lower().replace("nvidia", "")
        name = re.sub(r"[^a-z0-9]+", "_", card).strip("_")
        return BENCHMARKS / "results" / f"gpu_{name}.json"


def _check(claim: str, error: str | None, detail: str) -> dict[str, Any]:
    return {"claim": claim, "passed": error is None, "detail": detail}


def _not_run(name: str, why: str) -> dict[str, Any]:
    """Return the results of a section that did not come to its end."""
    if SECTIONS.get(name, (0, True))[1]:
        return {"checks": [_check(f"The section {name} ended", why, why)]}
    return {"checks": [], "notes": [f"The section {name} did not end: {why}."]}


def _wait(process: subprocess.Popen[bytes], end_s: float) -> str | None:
    """Wait for the end of a process, and stop it when its time is over; return what is wrong."""
    try:
        status = process.wait(max(0.1, end_s - time.monotonic()))
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
        return "its time was over"
    return None if status == 0 else f"it ended with status {status}"


def _read(path: Path) -> dict[str, Any]:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return {"checks": []}


def why_no_gpu() -> str | None:
    """Return why torch has no CUDA device; None if it has one."""
    done = subprocess.run(  # noqa: S603
        [sys.executable, "-c", PROBE], capture_output=True, text=True, check=False
    )
    if done.returncode == 0:
        return None
    lines = done.stderr.strip().splitlines()
    return lines[-1] if lines else "torch does not say why"


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "--build",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="build the package first, instead of checking the one that is installed",
    )
    parser.add_argument(
        "--target",
        type=Path,
        default=ROOT / "build" / "gpu_check",
        help="where to install what is built (default: %(default)s)",
    )
    parser.add_argument(
        "--out", type=Path, help="the results (default: benchmarks/results/gpu_<card>.json)"
    )
    parser.add_argument(
        "--only", nargs="+", choices=SECTIONS, default=list(SECTIONS), help="sections to run"
    )
    parser.add_argument("--quick", action="store_true", help="a smoke test; writes no file")
    parser.add_argument(
        "--seconds", type=float, default=350, help="for everything (default: %(default)s)"
    )
    # A dry run, for a machine without a GPU: everything goes the way over the host.
    parser.add_argument("--device", default="cuda", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    arguments.no_file = arguments.out is None and (arguments.quick or arguments.device == "cpu")
    if arguments.device != "cpu" and (reason := why_no_gpu()) is not None:
        print(f"Nothing was checked, because there is no GPU here: {reason}.")
        return NO_GPU
    check = Check(arguments)
    if not arguments.build or check.build():
        run_all(check, arguments.only)
    print("", *check.report.lines(), sep="\n")
    if not arguments.no_file:
        print(f"Results: {check.out}")
    return int(bool(check.report.failures))


def run_all(check: Check, names: Sequence[str]) -> None:
    """Run the sections: first what is right or wrong, then what is timed, each by itself."""
    check.identify()
    # Times mean nothing in a dry run.
    at_once = AT_ONCE if check.is_real else [name for name in SECTIONS if name != "sanitizer"]
    check.run([name for name in at_once if name in names])
    for name in names:
        if name == "sanitizer":
            check.sanitize()
        elif name not in at_once:
            check.run([name])


if __name__ == "__main__":
    sys.exit(main())
