"""The search for options: what is measured, and what is recommended."""

from __future__ import annotations

import json
import math
import re
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import evenstride as es
from command_support import LENGTHS, OPTIONS, command, command_without, fails
from evenstride import tune as tune_module
from evenstride.command_options import plan_parameters
from evenstride.commands import run
from evenstride.tune import (
    CANDIDATES,
    SEARCHED,
    Candidate,
    kind_of,
    on_front,
    reasons,
    recommended,
    tune,
)

pytestmark = pytest.mark.usefixtures("no_columns")

FLAGS = OPTIONS[:4]  # Without edges, which are searched.


def candidate(padding_efficiency, diversity, **options):
    given_options = {"buckets": 6, "composition": "window", "window": 64, **options}
    figures = {"companions": 30.0, "recurrence": 0.1, "largest_share": 0.4, "longest_run": 3}
    figures = {name: given_options.pop(name, figure) for name, figure in figures.items()}
    return Candidate(given_options, padding_efficiency, diversity=diversity, **figures)


# ---- what is measured ----


@pytest.mark.parametrize(
    "options", [{}, {"num_replicas": 3, "epoch": 5}, {"max_batch_size": 1}, {"drop_last": True}]
)
def test_companions_and_recurrence_are_those_of_two_epochs(options):
    lengths = np.random.default_rng(2).integers(1, 50, 300)
    options = {"token_budget": 300, "num_replicas": 2, **options}
    for change, found in tune(lengths, **options):
        plan = es.plan_epoch(lengths, **{"buckets": 6, **options, **change})
        epoch = {"epoch": plan.epoch + 1}
        following = es.plan_epoch(lengths, **{"buckets": 6, **options, **change, **epoch})
        pairs, again = (
            {pair for batch in epoch for pair in combinations(sorted(batch.tolist()), 2)}
            for epoch in (plan, following)
        )
        assert found.options == change
        stats = plan.stats()
        assert found.padding_efficiency == stats.padding_efficiency
        assert found.longest_run == max(stats.runs)
        assert found.largest_share == max(bucket.share for bucket in stats.buckets)
        assert found.companions == 2 * len(pairs) / 300
        if not pairs:
            assert math.isnan(found.recurrence)
            assert found.diversity == 0
            continue
        assert found.recurrence == len(pairs & again) / len(pairs)
        # A sample's rate: of its pairs of a companion now and one then, how many are the same.
        rates = []
        now, then = (
            {i: set(b) for b in map(np.ndarray.tolist, e) for i in b} for e in (plan, following)
        )
        for sample in now.keys() & then.keys():
            one, other = now[sample] - {sample}, then[sample] - {sample}
            if one and other:
                rates.append(len(one & other) / (len(one) * len(other)))
        pool = 1 / np.mean(rates) if any(rates) else 300
        assert found.diversity == pytest.approx(min(1, pool / 300))


def test_diversity_is_the_share_of_the_samples_that_may_meet():
    lengths = np.random.default_rng(3).integers(1, 400, 30_000)
    found = {str(change): measured for change, measured in tune(lengths, token_budget=8000)}
    for buckets in (1, 3, 6):
        shuffled = found[str({"buckets": buckets, "composition": "shuffle"})]
        assert shuffled.diversity == pytest.approx(1 / buckets, rel=0.1)
    frozen = found[str({"buckets": 6, "composition": "frozen"})]
    assert frozen.recurrence == 1
    assert frozen.diversity < 0.01
    windows = [
        found[str({"buckets": 3, "composition": "window", "window": window})].diversity
        for window in (64, 256, 1024, 4096)
    ]
    assert sorted(windows, reverse=True) == windows


@pytest.mark.parametrize("num_samples", [100, 2000])
def test_diversity_is_told_the_better_the_larger_batches_are(monkeypatch, num_samples):
    monkeypatch.setattr(tune_module, "CANDIDATES", CANDIDATES[:1])  # All samples may meet.

    def found(batch_size):
        for seed in range(20):
            _, measured = next(tune([5] * num_samples, token_budget=5 * batch_size, seed=seed))
            yield measured.diversity

    off = {size: np.sqrt(np.mean((1 - np.array([*found(size)])) ** 2)) for size in (2, 10, 40)}
    assert off[40] < 0.05 < off[10] < 0.2 < off[2]
    assert min(found(2)) <= 0.5


def test_of_many_samples_some_are_drawn_and_shares_stay(monkeypatch):
    lengths = np.random.default_rng(4).integers(1, 400, 40_000)
    all_of_them = [found for _, found in tune(lengths, token_budget=8000)]
    monkeypatch.setattr(tune_module, "MOST_SAMPLES", 20_000)
    some = [found for _, found in tune(lengths, token_budget=8000)]
    for one, other in zip(all_of_them[5:9], some[5:9], strict=True):
        assert other.padding_efficiency == pytest.approx(one.padding_efficiency, abs=0.01)
        assert other.diversity == pytest.approx(one.diversity, rel=0.15)
    again = [found for _, found in tune(lengths, token_budget=8000)]
    assert again == some


def test_what_is_searched_and_what_is_asked_for_are_all_options():
    asked = {parameter.name for parameter in plan_parameters(without=SEARCHED, defaults={})}
    assert asked.isdisjoint(SEARCHED)
    assert {*asked, *SEARCHED} == {
        parameter.name for parameter in plan_parameters(without=[], defaults={})
    }
    for change in CANDIDATES:
        assert change.keys() <= set(SEARCHED)


def test_options_that_are_wrong_for_all_are_an_error():
    with pytest.raises(ValueError, match=r"^`token_budget` must be in \[1, 2\*\*63\), but is 0\.$"):
        list(tune([1, 2], token_budget=0))


@pytest.mark.parametrize(
    ("seed", "error", "fault"),
    [
        (-1, ValueError, "must be in [0, 2**64), but is -1."),
        ("x", TypeError, "must be an integer, but is 'x'."),
        (1.5, TypeError, "must be an integer, but is 1.5."),
    ],
)
@pytest.mark.parametrize("most", [1, 2])
def test_a_seed_is_checked_before_samples_are_drawn(monkeypatch, most, seed, error, fault):
    monkeypatch.setattr(tune_module, "MOST_SAMPLES", most)
    with pytest.raises(error, match=f"^{re.escape(f'`seed` {fault}')}$"):
        next(tune([1, 2], token_budget=5, seed=seed))


@pytest.mark.parametrize("name", SEARCHED)
def test_what_is_searched_is_not_for_users_to_set(name):
    message = f"`{name}` must be left to the search, but is given."
    with pytest.raises(TypeError, match=f"^{re.escape(message)}$"):
        next(tune([1, 2], token_budget=5, **{name: 3}))


# ---- what is recommended ----


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=12))
def test_the_front_is_what_nothing_beats(figures):
    candidates = [candidate(*pair) for pair in figures]
    for (real, diversity), front in zip(figures, on_front(candidates), strict=True):
        beaten = any(
            (r > real and d >= diversity) or (r >= real and d > diversity) for r, d in figures
        )
        assert front == (not beaten)


def test_the_most_diverse_within_what_may_be_given_up_is_recommended():
    candidates = [
        candidate(0.5, 0.9),
        candidate(0.985, 0.2),
        candidate(0.991, 0.1),
        candidate(0.995, 0.05),
        candidate(1.0, 0.01),
        candidate(0.999, 0.3, buckets=1),
        candidate(0.999, 0.4, composition="frozen"),
    ]
    assert recommended(candidates) is candidates[2]
    assert recommended(candidates, 0) is candidates[4]
    assert recommended(candidates, 1.6) is candidates[1]
    assert recommended(candidates, 100) is candidates[0]
    option = "--buckets 6 --composition window --window 64"
    assert "\n".join(reasons(candidates, candidates[2], 1000)) == (
        f"Recommended: {option}. 99.1% of the tokens are real, and a sample's companions are drawn "
        "from 100 samples, 10.0% of all.\n"
        "The order spreads 6 buckets: the largest has 40.0% of the steps, and the longest run of "
        "one is 3 steps.\n"
        f"The least padding is that of {option}: 0.9 points more real tokens, but companions from "
        "10 times fewer samples.\n"
        f"Companions from 2 times more samples, with {option}, would cost 0.6 points."
    )
    assert len(list(reasons(candidates[4:], candidates[4], 1000))) == 2


def test_batches_that_are_much_the_same_in_the_next_epoch_are_not_recommended():
    candidates = [
        candidate(0.89, 0.3, recurrence=0.05),
        candidate(0.90, 0.2, recurrence=0.1),
        candidate(0.985, 0.15, recurrence=0.101),
        candidate(0.995, 0.1, recurrence=0.2),
    ]
    assert recommended(candidates) is candidates[1]
    assert recommended(candidates, 0) is candidates[1]
    assert recommended(candidates, 11) is candidates[0]
    assert not any("few samples" in why for why in reasons(candidates, candidates[1], 1000))


def test_where_new_batches_would_pad_too_much_what_is_wrong_is_said():
    candidates = [
        candidate(0.88, 0.3, recurrence=0.05),
        candidate(0.985, 0.15, recurrence=0.3),
        candidate(0.99, 0.1, recurrence=0.4),
    ]
    assert recommended(candidates) is candidates[1]
    assert list(reasons(candidates, candidates[1], 1000))[1] == (
        "There are few samples for such batches: 30.0% of the pairs in one meet again in the next "
        "epoch, and less than 10.0% would cost more than 10 points. Smaller batches mix better."
    )


def test_batches_of_one_sample_never_meet_again():
    candidates = [candidate(1.0, 0.0, recurrence=math.nan), candidate(0.9, 0.5)]
    assert recommended(candidates) is candidates[0]
    assert "few samples" not in "".join(reasons(candidates, candidates[0], 1000))


def test_what_fewer_buckets_leave_to_spread_is_said_beside_the_default():
    few = candidate(0.995, 0.2, buckets=3, largest_share=0.55, longest_run=4)
    default = candidate(0.999, 0.01, largest_share=0.3)
    other = candidate(0.99, 0.01, window=256, largest_share=0.25)
    assert recommended([few, other, default]) is few
    assert "\n".join(list(reasons([few, other, default], few, 1000))[1:3]) == (
        "The order spreads 3 buckets: the largest has 55.0% of the steps, and the longest run of "
        "one is 4 steps.\n"
        "Fewer buckets than 6 mean a less even epoch. With --buckets 6 --composition window "
        "--window 64 the largest would have 30.0% of the steps, 99.9% of the tokens would be real, "
        "and companions come from 10 samples."
    )
    assert not any("Fewer buckets" in why for why in reasons([few, other], few, 1000))


def test_an_order_without_buckets_has_none_to_spread():
    mixed = Candidate({"order": "mixed", "composition": "shuffle"}, 0.99, 9.0, 0.01, 1.0, 0.9, 8)
    assert len(list(reasons([mixed], mixed, 1000))) == 1


@pytest.mark.parametrize("give_up", [-0.1, 100.1, math.nan])
def test_what_may_be_given_up_is_a_percentage(give_up):
    with pytest.raises(ValueError, match=rf"^`give_up` must be in \[0, 100\], but is {give_up}\.$"):
        recommended([candidate(1, 1)], give_up)


@pytest.mark.parametrize("give_up", [None, "x"])
def test_what_may_be_given_up_is_a_number(give_up):
    message = rf"^`give_up` must be a number, but is {give_up!r}\.$"
    with pytest.raises(TypeError, match=message):
        recommended([candidate(1, 1)], give_up)


@pytest.mark.parametrize(
    "candidates", [[], [candidate(1, 1, composition="frozen")], [candidate(1, 1, buckets=1)]]
)
def test_without_one_that_may_be_recommended_there_is_no_choice(candidates):
    message = (
        "`candidates` must have at least 1 that is not frozen and has not 1 bucket, but has 0."
    )
    with pytest.raises(ValueError, match=f"^{re.escape(message)}$"):
        recommended(candidates)


# ---- the command ----


def test_the_table_has_a_row_for_each_candidate_from_most_padding_to_least(capsys, npy):
    assert run(["tune", npy, *FLAGS]) == 0
    table, meanings, why = capsys.readouterr().out.rstrip().split("\n\n")
    header, *rows = [re.split(" {2,}", line) for line in table.splitlines()]
    assert header == [
        "composition",
        "buckets",
        "real",
        "diversity",
        "companions",
        "meet again",
        "Pareto front",
    ]
    assert len(rows) == len(CANDIDATES)
    real = [float(row[2].rstrip("%")) for row in rows]
    assert sorted(real) == real
    found = [found for _, found in tune(LENGTHS, token_budget=2000, max_batch_size=64)]
    assert [row[6] for row in rows].count("*") == sum(on_front(found))
    for row in rows:
        assert int(row[4].replace(",", "")) == pytest.approx(
            float(row[3].rstrip("%")) / 100 * len(LENGTHS), abs=0.05 * len(LENGTHS) / 100 + 1
        )
    assert [re.split(" {2,}", line)[0] for line in meanings.splitlines()] == header[2:]
    again = {kind_of(c) + str(c.options.get("buckets", "-")): c.recurrence for c in found}
    for row in rows:
        assert float(row[5].rstrip("%")) == pytest.approx(100 * again[row[0] + row[1]], abs=0.051)
    assert why.startswith("Recommended: --buckets ")


def test_json_has_the_same_and_nothing_else(capsys, npy):
    assert run(["tune", npy, *FLAGS, "--give-up", "5", "--json"]) == 0
    out, err = capsys.readouterr()
    told = json.loads(out)
    found = [found for _, found in tune(LENGTHS, token_budget=2000, max_batch_size=64)]
    choice = recommended(found, 5)
    assert err == ""
    assert told["recommended"] == choice.options
    assert told["reasons"] == list(reasons(found, choice, len(LENGTHS)))
    assert (told["samples"], told["planned_samples"], told["left_out"]) == (3000, 3000, [])
    assert [row["options"] for row in told["candidates"]] == list(CANDIDATES)
    for row, one, front in zip(told["candidates"], found, on_front(found), strict=True):
        assert row["padding_efficiency"] == one.padding_efficiency
        assert row["diversity"] == one.diversity
        assert row["front"] == front


def test_that_samples_were_drawn_is_said(capsys, npy, monkeypatch):
    for module in ("evenstride.tune", "evenstride.commands"):
        monkeypatch.setattr(f"{module}.MOST_SAMPLES", 2000)
    assert run(["tune", npy, *FLAGS]) == 0
    assert "\n\nPlanned with 2,000 samples, drawn from 3,000.\n\n" in capsys.readouterr().out


def test_a_candidate_that_cannot_be_had_is_left_out_with_its_reason(capsys, npy, monkeypatch):
    impossible = {"order": "mixed", "composition": "window"}
    monkeypatch.setattr(tune_module, "CANDIDATES", (*CANDIDATES[:6], impossible))
    assert run(["tune", npy, *FLAGS]) == 0
    assert (
        "\n\nWithout --order mixed --composition window: --composition must be 'shuffle' for "
        "--order mixed, but is 'window'.\n\n"
    ) in capsys.readouterr().out
    assert run(["tune", npy, *FLAGS, "--json"]) == 0
    left_out = json.loads(capsys.readouterr().out)["left_out"]
    assert [item["options"] for item in left_out] == [impossible]


def test_lengths_that_are_all_alike_have_something_to_recommend(capsys, tmp_path):
    path = tmp_path / "lengths.txt"
    path.write_text("10\n" * 50)
    assert run(["tune", str(path), "--token-budget", "10"]) == 0
    assert "Recommended: " in capsys.readouterr().out


@pytest.mark.parametrize("give_up", ["-0.5", "100.5"])
def test_what_may_be_given_up_is_checked_before_the_search(capsys, npy, give_up):
    assert fails(capsys, "tune", npy, *FLAGS, "--give-up", give_up).startswith(
        "Invalid value for '--give-up': "
    )


def test_without_matplotlib_pictures_say_how_to_install_it(npy, tmp_path):
    for name in ("tune", "compare"):
        picture = str(tmp_path / "picture.png")
        done = command_without({"matplotlib"}, [name, npy, *FLAGS, "--plot", picture])
        assert (done.returncode, done.stdout) == (1, "")
        assert done.stderr == (
            "evenstride: Pictures need matplotlib: pip install 'evenstride[plot]'.\n"
        )


def test_no_line_of_the_table_is_wider_than_the_terminal(npy):
    narrow = command("tune", npy, *FLAGS, COLUMNS="60").stdout
    assert max(map(len, narrow.splitlines())) <= 60
    assert sorted(set(command("tune", npy, *FLAGS).stdout.split())) == sorted(set(narrow.split()))
