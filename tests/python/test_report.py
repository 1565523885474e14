"""Pictures of plans: what is drawn where, and that files hold it."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest

import evenstride as es

pytest.importorskip("matplotlib")

from matplotlib.figure import Figure
from matplotlib.image import imread
from matplotlib.text import Text

from evenstride.compare import compare_orders
from evenstride.report import plot_compare, plot_plan, plot_tuning
from evenstride.tune import Candidate, on_front, recommended, tune


def plan_of(num_samples=2000, **options):
    lengths = np.random.default_rng(1).integers(1, 400, num_samples)
    return es.plan_epoch(lengths, **{"token_budget": 2000, "buckets": [60, 150], **options})


def assert_drawn(path, width, height):
    image = imread(path)[..., :3]
    assert image.shape == (height, width, 3)
    packed = (image[::3, ::3] * 255).astype(np.int64) @ [1, 256, 65536]
    colours = np.unique(packed)
    assert len(colours) > 20
    assert 0.2 < (packed < 0xE0E0E0).mean() < 0.9


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"num_replicas": 4},
        {"buckets": list(range(5, 390, 5))},
        {"buckets": []},
        {"order": "mixed", "num_replicas": 3, "accumulation_steps": 2},
        {"shuffle": False},
        {"num_samples": 1},
        {"num_samples": 40_000},
    ],
)
def test_a_picture_of_any_plan_is_a_file_of_the_right_size(tmp_path, options):
    figure = plan_of(**options).plot(tmp_path / "plan.png")
    assert isinstance(figure, Figure)
    assert_drawn(tmp_path / "plan.png", 1650, 1350)


@pytest.mark.parametrize("suffix", ["svg", "pdf", "jpg"])
def test_the_suffix_says_the_format(tmp_path, suffix):
    plan_of().plot(tmp_path / f"plan.{suffix}")
    start = {"svg": b"<?xml", "pdf": b"%PDF", "jpg": b"\xff\xd8"}[suffix]
    assert (tmp_path / f"plan.{suffix}").read_bytes().startswith(start)


def test_an_unknown_suffix_is_an_error(tmp_path):
    with pytest.raises(ValueError, match=r"^Format 'xyz' is not supported"):
        plan_of().plot(tmp_path / "plan.xyz")


def test_the_strip_shows_every_step_in_its_place():
    plan = plan_of()
    strip = plot_plan(plan).axes[0].images[0].get_array()
    shown = strip.T.ravel().compressed()
    np.testing.assert_array_equal(shown, plan.buckets)


def test_the_colour_of_a_step_is_that_of_most_of_its_batches():
    plan = plan_of(order="mixed", num_replicas=2)
    strip = plot_plan(plan).axes[0].images[0].get_array()
    steps = plan.buckets.reshape(-1, 2).tolist()
    assert any(one != other for one, other in steps)  # Ties, of which the longer one is the label.
    labels = [max(step, key=lambda bucket: (step.count(bucket), bucket)) for step in steps]
    np.testing.assert_array_equal(strip.T.ravel().compressed(), labels)


def test_a_strip_too_long_to_show_every_step_says_so():
    ax = plot_plan(es.plan_epoch(np.full(130_000, 4), token_budget=4)).axes[0]
    assert ax.images[0].get_array().shape == (200, 600)
    assert ax.get_title(loc="left") == "120,000 of 130,000 steps: downwards, 200 to a column"


def test_the_shares_of_a_slice_are_those_of_its_steps():
    plan = plan_of()
    ax = plot_plan(plan).axes[2]
    assert ax.get_title(loc="left") == "Share of each bucket in 50 slices"
    rectangles = ax.collections[0].get_paths()
    bounds = np.arange(51) * plan.num_steps // 50
    heights = np.zeros((3, 50))
    for k in range(3):
        for s in range(50):
            heights[k, s] = (plan.buckets[bounds[s] : bounds[s + 1]] == k).mean()
    drawn = [np.ptp(path.vertices[:, 1]) for path in rectangles]
    np.testing.assert_allclose(drawn, heights[heights > 0])


def test_each_batch_is_in_both_histograms():
    plan = plan_of()
    for ax in plot_plan(plan).axes[3:5]:
        heights = [np.ptp(path.vertices[:, 1]) for path in ax.collections[0].get_paths()]
        assert round(sum(heights)) == len(plan)


def test_a_comparison_has_a_row_for_each_plan_and_says_its_longest_run(tmp_path):
    lengths = np.random.default_rng(1).integers(1, 400, 2000)
    plans = dict(compare_orders(lengths, token_budget=2000, buckets=[60, 150]))
    figure = plot_compare(plans, tmp_path / "compare.png")
    rows = figure.axes[::2]
    assert [ax.get_ylabel() for ax in rows] == [
        f"{order}\nlongest run {plan.stats().longest_run:,}" for order, plan in plans.items()
    ]
    for ax, plan in zip(figure.axes[1::2], plans.values(), strict=True):
        np.testing.assert_array_equal(ax.images[0].get_array()[0], plan.buckets[:100])
    width, height = (figure.get_size_inches() * figure.dpi).astype(int)
    assert_drawn(tmp_path / "compare.png", width, height)


def test_a_comparison_of_nothing_is_an_error():
    with pytest.raises(ValueError, match=r"^`plans` must have at least 1 plan, but has 0\.$"):
        plot_compare({})


def test_a_search_has_a_mark_for_each_candidate_a_line_and_a_ring(tmp_path):
    lengths = np.random.default_rng(1).integers(1, 400, 2000)
    candidates = [found for _, found in tune(lengths, token_budget=2000)]
    choice = recommended(candidates)
    figure = plot_tuning(candidates, choice, tmp_path / "tune.png")
    ax = figure.axes[0]
    marks = np.concatenate([marks.get_offsets() for marks in ax.collections[:-1]])
    figures = [(max(1e-6, 1 - c.padding_efficiency), c.diversity) for c in candidates]
    assert sorted(marks.tolist()) == sorted(map(list, figures))
    line = ax.lines[0].get_xydata().tolist()
    front = [f for f, there in zip(figures, on_front(candidates), strict=True) if there]
    assert sorted(line) == sorted(map(list, front))
    ring = figures[candidates.index(choice)]
    assert ax.collections[-1].get_offsets().tolist() == [list(ring)]
    assert {text.get_text() for text in ax.texts} == {"1", "3", "6", "12", "24", "48"}
    assert imread(tmp_path / "tune.png").shape[:2] == (900, 1350)


ENDS = [(0.5, 0.9), (0.99, 0.01)]


def test_labels_of_a_search_cover_no_other_label_and_no_mark():
    crowd = np.random.default_rng(3).normal(0, 0.004, (24, 2))
    candidates = [
        Candidate(
            {"buckets": int(buckets), "composition": "window", "window": 64},
            *(0.9 + x, 5, 0.01, 0.3 + y, 0.5, 3),
        )
        for buckets, (x, y) in zip([3, 6, 12, 48] * 6, crowd.tolist(), strict=True)
    ]
    candidates += [replace(candidates[0], padding_efficiency=p, diversity=d) for p, d in ENDS]
    figure = plot_tuning(candidates, candidates[0])
    figure.draw_without_rendering()
    ax = figure.axes[0]
    boxes = [Text.get_window_extent(text) for text in ax.texts]  # Without the lines to marks.
    places = ax.transData.transform([(1 - c.padding_efficiency, c.diversity) for c in candidates])
    for box, other in combinations(boxes, 2):
        assert not box.overlaps(other)
    for box in boxes:
        assert not any(box.contains(x, y) for x, y in places)
    assert any(text.arrow_patch for text in ax.texts)  # Where a label is not at its mark.


def test_a_search_without_companions_is_drawn(tmp_path):
    candidates = [found for _, found in tune([3, 4, 5], token_budget=5)]
    figure = plot_tuning(candidates, recommended(candidates), tmp_path / "tune.png")
    assert set(map(tuple, figure.axes[0].lines[0].get_xydata().tolist())) == {(1e-6, 1e-6)}


def test_pictures_leave_pyplot_and_its_settings_alone():
    code = """
import sys, matplotlib, evenstride as es

def settings():  # But for the one that imports pyplot when it is looked up.
    return {name: matplotlib.rcParams[name] for name in matplotlib.rcParams if name != "backend"}

before = settings()
es.plan_epoch([1, 2, 3], token_budget=3).plot()
assert "matplotlib.pyplot" not in sys.modules
assert settings() == before
"""
    subprocess.run([sys.executable, "-W", "error", "-c", code], check=True)


def test_without_matplotlib_one_sentence_says_how_to_install_it():
    code = (
        "import sys; sys.modules['matplotlib'] = None\n"
        "import evenstride as es\n"
        "try: es.plan_epoch([1], token_budget=3).plot()\n"
        "except ImportError as error: print(error)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "Pictures need matplotlib: pip install 'evenstride[plot]'.\n"
