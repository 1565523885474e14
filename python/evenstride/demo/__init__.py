"""A demonstration: a corpus that every machine has, a small model, and three orders of batches.

Each file is one piece of a training program, to read and to copy from: `corpus.py` makes samples,
`batches.py` makes a :class:`RaggedDataset` of them and pads with a :class:`PadCollator`,
`training.py` trains with a :class:`Loader` over a :class:`BucketBatchSampler`, and `run.py` tells
the story from beginning to end.
"""

from evenstride.demo.run import run_demo

__all__ = ["run_demo"]
