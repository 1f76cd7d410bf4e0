"""Training inputs: each device reads different batches.

An input is any iterable. An iterator, such as that of one shared reader, can be
passed to several devices: they take batches from it in turn.
"""

import itertools
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Iterator
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

import numpy as np
import tensorflow as tf

from terngrad.cluster import equality
from terngrad.exchange import device_groups
from terngrad.exchange import protocol
from terngrad.training import shares

_BATCH = '(images [b, ...], labels int32 [b])'
_SHARE = (
  'Give each device its share, such as '
  'dataset.shard(num_devices, device_index) before it is batched.'
)
# Takes (device_index, num_devices), which count the devices of all processes;
# returns batches of (images [b, ...], labels int [b]).
InputFunction: TypeAlias = Callable[
  [int, int], Iterable[Sequence[np.ndarray | tf.Tensor]]
]
_Batch: TypeAlias = tuple[tf.Tensor, tf.Tensor]


class DeviceInputs:
  """The inputs of this process's devices."""

  def __init__(
    self,
    input_fn: InputFunction,
    exchange: protocol.Exchange,
    images: tf.TensorSpec,
    count: int = 1,
  ) -> None:
    """Calls `input_fn` for each device.

    Args:
      input_fn: returns a `tf.data.Dataset` or another iterable.
      exchange: has one worker per device or per group of devices.
      images: shape and dtype of the model's input, with the batch axis.
      count: number of local steps, for each of which `next` takes a batch.

    Raises:
      ValueError: an input is not iterable, or several devices got the same one
        and would each iterate over it from the beginning.
    """
    self._exchange = exchange
    self._images = images
    self._count = count
    size = device_groups.devices_per_worker(exchange)
    first = exchange.first * size
    self._numbers = range(first, first + exchange.num_local_workers * size)
    num_devices = exchange.num_workers * size
    self._sources = [input_fn(n, num_devices) for n in self._numbers]
    # An iterator at its end is replaced by a new one.
    self._iterators: list[Iterator[Any]] = [iter(()) for _ in self._sources]
    # Examples of each device of all processes in a step; [] before the first.
    self._sizes: list[int] = []
    for index, source in enumerate(self._sources):
      self._check_source(index, source)

  def next(self) -> tuple[tf.Tensor, tf.Tensor, int]:
    """Returns the examples of a step; an input at its end starts again.

    Returns:
      (images [devices of this process, b, ...], labels int32 [the same, b],
      number of examples in all processes). Images and labels are ragged tensors
      where devices have different b, see `shares.split_batch`.

    Raises:
      ValueError: an input is empty, shapes of batches differ, or two devices
        received the same examples.
    """
    batches = [self._next_batches(index) for index in range(len(self._sources))]
    for index, (images, _) in enumerate(batches):
      if images.shape[1:] != batches[0][0].shape[1:]:
        raise ValueError(
          f'{self._name(index)}: expected examples like those of '
          f'{self._name(0)}, {_describe(batches[0][0])}, received '
          f'{_describe(images)}. Use one size for all devices.'
        )
    self._sizes = self._sizes or self._compare(batches)
    sizes = [len(images) for images, _ in batches]
    if self._count > 1 and len({*self._sizes, *sizes}) > 1:
      raise ValueError(
        'input_fn: expected batches of one size on all devices for local '
        f'steps, received {self._sizes} examples in {self._count} batches of '
        'each. Use one batch size.'
      )
    if self._exchange.group is None:
      self._sizes = sizes
    elif sizes != [self._sizes[number] for number in self._numbers]:
      raise ValueError(
        f"{self._name(0)}: expected batches of the size of each device's first "
        f'one, {self._sizes}, because other processes assume it; received '
        f'{sizes}. Use .repeat().batch(b, drop_remainder=True).'
      )
    images, labels = zip(*batches, strict=True)
    with tf.device('/CPU:0'):
      joined = tf.concat(images, axis=0), tf.concat(labels, axis=0)
      return *shares.split_batch(sizes, *joined), sum(self._sizes)

  def iterate_once(self) -> Iterator[list[_Batch | None]]:
    """Iterates over all examples, each once; does not change what `next` reads.

    Yields:
      For each device (images, labels), or None after the end of its input.

    Raises:
      ValueError: an input is infinite, or two devices received the same
        examples.
    """
    for index, source in enumerate(self._sources):
      if isinstance(source, tf.data.Dataset) and (
        source.cardinality() == tf.data.INFINITE_CARDINALITY
      ):
        raise ValueError(
          f'{self._name(index)}: expected a finite input, to score every '
          'example once, received an infinite one. Leave .repeat() out.'
        )
    iterators = [iter(source) for source in self._sources]
    for number in itertools.count():
      batches = [self._read_batch(*each) for each in enumerate(iterators)]
      if number == 0:
        self._compare(batches)
      if all(batch is None for batch in batches):
        return
      yield batches

  def refuse_iterators(self) -> None:
    """Refuses inputs that training could not read after `iterate_once`.

    Raises:
      ValueError: an input is an iterator.
    """
    for index, source in enumerate(self._sources):
      if isinstance(source, Iterator):
        raise ValueError(
          f'{self._name(index)}: expected an input that can be read again, to '
          'score examples that training reads too, received the iterator '
          f'{type(source).__name__}. Call evaluate(input_fn) with separate '
          'inputs.'
        )

  def _check_source(self, index: int, source: Iterable[Any]) -> None:
    name = self._name(index)
    if not hasattr(source, '__iter__'):
      raise ValueError(
        f'{name}: expected a tf.data.Dataset or another iterable of {_BATCH}, '
        f'received {type(source).__name__}. Return one from input_fn.'
      )
    for other in range(index):
      if self._sources[other] is source and iter(source) is not source:
        raise ValueError(
          f'{name}: expected different examples, received the same object as '
          f'{self._name(other)}, so both would read the same ones. {_SHARE}'
        )

  def _next_batches(self, index: int) -> _Batch:
    """Returns the batches of a device's local steps, one after the other."""
    batches = [self._next_batch(index) for _ in range(self._count)]
    if self._count == 1:
      return batches[0]
    sizes = {len(images) for images, _ in batches}
    if len(sizes) > 1:
      raise ValueError(
        f'{self._name(index)}: expected batches of one size for local steps, '
        f'received {sorted(sizes)} examples. Use .batch(b, drop_remainder=True)'
        '.'
      )
    with tf.device('/CPU:0'):
      return tuple(tf.concat(parts, 0) for parts in zip(*batches, strict=True))

  def _next_batch(self, index: int) -> _Batch:
    """Returns a device's next batch, and the first after the last."""
    batch = self._read_batch(index, self._iterators[index])
    if batch is None:
      self._iterators[index] = iter(self._sources[index])
      batch = self._read_batch(index, self._iterators[index])
    if batch is None:
      raise ValueError(
        f'{self._name(index)}: expected another batch, received the end of '
        'its input, also after starting again. Return a tf.data.Dataset or a '
        'list that is not empty, or an infinite iterator.'
      )
    return batch

  def _read_batch(self, index: int, iterator: Iterator[Any]) -> _Batch | None:
    """Returns a device's next (images, labels) as tensors; None at the end."""
    element = next(iterator, None)
    if element is None:
      return None
    if not isinstance(element, tuple | list) or len(element) != 2:
      raise ValueError(
        f'{self._name(index)}: expected batches {_BATCH}, received '
        f'{type(element).__name__} {_describe(element)}. Map the input to '
        'pairs.'
      )
    with tf.device('/CPU:0'):
      images = tf.cast(element[0], self._images.dtype)
      labels = tf.convert_to_tensor(element[1])
    fits = (
      images.shape.rank
      and images.shape[0]
      and labels.shape == images.shape[:1]
      and labels.dtype.is_integer
      and self._images.shape.is_compatible_with(images.shape)
    )
    if not fits:
      raise ValueError(
        f'{self._name(index)}: expected {self._describe_expected()}, received '
        f'{_describe(images)} and {_describe(labels)}. Batch the input, and '
        'use class numbers as labels.'
      )
    # Others would train as the class of their last 32 bits.
    numbers = labels.numpy()
    if (wrong := numbers[numbers != numbers.astype(np.int32)]).size:
      raise ValueError(
        f'{self._name(index)}: expected labels below 2**31, received '
        f'{wrong[0]}. Use class numbers as labels.'
      )
    return images, tf.cast(labels, tf.int32)

  def _describe_expected(self) -> str:
    """Describes a valid batch, for messages."""
    if self._images.shape.rank is None:
      return f'{_BATCH} with b >= 1'
    sizes = ', '.join(str(size or '...') for size in self._images.shape[1:])
    return f'images [b, {sizes}] and integer labels [b] with b >= 1'

  def _compare(self, batches: Sequence[_Batch | None]) -> list[int]:
    """Refuses equal first batches, in this and in other processes.

    Returns:
      The number of examples in the first batch of each device of all processes.

    Raises:
      ValueError: two batches are bit-identical.
    """
    rows = np.stack([_size_and_digest(batch) for batch in batches])
    if self._exchange.group is not None:
      rows = self._exchange.group.all_gather_now(rows)
    seen: dict[bytes, int] = {}
    for number, row in enumerate(rows):
      if not row[0]:
        continue
      other = seen.setdefault(row.tobytes(), number)
      if other != number:
        raise ValueError(
          f'input_fn of device {number}: expected different examples, '
          'received a first batch that is bit-identical to that of device '
          f'{other}. {_SHARE}'
        )
    return [int(row[0]) for row in rows]

  def _name(self, index: int) -> str:
    return f'input_fn of device {self._numbers[index]}'


def _size_and_digest(batch: _Batch | None) -> np.ndarray:
  """Returns int32 [9]: examples and digests of a batch; zeros for None."""
  if batch is None:
    return np.zeros([9], np.int32)
  digests = [equality.digest(part.numpy()) for part in batch]
  return np.concatenate([[batch[1].shape[0]], *digests]).astype(np.int32)


def _describe(value: Any) -> str:
  """Describes a tensor by its dtype and shape."""
  if not hasattr(value, 'shape'):
    return f'of {len(value)}' if hasattr(value, '__len__') else ''
  return f'{tf.as_dtype(value.dtype).name} {list(value.shape)}'
