"""What is asked of a data set's split, and what is known of it."""

import dataclasses


@dataclasses.dataclass(frozen=True, kw_only=True)
class ReadOptions:
  """How a split is to be delivered.

  Attributes:
    image_size: height and width of the images to deliver, in pixels.
    batch_size: examples a batch, >= 1.
    training: a training stream, or one for evaluation.
    seed: of the order and of augmentation, any int64.
    start: position of the first example, >= 0; 0 for evaluation.
    shuffle_buffer: examples shuffled together where records are read, >= 1, and
      a bound on memory: at most three times as many serialized examples are
      held. Sources that are read by number hold none.
    net: what the images are for; chooses the preprocessing.
    preprocessing: a key of the table of preprocessings; '' for the one that
      data set and net have.
    labels_offset: subtracted from the labels, and from the number of classes;
      no example may have a smaller label.
    worker: which part to deliver, in [0, num_workers).
    num_workers: number of parts. They are consecutive examples and do not
      overlap.
    threads: images decoded at a time; 0 for one a CPU core.
    rows: (begin, end) of every batch to deliver; None for all of them. The
      other examples are read and not decoded.
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
}


@dataclasses.dataclass(frozen=True)
class SplitInfo:
  """What is known of an opened split.

  Attributes:
    num_examples: in the whole set, for schedules.
    count: examples that this stream delivers in an epoch: those in the folder,
      or the worker's part of them.
    num_classes: number of logits: labels are below it.
    channels: of the images.
    labels: name by label, or None where the folder names none.
    digest: equal for equal examples, or None where nobody knows.
  """

  num_examples: int
  count: int
  num_classes: int
  channels: int
  labels: dict[int, str] | None
  digest: str | None = None
