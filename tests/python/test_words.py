"""The words that commands and the page share: one name for each figure, and each explained."""

from __future__ import annotations

import re

import numpy as np
import pytest

import evenstride as es
from command_support import KEYWORDS, LENGTHS, OPTIONS
from evenstride._tables import counted
from evenstride.commands import run
from evenstride.compare import COLUMNS, order_cells
from evenstride.report_page import write_report

pytestmark = pytest.mark.usefixtures("no_columns")


def cells_of(block):
    return [re.split(" {2,}", line.strip()) for line in block.splitlines()]


def page_of(path, lengths=LENGTHS, **options):
    plan = es.plan_epoch(lengths, **{**KEYWORDS, **options})
    write_report(plan, path, lengths=lengths)
    return plan, path.read_text(encoding="utf-8")


# ---- what plan prints ----


def test_plan_calls_the_figures_of_an_order_as_compare_does(capsys, npy):
    assert run(["plan", npy, *OPTIONS]) == 0
    facts = dict(cells_of(capsys.readouterr().out.split("\n\n")[0]))
    cells = dict(zip(COLUMNS, order_cells(es.plan_epoch(LENGTHS, **KEYWORDS).stats()), strict=True))
    for name in ("real", "quarter", "used up", "longest", "ones", "3 of 4", "neighbours"):
        assert facts[name].split()[0] == cells[name], name
    assert float(facts["prefix"].removesuffix(" steps")) == pytest.approx(
        float(cells["prefix"]), abs=0.051
    )


def test_plan_explains_its_figures_in_the_words_of_compare(capsys, npy):
    assert run(["plan", npy, *OPTIONS]) == 0
    facts, *_, legend, _ = capsys.readouterr().out.split("\n\n")
    meanings = dict(cells_of(legend))
    assert {name: meanings[name] for name in COLUMNS if name != "batches"} == {
        name: text for name, text in COLUMNS.items() if name != "batches"
    }
    plain = {"steps", "samples", "tokens", "removed, too long", "removed, empty"}
    assert dict(cells_of(facts)).keys() - plain <= meanings.keys()


# ---- what the page says ----


def test_advice_is_right_below_the_figures_with_its_options_as_code(tmp_path):
    _, text = page_of(tmp_path / "report.html", max_batch_size=4)
    header = text[text.index("<header>") : text.index("</header>")]
    advice = header[header.index("</dl>") :]
    assert re.match(
        r'</dl><p class="advice">With <code>--max-batch-size \d+</code> there would be \d+ steps ',
        advice,
    )
    assert text.count('class="advice"') == advice.count('class="advice"') > 0


def test_a_single_step_is_not_called_steps(tmp_path):
    _, text = page_of(tmp_path / "report.html", [5], buckets=[])
    assert "the longest run of one bucket is 1 step." in text
    assert "<dd>1 step<small>of one bucket</small></dd>" in text
    assert "The 1 step of the order stride" in text
    assert counted(1200, "batch", "batches") == "1,200 batches"


def test_lengths_are_written_alike_in_the_legend_and_in_the_tables(tmp_path):
    lengths = np.arange(1, 4001)
    _, text = page_of(tmp_path / "report.html", lengths, buckets=[1350], token_budget=8000)
    legend = re.search(r'<ul class="legend".*?</ul>', text)[0]
    assert "0: [0, 1350)" in legend
    assert "1: [1350, 4001)" in legend
    assert '<td class="left">[1350, 4001)</td>' in text
    assert "0, 1350, 4001" in text
    assert "1,350" not in text


def test_the_evenness_of_quarters_is_a_sentence(tmp_path):
    plan, text = page_of(tmp_path / "report.html")
    stats = plan.stats()
    worst = max(abs(q - bucket.share) for bucket in stats.buckets for q in bucket.quarters)
    points = f"{100 * worst:.2f} points"
    assert (
        "a bucket&#x27;s share of the steps differs from its share of the whole epoch by at most "
        f"{points}."
    ) in text
    assert f"<dt>quarter</dt><dd>{points}<small>" in text
    assert f"<span>quarters within {points}</span>" in text


def test_the_slowest_rank_is_called_so(tmp_path):
    _, text = page_of(tmp_path / "report.html", num_replicas=2)
    assert "All ranks wait for the slowest one of a step: of 2, it has " in text
    assert "slowest rank above the mean" in text
