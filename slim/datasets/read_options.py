"""Read options of a split, and the description of an opened split."""

import dataclasses

from slim.datasets.records import text_facts


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
  """How to read a split.

  Attributes:
    image_size: height and width of the delivered images, in pixels.
    batch_size: examples per batch, >= 1.
    training: True for a training stream, False for evaluation.
    seed: seed of the order and of augmentation, any int64.
    start: position of the first example, >= 0; 0 for evaluation.
    shuffle_buffer: number of examples shuffled together when records are
      read, >= 1. It bounds memory: at most three times as many serialized
      examples are held. Sources that are read by index hold none.
    net: name of the net, which selects the preprocessing.
    preprocessing: a key of `slim.preprocessing.factory.PREPROCESSINGS`; ''
      uses the default of the data set and the net.
    labels_offset: subtracted from the labels and from the number of classes.
      No example may have a smaller label.
    worker: index of the part to deliver, in [0, num_workers).
    num_workers: number of parts, which do not overlap. Parts of records are
      consecutive examples; a source that is read by index gives every
      num_workers-th one.
    threads: number of images decoded in parallel; 0 uses one per CPU core.
    rows: (begin, end), the rows of every batch to deliver; None delivers all.
      Other examples are read but not decoded.
    corpus: required digest of a data set of text; '' for any.
    limit: largest number of examples of an evaluation; 0 delivers all. Of
      records these are the first, of a source that is read by index, which is
      often sorted by class, examples at equal distances.
  """

  image_size: int
  batch_size: int
  training: bool
  seed: int = 0
  start: int = 0
  shuffle_buffer: int = 16384
  net: str = ''
  preprocessing: str = ''
  labels_offset: int = 0
  worker: int = 0
  num_workers: int = 1
  threads: int = 0
  rows: tuple[int, int] | None = None
  corpus: str = ''
  limit: int = 0

  def check(self) -> None:
    """Raises ValueError for the first number that is out of its range."""
    for name, lowest in _LOWEST.items():
      value = getattr(self, name)
      if value < lowest:
        raise ValueError(f'{name}: expected >= {lowest}; received {value}.')
    if self.start and not self.training:
      raise ValueError(
        f'start: expected 0 for evaluation; received {self.start}.'
      )
    if self.limit and self.training:
      raise ValueError(
        f'limit: expected 0 for training; received {self.limit}.'
      )
    if self.rows is None:
      return
    begin, end = self.rows
    if not (self.training and 0 <= begin < end <= self.batch_size):
      raise ValueError(
        'rows: expected (begin, end) within a training batch of '
        f'{self.batch_size}; received {self.rows}.'
      )


_LOWEST = {
  'image_size': 1,
  'batch_size': 1,
  'shuffle_buffer': 1,
  'start': 0,
  'labels_offset': 0,
  'num_workers': 1,
  'threads': 0,
  'limit': 0,
}


@dataclasses.dataclass(frozen=True)
class SplitInfo:
  """The description of an opened split.

  Attributes:
    num_examples: number of examples in the whole set, for schedules.
    count: number of examples that this stream delivers per epoch: those in
      the folder, the worker's part of them, or the limit.
    num_classes: number of logits; labels are below it.
    channels: number of channels of the images.
    labels: name by label, or None if the folder has no names.
    digest: equal for equal examples, or None if unknown. Of a folder it covers
      names and labels of the files, of a database its keys.
    text: facts about text; None for images.
  """

  num_examples: int
  count: int
  num_classes: int
  channels: int
  labels: dict[int, str] | None
  digest: str | None = None
  text: text_facts.TextFacts | None = None
