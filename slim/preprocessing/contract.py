"""What a preprocessing is: pure functions of images and seeds.

There are two kinds. Sets of small images of one size are preprocessed a batch
at a time; of photographs each is cut and resized by itself, and what can be
done to many at once follows.
"""

import abc
from collections.abc import Callable
from typing import NamedTuple

import tensorflow as tf

from slim.preprocessing import photographs


class Batched(abc.ABC):
  """For images of one size."""

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
    """The same for evaluation; does not use the seeds."""


class Stages(NamedTuple):
  """What happens to a photograph, and then to a batch of them.

  Attributes:
    each: cuts and resizes a photograph of any size. Takes it, a seed, int64
      [2], and image_size, height and width of the result in pixels; returns
      (image float32 [image_size, image_size, C], numbers float32 [k] for
      `together`, all random ones among them).
    together: what can be done to many at once. Takes images [B, image_size,
      image_size, C] and numbers [B, k]; returns float32 of the images' shape;
      each result depends on its own image and numbers.
  """

  each: Callable[
    [photographs.Photograph, tf.Tensor, int], tuple[tf.Tensor, tf.Tensor]
  ]
  together: Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = (
    lambda images, numbers: images
  )

  def one(
    self, photograph: photographs.Photograph, seed: tf.Tensor, image_size: int
  ) -> tf.Tensor:
    """Both stages for one photograph: float32 [image_size, image_size, C]."""
    image, numbers = self.each(photograph, seed, image_size)
    return self.together(image[None], numbers[None])[0]


class Single(NamedTuple):
  """For photographs.

  Attributes:
    train: its stages.
    evaluate: its stages; do not use the seed.
  """

  train: Stages
  evaluate: Stages


def single(chosen: Batched | Single) -> Single:
  """Makes of a preprocessing for batches one for photographs."""
  if isinstance(chosen, Single):
    return chosen
  return Single(_whole(chosen.train), _whole(chosen.evaluate))


def _whole(act: Callable[[tf.Tensor, tf.Tensor, int], tf.Tensor]) -> Stages:
  """The preprocessing of a batch, for all of a photograph."""

  def each(
    photograph: photographs.Photograph, seed: tf.Tensor, image_size: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    images = act(photograph.whole()[None], seed[None], image_size)
    return images[0], tf.zeros([0])

  return Stages(each)
