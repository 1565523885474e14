"""Loaders over a batch sampler, for the training loops of Accelerate."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from torch.utils.data import DataLoader

from evenstride.cursor import Cursor
from evenstride.loader import Loader
from evenstride.options import as_bool
from evenstride.sampler import BucketBatchSampler

try:
    from accelerate.data_loader import DataLoaderShard, DataLoaderStateMixin
    from accelerate.state import GradientState
    from accelerate.utils import send_to_device
except ImportError as error:
    _MESSAGE = (
        "evenstride.accelerate needs Accelerate: install it with "
        "`pip install 'evenstride[accelerate]'`."
    )
    raise ImportError(_MESSAGE) from error

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import torch
    from accelerate import Accelerator

__all__ = ["prepare"]

_ORDERS_BY_OPTIMIZER_STEP = ("stratified", "mixed")
_OF_BATCHES = {"self", "dataset", "batch_size", "shuffle", "sampler", "batch_sampler", "drop_last"}


def prepare(
    accelerator: Accelerator, *objects: Any, device_placement: Sequence[bool] | None = None
) -> Any:
    """Prepare models, optimizers, loaders and schedulers, as ``accelerator.prepare`` does.

    A ``DataLoader`` over a :class:`BucketBatchSampler`, and a :class:`Loader`, give each process
    the batches that its sampler has for it: Accelerate shares out nothing, repeats nothing to even
    out batches, and gives up none. Everything else goes to ``accelerator.prepare`` as it is.

    Within a loop over such a loader, ``sampler.state_dict()`` is the position of the loop: batches
    that lie ready, of which Accelerate always has one more than the loop, are not counted. So
    ``accelerator.register_for_checkpointing(sampler)`` is all that resuming takes. A pass begins
    where the sampler says, whatever Accelerate's own count of passes; ``set_epoch`` of the loader
    is the sampler's. ``accelerate.skip_first_batches`` is refused for it.

    As Accelerate does, this makes the ``DataLoader`` anew: of a subclass, what it overrides, such
    as its ``__iter__``, is lost.

    Parameters
    ----------
    accelerator : Accelerator
        With ``dispatch_batches`` None or False and ``split_batches`` False. ``even_batches`` and
        ``use_seedable_sampler`` do not matter; with ``use_stateful_dataloader``, loaders are
        stateful.
    *objects
        What ``accelerator.prepare`` takes.
    device_placement : sequence of bool, optional
        For each of `objects`, whether it is moved to the device, or batches of it are. By default
        as the accelerator says.

    Returns
    -------
    object or tuple of objects
        What ``accelerator.prepare`` returns, in the order of `objects`.

    Raises
    ------
    TypeError
        If `accelerator` is none, or `device_placement` is of another kind.
    ValueError
        If one of its options, the number of ranks of a sampler, or the number of values of
        `device_placement` is not as it must be; if there are no `objects`, or a loader is not
        `in_order`; or if a sampler with ``order="stratified"`` or ``"mixed"`` has other
        `accumulation_steps` than the accelerator.

    Examples
    --------
    >>> import evenstride as es
    >>> from accelerate import Accelerator
    >>> from torch.utils.data import DataLoader
    >>> ds = es.RaggedDataset.from_lists([[7, 8, 9], [4], [5, 6], [1, 2, 3]])
    >>> sampler = es.BucketBatchSampler(ds.lengths, token_budget=6, buckets=1, shuffle=False)
    >>> collate = es.PadCollator({"input_ids": es.Field()})
    >>> loader = DataLoader(ds, batch_sampler=sampler, collate_fn=collate)
    >>> loader = es.accelerate.prepare(Accelerator(cpu=True), loader)
    >>> for batch in loader:
    ...     print(batch["input_ids"].tolist())
    [[7, 8, 9], [1, 2, 3]]
    [[5, 6], [4, 0]]

    """
    if not hasattr(accelerator, "prepare_data_loader"):
        msg = f"`accelerator` must be an Accelerator, but is a {type(accelerator).__name__}."
        raise TypeError(msg)
    if not objects:
        msg = "`objects` must have at least 1 object, but has 0."
        raise ValueError(msg)
    placed = [accelerator.device_placement] * len(objects)
    if device_placement is not None:
        placed = _as_bools("device_placement", device_placement)
    if len(placed) != len(objects):
        msg = (
            f"`device_placement` must have a value for each of the {len(objects)} objects, but has "
            f"{len(placed)}."
        )
        raise ValueError(msg)
    prepared = [
        _prepared(accelerator, one, accelerator.device if is_placed else None)
        for one, is_placed in zip(objects, placed, strict=True)
    ]
    return accelerator.prepare(*prepared, device_placement=device_placement)


def _as_bools(name: str, values: Any) -> list[bool]:
    if isinstance(values, str) or not hasattr(values, "__iter__"):
        msg = f"`{name}` must be a sequence of bool, but is {values!r}."
        raise TypeError(msg)
    return [as_bool(f"{name}[{i}]", value) for i, value in enumerate(values)]


def _prepared(accelerator: Accelerator, one: Any, device: torch.device | None) -> Any:
    """Return the loader that is iterated over, which Accelerate takes as it is; or `one` itself."""
    if isinstance(one, (PreparedDataLoader, PreparedLoader)):
        return one
    sampler = getattr(one, "batch_sampler", None)
    if not isinstance(one, (DataLoader, Loader)) or not isinstance(sampler, BucketBatchSampler):
        return one
    _check(accelerator, sampler)
    if not getattr(one, "in_order", True):  # Older versions of torch have no such option.
        msg = (
            f"`in_order` of a {type(one).__name__} must be True, but is False: its sampler could "
            "not tell where the loop is."
        )
        raise ValueError(msg)
    sampler.is_prepared = True
    if isinstance(one, Loader):
        return PreparedLoader(one, device)
    loader = PreparedDataLoader(one, sampler, accelerator, device)
    loader._is_accelerate_prepared = True  # noqa: SLF001 - Its way to leave a loader alone.
    return loader


def _check(accelerator: Accelerator, sampler: BucketBatchSampler) -> None:
    if accelerator.dispatch_batches:
        msg = (
            "`dispatch_batches` of the Accelerator must be None or False, but is True: processes "
            "read their own batches, which differ in size and so cannot be one that is split."
        )
        raise ValueError(msg)
    if accelerator.split_batches:
        msg = (
            "`split_batches` of the Accelerator must be False, but is True: the sampler's "
            "`token_budget` is that of each process, whose batches are whole."
        )
        raise ValueError(msg)
    sizes = getattr(accelerator, "parallelism_config", None)
    wanted = accelerator.num_processes if sizes is None else sizes.data_parallel_size
    found = sampler.state_dict(consumed=0)["num_replicas"]
    if found != wanted:
        msg = (
            f"`num_replicas` of the sampler must be the number of processes that share out the "
            f"data, {wanted}, but is {found}."
        )
        raise ValueError(msg)
    options, accumulated = sampler.options, accelerator.gradient_accumulation_steps
    if (
        options.shuffle
        and options.order in _ORDERS_BY_OPTIMIZER_STEP
        and options.accumulation_steps != accumulated
    ):
        msg = (
            f"`accumulation_steps` of a sampler whose `order` is {options.order!r} must be the "
            f"Accelerator's `gradient_accumulation_steps`, {accumulated}, but is "
            f"{options.accumulation_steps}."
        )
        raise ValueError(msg)


class PreparedDataLoader(DataLoaderShard):  # type: ignore[misc]
    """A ``DataLoader`` whose batches are those of this rank already.

    Its sampler stands, while a loop has a batch, where the loop does.
    """

    def __init__(
        self,
        loader: DataLoader[Any],
        sampler: BucketBatchSampler,
        accelerator: Accelerator,
        device: torch.device | None,
    ) -> None:
        names = inspect.signature(DataLoader).parameters.keys() - _OF_BATCHES
        plan, _, start = sampler.next_pass()
        super().__init__(
            loader.dataset,
            device=device,
            rng_types=[
                kind
                for kind in accelerator.rng_types
                if getattr(kind, "value", kind) != "generator"
            ],
            use_stateful_dataloader=accelerator.use_stateful_dataloader,
            batch_sampler=sampler,
            _drop_last=loader.drop_last,
            _non_blocking=accelerator.non_blocking,
            **{name: getattr(loader, name) for name in names},
        )
        if self.use_stateful_dataloader:
            # It began a pass to ask for a state, and workers have taken batches of it.
            self.base_dataloader.load_state_dict({})
            position = {"epoch": plan.epoch, "step": start}
            sampler.load_state_dict({**sampler.state_dict(consumed=0), **position})

    def adjust_state_dict_for_prefetch(self) -> None:
        """Leave the state as it is: the loader reads no batches of other ranks."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches of a pass, on the device."""
        sampler = self.batch_sampler
        finished = sampler.finished
        ahead = here = None
        for batch in super().__iter__():
            if here is None:
                ahead = sampler.cursor
                here = Cursor(ahead.epoch, ahead.began, ahead.began)
            here.count()
            if sampler.cursor is ahead:  # Or else a state was loaded amid the loop.
                sampler.follow(here)
                # The look ahead may have finished a pass that the loop is going to leave.
                sampler.finished = here.epoch if here.step == len(sampler) else finished
            yield batch
            if sampler.cursor is here:
                sampler.follow(ahead)


class PreparedLoader(DataLoaderStateMixin):  # type: ignore[misc]
    """A :class:`Loader` that tells Accelerate when the last batch of a pass has come."""

    prefetch_factor = None  # Or `skip_first_batches` would set it, and fail without its reason.

    def __init__(self, loader: Loader, device: torch.device | None) -> None:
        self.loader = loader
        self.device = device
        self.gradient_state = GradientState()

    def __getattr__(self, name: str) -> Any:
        if name == "loader":
            raise AttributeError(name)
        return getattr(self.loader, name)

    @property
    def dataset(self) -> Any:
        """The samples, of which ``skip_first_batches`` makes a loader that the sampler refuses."""
        return self.loader._dataset  # noqa: SLF001 - Asked for by Accelerate alone.

    def __len__(self) -> int:
        """Return the number of batches of this rank in an epoch."""
        return len(self.loader)

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches of a pass, on the device."""
        sampler = self.loader.sampler
        self.begin()
        try:
            for batch in self.loader:
                self.end_of_dataloader = sampler.cursor.step == len(sampler)
                yield batch if self.device is None else send_to_device(batch, self.device)
        finally:
            self.end()

    def set_epoch(self, epoch: int) -> None:
        """Make the next pass all of `epoch`, unless it is to go on in it."""
        self.loader.sampler.set_epoch(epoch)
