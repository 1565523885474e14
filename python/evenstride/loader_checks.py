"""What a loader checks of its arguments."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, SupportsIndex

from torch.utils.data import IterableDataset, Subset

from evenstride.collate import PadCollator
from evenstride.dataset import RaggedDataset
from evenstride.device_memory import as_device
from evenstride.options import as_count, as_integer
from evenstride.outputs import main_keys, max_length_of
from evenstride.producers import gives_plain_batches, is_native
from evenstride.sampler import BucketBatchSampler
from evenstride.state import check_state

if TYPE_CHECKING:
    import torch

_AT_ONCE = 1 << 20
_MOST_TARGETS = 1024


def as_limited(name: str, value: SupportsIndex, most: int) -> int:
    """Return `value` as an int in ``[1, most]``; say what is wrong with it else."""
    count = as_count(name, value)
    if count > most:
        msg = f"`{name}` must be in [1, {most}], but is {count}."
        raise ValueError(msg)
    return count


def as_ragged(dataset: Any) -> Any:
    """Return the rows of a RaggedDataset that a Subset names, and any other dataset as it is."""
    kind = type(dataset)
    is_subset = isinstance(dataset, Subset) and kind.__getitem__ is Subset.__getitem__
    if is_subset and kind.__getitems__ is Subset.__getitems__:
        whole = as_ragged(dataset.dataset)
        if isinstance(whole, RaggedDataset) and gives_plain_batches(whole):
            return whole.select(dataset.indices)
    return dataset


def as_targets(targets: Any, device: Any) -> list[torch.device | None]:
    """Return the device of each target; None where batches stay as they are."""
    if isinstance(targets, Sequence) and not isinstance(targets, str):
        if device is not None:
            msg = "`device` must be left out where `targets` are devices."
            raise TypeError(msg)
        if not 1 <= len(targets) <= _MOST_TARGETS:
            msg = f"`targets` must have 1 to {_MOST_TARGETS} devices, but has {len(targets)}."
            raise ValueError(msg)
        return [_as_device(f"targets[{k}]", target) for k, target in enumerate(targets)]
    count = as_limited("targets", targets, _MOST_TARGETS)
    return [None if device is None else _as_device("device", device)] * count


def _as_device(name: str, device: Any) -> torch.device | None:
    given = as_device(name, device)
    return None if given.type == "cpu" else given


def check_agreement(dataset: Any, sampler: Any, collate: Any) -> None:
    """Say what data set, sampler and collator disagree about, if anything.

    Raises
    ------
    TypeError
        If `sampler` is no BucketBatchSampler, or `collate` cannot be called.
    ValueError
        If they disagree.

    """
    if not isinstance(sampler, BucketBatchSampler):
        msg = f"`sampler` must be a BucketBatchSampler, but is a {type(sampler).__name__}."
        raise TypeError(msg)
    if not callable(collate):
        msg = f"`collate` must be callable, but is a {type(collate).__name__}."
        raise TypeError(msg)
    is_map_style = hasattr(dataset, "__getitem__") and hasattr(dataset, "__len__")
    if not is_map_style or isinstance(dataset, IterableDataset):
        msg = (
            "`dataset` must be a map-style data set, with a length, but is a "
            f"{type(dataset).__name__}."
        )
        raise TypeError(msg)
    lengths = sampler.lengths
    if len(dataset) != len(lengths):
        msg = (
            f"`sampler` must be made of as many lengths as `dataset` has samples, {len(dataset)}, "
            f"but has {len(lengths)}."
        )
        raise ValueError(msg)
    if not isinstance(collate, PadCollator):
        return
    multiple = sampler.options.pad_to_multiple_of
    if multiple != collate.pad_to_multiple_of:
        msg = (
            f"`pad_to_multiple_of` must be the same in `sampler` and `collate`, but is {multiple} "
            f"and {collate.pad_to_multiple_of}."
        )
        raise ValueError(msg)
    if is_native(dataset, collate):
        _check_lengths(dataset, sampler, collate)
    else:
        _check_max_length(sampler, collate)


def _check_lengths(
    dataset: RaggedDataset, sampler: BucketBatchSampler, collate: PadCollator
) -> None:
    ours, theirs = collate.bound_to(dataset).lengths(), sampler.lengths
    most = sampler.options.longest_admitted
    for begin in range(0, len(theirs), _AT_ONCE):
        part = slice(begin, begin + _AT_ONCE)
        differ = (ours[part] != theirs[part]) & (theirs[part] <= most)
        if differ.any():
            sample = begin + int(differ.argmax())
            whole = dataset.select([sample]).lengths[0]
            cut = " once `collate` has cut it" if ours[sample] < whole else ""
            msg = (
                f"`lengths[{sample}]` of `sampler` must be the tokens of sample {sample} of "
                f"`dataset`, {ours[sample]}{cut}, but is {theirs[sample]}."
            )
            raise ValueError(msg)


def _check_max_length(sampler: BucketBatchSampler, collate: PadCollator) -> None:
    """Say which length no row can have: rows are not read, and any field may give the mask."""
    bounds = {
        key: max_length_of(collate, collate.fields[key])
        for key in main_keys(collate.fields).values()
    }
    key = max(bounds, key=bounds.__getitem__)
    lengths = sampler.lengths
    admitted = lengths[lengths <= sampler.options.longest_admitted]
    if admitted.size and admitted.max() > bounds[key]:
        is_own = collate.fields[key].max_length is not None
        name = f"fields[{key!r}].max_length" if is_own else "max_length"
        msg = (
            f"`{name}` of `collate` must be at least the longest of `sampler`'s lengths, "
            f"{admitted.max()}, but is {bounds[key]}."
        )
        raise ValueError(msg)


def check_loader_state(state: Any, sampler: BucketBatchSampler) -> tuple[int, int, list[int]]:
    """Return the epoch and the step of a state, and the steps beyond it that are taken.

    Raises
    ------
    TypeError, ValueError
        If the state is not whole, or is of another version, other lengths, options or ranks.

    """
    if not isinstance(state, dict):
        msg = f"`state` must be a dict, but is {state!r}."
        raise TypeError(msg)
    if state.keys() != {"sampler", "taken"}:
        msg = f"`state` must have the fields 'sampler' and 'taken', but has {list(state)}."
        raise ValueError(msg)
    epoch, step = check_state(state["sampler"], sampler.state_dict(consumed=0))
    saved_step, taken, end = int(state["sampler"]["step"]), state["taken"], len(sampler)
    if not isinstance(taken, Sequence) or isinstance(taken, str):
        msg = f"`state['taken']` must be a list of steps, but is {taken!r}."
        raise TypeError(msg)
    steps = [as_integer(f"state['taken'][{i}]", one) for i, one in enumerate(taken)]
    if steps and any(low >= high for low, high in pairwise([saved_step, *steps, end])):
        msg = f"`state['taken']` must hold rising steps in ({saved_step}, {end}), but is {steps}."
        raise ValueError(msg)
    return epoch, step, steps
