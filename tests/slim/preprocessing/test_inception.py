import numpy as np
import pytest
import tensorflow as tf

from slim.preprocessing import inception
from slim.preprocessing import photographs
from tests.slim import photograph_files

COUNT = 400


def seed(number):
  return tf.constant([9, number], tf.int64)


def coordinates(height, width):
  """An image whose pixels say where they are: y in red, x in green."""
  image = np.zeros([height, width, 3], np.uint8)
  image[..., 0] = np.arange(height)[:, None]
  image[..., 1] = np.arange(width)
  return image


def windows(photograph, count=COUNT):
  stream = tf.data.Dataset.range(count).map(
    lambda n: inception._window(
      photograph, tf.stack([tf.constant(9, tf.int64), n])
    )
  )
  return np.stack(list(stream.as_numpy_iterator()))


def changes(is_fast=False, count=COUNT):
  photograph = photographs.from_pixels(tf.constant(coordinates(8, 8)))
  stream = tf.data.Dataset.range(count).map(
    lambda n: inception._crop(
      is_fast, photograph, tf.stack([tf.constant(9, tf.int64), n]), 4
    )[1]
  )
  return np.stack(list(stream.as_numpy_iterator()))


def test_evaluation_is_the_central_part_resized():
  image = photograph_files.pixels(375, 500)
  # (375 - 375 * 0.875) / 2 and (500 - 500 * 0.875) / 2, cut to whole pixels.
  part = image[23 : 375 - 23, 31 : 500 - 31]
  expected = tf.image.resize(part, [224, 224]) / 127.5 - 1
  result = inception.INCEPTION.evaluate(
    photographs.from_pixels(image), seed(0), 224
  )
  np.testing.assert_allclose(result, expected, atol=1e-5)


def test_windows_keep_area_aspect_and_image():
  height, width = 120, 200
  photograph = photographs.from_pixels(tf.constant(coordinates(height, width)))
  y, x, rows, columns = windows(photograph).T
  assert min(y.min(), x.min()) >= 0
  assert (y + rows).max() <= height
  assert (x + columns).max() <= width
  share = rows * columns / (height * width)
  # Sides are whole pixels, of at least 35 (of 5 % of the area).
  assert share.min() >= 0.05 * (1 - 1 / 35) ** 2
  aspect = columns / rows
  assert aspect.min() >= 0.75 * (1 - 1 / 35)
  assert aspect.max() <= 1.33 * (1 + 1 / 35)
  # Not the whole image each time, and not always at one place.
  assert share.std() > 0.1
  assert len(np.unique(y)) > 20


def test_windows_hold_a_part_of_a_box():
  boxes = tf.constant([[0.0, 0.0, 0.25, 0.25], [0.75, 0.75, 1.0, 1.0]])
  photograph = photographs.from_pixels(
    tf.constant(coordinates(100, 100)), boxes
  )
  y, x, rows, columns = windows(photograph).T

  def covered(begin, end):
    high = np.minimum(y + rows, end) - np.maximum(y, begin)
    wide = np.minimum(x + columns, end) - np.maximum(x, begin)
    return np.maximum(high, 0) * np.maximum(wide, 0) / (end - begin) ** 2

  best = np.maximum(covered(0, 25), covered(75, 100))
  # A tenth, but for a row and a column of pixels.
  assert best.min() >= 0.1 - 2 / 25
  assert (best < 1).any()


def test_changes_stay_in_their_ranges():
  brightness, before, saturation, hue, after = changes().T
  for values, low, high in (
    (brightness, -32 / 255, 32 / 255),
    (saturation, 0.5, 1.5),
    (hue, -0.2, 0.2),
    (before[before != 1], 0.5, 1.5),
    (after[after != 1], 0.5, 1.5),
  ):
    assert low <= values.min() < low + 0.05 * (high - low)
    assert high - 0.05 * (high - low) < values.max() <= high
    deviation = (high - low) / np.sqrt(12 * len(values))
    assert abs(values.mean() - (low + high) / 2) < 5 * deviation


@pytest.mark.statistical
def test_contrast_comes_first_or_last_half_of_the_time():
  _, before, _, _, after = changes().T
  assert np.all((before == 1) != (after == 1))
  assert abs((before != 1).sum() - COUNT / 2) < 5 * np.sqrt(COUNT) / 2


def test_fast_mode_has_neither_hue_nor_contrast():
  brightness, before, saturation, hue, after = changes(True, 50).T
  for values in (before, after):
    np.testing.assert_array_equal(values, np.ones(50))
  np.testing.assert_array_equal(hue, np.zeros(50))
  assert brightness.std() > 0.01
  assert saturation.std() > 0.1


@pytest.mark.parametrize('number', range(4))
def test_all_resizing_methods_are_tensorflow_s(number):
  pixels = tf.constant(coordinates(30, 40))
  resized = inception._resize_by(tf.constant(number), pixels, 16)
  method = ('bilinear', 'nearest', 'bicubic', 'area')[number]
  expected = tf.cast(tf.image.resize(pixels, [16, 16], method), tf.float32)
  np.testing.assert_array_equal(resized, expected)


def test_training_images_are_in_range_and_of_the_size():
  photograph = photographs.from_pixels(
    tf.constant(photograph_files.pixels(60, 90))
  )
  results = [
    inception.INCEPTION.train(photograph, seed(n), 32).numpy()
    for n in range(12)
  ]
  for result in results:
    assert result.shape == (32, 32, 3)
    assert result.dtype == np.float32
    assert -1 <= result.min() < result.max() <= 1
  assert len({result.tobytes() for result in results}) == 12
  again = inception.INCEPTION.train(photograph, seed(3), 32)
  np.testing.assert_array_equal(again, results[3])


@pytest.mark.statistical
def test_half_of_the_images_are_mirrored():
  photograph = photographs.from_pixels(tf.constant(coordinates(64, 64)))
  stream = tf.data.Dataset.range(COUNT).map(
    lambda n: inception._crop(
      False, photograph, tf.stack([tf.constant(9, tf.int64), n]), 8
    )[0]
  )
  results = np.stack(list(stream.as_numpy_iterator()))
  mirrored = results[:, 4, 0, 1] > results[:, 4, -1, 1]
  assert abs(mirrored.sum() - COUNT / 2) < 5 * np.sqrt(COUNT) / 2
