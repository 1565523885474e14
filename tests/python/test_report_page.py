"""The page about a plan: what it says, and how a browser shows it."""

from __future__ import annotations

import html
import re
import sys
from html.parser import HTMLParser

import numpy as np
import pytest

import evenstride as es
from browser_support import Opened, colours_of, started_browser
from evenstride.compare import ORDERS, compare_orders
from evenstride.page_charts import Ramp, count_ticks
from evenstride.picture_data import step_labels
from evenstride.report_page import write_report

LENGTHS = np.random.default_rng(0).integers(1, 400, 20_000)
OPTIONS = {"token_budget": 2000, "max_batch_size": 64, "buckets": [60, 150, 300]}
HOSTILE = "<script>alert('x')</script> & \"quoted\"\udcff.npy"


def written(path, lengths=LENGTHS, *, compared=True, name="lengths.npy", **options):
    plan = es.plan_epoch(lengths, **{**OPTIONS, **options})
    write_report(plan, path, lengths=lengths if compared else None, name=name)
    return plan, path.read_text(encoding="utf-8")


LEAST_CONTRAST = """() => {
  const level = (c) => (c <= 10 ? c / 3294 : ((c / 255 + 0.055) / 1.055) ** 2.4);
  const luminance = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).map(Number).map(level);
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const paper = luminance(getComputedStyle(document.body).backgroundColor);
  const texts = document.querySelectorAll("p, td, th, dt, dd, small, figcaption, .plot span");
  const inks = [...texts].map((text) => luminance(getComputedStyle(text).color));
  const contrasts = inks.map((ink) => (ink + 0.05) / (paper + 0.05));
  return Math.min(...contrasts.map((ratio) => Math.max(ratio, 1 / ratio)));
}"""


class Structure(HTMLParser):
    """Finds elements that are not closed in order, and collects what some of them say."""

    def __init__(self, text):
        super().__init__()
        self.open = []
        self.attributes = []
        self.cells = []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attrs):
        self.attributes.append((tag, dict(attrs)))
        if tag not in {"meta", "img"}:
            self.open.append(tag)
        if tag == "tr":
            self.cells.append([])
        if tag in {"th", "td"}:
            self.cells[-1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"th", "td"} & set(self.open):
            self.cells[-1][-1] += data


# ---- what it says ----


def test_the_tables_have_the_figures_of_the_statistics(tmp_path):
    plan, text = written(tmp_path / "report.html", num_replicas=2)
    rows = Structure(text).cells
    stats = plan.stats()
    for bucket in stats.buckets:
        name = f"[{bucket.start}, {bucket.stop})"
        batches = next(row for row in rows if row[1:2] == [name])
        assert batches[2:4] == [f"{bucket.samples:,}", f"{bucket.batches:,}"]
        quarters = next(row for row in rows if row[0] == f"{bucket.bucket}: {name}")
        assert [cell.split()[0] for cell in quarters[2:]] == [
            f"{100 * share:.2f}%" for share in (bucket.share, *bucket.quarters)
        ]
        for share, cell in zip(bucket.quarters, quarters[3:], strict=True):
            assert float(cell.split()[1]) == pytest.approx(100 * (share - bucket.share), abs=0.006)
    runs = rows[rows.index(["run of", "runs", "steps", "share", ""]) + 1 :]
    assert runs[0][:3] == ["1", f"{stats.runs[1]:,}", f"{stats.runs[1]:,}"]
    imbalances = rows[rows.index(["slowest rank above the mean", "steps", "share", ""]) + 1 :][:6]
    assert sum(int(row[1].replace(",", "")) for row in imbalances) == stats.steps
    for fact in ("order stride, composition shuffle", f"{100 * stats.padding_efficiency:.1f}%"):
        assert fact in text


def test_run_lengths_are_put_together_and_none_is_lost(tmp_path):
    plan, text = written(tmp_path / "report.html", order="shuffle", buckets=[150])
    rows = Structure(text).cells
    start = rows.index(["run of", "runs", "steps", "share", ""]) + 1
    steps = {
        row[0]: int(row[2].replace(",", ""))
        for row in rows[start : start + len(rows)]
        if len(row) == 5
    }
    runs = plan.stats().runs
    assert {5, 8, 9, 17} <= set(runs)  # Ends of ranges.
    for name, there in steps.items():
        first, _, last = name.replace(",", "").partition(" to ")
        within = range(int(first), int(last or first) + 1)
        assert there == sum(length * runs[length] for length in runs if length in within)
    assert sum(steps.values()) == plan.num_steps


def test_every_order_has_a_strip_and_a_row_of_what_it_is(tmp_path):
    _, text = written(tmp_path / "report.html", order="balanced")
    captions = re.findall(r'<figure class="order"><figcaption><b>(\w+)', text)
    assert captions == ["balanced", *(order for order in ORDERS if order != "balanced")]
    rows = rows_of_orders(text)
    for order, plan in compare_orders(LENGTHS, **OPTIONS):
        assert rows[order][5] == f"{plan.stats().longest_run:,}"


def test_the_windows_are_those_of_plans_that_have_them(tmp_path):
    _, text = written(tmp_path / "report.html")
    said = re.search(r"Padding efficiency by composition and window: ([^\"]+)\.", text)[1]
    values = dict(part.rsplit(" ", 1) for part in said.split(", "))
    for name, shown in values.items():
        composition = name if name in {"shuffle", "frozen"} else "window"
        window = {"window": int(name.replace(",", ""))} if composition == "window" else {}
        stats = es.plan_epoch(LENGTHS, composition=composition, **window, **OPTIONS).stats()
        assert shown == f"{100 * stats.padding_efficiency:.1f}%"
    assert next(iter(values)) == "shuffle"
    assert len(values) > 5


def test_what_limits_the_batches_and_what_would_help_is_said(tmp_path):
    _, text = written(tmp_path / "report.html", max_batch_size=4, too_long="drop", max_length=398)
    assert "The largest batch size, 4, limits" in text
    assert re.search(r"--max-batch-size \d+</code> there would be [\d,]+ steps", text)
    assert re.search(r"Left out: \d+ samples \(\d\.\d% of the tokens\) as too long\.", text)


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        ({"compared": False}, "the lengths are not at hand"),
        ({"shuffle": False}, "a plan that is not shuffled has one order only"),
    ],
)
def test_where_nothing_is_compared_the_page_says_why(tmp_path, options, reason):
    _, text = written(tmp_path / "report.html", **options)
    assert f"Other orders are not shown: {reason}." in text
    assert f"Windows are not compared: {reason}." in text
    assert text.count('<figure class="order">') == 1


def test_a_plan_that_is_not_shuffled_is_not_called_by_an_order(tmp_path):
    _, text = written(tmp_path / "report.html", shuffle=False)
    assert '<figure class="order"><figcaption><b>sorted' in text


def test_a_saved_plan_has_the_same_page(tmp_path):
    plan, text = written(tmp_path / "report.html")
    plan.save(tmp_path / "plan")
    loaded = es.EpochPlan.load(tmp_path / "plan")
    write_report(loaded, tmp_path / "loaded.html", lengths=LENGTHS, name="lengths.npy")
    assert (tmp_path / "loaded.html").read_text(encoding="utf-8") == text


def test_the_plan_of_a_sampler_has_a_page(tmp_path):
    pytest.importorskip("torch")
    sampler = es.BucketBatchSampler(LENGTHS, num_replicas=2, rank=1, **OPTIONS)
    write_report(sampler.plan, tmp_path / "report.html", lengths=LENGTHS)
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert f"<dd>{len(sampler):,}<small>of 2 batches each" in text


def rows_of_orders(text):
    return {row[0]: row for row in Structure(text).cells if len(row) == 10 and row[0] in ORDERS}


def test_other_plans_have_the_steps_that_were_asked_for(tmp_path):
    options = {"num_replicas": 2, "accumulation_steps": 4, "steps_per_epoch": 1450}
    _, text = written(tmp_path / "report.html", **options)
    rows = rows_of_orders(text)
    natural = es.plan_epoch(
        LENGTHS, **{**OPTIONS, **options, "steps_per_epoch": None}, order="mixed"
    )
    assert rows.keys() == set(ORDERS)
    for order in ORDERS:
        steps = natural.num_steps if order == "mixed" else 1450
        assert rows[order][1] == f"{2 * steps:,}"
    note = "Not possible in the 1,450 steps of steps_per_epoch, and so in their own: mixed "
    assert re.findall(rf"{note}\(([\d,]+) steps\)\.<", text) == [f"{natural.num_steps:,}"]
    windows = re.search(r"Padding efficiency by composition and window: ([^\"]+)\.", text)[1]
    for window in ("16", "4,096"):
        change = {"composition": "window", "window": int(window.replace(",", ""))}
        stats = es.plan_epoch(LENGTHS, **OPTIONS, **options, **change).stats()
        assert f"{window} {100 * stats.padding_efficiency:.1f}%" in windows.split(", ")


def test_orders_and_windows_that_cannot_have_those_steps_have_their_own(tmp_path):
    options = {"order": "mixed", "num_replicas": 2, "steps_per_epoch": 1071}
    _, text = written(tmp_path / "report.html", **options)
    note = r"Not possible in the 1,071 steps of steps_per_epoch, and so in their own: ([^<]+)\."
    of_orders, of_windows = (
        dict(re.findall(r"(\S+) \((\S+) steps\)", n)) for n in re.findall(note, text)
    )
    assert of_orders.keys() == set(ORDERS) - {"mixed"}
    natural = es.plan_epoch(LENGTHS, num_replicas=2, **OPTIONS)
    assert {*of_orders.values(), of_windows["shuffle"]} == {f"{natural.num_steps:,}"}
    assert of_windows["frozen"] == "1,072"
    assert rows_of_orders(text)["shuffle"][1] == f"{2 * natural.num_steps:,}"


def test_the_plans_of_a_sampler_settle_on_steps_as_it_did(tmp_path):
    pytest.importorskip("torch")
    options = {"num_replicas": 2, **OPTIONS}
    sampler = es.BucketBatchSampler(LENGTHS, rank=1, **options)
    sampler.set_epoch(1)
    assert len(sampler) != es.plan_epoch(LENGTHS, epoch=1, **options).num_steps
    write_report(sampler.plan, tmp_path / "report.html", lengths=LENGTHS)
    rows = rows_of_orders((tmp_path / "report.html").read_text(encoding="utf-8"))
    for order in rows:
        other = es.BucketBatchSampler(LENGTHS, rank=1, order=order, **options)
        assert rows[order][1] == f"{2 * len(other):,}"


def test_too_many_samples_are_not_planned_anew(tmp_path, monkeypatch):
    monkeypatch.setattr("evenstride.report_facts.MOST_SAMPLES_TO_REPLAN", 19_999)
    _, text = written(tmp_path / "report.html")
    assert "Other orders are not shown: there are more than 19,999 samples." in text


@pytest.mark.parametrize("lengths", [LENGTHS[:-1], LENGTHS[::-1]], ids=["too few", "others"])
def test_lengths_of_another_plan_are_an_error(tmp_path, lengths):
    plan = es.plan_epoch(LENGTHS, **OPTIONS)
    message = r"^`lengths` must be those that the plan was made of, but its batches have other tok"
    with pytest.raises(ValueError, match=message):
        write_report(plan, tmp_path / "report.html", lengths=lengths)


@pytest.mark.parametrize(
    "options",
    [
        {"lengths": [5], "buckets": []},
        {"lengths": [0, 0, 0], "buckets": 3},
        {"lengths": [2**62] * 3, "token_budget": 2**63 - 1, "buckets": [7]},
        {"order": "mixed", "num_replicas": 3, "accumulation_steps": 2},
        {"composition": "window", "steps_per_epoch": 2800},
        {"lengths": [9] * 9 + [900], "num_replicas": 8, "too_long": "alone", "max_length": 20},
        {"lengths": [3000, 4, 5], "too_long": "alone"},
        {
            "lengths": [8, 13, 10, 9],
            "token_budget": 40,
            "buckets": 2,
            "num_replicas": 3,
            "drop_last": True,
            "epoch": 1,
            "order": "mixed",
        },
    ],
)
def test_a_page_of_any_plan_is_whole(tmp_path, options):
    _, text = written(tmp_path / "report.html", **options)
    assert "nan" not in re.sub(r'base64,[^"]+', "", text)
    Structure(text)


def test_names_are_text_and_not_markup(tmp_path):
    _, text = written(tmp_path / "report.html", name=HOSTILE)
    assert "<script" not in text
    assert html.escape(HOSTILE).replace("\udcff", r"\udcff") in text


def test_graphics_and_tables_are_named_for_those_who_do_not_see_them(tmp_path):
    _, text = written(tmp_path / "report.html", num_replicas=2)
    structure = Structure(text)
    described = {"img": "alt", "svg": "aria-label"}
    for tag, attributes in structure.attributes:
        if tag in described:
            assert len(attributes[described[tag]]) > 20
        if tag == "div" and attributes.get("class") == "scroll":
            assert attributes["aria-label"]
        if tag == "th":
            assert attributes["scope"] in {"row", "col"}
    tags = [tag for tag, _ in structure.attributes]
    assert tags.count("table") == tags.count("caption") == 7
    assert tags.count("img") == 2 * len(ORDERS)
    assert tags.count("svg") == 4


def test_the_page_of_the_benchmarks_is_small_and_needs_no_matplotlib(
    tmp_path, lengths, monkeypatch
):
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    path = tmp_path / "report.html"
    options = {"token_budget": 49_152, "max_batch_size": 64}
    written(path, lengths, **options, buckets=[770, 1216, 1728, 2432, 3296])
    assert path.stat().st_size < 300_000
    written(path, lengths, **options, buckets=list(range(30, 7680, 30)))
    assert path.stat().st_size < 1_000_000


# ---- colours and ticks ----


@pytest.mark.parametrize("num_buckets", [2, 6, 40, 100])
def test_colours_darken_from_bucket_to_bucket(num_buckets):
    ramp = Ramp(num_buckets)
    colours = np.array([list(bytes.fromhex(ramp.colour(k)[1:])) for k in range(num_buckets)])
    linear = (colours / 255) ** 2.2
    luminance = linear @ [0.2126, 0.7152, 0.0722]
    assert (np.diff(luminance) < 0).all()
    assert luminance[0] - luminance[-1] > 0.5


def test_more_buckets_than_a_palette_has_share_colours():
    ramp = Ramp(1000)
    assert [ramp.colour(0), ramp.colour(999)] == [Ramp(2).colour(0), Ramp(2).colour(1)]
    assert len({ramp.colour(k) for k in range(1000)}) > 240


@pytest.mark.parametrize("most", [0.5, 1, 3, 4, 7, 10, 99, 8188, 18_300, 3e9])
def test_ticks_are_few_whole_numbers_up_to_the_most(most):
    ticks = list(count_ticks(most))
    assert ticks[0] == 0
    assert ticks[-2] < most <= ticks[-1]
    assert 2 <= len(ticks) <= 6
    assert all(tick == int(tick) for tick in ticks)


# ---- in a browser ----


@pytest.fixture(scope="module")
def browser():
    with started_browser() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory):
    path = tmp_path_factory.mktemp("report") / "report.html"
    plan, _ = written(path, num_replicas=2, name=HOSTILE)
    return plan, path


@pytest.fixture(
    scope="module",
    params=[(width, scheme) for width in (1200, 400) for scheme in ("light", "dark")],
)
def shown(browser, report, request):
    width, scheme = request.param
    opened = Opened(browser, report[1], width=width, scheme=scheme)
    yield opened, width, scheme
    opened.page.close()


def test_text_can_be_read_on_its_ground(shown):
    assert shown[0].page.evaluate(LEAST_CONTRAST) > 4.5


def test_a_browser_shows_the_page_without_complaint(shown, report):
    (shown, width, scheme), (plan, path) = shown, report
    assert shown.page.evaluate("document.documentElement.scrollWidth") <= width
    assert len(colours_of(shown.pixels())) > 100
    paper = shown.page.evaluate("getComputedStyle(document.body).backgroundColor")
    levels = [int(level) for level in re.findall(r"\d+", paper)]
    assert min(levels) > 240 if scheme == "light" else max(levels) < 40
    ramp = Ramp(len(plan.edges) - 1)
    bucket_colours = {ramp.colour(k) for k in range(ramp.num_buckets)}
    strips = len(ORDERS) * 2
    assert shown.page.locator("img.strip").count() == strips
    pictures = [colours_of(shown.pixels("img.strip", n)) for n in (0, 1, strips - 2)]
    for colours in pictures:
        there = sum(n for colour, n in colours.items() if colour in bucket_colours)
        assert there > 0.9 * sum(colours.values())
    assert bucket_colours <= pictures[0].keys()
    # Once all is drawn: nothing but the page itself and what it holds was asked for.
    assert [url for url in shown.requests if not url.startswith("data:")] == [path.as_uri()]
    assert shown.faults == []


def test_every_step_is_at_its_place_in_the_strip(browser, tmp_path):
    plan, _ = written(tmp_path / "report.html", LENGTHS[:1000])
    labels = step_labels(plan)[:80]
    shown = Opened(browser, tmp_path / "report.html", width=1200, scheme="light")
    pixels = shown.pixels("img.start")
    shown.page.close()
    middles = ((np.arange(len(labels)) + 0.5) * pixels.shape[1] / len(labels)).astype(int)
    ramp = Ramp(len(plan.edges) - 1)
    row = pixels[len(pixels) // 2, middles].astype(np.int64) @ [65536, 256, 1]
    wrong = [
        f"#{value:06x}" != ramp.colour(label) for value, label in zip(row, labels, strict=True)
    ]
    assert np.mean(wrong) < 0.1  # At the borders of the picture's pixels.
