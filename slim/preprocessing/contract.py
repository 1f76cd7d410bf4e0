"""What a preprocessing is: pure functions of images and seeds.

There are two kinds. Sets of small images of one size are preprocessed a batch
at a time; of photographs each is cut and resized by itself, and what can be
done to many at once follows.
"""

from collections import abc
from typing import NamedTuple

import tensorflow as tf

from slim.preprocessing import photographs


class Batched(NamedTuple):
  """For images of one size.

  Attributes:
    train: (images uint8 [B, H, W, C], seeds int64 [B, 2], image_size in pixels)
      to float32 [B, image_size, image_size, C].
    evaluate: the same; does not use the seeds.
  """

  train: abc.Callable[[tf.Tensor, tf.Tensor, int], tf.Tensor]
  evaluate: abc.Callable[[tf.Tensor, tf.Tensor, int], tf.Tensor]


def _as_they_are(images: tf.Tensor, numbers: tf.Tensor) -> tf.Tensor:
  del numbers
  return images


class Stages(NamedTuple):
  """What happens to a photograph, and then to a batch of them.

  Attributes:
    each: (photograph, seed int64 [2], image_size in pixels) to (image float32
      [image_size, image_size, C], numbers float32 [k] for `together`, all
      random ones among them).
    together: (images [B, image_size, image_size, C], numbers [B, k]) to float32
      of the images' shape; each result depends on its own image and numbers.
  """

  each: abc.Callable[
    [photographs.Photograph, tf.Tensor, int], tuple[tf.Tensor, tf.Tensor]
  ]
  together: abc.Callable[[tf.Tensor, tf.Tensor], tf.Tensor] = _as_they_are

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

  def stages(act):
    def each(photograph, seed, image_size):
      image = act(photograph.whole()[None], seed[None], image_size)[0]
      return image, tf.zeros([0])

    return Stages(each)

  return Single(stages(batched.train), stages(batched.evaluate))
