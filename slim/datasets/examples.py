"""Batches of serialized tf.train.Example to batches of images and labels."""

import tensorflow as tf

_IMAGE = 'image/encoded'
_LABEL = 'image/class/label'
_FEATURES = {
  _IMAGE: tf.io.FixedLenFeature([], tf.string),
  _LABEL: tf.io.FixedLenFeature([], tf.int64),
}


def decode_png(
  serialized: tf.Tensor, image_shape: tuple[int, int, int], num_classes: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Decodes a batch of examples whose images are PNG of one size.

  Small images are decoded one after the other in one op: as elements of their
  own, a tf.data stage would cost more than the decoding.

  Args:
    serialized: string [B], each a tf.train.Example.
    image_shape: height, width and channels that every image must have.
    num_classes: labels must be in [0, num_classes).

  Returns:
    images uint8 [B, height, width, channels], labels int32 [B].

  Raises:
    tf.errors.InvalidArgumentError: while running; not an Example with these
      keys, not a PNG, another size, or a label out of range.
  """
  parsed = tf.io.parse_example(serialized, _FEATURES)
  labels = parsed[_LABEL]
  expected = f'expected labels in [0, {num_classes})'
  # Within a tf.function or a tf.data stage these run though nothing uses them.
  tf.debugging.assert_non_negative(labels, expected)
  tf.debugging.assert_less(labels, tf.constant(num_classes, tf.int64), expected)

  def decode(png):
    image = tf.io.decode_png(png, channels=image_shape[-1])
    return tf.ensure_shape(image, image_shape)

  images = tf.map_fn(decode, parsed[_IMAGE], fn_output_signature=tf.uint8)
  return images, tf.cast(labels, tf.int32)
