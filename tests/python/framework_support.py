"""Runs code from the documentation on several ranks, and checks what each was trained on."""

from __future__ import annotations

import difflib
import json
import os
import re
import socket
import subprocess
import sys
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from framework_job import NUM_SAMPLES

TESTS = Path(__file__).parent
DOCS = TESTS.parents[1] / "docs"

# As an interpreter ends, a thread of gloo may still let go of Python objects, and abort the process
# (pytorch/pytorch#190489). A job that has come to its last line ends without that.
LEAVE = """
import os
import sys

sys.stdout.flush()
sys.stderr.flush()
os._exit(0)
"""


@dataclass(frozen=True)
class Step:
    """What a rank was trained on in one step."""

    indices: list[int]
    loss: float


def documented(page, name, *, language="python"):
    """Return the block that follows ``<!-- run: NAME -->`` on a page of the documentation."""
    text = (DOCS / page).read_text(encoding="utf-8")
    begin = rf"<!-- run: {re.escape(name)} -->\n```{language}\n"
    found = re.findall(rf"{begin}(.*?)```", text, re.DOTALL)
    assert len(found) == 1, f"{page} has {len(found)} blocks of the name {name!r}"
    return found[0]


def parts(page, *names, at_step=None):
    """Return the lines of a script that run blocks of a page, each in a folder of its name.

    The names that a block leaves behind are in a dict of the block's name.
    """
    runs = (
        f"{name} = Part({name!r}, at_step={at_step}).run({documented(page, name)!r})"
        for name in names
    )
    return "\n".join(["from framework_job import Part", *runs, ""])


def added_lines(before, after):
    """Return the lines of `after` that `before` does not have, in order."""
    lines = difflib.ndiff(before.splitlines(), after.splitlines())
    return [line[2:] for line in lines if line.startswith("+ ") and line[2:].strip()]


def start_ranks(script, folder, *, num_ranks=2, environment=None):
    """Start a script on several ranks, with what ``torchrun`` tells them; return the processes."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.py"
    path.write_text(script + LEAVE, encoding="utf-8")
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    shared = {
        **os.environ,
        "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
        "EVENSTRIDE_RECORD": str(folder),
        "OMP_NUM_THREADS": "1",
        "WORLD_SIZE": str(num_ranks),
        "LOCAL_WORLD_SIZE": str(num_ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": port,
        **(environment or {}),
    }
    return [
        subprocess.Popen(
            [sys.executable, str(path)],
            cwd=folder,
            env={**shared, "RANK": str(rank), "LOCAL_RANK": str(rank)},
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for rank in range(num_ranks)
    ]


def run_ranks(script, folder, *, num_ranks=2, environment=None, timeout=100):
    """Run a script on several ranks, and return what each printed; fail where one of them does."""
    ranks = start_ranks(script, folder, num_ranks=num_ranks, environment=environment)
    try:
        printed = [rank.communicate(timeout=timeout)[0] for rank in ranks]
    finally:
        for rank in ranks:
            rank.kill()
    for rank, text in zip(ranks, printed, strict=True):
        assert rank.returncode == 0, text
    return printed


def steps_of(folder, rank):
    """Return the steps that a rank was trained on, as it recorded them."""
    lines = (folder / f"rank-{rank}.jsonl").read_text(encoding="utf-8").splitlines()
    return [Step(*json.loads(line)) for line in lines]


def check_epochs(folder, *, num_ranks=2, epochs=2):
    """Every epoch has all samples once over equally many steps, each in another order.

    Returns the steps of each rank.
    """
    ranks = [steps_of(folder, rank) for rank in range(num_ranks)]
    counts = {len(steps) for steps in ranks}
    assert len(counts) == 1, f"ranks have {counts} steps"
    steps = counts.pop()
    assert steps % epochs == 0
    assert steps > epochs
    of_epochs = []
    for epoch in range(epochs):
        part = slice(epoch * steps // epochs, (epoch + 1) * steps // epochs)
        batches = [[step.indices for step in rank[part]] for rank in ranks]
        seen = [index for rank in batches for batch in rank for index in batch]
        assert sorted(seen) == list(range(NUM_SAMPLES))
        of_epochs.append(batches)
    for one, other in pairwise(of_epochs):
        assert one != other
    return ranks


def start_torchrun(script, folder, *, num_ranks=2):
    """Start a script with ``torchrun`` on several ranks of this machine; return its process."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "job.py"
    path.write_text(script + LEAVE, encoding="utf-8")
    return subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", str(num_ranks), str(path)),
        ],
        cwd=folder,
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join([str(TESTS), os.environ.get("PYTHONPATH", "")]),
            "EVENSTRIDE_RECORD": str(folder),
            "OMP_NUM_THREADS": "1",
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def run_torchrun(script, folder, *, num_ranks=2, timeout=100):
    """Run a script with ``torchrun``, and return what was printed; fail where a rank does."""
    process = start_torchrun(script, folder, num_ranks=num_ranks)
    try:
        printed = process.communicate(timeout=timeout)[0]
    finally:
        if process.poll() is None:
            process.terminate()  # Which ends its ranks too.
            process.communicate()
    assert process.returncode == 0, printed
    return printed
