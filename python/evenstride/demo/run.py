"""The demonstration from beginning to end."""

from __future__ import annotations

import platform
import time
from typing import TYPE_CHECKING, Any

import numpy as np
import torch

from evenstride import BucketBatchSampler, _core
from evenstride.demo.batches import as_dataset
from evenstride.demo.corpus import read_corpus, standard_library
from evenstride.demo.model import new_model
from evenstride.demo.report import results_table, write_report
from evenstride.demo.results import Facts, Results, Run, mean_loss
from evenstride.demo.screen import progress, say, say_tables
from evenstride.demo.training import evaluate, measure_speed, new_loader, train

if TYPE_CHECKING:
    from pathlib import Path

    from numpy.typing import NDArray

    from evenstride import RaggedDataset
    from evenstride.demo.corpus import Corpus

__all__ = ["run_demo"]

_ORDERS = ("stride", "shuffle", "mixed")
_MAX_LENGTH = 1024
_TOKEN_BUDGET = 4096
_MAX_BATCH_SIZE = 64
_ACCUMULATION_STEPS = 4
_SEED = 0
_FEWEST_SAMPLES = 16

_PROBE = 0.04  # Of the time, for measuring the speed.
_VALIDATION = 0.08  # Held-out tokens, as a fraction of those that a run trains on.
_SPARE = 0.9  # Of the time: what the measured speed is trusted for.
_SHOWN_STEPS = 32  # Whose mean loss the progress shows.


def run_demo(output: Path, seconds: float = 60.0, *, library: Path | None = None) -> dict[str, Any]:
    """Train a small model on source code in three orders of batches, and write a report.

    Each run is one epoch over the same functions, from the same weights. How many functions that
    are is settled first, from the speed of the machine, so that all runs together take about
    `seconds`. Ctrl-C ends the training, and what is known by then is reported.

    Parameters
    ----------
    output : Path
        The folder for ``report.html``, ``report.json`` and the plots, made if need be.
    seconds : float, default 60
        How long to train, in all; above 0.
    library : Path, optional
        A folder of Python files to train on; by default Python's own standard library.

    Returns
    -------
    dict
        The numbers of the report, ready for JSON, and the path of the report.

    Raises
    ------
    ValueError
        If `seconds` is not above 0, or `library` has too few functions.

    """
    if not seconds > 0:
        msg = f"`seconds` must be above 0, but is {seconds}."
        raise ValueError(msg)
    threads = torch.get_num_threads()
    try:
        return _demo(output, seconds, library)
    finally:
        torch.set_num_threads(threads)


def _demo(output: Path, seconds: float, library: Path | None) -> dict[str, Any]:
    say("Reading the functions of " + (str(library) if library else "Python's standard library"))
    corpus = read_corpus(library or standard_library(), max_length=_MAX_LENGTH)
    say(
        f"  {len(corpus.samples):,} functions in {corpus.files:,} files, a byte a token; "
        f"{corpus.truncated:,} are cut at {_MAX_LENGTH:,} tokens"
    )

    say("\nMeasuring the speed of a small language model")
    speed = _settle_threads(corpus, _PROBE * seconds)
    wanted = speed * _SPARE * (1 - _PROBE) * seconds / len(_ORDERS)
    chosen, held_out = _split(corpus.lengths, round(wanted))
    results = Results(_facts(corpus, library, chosen, held_out), corpus.lengths[chosen], [])
    say(
        f"  {speed:,.0f} tokens/s with {results.facts.threads_in_words}: "
        f"each run can train on {len(chosen):,} functions"
    )

    samplers = [_sampler(results.lengths, order) for order in _ORDERS]
    say("\nPlanning an epoch of them, order `stride`\n")
    say_tables(samplers[0].plan.stats().table())

    batches = f"an optimizer step every {_ACCUMULATION_STEPS} batches"
    say(f"\nTraining the same model once in each order, {batches}")
    samples = as_dataset([corpus.samples[i] for i in chosen])
    validation = as_dataset([corpus.samples[i] for i in held_out])
    try:
        for order, sampler in zip(_ORDERS, samplers, strict=True):
            results.runs.append(Run(order, sampler.plan))
            _train(results.runs[-1], sampler, samples, validation, every=seconds / 6)
    except KeyboardInterrupt:
        say("  Stopped. What follows is about the steps that were done.")

    say()
    say_tables(results_table(results))
    report = write_report(results, output)
    say(f"\nThe report: {report}")
    return {**results.to_dict(), "report": str(report)}


def _settle_threads(corpus: Corpus, seconds: float) -> float:
    """Let torch use as many threads as are fastest, and return the tokens a second with them.

    On a machine that is busy with other work, that may be one.
    """
    sampler = _sampler(corpus.lengths, "stride")
    loader = new_loader(as_dataset(corpus.samples), sampler)
    counts = [n for n in (1, 2, 4, 8) if n <= max(1, _core.available_processors())]
    speeds = {}
    for threads in counts:
        torch.set_num_threads(threads)
        model = new_model(_SEED)
        speeds[threads] = measure_speed(model, loader, sampler, seconds / len(counts))
    fastest = max(counts, key=speeds.__getitem__)
    torch.set_num_threads(fastest)
    return speeds[fastest]


def _sampler(lengths: NDArray[np.int64], order: str) -> BucketBatchSampler:
    return BucketBatchSampler(
        lengths,
        token_budget=_TOKEN_BUDGET,
        max_batch_size=_MAX_BATCH_SIZE,
        order=order,
        accumulation_steps=_ACCUMULATION_STEPS,
        seed=_SEED,
        num_replicas=1,
        rank=0,
    )


def _split(lengths: NDArray[np.int64], tokens: int) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Draw samples of about so many tokens to train on, and some others for validation."""
    drawn = np.random.default_rng(_SEED).permutation(len(lengths))
    if len(drawn) < _FEWEST_SAMPLES:
        msg = f"`library` must have at least {_FEWEST_SAMPLES} functions, but has {len(drawn)}."
        raise ValueError(msg)
    most = len(drawn) - max(1, round(_VALIDATION * len(drawn)))
    count = int(np.searchsorted(lengths[drawn].cumsum(), tokens))
    count = min(max(count, _FEWEST_SAMPLES - 1), most)
    return drawn[:count], drawn[count : count + max(1, round(_VALIDATION * count))]


def _train(
    run: Run,
    sampler: BucketBatchSampler,
    samples: RaggedDataset,
    validation: RaggedDataset,
    every: float,
) -> None:
    """Train a new model for the epoch of `run`, note every step in it, and evaluate the model."""
    model = new_model(_SEED)
    begin = time.perf_counter()
    with new_loader(samples, sampler) as loader, progress(run.order, len(sampler), every) as show:
        try:
            for step in train(model, loader, sampler, _ACCUMULATION_STEPS):
                run.steps.append(step)
                run.seconds = time.perf_counter() - begin
                show(len(run.steps), mean_loss(run.steps[-_SHOWN_STEPS:]))
        finally:
            run.waited_s = loader.stats().consumers_waited_s
    longest_first = BucketBatchSampler(
        validation.lengths, token_budget=_TOKEN_BUDGET, shuffle=False, num_replicas=1, rank=0
    )
    run.validation_loss = evaluate(model, new_loader(validation, longest_first))
    say(
        f"  {run.order:8} {len(run.steps):,} batches in {run.seconds:.1f} s: "
        f"loss {run.final_loss:.3f}, on held-out functions {run.validation_loss:.3f}"
    )


def _facts(
    corpus: Corpus,
    library: Path | None,
    chosen: NDArray[np.int64],
    held_out: NDArray[np.int64],
) -> Facts:
    return Facts(
        library=str(library) if library else f"Python {platform.python_version()}",
        files=corpus.files,
        skipped_files=corpus.skipped_files,
        functions=len(corpus.samples),
        truncated=corpus.truncated,
        corpus_tokens=int(corpus.lengths.sum()),
        max_length=_MAX_LENGTH,
        token_budget=_TOKEN_BUDGET,
        max_batch_size=_MAX_BATCH_SIZE,
        accumulation_steps=_ACCUMULATION_STEPS,
        seed=_SEED,
        threads=torch.get_num_threads(),
        parameters=sum(weights.numel() for weights in new_model(_SEED).parameters()),
        train_samples=len(chosen),
        train_tokens=int(corpus.lengths[chosen].sum()),
        validation_samples=len(held_out),
        validation_tokens=int(corpus.lengths[held_out].sum()),
    )
