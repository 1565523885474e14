"""`benchmarks/gpu_check.py` where there is no GPU: a dry run of all of it, and what it says."""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
SCRIPT = BENCHMARKS / "gpu_check.py"


@pytest.fixture
def on_path(monkeypatch):
    """Let modules of the benchmarks be imported."""
    monkeypatch.syspath_prepend(str(BENCHMARKS / "python"))
    monkeypatch.syspath_prepend(str(BENCHMARKS))


def gpu_check(*options):
    command = [sys.executable, SCRIPT, *options]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def options_of(tmp_path, **changes):
    given = {"device": "cpu", "quick": True, "seconds": 30.0, "build": False, "no_file": False}
    paths = {"target": tmp_path / "target", "out": tmp_path / "out.json"}
    return argparse.Namespace(**(given | paths | changes))


@pytest.mark.skipif(torch.cuda.is_available(), reason="There is a GPU here.")
def test_without_a_gpu_it_says_so_in_a_sentence_and_a_status_of_its_own(tmp_path):
    out = tmp_path / "out.json"
    done = gpu_check("--out", out, "--target", tmp_path / "target")
    why = "finds no CUDA device" if torch.version.cuda else "is built without CUDA"
    sentence = (
        f"Nothing was checked, because there is no GPU here: torch {torch.__version__} {why}.\n"
    )
    assert (done.returncode, done.stdout, done.stderr) == (2, sentence, "")
    assert not any(tmp_path.iterdir())


def test_a_dry_run_passes_every_check_and_its_results_fit_the_page(tmp_path, on_path):
    out = tmp_path / "out.json"
    done = gpu_check("--device", "cpu", "--no-build", "--quick", "--seconds", "60", "--out", out)
    assert done.returncode == 0, done.stdout
    document = json.loads(out.read_text(encoding="utf-8"))
    assert document["failures"] == 0
    assert {
        "machine",
        "vectors",
        "streams",
        "training",
        "kernel",
        "whole_path",
        "sanitizer",
    } == set(document["sections"])
    for name, results in document["sections"].items():
        assert name == "sanitizer" or results["details"]["ended"], name
    lines = done.stdout.splitlines()
    assert len(lines[lines.index("") :]) <= 62  # The short table, and where the results are.
    assert lines[-1] == f"Results: {out}"

    import tables  # noqa: PLC0415 - Not a package.

    device = {"memory_gib": 80.0, "multiprocessors": 132, "capability": "9.0"}
    device |= {"driver": "580.1", "cuda_of_torch": "13.0"}
    page = tables.device_tables([document | {"card": "A Card", "device": device}])
    assert page.startswith("### A Card\n\n80 GiB, 132 multiprocessors, capability 9.0, ")
    assert "Every check of correctness passed." in page
    for table in document["tables"]:
        assert f"*{table['title']}*" in page
        assert all(f"| {' | '.join(row)} |" in page for row in table["rows"])


def test_a_page_without_results_says_that_devices_are_not_measured(on_path):
    import tables  # noqa: PLC0415

    assert tables.device_tables([]) == "Figures of devices are not yet measured."


# ---- batches that are wrong ----


@pytest.mark.parametrize(
    ("made", "found"),
    [
        ({"x": [[1, 2], [3, 4]]}, None),
        ({"x": [[1, 2], [3, 4 + 2**40]]}, "x differs in 1 bytes, first in the value at [1, 1]"),
        ({"y": [[1, 2], [3, 4]]}, "keys ['y'] instead of ['x']"),
        ({"x": [[1], [3]]}, "x is (torch.int64, (2, 1)) instead of (torch.int64, (2, 2))"),
    ],
)
def test_vectors_find_one_bit(on_path, made, found):
    from gpu.cases import difference  # noqa: PLC0415

    expected = {"x": torch.tensor([[1, 2], [3, 4]])}
    assert difference(expected, {key: torch.tensor(rows) for key, rows in made.items()}) == found


def test_nan_of_other_bits_is_another_value(on_path):
    from gpu.cases import difference  # noqa: PLC0415

    bits = torch.tensor([0x7FC00000, 0x7FC00001], dtype=torch.int32).view(torch.float32)
    assert difference({"x": bits[:1]}, {"x": bits[:1].clone()}) is None
    assert difference({"x": bits[:1]}, {"x": bits[1:]}) is not None


def test_torture_counts_each_wrong_value_of_every_use(on_path):
    from gpu.queues import Queues  # noqa: PLC0415
    from gpu.torture import Corpus, Torture  # noqa: PLC0415

    queues, corpus = Queues(torch.device("cpu"), 3, seed=0), Corpus(torch.device("cpu"))
    torture = Torture(queues, corpus, uses_ring=False)
    batch = {key: value.clone() for key, value in corpus.expected[5].items()}
    batch["labels"][0, :2] += 1
    for _ in range(20):
        torture.step(lambda: batch, 5)
    torture.finish()
    assert torture.batches == 20
    assert torture.uses >= 20
    assert torture.wrong_values == 2 * torture.uses


# ---- a section that goes wrong ----


@pytest.mark.parametrize(
    ("code", "problem"),
    [
        ("raise SystemExit(3)", "it ended with status 3"),
        ("pass", "it did not come to its end"),
        ("import time; time.sleep(60)", "its time was over"),
    ],
)
def test_a_section_that_does_not_end_fails_and_hides_no_other(
    tmp_path, on_path, monkeypatch, code, problem
):
    import gpu_check as script  # noqa: PLC0415

    check = script.Check(options_of(tmp_path, seconds=11.0))
    (tmp_path / "bad.py").write_text(code, encoding="utf-8")
    check.environment["PYTHONPATH"] += f":{tmp_path}"
    arguments_of = check.arguments_of
    monkeypatch.setattr(check, "arguments_of", lambda *given: ["bad", *arguments_of(*given)[1:]])
    monkeypatch.setitem(script.SECTIONS, "vectors", (1.0, True))
    monkeypatch.setattr(script, "LEAST_S", 0.5)
    check.run(["vectors", "kernel"] if code != "import time; time.sleep(60)" else ["vectors"])
    claims = [(one["claim"], one["detail"]) for one in check.report.failures]
    assert claims == [("The section vectors ended", problem)]
    if code == "pass":
        assert check.report.all_of("notes") == [f"The section kernel did not end: {problem}."]


def test_what_failed_stands_last_in_the_table(on_path):
    from gpu.report import Report  # noqa: PLC0415

    report = Report()
    checks = [{"claim": f"claim {n}", "passed": n != 3, "detail": "why"} for n in range(100)]
    missed = {"what": "GB/s", "value": 1.0, "reach": 2.0, "bound": "at least", "unit": "", "met": 0}
    table = {"title": "Speeds", "head": ["shape"], "rows": [[f"shape {n}"] for n in range(20)]}
    results = {"checks": checks, "requirements": [missed], "tables": [table]}
    report.add("one", results | {"notes": [f"note {n}" for n in range(100)]})
    lines = report.lines()
    assert len(lines) == 60
    assert lines[:2] + lines[10:13] == [
        *("Speeds:", "shape", "shape 8", "... and 11 rows in the file", ""),
    ]
    assert lines[-2:] == ["FAILED: claim 3: why", "99 of 100 checks passed."]
    assert "GB/s      1         at least 2  missed" in lines


# ---- what compute-sanitizer says ----

HEAD = "========= COMPUTE-SANITIZER\n"
WRITE = (
    "========= Invalid __global__ write of size 16 bytes\n=========     at evenstride_pad+0x40\n"
)
CLEAN = "========= RACECHECK SUMMARY: 0 hazards displayed (0 errors, 0 warnings)\n"


@pytest.mark.parametrize(
    ("tool", "output", "errors", "detail"),
    [
        ("memcheck", "========= ERROR SUMMARY: 0 errors\n", 0, "ERROR SUMMARY: 0 error"),
        (
            "memcheck",
            WRITE + "========= ERROR SUMMARY: 3 errors\n",
            3,
            "Invalid __global__ write of size 16 bytes",
        ),
        ("racecheck", CLEAN, 0, "RACECHECK SUMMARY: 0 hazard"),
        (
            "initcheck",
            "========= Error: Device not supported\n",
            None,
            "compute-sanitizer cannot look into this device: Device not supported.",
        ),
        (
            "memcheck",
            "========= Error: process didn't terminate successfully\n",
            None,
            "compute-sanitizer came to no summary: Error: process didn't terminate successfully",
        ),
    ],
)
def test_a_sanitizer_that_could_not_look_has_not_found_nothing(
    on_path, tool, output, errors, detail
):
    from gpu.sanitizer import Finding, read_finding  # noqa: PLC0415

    assert read_finding(tool, HEAD + output) == Finding(tool, errors, detail)


@pytest.mark.parametrize(
    ("passed", "details", "errors", "detail"),
    [
        ([True], {"ended": True}, 0, "clean"),
        ([True, False], {"ended": True}, 1, "under it: claim 1"),
        ([True], {}, None, "the vectors did not come to their end under it"),
        ([], {"ended": True}, None, "the vectors did not come to their end under it"),
    ],
)
def test_a_clean_sanitizer_counts_only_if_the_vectors_ran_under_it(
    on_path, passed, details, errors, detail
):
    from gpu.sanitizer import Finding, judged  # noqa: PLC0415

    checks = [{"claim": f"claim {n}", "passed": one} for n, one in enumerate(passed)]
    found = judged(Finding("memcheck", 0, "clean"), {"checks": checks, "details": details})
    assert found == Finding("memcheck", errors, detail)
