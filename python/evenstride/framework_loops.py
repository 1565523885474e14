"""What the loops of Accelerate and Lightning would do wrong to a sampler, told from who calls it.

Neither tells a batch sampler anything: Accelerate wraps it, shares out and skips its batches, and
sends it a count of passes of its own; Lightning makes it anew, and resumes without it. Whoever
calls the sampler is all that shows what it is called for.

No framework is imported here. Of their internals only names are known, and a version that lacks
them is left alone.
"""

from __future__ import annotations

import sys
import warnings
from typing import TYPE_CHECKING, Any, TypeVar
from weakref import WeakSet

from torch.utils.data import DataLoader, Sampler

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

    from evenstride.sampler import BucketBatchSampler

T = TypeVar("T")

_ACCELERATE = "accelerate.data_loader"
_LIGHTNING = ("lightning.pytorch.", "pytorch_lightning.")
_FIT_LOOPS = tuple(f"{name}loops.fit_loop" for name in _LIGHTNING)
_LOADERS = (
    "evenstride.loader",
    "torch.utils.data.",
    "torchdata.",
    _ACCELERATE,
    *(f"{name}loops." for name in _LIGHTNING),
    *(f"{name}utilities.combined_loader" for name in _LIGHTNING),
)

_warned: WeakSet[Any] = WeakSet()  # Loops of Trainers.


class MadeOnce:
    """A batch sampler that gives each rank its own batches, and says so to who would do it again.

    Lightning makes batch samplers anew, around a sampler that picks the samples of this rank.
    """

    def __new__(cls: type[T], *args: Any, **options: Any) -> T:  # noqa: PYI019 - `Self` is newer.
        """Refuse the arguments that Lightning calls any batch sampler with.

        Here, because ``__init__`` is refused by Python for them, without a word of Lightning.
        """
        is_remade = options.keys() == {"batch_size", "drop_last"} and options["batch_size"] is None
        if is_remade and len(args) == 1 and isinstance(args[0], Sampler):
            msg = (
                "`lengths` must be the tokens of each sample, but is a "
                f"{type(args[0]).__name__}: if Lightning put it there, wrap the DataLoader in "
                "`evenstride.lightning.TrainerLoader`, or pass `use_distributed_sampler=False` "
                "(which does not help to predict)."
            )
            raise TypeError(msg)
        return object.__new__(cls)


def is_own_count_of_accelerate() -> bool:
    """Return whether ``set_epoch`` is called by a loader of Accelerate by itself, as it begins."""
    if _ACCELERATE not in sys.modules:
        return False
    frame: FrameType | None = sys._getframe(2)  # noqa: SLF001 - As `inspect` does it, but quickly.
    while frame is not None and frame.f_code.co_name == "set_epoch":  # Also of what wraps it.
        frame = frame.f_back
    return (
        frame is not None and frame.f_code.co_name == "__iter__" and _module(frame) == _ACCELERATE
    )


def check_use_by_accelerate(sampler: BucketBatchSampler) -> None:
    """Say what a loader of Accelerate that calls ``iter(sampler)`` would do wrong to its batches.

    Raises
    ------
    RuntimeError
        If it would share out the batches of one rank, or skip others than the first of an epoch, or
        skip some without the sampler knowing where the loop is.

    """
    module = sys.modules.get(_ACCELERATE)
    if module is None:
        return
    sharing = _classes(module, "BatchSamplerShard", "DataLoaderDispatcher")
    skipping = _classes(module, "SkipBatchSampler")
    for frame in _loading_frames(sys._getframe(2)):  # noqa: SLF001 - See above.
        asking = frame.f_locals.get("self") if _module(frame) == _ACCELERATE else None
        if isinstance(asking, sharing):
            _check_shares(sampler)
        elif isinstance(asking, skipping):
            _check_skipped(sampler, getattr(asking, "skip_batches", 0))


def _check_shares(sampler: BucketBatchSampler) -> None:
    num_replicas = sampler.next_pass()[0].num_replicas
    if num_replicas > 1:
        msg = (
            "A loader whose BucketBatchSampler has the batches of one rank of "
            f"{num_replicas} must be prepared by `evenstride.accelerate.prepare("
            "accelerator, ...)`, because `accelerator.prepare(...)` would share them out "
            "a second time."
        )
        raise RuntimeError(msg)


def _check_skipped(sampler: BucketBatchSampler, skipped: int) -> None:
    if sampler.is_prepared:
        msg = (
            "`skip_first_batches` must be left out where `evenstride.accelerate.prepare` has made "
            "the loader, whose sampler would not know any more where the loop is: "
            f"`sampler.load_state_dict({{**sampler.state_dict(), 'step': {skipped}}})` begins "
            f"after {skipped} batches of the epoch."
        )
        raise RuntimeError(msg)
    start = sampler.next_pass()[2] if skipped > 0 else 0
    if start > 0:
        msg = (
            f"`skip_first_batches` must be left out where the sampler has loaded a state, which "
            f"begins at step {start} by itself, but it would skip {skipped} more."
        )
        raise RuntimeError(msg)


def check_place_in_lightning(epoch: int, step: int) -> None:
    """Warn, once for each Trainer, if a pass that begins is not where the Trainer takes it to be.

    A sampler that is whole epochs ahead repeats nothing, and one that a new Trainer begins with may
    be anywhere. Neither is a reason to warn.
    """
    if not any(name in sys.modules for name in _FIT_LOOPS):
        return
    loop, method = _fit_loop(sys._getframe(2))  # noqa: SLF001 - See above.
    place = None if loop is None or loop in _warned else _place_of_trainer(loop, method)
    if place is None or place == (0, 0) or (step == place[1] and epoch >= place[0]):
        return
    _warned.add(loop)
    msg = (
        f"The batches of a BucketBatchSampler begin at step {step} of epoch {epoch}, but the "
        f"Trainer goes on at step {place[1]} of epoch {place[0]}: wrap the loader in "
        "`evenstride.lightning.TrainerLoader`, which begins where the Trainer is."
    )
    warnings.warn(msg, stacklevel=3)


def _fit_loop(frame: FrameType | None) -> tuple[Any, str]:
    """Return the loop that trains on what is asked for, and its method that waits, if there is one.

    The fetcher that asks is that of one loop, whatever lies between the two.
    """
    for asking in _loading_frames(frame):
        frame = asking
        if _part_of_lightning(frame) == "loops.fetchers":
            break
    else:
        return None, ""
    while frame is not None:
        part = _part_of_lightning(frame)
        if part == "loops.fit_loop":
            return frame.f_locals.get("self"), frame.f_code.co_name
        if part in ("loops.evaluation_loop", "loops.prediction_loop"):
            break
        frame = frame.f_back
    return None, ""


def _place_of_trainer(loop: Any, method: str) -> tuple[int, int] | None:
    """Return the epoch and the step that the pass is for, if that can be told."""
    try:
        trainer = loop.trainer
        is_repeating = trainer.overfit_batches > 0
        # Workers are asked before the counters are set for the pass.
        place = _place_ahead if method == "setup_data" else _place_now
        epoch, step = place(loop, trainer)
        is_over = step >= trainer.num_training_batches  # With `max_steps`, it asks all the same.
    except (AttributeError, KeyError, TypeError):
        return None  # In a version with other counters.
    return None if is_repeating or is_over else (epoch, step)


def _place_now(loop: Any, trainer: Any) -> tuple[int, int]:
    return trainer.current_epoch, loop.epoch_loop.batch_progress.current.processed


def _place_ahead(loop: Any, trainer: Any) -> tuple[int, int]:
    """Return the place from counters that are those of the last epoch, or of a checkpoint.

    Loops load them only after `configure_optimizers`, which may have asked for the loader.
    """
    checkpoint = trainer._checkpoint_connector._loaded_checkpoint  # noqa: SLF001 - No other way.
    loaded = checkpoint.get("loops", {}).get("fit_loop")
    if loaded:
        epochs, batches = loaded["epoch_progress"], loaded["epoch_loop.batch_progress"]
    else:
        epochs = loop.epoch_progress.state_dict()
        batches = loop.epoch_loop.batch_progress.state_dict()
    begun, ended = epochs["current"]["ready"], epochs["current"]["processed"]
    if begun <= ended or batches["is_last_batch"]:
        return begun, 0
    return begun - 1, batches["current"]["processed"]


def _loading_frames(frame: FrameType | None) -> Iterator[FrameType]:
    """Yield the frames that load data, from the innermost on, up to the first that does not."""
    while frame is not None and _is_loading(frame):
        yield frame
        frame = frame.f_back


def _is_loading(frame: FrameType) -> bool:
    if _module(frame).startswith(_LOADERS):
        return True
    # Reading the variables of any other frame would keep alive what they hold.
    is_iterating = frame.f_code.co_name == "__iter__"
    return is_iterating and isinstance(frame.f_locals.get("self"), (DataLoader, Sampler))


def _module(frame: FrameType) -> str:
    return str(frame.f_globals.get("__name__"))


def _part_of_lightning(frame: FrameType) -> str | None:
    """Return the name of the module in either package of Lightning."""
    name = _module(frame)
    package = next((package for package in _LIGHTNING if name.startswith(package)), None)
    return None if package is None else name[len(package) :]


def _classes(module: Any, *names: str) -> tuple[type, ...]:
    found = (getattr(module, name, None) for name in names)
    return tuple(one for one in found if isinstance(one, type))
