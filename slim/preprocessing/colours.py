"""Brightness, contrast, saturation and hue of many images in one pass."""

import tensorflow as tf


@tf.function(jit_compile=True)
def distort(images: tf.Tensor, changes: tf.Tensor) -> tf.Tensor:
  """Changes colours and clamps; each image has its own changes.

  Compiled, because step by step the images would be written to memory and read
  again some twenty times, which takes longer than decoding them.

  Args:
    images: float32 [B, H, W, 3], RGB; [0, 1], or a little outside of it where
      resizing overshot.
    changes: float32 [B, 5], in the order in which they are applied:
      brightness: is added.
      contrast before: factor of the distance from the channel's mean.
      saturation: factor; HSV's saturation stays in [0, 1].
      hue: is added to HSV's, in turns.
      contrast after: as before. The one that is not wanted is 1.

  Returns:
    float32 [B, H, W, 3] in [0, 1].
  """
  columns = tf.unstack(changes[:, :, None, None], axis=1)
  brightness, before, saturation, hue, after = columns
  images = images + brightness[..., None]
  images = _contrast(images, before[..., None])
  images = _saturation_and_hue(images, saturation, hue)
  return tf.clip_by_value(_contrast(images, after[..., None]), 0.0, 1.0)


def _contrast(images, factor):
  mean = tf.reduce_mean(images, [1, 2], keepdims=True)
  return (images - mean) * factor + mean


def _saturation_and_hue(images, saturation, hue):
  """Goes to HSV and back."""
  red, green, blue = tf.unstack(images, axis=-1)
  value = tf.maximum(tf.maximum(red, green), blue)
  chroma = value - tf.minimum(tf.minimum(red, green), blue)
  is_grey = chroma <= 0.0
  divisor = tf.where(is_grey, 1.0, chroma)
  # In sixths of a turn: 0 red, 2 green, 4 blue.
  sixths = tf.where(
    tf.equal(value, red),
    (green - blue) / divisor,
    tf.where(
      tf.equal(value, green),
      2.0 + (blue - red) / divisor,
      4.0 + (red - green) / divisor,
    ),
  )
  sixths += 6.0 * hue
  # Saturation is chroma / value; 1 is the most that there is.
  chroma = tf.minimum(chroma * saturation, tf.maximum(value, 0.0))
  planes = []
  for offset in (5.0, 3.0, 1.0):
    place = tf.math.floormod(sixths + offset, 6.0)
    share = tf.clip_by_value(tf.minimum(place, 4.0 - place), 0.0, 1.0)
    planes.append(value - chroma * share)
  return tf.stack(planes, axis=-1)
