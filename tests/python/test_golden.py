"""Plans that must stay as they are, bit for bit, on every platform and with every version.

The order is part of the interface: runs resume in the middle of an epoch, and ranks of one run may
have different machines. A change of `golden.json` is a new major version, and older states must be
refused; see CONTRIBUTING.md. `python tests/python/test_golden.py --write` makes it anew.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import pytest

import evenstride as es
from support import ORDERS, digest

GOLDEN = Path(__file__).with_name("golden.json")


def formula_lengths(count):
    """Return lengths in [0, 4000) with many short ones, by whole-number arithmetic alone."""
    numbers = np.arange(count, dtype=np.uint64)
    mixed = (numbers * np.uint64(2_654_435_761) >> np.uint64(7)) % np.uint64(4000)
    return (mixed * mixed // np.uint64(4000)).astype(np.int64)


SMALL = {"token_budget": 8192, "buckets": [100, 400, 1000, 2000]}
CASES = {
    **{f"order {order}": {"order": order} for order in ORDERS},
    "order mixed": {"order": "mixed", "accumulation_steps": 8},
    "order stratified by 4": {"order": "stratified", "accumulation_steps": 4},
    "composition window": {"composition": "window"},
    "composition window of 100": {"composition": "window", "window": 100},
    "composition frozen": {"composition": "frozen"},
    "without shuffle": {"shuffle": False},
    "epoch 1": {"epoch": 1},
    "seed 1": {"seed": 1},
    "seed and epoch at the top": {"seed": 2**64 - 1, "epoch": 2**64 - 1},
    "without jitter": {"jitter": 0.0},
    "much jitter": {"jitter": 0.499},
    "8 ranks": {"num_replicas": 8},
    "8 ranks, drop_last": {"num_replicas": 8, "drop_last": True},
    "8 ranks, window": {"num_replicas": 8, "composition": "window"},
    "8 ranks, without shuffle": {"num_replicas": 8, "shuffle": False},
    "64 ranks of small buckets": {"num_replicas": 64, "buckets": [5, 3000, 3500]},
    "few steps": {"steps_per_epoch": 3900},
    "many steps": {"steps_per_epoch": 2600, "num_replicas": 2},
    "batches of 8": {"batch_size_multiple": 8, "max_batch_size": 64},
    "padded to 16": {"pad_to_multiple_of": 16},
    "found edges": {"buckets": 6},
    "found edges, merged": {"buckets": 12, "merge_buckets": 3},
    "too long alone": {"max_length": 3000, "too_long": "alone"},
    "too long dropped": {"max_length": 3900, "too_long": "drop"},
    "empty dropped": {"empty": "drop"},
    "200,000 samples": {"count": 200_000},
    "200,000 samples, window, 4 ranks": {
        "count": 200_000,
        "composition": "window",
        "num_replicas": 4,
    },
}


def digest_of(case):
    options = {**SMALL, **CASES[case]}
    lengths = formula_lengths(options.pop("count", 20_000))
    return digest(es.plan_epoch(lengths, **options))


@pytest.mark.filterwarnings("ignore:.* are in no epoch")
@pytest.mark.parametrize("case", CASES)
def test_the_plan_is_what_it_always_was(case):
    assert digest_of(case) == json.loads(GOLDEN.read_text())[case]


def test_every_golden_plan_is_checked():
    assert set(json.loads(GOLDEN.read_text())) == set(CASES)


if __name__ == "__main__" and "--write" in sys.argv[1:]:
    GOLDEN.write_text(json.dumps({case: digest_of(case) for case in CASES}, indent=2) + "\n")
