"""Tables of plans over the lengths of the benchmarks, for pages of the documentation."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

from evenstride import plan_epoch
from evenstride._tables import percent
from evenstride.read_lengths import read_lengths

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from evenstride.lengths import LengthArray
    from evenstride.plan import EpochPlan

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"
OPTIONS: dict[str, Any] = {
    "token_budget": 49_152,
    "max_batch_size": 64,
    "buckets": [770, 1216, 1728, 2432, 3296],
}


def planned(lengths: LengthArray, **changed: Any) -> EpochPlan:
    """Return the plan that the pages speak of, with some options changed."""
    return plan_epoch(lengths, **{**OPTIONS, **changed})


def efficiency(lengths: LengthArray, **changed: Any) -> str:
    """Return the padding efficiency of such a plan."""
    return percent(planned(lengths, **changed).stats().padding_efficiency)


def markdown(header: Sequence[str], rows: Iterable[Sequence[str]], left: int) -> str:
    """Return a table, right-aligned but for the first `left` columns."""
    rule = ["---" if column < left else "---:" for column in range(len(header))]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in (header, rule, *rows))


def updated(page: Path, tables: Mapping[str, Callable[[LengthArray], str]]) -> str:
    """Return a page with every table as it is now, each after ``<!-- table: NAME -->``."""
    lengths = read_lengths(ROOT / "benchmarks" / "data" / "length_histogram.csv", counts=True)

    def table(found: re.Match[str]) -> str:
        return f"{found[1]}\n{tables[found[2]](lengths)}\n{found[3]}"

    text = page.read_text(encoding="utf-8")
    text, count = re.subn(r"(?s)(<!-- table: (\w+) -->)\n.*?(<!-- end -->)", table, text)
    if count != len(tables):
        msg = f"{page.name} must have {len(tables)} tables, but has {count}."
        raise ValueError(msg)
    return text
