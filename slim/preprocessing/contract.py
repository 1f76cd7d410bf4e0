"""The contract of a preprocessing: pure functions of images and seeds.

There are two kinds. Small images of one size are preprocessed in batches,
photographs of any size one at a time.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple
from typing import TypeAlias

import tensorflow as tf

from slim.preprocessing import photographs

# Takes a photograph, a seed, int64 [2], and image_size, height and width of the
# result in pixels. Returns float32 [image_size, image_size, C].
Step: TypeAlias = Callable[[photographs.Photograph, tf.Tensor, int], tf.Tensor]


class Batched(abc.ABC):
  """A preprocessing of images of one size, a batch at a time."""

  @abc.abstractmethod
  def train(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """Preprocesses a batch for training.

    Args:
      images: uint8 [B, H, W, C].
      seeds: int64 [B, 2].
      image_size: height and width of the result in pixels.

    Returns:
      float32 [B, image_size, image_size, C].
    """

  @abc.abstractmethod
  def evaluate(
    self, images: tf.Tensor, seeds: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """Preprocesses a batch for evaluation; does not use the seeds."""


class Single(NamedTuple):
  """A preprocessing of photographs of any size, in RGB.

  One photograph at a time, because the last bits of what XLA or TensorFlow
  computes for an image depend on the size of its batch.

  Attributes:
    train: the step of training.
    evaluate: the step of evaluation; it does not use the seed.
  """

  train: Step
  evaluate: Step


def single(chosen: Batched | Single) -> Single:
  """Converts a preprocessing of batches to one of photographs."""
  if isinstance(chosen, Single):
    return chosen
  return Single(_wrap_batched(chosen.train), _wrap_batched(chosen.evaluate))


def _wrap_batched(
  act: Callable[[tf.Tensor, tf.Tensor, int], tf.Tensor],
) -> Step:
  """Applies a preprocessing of batches to a whole photograph."""

  def step(
    photograph: photographs.Photograph, seed: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    return act(photograph.whole()[None], seed[None], image_size)[0]

  return step
