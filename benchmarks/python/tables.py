"""Write the tables of docs/benchmarks.md from the results that the benchmarks left.

A table stands between ``<!-- table: NAME -->`` and ``<!-- end -->``, and is made from
benchmarks/results/NAME.json; that of ``devices`` from all results of ``gpu_check.py``. A result
without a place in the page gets one at its end.
"""

from __future__ import annotations

import argparse
import json
import sys
from typing import TYPE_CHECKING, Any

from harness import BENCHMARKS, RESULTS, Row, Timing, milliseconds

if TYPE_CHECKING:
    from collections.abc import Sequence

PAGE = BENCHMARKS.parent / "docs" / "benchmarks.md"
NOT_MEASURED = "Figures of devices are not yet measured."
HEAD = "| work | ours | each | baseline | its time | ratio (p10..p90) | to reach |"


def table(document: dict[str, Any]) -> str:
    """Return a result's table, and below it what it was measured on, as Markdown."""
    lines = [HEAD, "|---|---|---|---|---|---|---|"]
    for row in map(_row, document["rows"]):
        each = _each(row.ours.median / row.items) if row.items else "-"
        theirs = milliseconds(row.theirs) if row.theirs else "-"
        ratio = "-"
        if row.ratio is not None:
            ratio = f"{row.ratio:.2f} ({row.ratio_p10:.2f}..{row.ratio_p90:.2f})"
        reach = f"{row.reach:g}, {'missed' if row.missed else 'reached'}" if row.reach else "-"
        cells = (row.work, milliseconds(row.ours), each, row.baseline or "-", theirs, ratio, reach)
        lines.append(f"| {' | '.join(cells)} |")
    notes = [f"- {note}" for note in document.get("notes", ())]
    return "\n".join([*lines, "", *notes, *([""] if notes else []), _measured_on(document)])


def device_tables(documents: Sequence[dict[str, Any]]) -> str:
    """Return what `gpu_check.py` found on each card, as Markdown; say so if it ran on none."""
    return "\n\n".join(map(_of_device, documents)) or NOT_MEASURED


def _of_device(document: dict[str, Any]) -> str:
    device, failures = document["device"], document["failures"]
    verdict = f"{failures} checks failed." if failures else "Every check of correctness passed."
    card = (
        f"{device['memory_gib']:g} GiB, {device['multiprocessors']} multiprocessors, capability "
        f"{device['capability']}, driver {device['driver']}, CUDA {device['cuda_of_torch']}; "
        f"kernel by {document['cuda_compiler']}. {verdict}"
    )
    return "\n\n".join([f"### {document['card']}", card, titled_tables(document)])


def titled_tables(document: dict[str, Any]) -> str:
    """Return the tables of a result that has several, as Markdown."""
    parts = []
    for found in document["tables"]:
        head = [found["head"], ["---"] * len(found["head"])]
        lines = [f"| {' | '.join(cells)} |" for cells in (*head, *found["rows"])]
        parts.append("\n".join([f"*{found['title']}*", "", *lines]))
    if document["notes"]:
        parts.append("\n".join(f"- {note}" for note in document["notes"]))
    return "\n\n".join([*parts, _measured_on(document)])


def _row(fields: dict[str, Any]) -> Row:
    timings = {
        name: None if fields[name] is None else Timing(**fields[name])
        for name in ("ours", "theirs")
    }
    return Row(**(fields | timings))


def _each(seconds: float) -> str:
    """Return the time of a sample, an index or a batch as text."""
    return f"{1e6 * seconds:.1f} us" if seconds > 1e-6 else f"{1e9 * seconds:.2f} ns"


def _measured_on(document: dict[str, Any]) -> str:
    machine = document["machine"]
    versions = {"Python": document["python"]} | document["packages"]
    return (
        f"Median (p10..p90). {machine['cpu']}, {machine['cores']} cores, "
        f"{machine['memory_gib']:g} GiB, {machine['system']}, load {machine['load']:g}; "
        f"{document['compiler']}; "
        + ", ".join(f"{name} {version}" for name, version in versions.items() if version)
        + f"; commit {document['commit']}."
    )


def updated(page: str) -> str:
    """Return `page` with the table of every result in it."""
    devices = []
    for path in sorted(RESULTS.glob("*.json")):
        document = json.loads(path.read_text(encoding="utf-8"))
        if document.get("name") == "gpu":
            devices.append(document)
        elif "rows" in document:
            page = _placed(page, path.stem, table(document))
        elif "tables" in document:  # Else not from one of these benchmarks.
            page = _placed(page, path.stem, titled_tables(document))
    return _placed(page, "devices", device_tables(devices))


def _placed(page: str, name: str, text: str) -> str:
    """Return `page` with a text in its place."""
    begin, end = f"<!-- table: {name} -->", "<!-- end -->"
    block = f"{begin}\n{text}\n{end}"
    before, found, after = page.partition(begin)
    if found:
        return before + block + after.partition(end)[2]
    return f"{page.rstrip()}\n\n## {name.capitalize()}\n\n{block}\n"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail if the page is out of date"
    )
    arguments = parser.parse_args()
    page = PAGE.read_text(encoding="utf-8") if PAGE.exists() else "# Benchmarks\n"
    new = updated(page)
    if arguments.check:
        if new != page:
            print(f"{PAGE} is out of date: run {sys.argv[0]}", file=sys.stderr)
        return int(new != page)
    PAGE.parent.mkdir(parents=True, exist_ok=True)
    PAGE.write_text(new, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
