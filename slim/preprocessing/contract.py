"""The contract of a preprocessing: pure functions of images and seeds.

There are two kinds. Small images of one size are preprocessed in batches.
Photographs are cropped and resized one at a time; the remaining steps run on
batches.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from slim.preprocessing import photographs


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


class Stages(NamedTuple):
  """The steps for a single photograph, then those for a batch.

  Attributes:
    image_step: crops and resizes a photograph of any size. Takes it, a seed,
      int64 [2], and image_size, height and width of the result in pixels;
      returns (image float32 [image_size, image_size, C], numbers float32 [k]
      for `batch_step`, including all its random numbers).
    batch_step: processes a batch. Takes images [B, image_size, image_size, C]
      and numbers [B, k]; returns float32 of the images' shape. Each result
      depends only on its image and its numbers.
  """

  image_step: Callable[
    [photographs.Photograph, tf.Tensor, int], tuple[tf.Tensor, tf.Tensor]
  ]
  batch_step: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = (
    lambda images, numbers: images
  )

  def apply(
    self, photograph: photographs.Photograph, seed: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """Applies both steps; returns float32 [image_size, image_size, C]."""
    image, numbers = self.image_step(photograph, seed, image_size)
    return self.batch_step(image[None], numbers[None])[0]


class Single(NamedTuple):
  """A preprocessing of photographs of any size.

  Attributes:
    train: steps of training.
    evaluate: steps of evaluation; they do not use the seed.
  """

  train: Stages
  evaluate: Stages


def single(chosen: Batched | Single) -> Single:
  """Converts a preprocessing of batches to one of photographs."""
  if isinstance(chosen, Single):
    return chosen
  return Single(_wrap_batched(chosen.train), _wrap_batched(chosen.evaluate))


def _wrap_batched(
  act: Callable[[tf.Tensor, tf.Tensor, int], tf.Tensor],
) -> Stages:
  """Applies a preprocessing of batches to a whole photograph."""

  def image_step(
    photograph: photographs.Photograph, seed: tf.Tensor, image_size: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    images = act(photograph.whole()[None], seed[None], image_size)
    return images[0], tf.zeros([0])

  return Stages(image_step)
