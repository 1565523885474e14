"""Blocks that were given to a loader, where processes fork and end."""

from __future__ import annotations

import gc
import os
import subprocess
import sys
from pathlib import Path

import pytest

from loader_support import loader_of, plan_of, rows
from pinned_support import PlainBlocks
from test_forks import run_in_child

SCRIPT = """
import builtins, sys, threading, time
sys.path.insert(0, {folder!r})
from loader_support import loader_of
from pinned_support import PlainBlocks

class Patch:
    setattr = staticmethod(setattr)

blocks = PlainBlocks()
blocks.put_in_place(Patch)
loader = loader_of(2000, pin_memory=True, targets=2, num_workers=3)
{work}
"""
WORKS = {
    "amid a pass": "batches = iter(loader.targets[0]); next(batches)",
    "while a block is in use": "builtins.kept = next(iter(loader.targets[0]))",
    "while a thread waits for a batch": """
threading.Thread(target=lambda: [None for _ in loader.targets[0]], daemon=True).start()
time.sleep(0.2)
""",
}


@pytest.mark.parametrize("work", WORKS.values(), ids=WORKS)
def test_an_interpreter_ends_well(work):
    script = SCRIPT.format(folder=str(Path(__file__).parent), work=work)
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, check=False, timeout=60
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


@pytest.fixture
def plain_blocks(monkeypatch):
    blocks = PlainBlocks()
    blocks.put_in_place(monkeypatch)
    return blocks


def forget_in_child(plain_blocks, in_use, results):
    before = plain_blocks.num_alive
    in_use["loader"].close()
    in_use.clear()
    gc.collect()
    results.put((before, plain_blocks.num_alive))


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_process_leaves_the_blocks_of_its_parents_pass_alone(plain_blocks):
    loader = loader_of(pin_memory=True, depth=3)
    batches = iter(loader)
    next(batches)
    in_use = {"loader": loader, "batches": batches}
    del loader, batches
    before, after = run_in_child(forget_in_child, plain_blocks, in_use)
    assert before == after == 4  # The fifth comes with the next take.
    rest = [rows(batch) for batch in in_use["batches"]]
    assert rest == plan_of(in_use["loader"])[1:]
    assert plain_blocks.num_alive == 0
