"""The context argument of method functions, and the layout of gradients."""

import itertools
from collections.abc import Sequence
from typing import NamedTuple

import tensorflow as tf

from terngrad import aliases
from terngrad.codec.stages import contract
from terngrad.codec.stages import payloads
from terngrad.codec.stages import random_bits

Shapes = contract.Shapes
Tensors = Sequence[tf.Tensor]


@aliases.renamed_attributes(own='local_probe', shared='shared_probe')
class Context(NamedTuple):
  """The context in which the functions of a method run.

  Attributes:
    shapes: the shapes of the bucket's v variables.
    num_workers: the number of workers N.
    stream: index of the bucket; it is folded into the random key.
    start: index of the first element in the whole bucket; nonzero for the later
      parts of a split bucket. It and `stream` are tensors only for methods of
      `any_origin`.
    seed: int64 [], seed of the run.
    step: int64 [], steps taken before this one.
    worker: int32 [], index of the worker; None in `decode`.
    key: uint32 [3], from `random_bits.bucket_keys`; None in `decode`.
    local_probe: float32 [p], the local probe; None in `begin` and `decode`.
    shared_probe: float32 [p], the agreed probe; None in `begin` and `carry`.
  """

  shapes: tuple[tuple[int, ...], ...]
  num_workers: int
  stream: random_bits.Integer
  start: random_bits.Integer
  seed: tf.Tensor
  step: tf.Tensor
  worker: tf.Tensor | None = None
  key: tf.Tensor | None = None
  local_probe: tf.Tensor | None = None
  shared_probe: tf.Tensor | None = None

  @property
  def worker_key(self) -> tf.Tensor:
    """`key`, for functions that run on a worker.

    Raises:
      ValueError: the context has no key, as in `decode`.
    """
    if self.key is None:
      raise ValueError(
        "context: expected a worker's key, received none, because decode has "
        'no worker. Draw from common_key in decode.'
      )
    return self.key

  @property
  def element_key(self) -> tf.Tensor:
    """`worker_key`, advanced to element `start` of the whole bucket."""
    return random_bits.advance_key(self.worker_key, self.start)

  @property
  def sizes(self) -> list[int]:
    """The number of elements of each of the v variables."""
    return sizes_of(self.shapes)

  @property
  def starts(self) -> list[int]:
    """The index of each variable's first element in the whole bucket.

    Raises:
      ValueError: the start is a tensor.
    """
    if not isinstance(self.start, int):
      raise ValueError(
        'context: expected a start that is known when the program is traced, '
        'received a tensor. Leave `any_origin` of the method False.'
      )
    return starts_of(self.sizes, self.start)

  @property
  def scale(self) -> float:
    """The factor 1 / N that turns a sum over workers into a mean.

    Graphs and XLA replace a division by a constant by this product, which may
    differ in the last bit. All code multiplies, so that eager code agrees.
    """
    return 1.0 / self.num_workers

  @property
  def common_key(self) -> tf.Tensor:
    """uint32 [2], the same for all workers in a step."""
    return random_bits.common_key(self.seed, self.step, self.stream)


def sizes_of(shapes: Shapes) -> list[int]:
  """Returns the number of elements of each shape."""
  return [tf.TensorShape(shape).num_elements() for shape in shapes]


def starts_of(sizes: Sequence[int], start: int = 0) -> list[int]:
  """Returns each variable's first element, counted from `start`."""
  return list(itertools.accumulate(sizes, initial=start))[:-1]


def flat(gradients: Tensors) -> tf.Tensor:
  """Returns gradients as one float32 [elements]; one tensor is not copied."""
  return payloads.concat(gradients)


def each(gradients: Tensors, context: Context) -> Tensors:
  """Returns gradients as v flat float32 tensors, split if necessary."""
  if len(gradients) == len(context.shapes):
    return gradients
  return tf.split(gradients[0], context.sizes)


def shaped(gradients: Tensors, context: Context) -> list[tf.Tensor]:
  """Returns gradients as v float32 tensors of the variables' shapes."""
  pairs = zip(each(gradients, context), context.shapes, strict=True)
  return [tf.reshape(gradient, shape) for gradient, shape in pairs]
