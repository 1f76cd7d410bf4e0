import subprocess
import sys

import numpy as np
import pytest
import tensorflow as tf

from slim.preprocessing import colours

NEUTRAL = [0.0, 1.0, 1.0, 0.0, 1.0]
IMAGES = (
  np.random.default_rng(3).uniform(0.2, 0.8, [4, 5, 7, 3]).astype(np.float32)
)
# Float32 hues are good to about 6 * 2^-23; a few roundings more.
TOLERANCE = 5e-6
# Prints a digest of distorted noise; the argument is a number of threads.
_DISTORTED = """
import hashlib
import sys
import numpy as np
import tensorflow as tf
from slim.preprocessing import colours

tf.config.threading.set_intra_op_parallelism_threads(int(sys.argv[1]))
image = np.random.default_rng(0).uniform(0, 255, [299, 299, 3])
changes = tf.constant([0.1, 1.2, 0.7, 0.15, 1.3])
result = colours.distort(tf.constant(image, tf.float32), changes).numpy()
print(hashlib.sha256(result.tobytes()).hexdigest())
"""


def distort(images, **changes):
  names = ('brightness', 'before', 'saturation', 'hue', 'after')
  row = tf.constant(
    [changes.get(n, v) for n, v in zip(names, NEUTRAL, strict=True)], tf.float32
  )
  results = [colours.distort(tf.constant(i) * 255, row) for i in images]
  return np.stack(results) / 2 + 0.5


def test_neutral_changes_change_nothing():
  np.testing.assert_allclose(distort(IMAGES), IMAGES, atol=TOLERANCE)


def test_pure_colours_turn():
  red, green, blue = np.eye(3, dtype=np.float32)
  image = np.stack([red, green, blue])[None, None]
  turned = distort(image, hue=1 / 3)[0, 0]
  np.testing.assert_allclose(turned, [green, blue, red], atol=TOLERANCE)
  turned = distort(image, hue=-1 / 6)[0, 0]
  np.testing.assert_allclose(
    turned, [red + blue, red + green, green + blue], atol=TOLERANCE
  )


def test_grey_has_neither_hue_nor_saturation():
  image = np.full([1, 2, 2, 3], 0.25, np.float32)
  result = distort(image, hue=0.2, saturation=1.5)
  np.testing.assert_allclose(result, image, atol=TOLERANCE)


def test_black_stays_black_and_nothing_is_nan():
  image = np.zeros([1, 2, 2, 3], np.float32)
  result = distort(image, hue=0.2, saturation=1.5, brightness=-0.1, after=1.5)
  np.testing.assert_array_equal(result, image)


def test_saturation_goes_to_grey_and_no_further_than_full():
  image = np.array([0.5, 0.25, 0.25], np.float32).reshape(1, 1, 1, 3)
  np.testing.assert_allclose(
    distort(image, saturation=0.5)[0, 0, 0],
    [0.5, 0.375, 0.375],
    atol=TOLERANCE,
  )
  np.testing.assert_allclose(
    distort(image, saturation=9.0)[0, 0, 0], [0.5, 0, 0], atol=TOLERANCE
  )


def test_brightness_is_added_and_clamped():
  image = np.array([0.0, 0.5, 1.0], np.float32).reshape(1, 3, 1, 1)
  image = np.repeat(image, 3, -1)
  result = distort(image, brightness=0.25)[0, :, 0, 0]
  np.testing.assert_allclose(result, [0.25, 0.75, 1.0], atol=TOLERANCE)


@pytest.mark.parametrize('place', ['before', 'after'])
def test_contrast_is_about_the_channel_s_mean(place):
  image = np.array([[0.25, 0.75], [0.25, 0.25]], np.float32)
  image = np.repeat(image.reshape(1, 2, 2, 1), 3, -1)
  result = distort(image, **{place: 0.5})[0, ..., 0]
  np.testing.assert_allclose(
    result, 0.375 + 0.5 * (image[0, ..., 0] - 0.375), atol=TOLERANCE
  )


@pytest.mark.parametrize('seed', range(8))
def test_both_orders_equal_those_of_tensorflow_s_ops(seed):
  random = np.random.default_rng(seed)
  brightness, saturation, hue, contrast = random.uniform(
    [-0.12, 0.5, -0.2, 0.5], [0.12, 1.5, 0.2, 1.5]
  )
  bright = tf.image.adjust_brightness(IMAGES, brightness)
  last = tf.image.adjust_contrast(
    tf.image.adjust_hue(tf.image.adjust_saturation(bright, saturation), hue),
    contrast,
  )
  first = tf.image.adjust_hue(
    tf.image.adjust_saturation(
      tf.image.adjust_contrast(bright, contrast), saturation
    ),
    hue,
  )
  common = {'brightness': brightness, 'saturation': saturation, 'hue': hue}
  np.testing.assert_allclose(
    distort(IMAGES, **common, after=contrast),
    tf.clip_by_value(last, 0, 1),
    atol=4 * TOLERANCE,
  )
  np.testing.assert_allclose(
    distort(IMAGES, **common, before=contrast),
    tf.clip_by_value(first, 0, 1),
    atol=4 * TOLERANCE,
  )


@pytest.mark.slow
def test_the_number_of_threads_changes_no_bit():
  """299 * 299 pixels are no multiple of XLA's vectors."""
  printed = {
    subprocess.run(
      [sys.executable, '-c', _DISTORTED, str(threads)],
      check=True,
      stdout=subprocess.PIPE,
    ).stdout
    for threads in (1, 2)
  }
  assert len(printed) == 1
