"""A page about one epoch: what its batches are, in this order and in all others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from evenstride.drafts import draft_of
from evenstride.options import as_name
from evenstride.pages import page
from evenstride.plan import EpochPlan
from evenstride.report_facts import facts_of
from evenstride.report_sections import sections

if TYPE_CHECKING:
    import os

    from evenstride.lengths import Lengths

__all__ = ["write_report"]


def write_report(
    plan: EpochPlan,
    path: str | os.PathLike[str],
    *,
    lengths: Lengths | None = None,
    name: str = "",
) -> None:
    """Write a page about an epoch that needs nothing beside it: no other file and no network.

    Parameters
    ----------
    plan : EpochPlan
        What the page is about.
    path : path-like
        Where to write it.
    lengths : array_like of int, shape (n_samples,), optional
        The lengths that the plan was made of. With them, the page also has plans in all other
        orders and compositions, and what would help. Not so without them, with more than 20 million
        of them, or for a plan of ``shuffle=False``; the page says so. It also says which of those
        plans are impossible, or are not possible in ``steps_per_epoch``.
    name : str, optional
        What the samples are called, for the title.

    Raises
    ------
    TypeError
        If `plan` or `name` is not of its kind.
    ValueError
        If `lengths` are not those of the plan.
    OSError
        If the file cannot be written.

    Examples
    --------
    >>> import tempfile
    >>> import evenstride as es
    >>> from evenstride.report_page import write_report
    >>> lengths = [3, 9, 4, 8, 3, 9] * 50
    >>> plan = es.plan_epoch(lengths, token_budget=18, buckets=[6])
    >>> write_report(plan, tempfile.mkdtemp() + "/report.html", lengths=lengths)

    """
    if not isinstance(plan, EpochPlan):
        msg = f"`plan` must be an EpochPlan, but is a {type(plan).__name__}."
        raise TypeError(msg)
    name = as_name("name", name)
    title = f"The epoch of {name}" if name else "The epoch"
    text = page(title, *sections(facts_of(plan, lengths, name)))
    with draft_of(path) as draft:
        # File names may hold what is no character.
        draft.write_text(text, encoding="utf-8", errors="backslashreplace")
