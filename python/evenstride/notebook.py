"""A plan as notebooks show it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenstride._tables import BUCKET_HEADER, abridged, bucket_cells, percent
from evenstride.page_charts import Ramp
from evenstride.pages import element, table
from evenstride.picture_data import step_labels, strip_of

if TYPE_CHECKING:
    from evenstride.plan import EpochPlan
    from evenstride.stats import BucketStats

__all__ = ["summary_of"]

_COLUMNS, _MOST_ROWS = 600, 32  # Of the strip, so that notebooks stay small.
_STRIP_STYLE = "width:100%;max-width:50rem;height:44px;image-rendering:pixelated;border-radius:3px"


def summary_of(plan: EpochPlan) -> str:
    """Return a plan as HTML: what it is, a strip of its steps, and a row for each bucket.

    It needs nothing beside it, no matplotlib, and no style of the page that it comes into; it has
    less than 50,000 characters.
    """
    stats = plan.stats()
    ramp = Ramp(len(plan.edges) - 1)
    strip = strip_of(step_labels(plan), _COLUMNS, _MOST_ROWS)
    options = plan.options
    facts = (
        f"{repr(plan)[1:-1]}. Order {options['order']}, composition {options['composition']}, "
        f"{percent(stats.padding_efficiency)} real tokens, runs of at most {stats.longest_run:,}."
    )
    reading = f"The steps in the colours of their buckets. {strip.reading}."

    def row(bucket: BucketStats) -> list[str]:
        first, *rest = bucket_cells(bucket)
        return [ramp.swatch(bucket.bucket, first), *rest]

    buckets = table(BUCKET_HEADER, abridged(stats, row), caption="Batches by bucket", left=2)
    return element(
        "div",
        element("div", facts),
        ramp.image(strip, reading, title=reading, style=_STRIP_STYLE),
        element("div", buckets, style="text-align:right;font-variant-numeric:tabular-nums"),
    )
