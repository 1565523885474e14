"""The mix-in that gives a ``Trainer`` the batches of a :class:`BucketBatchSampler`."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from accelerate.data_loader import prepare_data_loader
from torch.utils.data import DataLoader, SequentialSampler
from transformers import Trainer
from transformers.trainer_utils import RemoveColumnsCollator

from evenstride.loader_checks import as_ragged, check_agreement
from evenstride.options import as_count, check_names_for_trainer
from evenstride.producers import is_native
from evenstride.sampler import BucketBatchSampler
from evenstride.transformers.meter import BatchMeterCallback
from evenstride.transformers.position import BucketPosition
from evenstride.transformers.sample_lengths import SampleLengths

if TYPE_CHECKING:
    from collections.abc import Mapping

    from evenstride.collate import PadCollator
    from evenstride.rows import RaggedRows

    class _Trainer:
        """What a mix-in takes from the class that comes after it."""

        args: Any
        accelerator: Any
        callback_handler: Any
        train_dataset: Any
        processing_class: Any
        _train_batch_size: int

        def __init__(self, *args: Any, **kwargs: Any) -> None: ...
        def add_callback(self, callback: Any) -> None: ...
        def get_train_dataloader(self) -> DataLoader[Any]: ...
        def _get_train_sampler(self, *args: Any) -> Any: ...
        def _remove_unused_columns(self, dataset: Any, *args: Any, **kwargs: Any) -> Any: ...
        def get_total_train_batch_size(self, args: Any) -> int: ...
else:
    _Trainer = object

_TrainerType = TypeVar("_TrainerType", bound=type)

_FROM_ARGUMENTS = {
    "accumulation_steps": "TrainingArguments, which has `gradient_accumulation_steps`",
    "drop_last": "TrainingArguments, which has `dataloader_drop_last`",
    "seed": "TrainingArguments, which has `data_seed`",
    "shuffle": "TrainingArguments, which has `train_sampling_strategy`",
}
_OTHER_ORDERS = ("sequential", "batch_rebalance")
_KEPT = (
    "num_workers",
    "collate_fn",
    "pin_memory",
    "timeout",
    "worker_init_fn",
    "multiprocessing_context",
    "generator",
    "prefetch_factor",
    "persistent_workers",
)


class BucketBatchMixin(_Trainer):
    """Makes any ``Trainer`` train on batches of similar length: put it before that class.

    :func:`with_buckets` does so in a line. What the ``Trainer`` does not decide is in
    ``bucket_options``; the rest comes from its arguments: the seed is ``data_seed``, or else
    ``seed``; ``gradient_accumulation_steps``, ``dataloader_drop_last``, workers, pinning and
    prefetching are what they are without buckets. Evaluation stays as it is.

    Attributes
    ----------
    bucket_options : mapping
        Options of :class:`evenstride.BucketBatchSampler`, as :func:`with_buckets` takes them.

    Examples
    --------
    >>> import transformers
    >>> import evenstride as es
    >>> class OwnTrainer(es.transformers.BucketBatchMixin, transformers.Trainer):
    ...     bucket_options = {"token_budget": 4096, "order": "balanced"}

    """

    bucket_options: ClassVar[Mapping[str, Any]] = {}

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        _check_options(self.bucket_options)
        self._sample_lengths: SampleLengths | None = None
        self._columns_removed: tuple[Any, Any] = None, None
        super().__init__(*args, **kwargs)
        self.add_callback(BucketPosition())

    def get_train_dataloader(self) -> DataLoader[Any]:
        """Return the loader of this rank's batches, which moves them to its device.

        Returns
        -------
        DataLoader
            Its ``batch_sampler`` is the :class:`evenstride.BucketBatchSampler`. It must not be
            given to ``accelerator.prepare``, which would share out the batches once more.

        Raises
        ------
        TypeError
            If the data set cannot be read in any order, or its lengths cannot be found; or if the
            class takes its samples in an order of its own.
        ValueError
            If an argument would change the batches, or a sample breaks a rule of the sampler.

        Notes
        -----
        Of a ``get_train_dataloader`` that a subclass of ``Trainer`` has, the data set, the collator
        and the workers are taken, and the order is not. The lengths are read once, and again only
        for another data set.

        """
        self._check_arguments()
        for callback in self.callback_handler.callbacks:
            if isinstance(callback, BatchMeterCallback):
                callback.trainer = self
        # Made for what the Trainer, or a subclass, decides: the columns, the workers, ...
        made = super().get_train_dataloader()
        kept = {name: getattr(made, name) for name in _KEPT}
        collate, dataset = made.collate_fn, as_ragged(made.dataset)
        if isinstance(collate, RemoveColumnsCollator):
            names, collate = set(collate.signature_columns), collate.data_collator
            if is_native(dataset, collate):
                kept["collate_fn"] = _NamedFields(collate, names)
        sampler = self._bucket_sampler(self._with_all_columns(made.dataset), collate)
        check_agreement(dataset, sampler, collate)
        _check_collator(collate, sampler.options.pad_to_multiple_of)
        loader: DataLoader[Any] = prepare_data_loader(
            DataLoader(dataset, batch_sampler=sampler, **kept),
            self.accelerator.device,
            num_processes=1,  # The sampler's batches are those of this rank already.
            process_index=0,
            put_on_device=True,
            dispatch_batches=False,
            non_blocking=self.accelerator.non_blocking,
        )
        return loader

    def _get_train_sampler(self, train_dataset: Any = None) -> SequentialSampler:
        """Return a sampler that costs nothing: the loader that it is made for is never used."""
        return SequentialSampler(self.train_dataset if train_dataset is None else train_dataset)

    def _remove_unused_columns(self, dataset: Any, *args: Any, **kwargs: Any) -> Any:
        """Remove columns, and note of what: one that the model does not take may hold lengths."""
        remaining = super()._remove_unused_columns(dataset, *args, **kwargs)
        self._columns_removed = remaining, dataset
        return remaining

    def _with_all_columns(self, dataset: Any) -> Any:
        remaining, whole = self._columns_removed
        return whole if dataset is remaining else dataset

    def _bucket_sampler(self, dataset: Any, collate: Any) -> BucketBatchSampler:
        args = self.args
        options = dict(self.bucket_options)
        if self._sample_lengths is None:
            names = getattr(self.processing_class, "model_input_names", None) or ["input_ids"]
            self._sample_lengths = SampleLengths(column=args.length_column_name, field=names[0])
        lengths = self._sample_lengths.of(dataset, collate, options.pop("lengths", None))
        multiple = options.setdefault("pad_to_multiple_of", _multiple_of(collate) or 1)
        if options.get("token_budget") is None:
            longest = min(int(lengths.max(initial=1)), options.get("max_length") or 2**63)
            width = -(-longest // multiple) * multiple
            options["token_budget"] = args.per_device_train_batch_size * width
        if args.auto_find_batch_size:  # Smaller than at first if it has run out of memory.
            budget = as_count("token_budget", options["token_budget"]) * self._train_batch_size
            options["token_budget"] = max(1, budget // args.train_batch_size)
        return BucketBatchSampler(
            lengths,
            **options,
            seed=args.seed if args.data_seed is None else args.data_seed,
            accumulation_steps=args.gradient_accumulation_steps,
            drop_last=args.dataloader_drop_last,
            num_replicas=args.world_size,
            rank=args.process_index,
        )

    def _check_arguments(self) -> None:
        args = self.args
        # Of the class that comes after the mix-in, and of one that comes before it.
        methods = super()._get_train_sampler, self._get_train_sampler
        found = [getattr(method, "__func__", None) for method in methods]
        # There is no public name for it.
        if found != [kind._get_train_sampler for kind in (Trainer, BucketBatchMixin)]:  # noqa: SLF001
            msg = (
                f"`{type(self).__name__}` must leave the order to the sampler, but has a "
                "`_get_train_sampler` of its own."
            )
            raise TypeError(msg)
        for name in ("split_batches", "dispatch_batches"):
            if getattr(args.accelerator_config, name):
                msg = (
                    f"`accelerator_config.{name}` must be off, since each rank reads batches of "
                    "its own, but is True."
                )
                raise ValueError(msg)
        if not getattr(args, "dataloader_in_order", True):
            msg = (
                "`dataloader_in_order` must be True, since steps come in the order of the plan, "
                "but is False."
            )
            raise ValueError(msg)
        strategy = getattr(args, "train_sampling_strategy", None)
        if strategy in _OTHER_ORDERS:
            msg = (
                "`train_sampling_strategy` must be left out, since the sampler sets the order, "
                f"but is {strategy!r}."
            )
            raise ValueError(msg)
        batches = self._train_batch_size * args.gradient_accumulation_steps
        num_shares = self.get_total_train_batch_size(args) // batches
        if num_shares != args.world_size:
            msg = (
                f"Each of the {args.world_size} ranks must train on batches of its own, but the "
                f"Trainer shares {num_shares} among them: tensor, context and sequence parallelism "
                "are not supported."
            )
            raise ValueError(msg)
        if args.n_gpu > 1:
            warnings.warn(
                f"Each batch is split over {args.n_gpu} devices, because the Trainer runs in one "
                "process: start a process for each device with torchrun.",
                stacklevel=3,
            )


class _NamedFields:
    """A PadCollator without the fields of the data set that the model does not take."""

    def __init__(self, collate: PadCollator, names: set[str]) -> None:
        self._collate = collate
        self._names = names

    def __call__(self, rows: RaggedRows) -> dict[str, Any]:
        others = rows.dataset.fields.keys() - self._names
        return {key: value for key, value in self._collate(rows).items() if key not in others}


def with_buckets(trainer_class: _TrainerType, **bucket_options: Any) -> _TrainerType:
    """Return a subclass of a ``Trainer`` that trains on batches of similar length.

    Parameters
    ----------
    trainer_class : type
        ``transformers.Trainer``, or any subclass of it.
    **bucket_options
        Options of :class:`evenstride.BucketBatchSampler`, none of which is required, and but for
        those that ``TrainingArguments`` has:

        - ``lengths``: of the samples to train on, or a function that returns those of the data set
          that it is given. By default those of a :class:`evenstride.RaggedDataset`; of a Hugging
          Face data set, its column ``length_column_name`` or else the lengths of its "input_ids"
          (the first of the tokenizer's ``model_input_names``), read from Arrow; of any other
          map-style data set, each sample is read once.
        - ``token_budget``: most padded tokens of a batch on each rank. By default those of
          ``per_device_train_batch_size`` samples as long as the longest, which is the most that a
          batch could have without buckets. ``auto_find_batch_size`` lowers it.
        - ``max_batch_size``: by default none: ``per_device_train_batch_size`` is no limit.
        - ``pad_to_multiple_of``: by default that of the collator.

    Returns
    -------
    type
        A subclass of :class:`BucketBatchMixin` and of `trainer_class`, with its name.

    Raises
    ------
    TypeError
        If there is no such option, or ``TrainingArguments`` has it.

    Examples
    --------
    >>> import torch, transformers
    >>> import evenstride as es
    >>> ds = es.RaggedDataset.from_lists([{"input_ids": [7] * n} for n in (3, 9, 4, 8, 3, 9)])
    >>> Trainer = es.transformers.with_buckets(transformers.Trainer, token_budget=18, buckets=[6])
    >>> trainer = Trainer(
    ...     torch.nn.Linear(1, 1),
    ...     transformers.TrainingArguments("checkpoints", use_cpu=True, report_to="none"),
    ...     data_collator=es.PadCollator({"input_ids": es.Field(0)}),
    ...     train_dataset=ds,
    ... )
    >>> sampler = trainer.get_train_dataloader().batch_sampler
    >>> sorted(sorted(batch) for batch in sampler)
    [[0, 2, 4], [1, 5], [3]]

    """
    _check_options(bucket_options)
    bases = (trainer_class,)
    if not issubclass(trainer_class, BucketBatchMixin):
        bases = (BucketBatchMixin, trainer_class)  # type: ignore[assignment]
    members = {
        "bucket_options": bucket_options,
        "__doc__": trainer_class.__doc__,
        "__module__": trainer_class.__module__,
        "__qualname__": trainer_class.__qualname__,
    }
    return type(trainer_class)(trainer_class.__name__, bases, members)


def _multiple_of(collate: Any) -> int | None:
    multiple: int | None = getattr(collate, "pad_to_multiple_of", None)
    return multiple


def _check_collator(collate: Any, multiple: int) -> None:
    """Say how a collator of Hugging Face would make batches wider than they are planned."""
    padding = getattr(collate, "padding", True)
    if padding == "max_length":
        msg = (
            "`padding` of the collator must be True or 'longest', since a batch is planned as wide "
            "as its longest sample, but is 'max_length'."
        )
        raise ValueError(msg)
    if _multiple_of(collate) not in (None, multiple):
        msg = (
            f"`pad_to_multiple_of` must be the same in `sampler` and `collate`, but is {multiple} "
            f"and {_multiple_of(collate)}."
        )
        raise ValueError(msg)


def _check_options(options: Mapping[str, Any]) -> None:
    check_names_for_trainer(options.keys() - {"lengths"}, _FROM_ARGUMENTS)
