"""A data module: data sets in, loaders with samplers for the Trainer's ranks out."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, SupportsIndex, cast

from evenstride.lengths import as_lengths
from evenstride.lightning.framework import framework
from evenstride.lightning.trainer_loader import TrainerLoader, accumulated_by
from evenstride.loader import Loader
from evenstride.loader_checks import as_ragged, check_agreement
from evenstride.options import check_names_for_trainer
from evenstride.sampler import BucketBatchSampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightning.pytorch import LightningDataModule, Trainer

    from evenstride.lengths import Lengths
else:
    LightningDataModule = framework().LightningDataModule

_OF_STAGE = {
    "fit": ("train", "val"),
    "validate": ("val",),
    "test": ("test",),
    "predict": ("predict",),
}


class BucketDataModule(LightningDataModule):
    """Length-bucketed batches of data sets, for training and for evaluation on any ranks.

    It makes a :class:`BucketBatchSampler` for each data set once the Trainer knows its ranks, and
    gives the Trainer a :class:`TrainerLoader`, so that ``use_distributed_sampler`` may stay as it
    is, and ``trainer.fit(ckpt_path=...)`` goes on at the next batch. The number of batches is
    exact, and so is ``trainer.estimated_stepping_batches``.

    Parameters
    ----------
    train_dataset : RaggedDataset, or any map-style dataset, or None
        Trained on. None where nothing is.
    collate : PadCollator or callable
        Makes a batch of samples.
    val_dataset, test_dataset, predict_dataset : as `train_dataset`, optional
        Evaluated on and predicted of: every sample once over all ranks, the longest first, in an
        order that stays the same. A warning says which data set has samples that are in several
        batches, because there are too few for the ranks, or in none, because ``"drop"`` leaves
        them out.
    lengths : callable or array_like of int, shape (n_samples,), optional
        Returns the lengths of a data set that it is given, as :class:`BucketBatchSampler` takes
        them; or those of `train_dataset` themselves, if it is the only one. By default
        ``dataset.lengths``.
    new_loader : callable, default Loader
        Makes a loader of a data set, a sampler and `collate`: a :class:`Loader`, or a
        ``DataLoader`` whose ``batch_sampler`` is that sampler.
    token_budget : int
        Most padded tokens of a batch of two samples or more, on each rank. At least 1.
    **sampler_options
        Others of :class:`BucketBatchSampler`, but for `num_replicas` and `rank`, which the Trainer
        has. `accumulation_steps` is by default its ``accumulate_grad_batches``. Only training takes
        `shuffle`, `drop_last` and `steps_per_epoch`.

    Raises
    ------
    TypeError
        If an argument is not of its kind, or there is no such option.

    Warns
    -----
    UserWarning
        In ``setup`` on rank 0, if not every sample to evaluate on is in one batch.

    Examples
    --------
    >>> import lightning as L
    >>> import evenstride as es
    >>> ds = es.RaggedDataset.from_lists([[7, 8, 9], [4], [5, 6], [1, 2, 3]])
    >>> collate = es.PadCollator({"input_ids": es.Field()})
    >>> data = es.lightning.BucketDataModule(ds, collate, token_budget=6, buckets=1)
    >>> data.trainer = L.Trainer(max_epochs=2, logger=False, enable_checkpointing=False)
    >>> data.setup("fit")  # As the Trainer does.
    >>> data.sampler.total_steps(epochs=2)
    4

    """

    def __init__(
        self,
        train_dataset: Any,
        collate: Callable[[Any], Any],
        *,
        token_budget: SupportsIndex,
        val_dataset: Any = None,
        test_dataset: Any = None,
        predict_dataset: Any = None,
        lengths: Callable[[Any], Lengths] | Lengths | None = None,
        new_loader: Callable[[Any, BucketBatchSampler, Any], Any] = Loader,
        **sampler_options: Any,
    ) -> None:
        super().__init__()
        for name, value in {"collate": collate, "new_loader": new_loader}.items():
            if not callable(value):
                msg = f"`{name}` must be callable, but is a {type(value).__name__}."
                raise TypeError(msg)
        check_names_for_trainer(sampler_options)
        datasets = {
            "train": train_dataset,
            "val": val_dataset,
            "test": test_dataset,
            "predict": predict_dataset,
        }
        self._datasets = {name: given for name, given in datasets.items() if given is not None}
        self._collate = collate
        self._lengths = self._checked_lengths(lengths)
        self._new_loader = new_loader
        self._options = {"token_budget": token_budget, **sampler_options}
        self._samplers: dict[str, BucketBatchSampler] = {}

    @property
    def sampler(self) -> BucketBatchSampler:
        """The sampler of training.

        Raises
        ------
        RuntimeError
            Before ``setup``.
        TypeError
            If there is no data set to train on.

        """
        return self._sampler_of("train", asked="sampler")

    def setup(self, stage: str) -> None:
        """Make the samplers of a stage, for the ranks of the Trainer."""
        of_trainer: dict[str, Any] = {"num_replicas": 1, "rank": 0}
        if self.trainer is not None:
            of_trainer = self.trainer.distributed_sampler_kwargs or of_trainer
            of_trainer = {"accumulation_steps": accumulated_by(self.trainer)[0], **of_trainer}
        for name in _OF_STAGE.get(stage, ()):
            if name in self._datasets:
                dataset, options = self._datasets[name], {**of_trainer, **self._options}
                if name != "train":
                    options |= {"shuffle": False, "drop_last": False, "steps_per_epoch": None}
                sampler = BucketBatchSampler(self._lengths_of(dataset), **options)
                check_agreement(as_ragged(dataset), sampler, self._collate)
                if name != "train":
                    _warn_of_evaluation(name, sampler)
                self._samplers[name] = sampler

    def train_dataloader(self) -> TrainerLoader:
        """Return a loader of the data set to train on."""
        return self._loader("train")

    def val_dataloader(self) -> TrainerLoader | list[Any]:
        """Return a loader of the data set to validate on, or none."""
        return self._loader("val") if "val" in self._datasets else []

    def test_dataloader(self) -> TrainerLoader | list[Any]:
        """Return a loader of the data set to test on, or none."""
        return self._loader("test") if "test" in self._datasets else []

    def predict_dataloader(self) -> TrainerLoader | list[Any]:
        """Return a loader of the data set to predict of, or none."""
        return self._loader("predict") if "predict" in self._datasets else []

    def _sampler_of(self, name: str, *, asked: str) -> BucketBatchSampler:
        if name not in self._datasets:
            msg = f"`{name}_dataset` must be given for `{asked}`, but is None."
            raise TypeError(msg)
        if name not in self._samplers:
            stage = next(stage for stage, names in _OF_STAGE.items() if name in names)
            msg = f"`{asked}` must be asked for once the Trainer has called `setup('{stage}')`."
            raise RuntimeError(msg)
        return self._samplers[name]

    def _loader(self, name: str) -> TrainerLoader:
        sampler = self._sampler_of(name, asked=f"{name}_dataloader")
        trainer = cast("Trainer", self.trainer)
        loader = TrainerLoader(
            self._new_loader(self._datasets[name], sampler, self._collate), trainer
        )
        if loader.batch_sampler is not sampler:
            msg = "`new_loader` must use the sampler that it is given, but has used another."
            raise ValueError(msg)
        return loader

    def _checked_lengths(self, lengths: Any) -> Any:
        if lengths is None or callable(lengths):
            return lengths
        for name in self._datasets:
            if name != "train":
                msg = (
                    "`lengths` must be a function from a data set to its lengths where "
                    f"`{name}_dataset` is given, but is a {type(lengths).__name__}."
                )
                raise TypeError(msg)
        return as_lengths(lengths)

    def _lengths_of(self, dataset: Any) -> Lengths:
        if self._lengths is not None:
            return self._lengths(dataset) if callable(self._lengths) else self._lengths
        if not hasattr(dataset, "lengths"):
            msg = (
                f"`lengths` must be given, because a {type(dataset).__name__} has no `lengths` of "
                "its own."
            )
            raise TypeError(msg)
        return dataset.lengths


def _warn_of_evaluation(name: str, sampler: BucketBatchSampler) -> None:
    if sampler.rank != 0:
        return
    plan, num_samples = sampler.plan, len(sampler.lengths)
    removed = sum(amount["samples"] for amount in plan.removed.values())
    if removed:
        reasons = [
            f"{option}='drop'"
            for option in ("too_long", "empty")
            if plan.removed[option]["samples"]
        ]
        warnings.warn(
            f"{removed:,} of the {num_samples:,} samples of `{name}_dataset` are in no batch, "
            f"because of {' and '.join(reasons)}.",
            stacklevel=3,
        )
    repeated = len(set(plan.repeats.tolist()))
    if repeated:
        warnings.warn(
            f"{repeated:,} of the {num_samples:,} samples of `{name}_dataset` are in "
            f"several batches, because there are too few for {plan.num_replicas} ranks.",
            stacklevel=3,
        )
