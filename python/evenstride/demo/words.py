"""The report in sentences: what was done, and what the numbers say, whichever order it favours."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from evenstride.demo.results import Facts, Results, Run

__all__ = ["findings", "introduction", "method"]


def introduction(facts: Facts) -> str:
    """Return a paragraph on what was done."""
    return (
        f"{facts.functions:,} functions of {facts.library} are a corpus of samples of very "
        f"different lengths. A small language model was trained on {facts.train_samples:,} of "
        "them, a byte a token, for one epoch in each order, from the same weights and with the "
        "same token budget."
    )


def method(facts: Facts) -> list[str]:
    """Return paragraphs on how it was done, and on what the numbers are."""
    setting = (
        f"Of {facts.files:,} files, {facts.skipped_files:,} are no valid Python and were skipped; "
        f"of the functions in the others, {facts.truncated:,} were cut at {facts.max_length:,} "
        f"tokens, which leaves {facts.corpus_tokens:,} tokens. How many functions a run trains on "
        "follows from the measured speed of the machine. A batch has at most "
        f"{facts.token_budget:,} padded tokens and {facts.max_batch_size} samples; an optimizer "
        f"step is made of {facts.accumulation_steps} batches, in which every token weighs the "
        f"same. The model has {facts.parameters:,} parameters and was trained with AdamW, on the "
        f"CPU with {facts.threads_in_words}; the validation loss is that of "
        f"{facts.validation_samples:,} other functions ({facts.validation_tokens:,} tokens) after "
        "the epoch. Losses are in nats a byte."
    )
    words = (
        "Batch noise and step noise are the standard deviation of the loss of a batch, and of an "
        "optimizer step, about its trend: the cubic polynomial in the logarithm of the step that "
        "fits the last two thirds of the curve best. Real tokens are those that are no "
        "padding. Data wait is the time of training in which the next batch was not there yet. "
        "Quarter is the largest difference of a bucket's share of the batches of a quarter from "
        "its share of the epoch."
    )
    return [setting, words]


def findings(results: Results) -> list[str]:
    """Return a paragraph each on spread, padding, noise and validation loss.

    Runs that did not finish their epoch are left out of what needs a whole one.
    """
    runs = results.runs
    finished = [run for run in runs if not math.isnan(run.validation_loss)]
    texts = [_spread(runs), _padding(runs), _waiting(runs)]
    if finished:
        texts += [_noise(finished, results.facts.accumulation_steps), _validation(finished)]
    if len(finished) < len(runs):
        texts.append("The training was stopped before all runs were finished.")
    return texts


def _spread(runs: Sequence[Run]) -> str:
    off = _each(runs, lambda run: f"{100 * run.worst_quarter:.1f}")
    longest = _each(runs, lambda run: str(run.stats.longest_run))
    return (
        "Spread: a bucket's share of the batches of a quarter differs from its share of the whole "
        f"epoch by at most so many points: {off}. The longest run of batches of one bucket: "
        f"{longest}. The buckets of mixed are labels only, since it draws over all lengths."
    )


def _padding(runs: Sequence[Run]) -> str:
    shares = _each(runs, lambda run: f"{100 * run.stats.padding_efficiency:.1f} %")
    return (
        f"Padding: so much of what is computed is real tokens: {shares}. Orders that draw inside "
        "the buckets have the same batches and differ only in when they come."
    )


def _waiting(runs: Sequence[Run]) -> str:
    waits = _each(runs, lambda run: f"{1e3 * run.waited_s:.1f} ms of {run.seconds:.1f} s")
    return (
        f"Waiting for data: so much of the time of training: {waits}. The threads of a Loader made "
        "the batches meanwhile."
    )


def _noise(runs: Sequence[Run], accumulation_steps: int) -> str:
    noises = {run.order: run.noise(accumulation_steps) for run in runs}
    if any(math.isnan(noise.batch) for noise in noises.values()):
        return "Noise: the curves are too short to tell it from their trend; give more seconds."
    step = _each(runs, lambda run: f"{noises[run.order].optimizer_step:.3f}")
    mean = _each(runs, lambda run: f"{noises[run.order].running_mean:.3f}")
    explained = _each(runs, lambda run: f"{100 * noises[run.order].explained:.0f} %")
    return (
        "Noise: from optimizer step to optimizer step the loss scatters about its trend by "
        f"{step}; the mean of four optimizer steps still by {mean}. So much of the variance of the "
        "batches lies between the buckets, where the order can do something about it: "
        f"{explained}. The rest is the samples' own."
    )


def _validation(runs: Sequence[Run]) -> str:
    if len(runs) == 1:
        return f"Validation loss: {runs[0].validation_loss:.3f}."
    best, *_, worst = sorted(runs, key=lambda run: run.validation_loss)
    return (
        f"Validation loss: from {best.validation_loss:.3f} ({best.order}) to "
        f"{worst.validation_loss:.3f} ({worst.order}). One short run of each order cannot tell a "
        "small difference from chance; the orders differ also in how many optimizer steps the same "
        "functions make."
    )


def _each(runs: Sequence[Run], say: Callable[[Run], str]) -> str:
    return ", ".join(f"{say(run)} ({run.order})" for run in runs)
