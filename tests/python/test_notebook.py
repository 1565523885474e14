"""A plan as notebooks show it."""

from __future__ import annotations

import subprocess
import sys

import numpy as np

import evenstride as es
from browser_support import colours_of, pixels_of, started_browser
from evenstride.page_charts import Ramp

LENGTHS = np.random.default_rng(0).integers(1, 400, 20_000)


def test_it_has_the_facts_and_a_row_for_each_bucket():
    plan = es.plan_epoch(LENGTHS, token_budget=2000, num_replicas=2)
    shown = plan._repr_html_()
    stats = plan.stats()
    for bucket in stats.buckets:
        assert f'<td class="left">[{bucket.start}, {bucket.stop})</td>' in shown
        assert f"<td>{bucket.samples:,}</td><td>{bucket.batches:,}</td>" in shown
    assert f"{plan.num_steps:,} steps x 2 ranks" in shown
    assert f"{100 * stats.padding_efficiency:.1f}% real tokens" in shown


def test_it_stays_small_with_many_buckets_and_steps(lengths):
    plan = es.plan_epoch(lengths, token_budget=49_152, buckets=list(range(30, 7680, 30)))
    assert len(plan._repr_html_()) < 50_000


def test_a_saved_plan_is_shown_alike(tmp_path):
    plan = es.plan_epoch(LENGTHS, token_budget=2000)
    plan.save(tmp_path / "plan")
    assert es.EpochPlan.load(tmp_path / "plan")._repr_html_() == plan._repr_html_()


def test_it_needs_neither_matplotlib_nor_torch():
    code = (
        "import sys; sys.modules['matplotlib'] = sys.modules['torch'] = None\n"
        "import evenstride as es\n"
        "print(es.plan_epoch([1], token_budget=3)._repr_html_()[:5])\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "<div>\n"


def test_the_strip_has_the_colours_of_the_buckets_in_a_page_without_a_style():
    plan = es.plan_epoch(LENGTHS, token_budget=2000)
    ramp = Ramp(len(plan.edges) - 1)
    with started_browser() as browser:
        page = browser.new_page(viewport={"width": 800, "height": 600})
        page.set_content(plan._repr_html_())
        assert page.evaluate("document.documentElement.scrollWidth") <= 800
        strip = page.locator("img").screenshot()
    colours = colours_of(pixels_of(strip))
    assert {ramp.colour(k) for k in range(ramp.num_buckets)} <= colours.keys()
