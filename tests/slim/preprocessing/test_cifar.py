import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.preprocessing import cifar

RANDOM = np.random.default_rng(0)
IMAGES = RANDOM.integers(0, 256, [6, 32, 32, 3], np.uint8)
KINDS = {'cifar10': cifar.CIFAR10, 'cifarnet': cifar.CIFARNET}


def seeds(count, first=0):
  return np.array([[5, first + i] for i in range(count)])


def standardized(image):
  """In plain NumPy; images that are not flat."""
  image = image.astype(np.float64)
  return (image - image.mean()) / image.std()


@pytest.mark.parametrize('kind', KINDS)
def test_evaluation_is_the_centre_standardized(kind):
  result = KINDS[kind].evaluate(IMAGES, seeds(6), 24)
  assert result.dtype == np.float32
  for image, source in zip(result, IMAGES, strict=True):
    np.testing.assert_allclose(
      image, standardized(source[4:28, 4:28]), atol=1e-5
    )


def test_flat_images_keep_a_part_of_their_size():
  # The divisor is at least 1 / sqrt(number of values), in [0, 1].
  image = np.zeros([1, 24, 24, 3], np.uint8)
  image[0, 0, 0] = 1
  result = cifar.CIFAR10.evaluate(image, seeds(1), 24)[0]
  count = 24 * 24 * 3
  expected = (1 - 3 / count) / 255 * np.sqrt(count)
  np.testing.assert_allclose(result[0, 0], [expected] * 3, rtol=1e-4)


@pytest.mark.parametrize('kind', KINDS)
def test_training_is_a_crop_perhaps_mirrored_and_standardized(kind):
  # Brightness and one contrast for all channels of equal means would drop out;
  # grey images have equal channels, so they do.
  grey = np.repeat(IMAGES[..., :1], 3, axis=-1)
  padding = {'cifar10': 0, 'cifarnet': 4}[kind]
  padded = np.pad(grey, [(0, 0), (padding,) * 2, (padding,) * 2, (0, 0)])
  result = KINDS[kind].train(grey, seeds(6), 30).numpy()
  positions = 2 + 2 * padding + 1
  for image, source in zip(result, padded, strict=True):
    candidates = [
      standardized(source[y : y + 30, x : x + 30][:, ::step])
      for y in range(positions)
      for x in range(positions)
      for step in (1, -1)
    ]
    errors = [np.abs(image - candidate).max() for candidate in candidates]
    assert min(errors) < 1e-4
    assert sorted(errors)[1] > 0.1


@pytest.mark.statistical
def test_every_position_and_mirroring_is_equally_frequent():
  # One bright pixel says where the crop begins, 0 to 2, and its mirror image.
  image = np.zeros([32, 32, 3], np.uint8)
  image[16, 10] = 255
  count = 1800
  train = tf.function(cifar.CIFAR10.train)
  result = train(np.stack([image] * count), seeds(count), 30)
  positions = tf.argmax(tf.reshape(result[..., 0], [count, -1]), axis=1).numpy()
  found, numbers = np.unique(positions, return_counts=True)
  # Rows 14 to 16 times columns 8 to 10 or, mirrored, 19 to 21.
  rows, columns = np.divmod(found, 30)
  assert set(rows) == {14, 15, 16}
  assert set(columns) == {8, 9, 10, 19, 20, 21}
  # 18 cells of 100; a cell's standard deviation is below 10: five of them.
  assert len(numbers) == 18
  assert np.abs(numbers - 100).max() < 50


def test_brightness_and_contrast_stay_in_their_ranges():
  # Two grey levels, so that contrast factor and brightness can be told from
  # the values before standardization; that undoes both but for the channels'
  # means: (m_c + b - mean) / std, with std = factor * std of the image.
  image = np.zeros([1, 32, 32, 3], np.uint8)
  image[:, ::2] = (100, 150, 200)
  count = 400
  train = tf.function(cifar.CIFAR10.train)
  result = train(np.repeat(image, count, 0), seeds(count), 32)
  spread = np.ptp(result.numpy()[..., 0], axis=(1, 2))
  between = result.numpy().mean((1, 2))
  # Half the difference of the channels' means (25/255) over the red amplitude
  # (100/255 * factor).
  factor = (between[:, 1] - between[:, 0]) / spread
  factor = 25 / 100 / factor
  assert factor.min() >= 0.2 - 1e-3
  assert factor.max() <= 1.8 + 1e-3
  # Of 400 uniform numbers the mean is within five of its deviations.
  assert abs(factor.mean() - 1.0) < 5 * 1.6 / np.sqrt(12 * count)


@pytest.mark.parametrize('kind', KINDS)
def test_a_result_depends_only_on_its_image_and_seed(kind):
  train = KINDS[kind].train
  whole = train(IMAGES, seeds(6), 24)
  np.testing.assert_array_equal(
    train(IMAGES[2:4], seeds(6)[2:4], 24), whole[2:4]
  )
  assert np.any(train(IMAGES[:1], seeds(1, first=9), 24) != whole[:1])


def test_crop_larger_than_the_image_is_refused():
  assert cifar.CIFARNET.train(IMAGES, seeds(6), 40).shape == (6, 40, 40, 3)
  for kind, size in ((cifar.CIFAR10, 33), (cifar.CIFARNET, 41)):
    with pytest.raises(
      errors.DataError, match=f'at most {size - 1}.*received {size}'
    ):
      kind.train(tf.constant(IMAGES), seeds(6), size)
