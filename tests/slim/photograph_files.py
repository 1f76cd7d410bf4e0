"""Makes photographs and examples of the layout of 2017, for tests of slim."""

import numpy as np
import tensorflow as tf


def pixels(height, width, seed=0):
  """Smooth colours, so that JPEG changes them little."""
  random = np.random.default_rng(seed)
  small = random.integers(0, 256, [4, 4, 3]).astype(np.float32)
  return tf.cast(tf.image.resize(small, [height, width]), tf.uint8).numpy()


def jpeg(image):
  return tf.io.encode_jpeg(
    image, quality=100, chroma_downsampling=False
  ).numpy()


def _feature(values):
  values = [values] if isinstance(values, bytes | int) else values
  if values and isinstance(values[0], bytes):
    return tf.train.Feature(bytes_list=tf.train.BytesList(value=values))
  if values and isinstance(values[0], int):
    return tf.train.Feature(int64_list=tf.train.Int64List(value=values))
  return tf.train.Feature(float_list=tf.train.FloatList(value=values))


def example_2017(encoded, label, size, *, image_format=b'JPEG', boxes=()):
  """An example with every key that build_imagenet_data of 2017 wrote.

  Args:
    boxes: (xmin, ymin, xmax, ymax) each.
  """
  xmin, ymin, xmax, ymax = ([box[side] for box in boxes] for side in range(4))
  features = {
    'image/height': size[0],
    'image/width': size[1],
    'image/colorspace': b'RGB',
    'image/channels': 3,
    'image/class/label': label,
    'image/class/synset': b'n01440764',
    'image/class/text': b'tench, Tinca tinca',
    'image/object/bbox/xmin': xmin,
    'image/object/bbox/xmax': xmax,
    'image/object/bbox/ymin': ymin,
    'image/object/bbox/ymax': ymax,
    'image/object/bbox/label': [label] * len(boxes),
    'image/format': image_format,
    'image/filename': b'n01440764_1.JPEG',
    'image/encoded': encoded,
  }
  return tf.train.Example(
    features=tf.train.Features(
      feature={key: _feature(value) for key, value in features.items()}
    )
  ).SerializeToString()
