"""What a preprocessing is: pure functions of images and seeds.

There are two kinds. Sets of small images of one size are preprocessed a batch
at a time; of photographs each is cut and resized by itself, and what can be
done to many at once follows.
"""

import abc
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


class Stages(abc.ABC):
  """What happens to a photograph, and then to a batch of them."""

  @abc.abstractmethod
  def each(
    self, photograph: photographs.Photograph, seed: tf.Tensor, image_size: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """Cuts and resizes a photograph.

    Args:
      photograph: of any size.
      seed: int64 [2].
      image_size: height and width of the result in pixels.

    Returns:
      (image float32 [image_size, image_size, C], numbers float32 [k] for
      `together`, all random ones among them).
    """

  def together(self, images: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
    """What can be done to many at once; leaves them as they are.

    Args:
      images: [B, image_size, image_size, C].
      numbers: [B, k].

    Returns:
      float32 of the images' shape; each result depends on its own image and
      numbers.
    """
    del numbers
    return images

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


def single(batched: Batched) -> Single:
  """Makes of a preprocessing for batches one for photographs."""
  return Single(_TrainWhole(batched), _EvaluateWhole(batched))


class _TrainWhole(Stages):
  """The training of a batch, for all of a photograph."""

  def __init__(self, batched: Batched) -> None:
    self._batched = batched

  def each(
    self, photograph: photographs.Photograph, seed: tf.Tensor, image_size: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """See `Stages.each`."""
    image = self._batched.train(
      photograph.whole()[None], seed[None], image_size
    )[0]
    return image, tf.zeros([0])


class _EvaluateWhole(_TrainWhole):
  """The evaluation of a batch, for all of a photograph."""

  def each(
    self, photograph: photographs.Photograph, seed: tf.Tensor, image_size: int
  ) -> tuple[tf.Tensor, tf.Tensor]:
    """See `Stages.each`."""
    image = self._batched.evaluate(
      photograph.whole()[None], seed[None], image_size
    )[0]
    return image, tf.zeros([0])
