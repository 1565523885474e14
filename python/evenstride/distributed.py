"""Checks over ``torch.distributed``: whether all ranks plan the same epochs."""

from __future__ import annotations

import json
from typing import Any

from torch import distributed

from evenstride.sampler import BucketBatchSampler

__all__ = ["check_same_plan"]

_MOST_VALUES = 4


def check_same_plan(
    sampler: BucketBatchSampler, group: distributed.ProcessGroup | None = None
) -> None:
    """Raise the same error on every rank unless all of them plan, and stand at, the same.

    Ranks that disagree about lengths, options, seed or epoch train on some samples twice and on
    others never, or wait for each other for good once one of them has no more steps. This compares
    what :meth:`BucketBatchSampler.state_dict` holds, in one exchange of a few hundred bytes a rank.
    Call it on all ranks at the same place, best before the first epoch and after loading a state.
    Without ``torch.distributed`` there is nothing to compare.

    Parameters
    ----------
    sampler : BucketBatchSampler
        That of this rank.
    group : ProcessGroup, optional
        The processes that share out the batches; by default all. Where some of them are to get the
        same batches, as with tensor parallelism, this is the group of one of each.

    Raises
    ------
    TypeError
        Without ``torch.distributed``, if `sampler` is none.
    ValueError
        If the number of ranks is not that of the group, two processes claim the same rank, or
        anything else differs: with the field, the ranks in the group, and their values. Also if one
        of them has any error of its own: with that.

    Examples
    --------
    >>> import evenstride as es
    >>> sampler = es.BucketBatchSampler([3, 9, 4, 8, 3, 9], token_budget=18)
    >>> es.distributed.check_same_plan(sampler)

    """
    if not (distributed.is_available() and distributed.is_initialized()):
        _check_kind(sampler)
        return
    facts: list[Any] = [None] * distributed.get_world_size(group)
    distributed.all_gather_object(facts, _facts(sampler), group=group)
    _check_ranks(facts)
    for name in sorted({name for one in facts for name in one} - {"rank"}, key=_importance):
        _check_same(name, [one.get(name) for one in facts])


def _check_kind(sampler: BucketBatchSampler) -> None:
    if not isinstance(sampler, BucketBatchSampler):
        msg = f"`sampler` must be a BucketBatchSampler, but is a {type(sampler).__name__}."
        raise TypeError(msg)


def _facts(sampler: BucketBatchSampler) -> dict[str, Any]:
    facts: dict[str, Any] = {}
    try:
        _check_kind(sampler)
        state = sampler.state_dict()
        facts |= json.loads(state.pop("options")) | state
        facts["rank"] = sampler.rank
    except ValueError as error:
        facts["fault"] = str(error)
    except Exception as error:  # noqa: BLE001 - All ranks must hear of it, or they would wait.
        facts["fault"] = f"{type(error).__name__}: {error}"
    return facts


def _importance(name: str) -> tuple[int, str]:
    """In this order: what differs with the lengths or the options comes last."""
    first, last = ["version", "lengths"], ["seed", "steps_per_epoch", "epoch", "step"]
    place = first.index(name) if name in first else len(first)
    return (place if name not in last else len(first) + 1 + last.index(name)), name


def _check_ranks(facts: list[dict[str, Any]]) -> None:
    replicas = [one.get("num_replicas", len(facts)) for one in facts]
    if any(number != len(facts) for number in replicas):
        msg = (
            f"`num_replicas` must be the number of ranks of the group, {len(facts)}, but is "
            f"{_by_value(replicas)}."
        )
        raise ValueError(msg)
    for number, one in enumerate(facts):
        if "fault" in one:
            msg = f"Rank {number} cannot take part: {one['fault']}"
            raise ValueError(msg)
    ranks = [one["rank"] for one in facts]
    twice = next((rank for rank in ranks if ranks.count(rank) > 1), None)
    if twice is not None:
        claiming = [number for number, rank in enumerate(ranks) if rank == twice]
        msg = (
            f"`rank` must be another one in each process of the group, but is {twice} in "
            f"processes {_listed(claiming)}."
        )
        raise ValueError(msg)


def _check_same(name: str, values: list[Any]) -> None:
    if any(value != values[0] for value in values):
        msg = f"`{name}` must be the same on all ranks, but is {_by_value(values)}."
        raise ValueError(msg)


def _by_value(values: list[Any]) -> str:
    """Return which value is on which ranks, as words."""
    ranks: dict[str, list[int]] = {}
    for rank, value in enumerate(values):
        ranks.setdefault(repr(value), []).append(rank)
    parts = [
        f"{value} on {'rank' if len(of) == 1 else 'ranks'} {_listed(of)}"
        for value, of in list(ranks.items())[:_MOST_VALUES]
    ]
    if len(ranks) > _MOST_VALUES:
        parts.append(f"{len(ranks) - _MOST_VALUES} other values elsewhere")
    return " and ".join([", ".join(parts[:-1]), parts[-1]] if parts[1:] else parts)


def _listed(numbers: list[int]) -> str:
    """Return rising numbers as words, runs of more than two as their ends."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and number == runs[-1][-1] + 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return ", ".join(
        f"{run[0]} to {run[-1]}" if run[2:] else ", ".join(map(str, run)) for run in runs
    )
