"""How many ranks there are, and which this is."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from torch import distributed

from evenstride.options import as_count, as_integer
from evenstride.step_info import as_rank

if TYPE_CHECKING:
    from typing import SupportsIndex


def checked_ranks(
    num_replicas: SupportsIndex | None, rank: SupportsIndex | None
) -> tuple[int | None, int | None]:
    """Return both as ints, as far as they are given; say what is wrong with them else."""
    if num_replicas is not None:
        num_replicas = as_count("num_replicas", num_replicas)
    if rank is not None:
        rank = as_integer("rank", rank)
        if num_replicas is not None:
            rank = as_rank(rank, num_replicas)
        elif rank < 0:
            msg = f"`rank` must be at least 0, but is {rank}."
            raise ValueError(msg)
    return num_replicas, rank


def resolved_num_replicas(num_replicas: int | None) -> int:
    """Return how many ranks there are: as given, else as ``torch.distributed`` has it, else 1.

    Raises
    ------
    RuntimeError
        If there are other processes, but ``torch.distributed`` does not know of them yet.

    """
    if num_replicas is not None:
        return num_replicas
    return distributed.get_world_size() if _is_distributed() else 1


def resolved_rank(rank: int | None, num_replicas: int) -> int:
    """Return which rank this is: as given, else as ``torch.distributed`` has it, else 0.

    Raises
    ------
    RuntimeError
        As :func:`resolved_num_replicas`.
    ValueError
        If it is not in ``[0, num_replicas)``.

    """
    if rank is None:
        rank = distributed.get_rank() if _is_distributed() else 0
    return as_rank(rank, num_replicas)


def _is_distributed() -> bool:
    if distributed.is_available() and distributed.is_initialized():
        return True
    world_size = os.environ.get("WORLD_SIZE", "")
    if world_size not in ("", "1"):
        msg = (
            f"torch.distributed must be initialised before the sampler is used, or `rank` and "
            f"`num_replicas` be given, because WORLD_SIZE is {world_size}: call "
            f"torch.distributed.init_process_group() first."
        )
        raise RuntimeError(msg)
    return False
