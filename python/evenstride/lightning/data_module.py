"""A data module: data sets in, loaders with samplers for the Trainer's ranks out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from evenstride.lightning.framework import framework
from evenstride.lightning.trainer_loader import TrainerLoader
from evenstride.loader import Loader
from evenstride.sampler import BucketBatchSampler

if TYPE_CHECKING:
    from collections.abc import Callable

    from lightning.pytorch import LightningDataModule, Trainer

    from evenstride.lengths import Lengths
else:
    LightningDataModule = framework().LightningDataModule


class BucketDataModule(LightningDataModule):
    """Length-bucketed batches of data sets, for training and for evaluation on any ranks.

    It makes a :class:`BucketBatchSampler` for each data set once the Trainer knows its ranks, and
    gives the Trainer a :class:`TrainerLoader`, so that ``use_distributed_sampler`` may stay as it
    is, and ``trainer.fit(ckpt_path=...)`` goes on at the next batch. The number of batches is
    exact, and so is ``trainer.estimated_stepping_batches``.

    Parameters
    ----------
    train_dataset : RaggedDataset, or any map-style dataset
        Trained on.
    collate : PadCollator or callable
        Makes a batch of samples.
    val_dataset, test_dataset : as `train_dataset`, optional
        Evaluated on: every sample once over all ranks, the longest first, in an order that stays
        the same.
    lengths : callable, optional
        Returns the lengths of a data set that it is given, as :class:`BucketBatchSampler` takes
        them. By default ``dataset.lengths``.
    new_loader : callable, default Loader
        Makes a loader of a data set, a sampler and `collate`: a :class:`Loader`, or a
        ``DataLoader`` whose ``batch_sampler`` is that sampler.
    **sampler_options
        Of :class:`BucketBatchSampler`: `token_budget` and others. For evaluation without `shuffle`,
        `drop_last` and `steps_per_epoch`.

    Raises
    ------
    TypeError
        If an argument is not of its kind.

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
        val_dataset: Any = None,
        test_dataset: Any = None,
        lengths: Callable[[Any], Lengths] | None = None,
        new_loader: Callable[[Any, BucketBatchSampler, Any], Any] = Loader,
        **sampler_options: Any,
    ) -> None:
        super().__init__()
        for name, value in {"collate": collate, "new_loader": new_loader}.items():
            _check_callable(name, value)
        if lengths is not None:
            _check_callable("lengths", lengths)
        datasets = {"train": train_dataset, "val": val_dataset, "test": test_dataset}
        self._datasets = {name: given for name, given in datasets.items() if given is not None}
        self._collate = collate
        self._lengths = lengths
        self._new_loader = new_loader
        self._options = sampler_options
        self._samplers: dict[str, BucketBatchSampler] = {}

    @property
    def sampler(self) -> BucketBatchSampler:
        """The sampler of training.

        Raises
        ------
        RuntimeError
            Before :meth:`setup`.

        """
        if "train" not in self._samplers:
            msg = "`sampler` must be asked for once the Trainer has called `setup('fit')`."
            raise RuntimeError(msg)
        return self._samplers["train"]

    def setup(self, stage: str) -> None:
        """Make the samplers of a stage, for the ranks of the Trainer."""
        names = {"fit": ("train", "val"), "validate": ("val",), "test": ("test",)}.get(stage, ())
        ranks = {"num_replicas": 1, "rank": 0}
        if self.trainer is not None:
            ranks = self.trainer.distributed_sampler_kwargs or ranks
        for name in names:
            if name in self._datasets:
                dataset, options = self._datasets[name], {**ranks, **self._options}
                if name != "train":
                    options |= {"shuffle": False, "drop_last": False, "steps_per_epoch": None}
                self._samplers[name] = BucketBatchSampler(self._lengths_of(dataset), **options)

    def train_dataloader(self) -> TrainerLoader:
        """Return a loader of the data set to train on."""
        return self._loader("train")

    def val_dataloader(self) -> TrainerLoader | list[Any]:
        """Return a loader of the data set to validate on, or none."""
        return self._loader("val") if "val" in self._datasets else []

    def test_dataloader(self) -> TrainerLoader | list[Any]:
        """Return a loader of the data set to test on, or none."""
        return self._loader("test") if "test" in self._datasets else []

    def _loader(self, name: str) -> TrainerLoader:
        sampler, trainer = self._samplers[name], cast("Trainer", self.trainer)
        loader = TrainerLoader(
            self._new_loader(self._datasets[name], sampler, self._collate), trainer
        )
        if loader.batch_sampler is not sampler:
            msg = "`new_loader` must use the sampler that it is given, but has used another."
            raise ValueError(msg)
        return loader

    def _lengths_of(self, dataset: Any) -> Lengths:
        if self._lengths is not None:
            return self._lengths(dataset)
        if not hasattr(dataset, "lengths"):
            msg = (
                f"`lengths` must be given, because a {type(dataset).__name__} has no `lengths` of "
                "its own."
            )
            raise TypeError(msg)
        return dataset.lengths


def _check_callable(name: str, value: Any) -> None:
    if not callable(value):
        msg = f"`{name}` must be callable, but is a {type(value).__name__}."
        raise TypeError(msg)
