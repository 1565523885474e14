"""Uses an installed wheel where nothing but numpy and torch is installed beside it.

Run it with the Python that the wheel is installed in: ``python wheel_use.py``. It needs no pytest.
"""

from __future__ import annotations

import importlib.metadata
import subprocess
import sys
import sysconfig
import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
from torch.utils.data import DataLoader

import evenstride as es

EXTRAS = {
    "accelerate": "accelerate",
    "arrow": "pyarrow",
    "cli": "typer",
    "lightning": "lightning",
    "plot": "matplotlib",
    "transformers": "transformers",
}


def check(condition, claim):
    if not condition:
        sys.exit(f"wheel_use: not so: {claim}")
    sys.stdout.write(f"wheel_use: {claim}\n")


def message_of(action):
    try:
        action()
    except ImportError as error:
        return str(error)
    return ""


def main():
    installed = {d.metadata["Name"].lower() for d in importlib.metadata.distributions()}
    check(
        installed.isdisjoint(EXTRAS.values()) and "pytest" not in installed,
        "only numpy, torch and what they need are installed",
    )
    check(
        Path(es.__file__).is_relative_to(sysconfig.get_path("platlib")),
        "the package is the installed one",
    )
    check((Path(es.__file__).parent / "py.typed").exists(), "it says that it has types")

    lengths = np.random.default_rng(3).integers(1, 400, 5_000)
    sampler = es.BucketBatchSampler(lengths, token_budget=4_096, seed=3)
    epoch = list(sampler)
    once = sorted(chain.from_iterable(epoch)) == list(range(5_000))
    check(once, "an epoch has every sample once")
    check(sampler.plan.stats().longest_run < 10, "its buckets are spread")

    rows = [{"input_ids": np.arange(length)} for length in lengths]
    ds = es.RaggedDataset.from_lists(rows)
    collate = es.PadCollator({"input_ids": es.Field(padding_value=0)})
    sampler.set_epoch(0)
    padded = [b["input_ids"] for b in DataLoader(ds, batch_sampler=sampler, collate_fn=collate)]
    sampler.set_epoch(0)
    with es.Loader(ds, sampler, collate, num_workers=2) as loader:
        same = [b["input_ids"].equal(p) for b, p in zip(loader, padded, strict=True)]
    check(all(same), "Loader yields what DataLoader does")

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "epoch.plan"
        sampler.plan.save(path)
        loaded = es.EpochPlan.load(path)
        check(np.array_equal(loaded.indices, sampler.plan.indices), "a plan survives its file")
        del loaded

    for extra in ("accelerate", "lightning", "transformers"):
        message = message_of(lambda extra=extra: getattr(es, extra))
        check(
            f"pip install 'evenstride[{extra}]'" in message, f"without {extra} it says what to do"
        )
    message = message_of(sampler.plan.plot)
    check("pip install 'evenstride[plot]'" in message, "without matplotlib it says what to do")
    command = Path(sysconfig.get_path("scripts")) / "evenstride"
    done = subprocess.run([command, "plan"], capture_output=True, text=True, check=False)
    check(
        done.returncode == 1 and "pip install 'evenstride[cli]'" in done.stderr,
        "the command without its extra says what to do",
    )


if __name__ == "__main__":
    main()
