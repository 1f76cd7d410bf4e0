"""What the functions of a method may know, and how gradients come to them."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad.codec.stages import contract
from terngrad.codec.stages import payloads
from terngrad.codec.stages import random_bits

Shapes = contract.Shapes
Tensors = Sequence[tf.Tensor]


class Context(NamedTuple):
  """What the functions of a method may know.

  Attributes:
    shapes: tuple of the shapes of the bucket's v variables.
    num_workers: N.
    stream: number of the bucket, by which its random bits differ from others'.
    start: elements of the bucket before these, where it was cut into parts.
    seed: int64 [], of the run.
    step: int64 [], steps taken before this one.
    worker: int32 [], its number; None in `decode`.
    key: uint32 [3], from `random_bits.of_buckets`; None in `decode`.
    own: float32 [p], the worker's probe; None in `begin` and `decode`.
    shared: float32 [p], the agreed probe; None in `begin` and `carry`.
  """

  shapes: tuple[tuple[int, ...], ...]
  num_workers: int
  stream: int
  start: int
  seed: tf.Tensor
  step: tf.Tensor
  worker: tf.Tensor | None = None
  key: tf.Tensor | None = None
  own: tf.Tensor | None = None
  shared: tf.Tensor | None = None

  @property
  def worker_key(self) -> tf.Tensor:
    """`key`, in a function of a worker.

    Raises:
      ValueError: it is of no worker.
    """
    if self.key is None:
      raise ValueError(
        'context: expected the key of a worker, received none. Draw from '
        'common_key in decode.'
      )
    return self.key

  @property
  def element_key(self) -> tf.Tensor:
    """`worker_key`, counted from the start of the whole bucket."""
    return random_bits.from_element(self.worker_key, self.start)

  @property
  def sizes(self) -> list[int]:
    """Elements of each variable, list of v int."""
    return sizes_of(self.shapes)

  @property
  def starts(self) -> list[int]:
    """The first element of each variable, as the whole bucket counts them."""
    return starts_of(self.sizes, self.start)

  @property
  def scale(self) -> float:
    """What makes a mean of a sum over the workers.

    Graphs and XLA turn a division by a constant into this product, which may
    differ in the last bit; so that eager code agrees, all multiply.
    """
    return 1.0 / self.num_workers

  @property
  def common_key(self) -> tf.Tensor:
    """uint32 [2], the same for all workers in a step."""
    return random_bits.common_key(self.seed, self.step, self.stream)


def sizes_of(shapes: Shapes) -> list[int]:
  """Elements of each shape, list of int."""
  return [tf.TensorShape(shape).num_elements() for shape in shapes]


def starts_of(sizes: Sequence[int], start: int = 0) -> list[int]:
  """The first element of each variable, where that of the first is `start`."""
  return list(itertools.accumulate(sizes, initial=start))[:-1]


def flat(gradients: Tensors) -> tf.Tensor:
  """Gradients as one float32 [elements]; a single tensor is not copied."""
  return payloads.concat(gradients)


def each(gradients: Tensors, context: Context) -> Tensors:
  """Gradients as a list of v float32, flat; nothing is copied if they are."""
  return each_of(gradients, context.sizes)


def each_of(gradients: Tensors, sizes: Sequence[int]) -> Tensors:
  """`each`, of variables of so many elements."""
  if len(gradients) == len(sizes):
    return gradients
  return tf.split(gradients[0], sizes)


def shaped(gradients: Tensors, context: Context) -> list[tf.Tensor]:
  """Gradients as a list of v float32 of the shapes."""
  pairs = zip(each(gradients, context), context.shapes, strict=True)
  return [tf.reshape(gradient, shape) for gradient, shape in pairs]
