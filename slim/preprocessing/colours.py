"""Changes brightness, contrast, saturation and hue of an image in one pass."""

import tensorflow as tf

# XLA's vectors have up to 16 floats, and it rounds the rest of a plane in
# another way; which floats are the rest depends on the number of threads.
_VECTOR = 16


def distort(image: tf.Tensor, changes: tf.Tensor) -> tf.Tensor:
  """Changes the colours of an image and clamps.

  If every step were a separate op, the image would be written to memory and
  read again about twenty times, which takes longer than decoding it. Therefore
  XLA compiles the elementwise steps. Sums and the transposition to planes run
  outside XLA, which does both slowly on CPUs.

  Args:
    image: float32 [H, W, 3], a static shape, RGB; [0, 255], or slightly outside
      if resizing overshot.
    changes: float32 [5], in the order in which they are applied to the image
      scaled to [0, 1]:
      brightness: added.
      contrast before: factor of the distance from the channel's mean.
      saturation: factor; HSV's saturation stays in [0, 1].
      hue: added to HSV's hue, in turns.
      contrast after: like contrast before. The contrast that is not used is
      1.

  Returns:
    float32 [H, W, 3] in [-1, +1].
  """
  pixels = image.shape[0] * image.shape[1]
  planes = tf.transpose(tf.reshape(image, [pixels, 3]))
  mean = tf.reduce_mean(planes, 1, keepdims=True)
  if pixels % _VECTOR:
    planes = tf.pad(planes, [[0, 0], [0, -pixels % _VECTOR]])
  planes = _recolour(planes, mean, changes)
  mean = tf.reduce_mean(planes[:, :pixels], 1, keepdims=True)
  planes = _finish(planes, mean, changes)[:, :pixels]
  return tf.reshape(tf.transpose(planes), image.shape)


@tf.function(jit_compile=True, reduce_retracing=True)
def _recolour(
  planes: tf.Tensor, mean: tf.Tensor, changes: tf.Tensor
) -> tf.Tensor:
  """Applies all but the last contrast: [3, P], [0, 255] to [0, 1]."""
  brightness, before, saturation, hue, _ = tf.unstack(changes)
  planes = (planes - mean) * (before / 255.0)
  planes += mean / 255.0 + brightness
  return tf.stack(_saturation_and_hue(tf.unstack(planes), saturation, hue))


@tf.function(jit_compile=True, reduce_retracing=True)
def _finish(
  planes: tf.Tensor, mean: tf.Tensor, changes: tf.Tensor
) -> tf.Tensor:
  """Applies the last contrast and clamps, from [0, 1] to [-1, +1]."""
  clamped = tf.clip_by_value((planes - mean) * changes[4] + mean, 0.0, 1.0)
  return (clamped - 0.5) * 2.0


def _saturation_and_hue(
  colours: list[tf.Tensor], saturation: tf.Tensor, hue: tf.Tensor
) -> list[tf.Tensor]:
  """Changes saturation and hue in HSV and returns RGB."""
  red, green, blue = colours
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
  # Saturation is chroma / value and at most 1.
  chroma = tf.minimum(chroma * saturation, tf.maximum(value, 0.0))
  planes = []
  for offset in (5.0, 3.0, 1.0):
    position = sixths + offset
    # floormod calls the C library for each number, which is five times slower.
    position -= 6.0 * tf.floor(position * (1.0 / 6.0))
    share = tf.clip_by_value(tf.minimum(position, 4.0 - position), 0.0, 1.0)
    planes.append(value - chroma * share)
  return planes
