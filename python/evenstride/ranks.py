"""How many ranks there are, and which this is."""

from __future__ import annotations

import os
from typing import SupportsIndex

from torch import distributed

from evenstride.options import as_count
from evenstride.plan import as_rank


def checked_ranks(
    num_replicas: SupportsIndex | None, rank: SupportsIndex | None
) -> tuple[int | None, int | None]:
    """Return both as ints, as far as they are given; say what is wrong with them else."""
    if num_replicas is not None:
        num_replicas = as_count("num_replicas", num_replicas)
    if rank is not None:
        rank = as_rank(rank, 2**63 if num_replicas is None else num_replicas)
    return num_replicas, rank


def resolved_ranks(num_replicas: int | None, rank: int | None) -> tuple[int, int]:
    """Return both, taking from ``torch.distributed`` what is not given, or 1 and 0 without it.

    Raises
    ------
    RuntimeError
        If there are other processes, but ``torch.distributed`` does not know of them yet.

    """
    if num_replicas is None or rank is None:
        if distributed.is_available() and distributed.is_initialized():
            num_replicas = distributed.get_world_size() if num_replicas is None else num_replicas
            rank = distributed.get_rank() if rank is None else rank
        elif int(os.environ.get("WORLD_SIZE", "1")) > 1:
            msg = (
                f"torch.distributed must be initialised before the sampler is used, or `rank` and "
                f"`num_replicas` be given, because WORLD_SIZE is {os.environ['WORLD_SIZE']}: call "
                f"torch.distributed.init_process_group() first."
            )
            raise RuntimeError(msg)
    num_replicas = 1 if num_replicas is None else num_replicas
    return num_replicas, as_rank(0 if rank is None else rank, num_replicas)
