"""The results of all sections: the file that they are written to, and the short table."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

MOST_LINES = 60
MOST_WIDTH = 118
MOST_ROWS = 9


@dataclass
class Report:
    """What the sections found, in the order in which they ran."""

    sections: dict[str, dict[str, Any]] = field(default_factory=dict)
    machine: dict[str, Any] = field(default_factory=dict)

    def add(self, name: str, results: dict[str, Any]) -> None:
        """Add the results of a section."""
        self.sections[name] = results
        self.machine |= results.get("details", {}).pop("machine", {})

    def all_of(self, kind: str) -> list[Any]:
        """Return all checks, requirements, tables or notes."""
        return [one for results in self.sections.values() for one in results.get(kind, ())]

    @property
    def failures(self) -> list[dict[str, Any]]:
        """The checks that failed."""
        return [check for check in self.all_of("checks") if not check["passed"]]

    def write(self, path: Path) -> None:
        """Write all that is known so far."""
        document = {
            "name": "gpu",
            **self.machine,
            "failures": len(self.failures),
            "tables": [*self.all_of("tables"), self.requirements()],
            "notes": self.all_of("notes"),
            "sections": self.sections,
        }
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    def requirements(self) -> dict[str, Any]:
        """Return the table of what was to be reached."""
        rows = [
            [
                one["what"],
                f"{one['value']:.3g} {one['unit']}".strip(),
                f"{one['bound']} {one['reach']:g} {one['unit']}".strip(),
                "met" if one["met"] else "missed",
            ]
            for one in self.all_of("requirements")
        ]
        head = ["to reach", "measured", "bound", ""]
        return {"title": "What was to be reached", "head": head, "rows": rows}

    def lines(self) -> list[str]:
        """Return the short table: failures, requirements, and as much of the rest as fits."""
        checks = self.all_of("checks")
        last = ["", *_table(self.requirements()), ""]
        last += [f"FAILED: {one['claim']}: {one['detail']}" for one in self.failures[:8]]
        last.append(f"{len(checks) - len(self.failures)} of {len(checks)} checks passed.")
        first: list[str] = []
        for table in self.all_of("tables"):
            first += [*_table(table, MOST_ROWS), ""]
        first += [f"note: {note}" for note in self.all_of("notes")]
        room = MOST_LINES - len(last)
        if len(first) > room:
            first = [*first[: room - 1], f"... and {len(first) - room + 1} lines in the file"]
        return [line[:MOST_WIDTH] for line in (*first, *last)]


def _table(table: dict[str, Any], most_rows: int | None = None) -> list[str]:
    cells = [table["head"], *table["rows"]]
    widths = [max(len(line[column]) for line in cells) for column in range(len(table["head"]))]
    lines = [
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip()
        for line in cells
    ]
    if most_rows is not None and len(lines) > most_rows + 1:
        lines[most_rows + 1 :] = [f"... and {len(lines) - most_rows - 1} rows in the file"]
    return [f"{table['title']}:", *lines]
