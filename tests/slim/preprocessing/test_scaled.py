import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.preprocessing import photographs
from slim.preprocessing import scaled
from tests import bounded
from tests.slim import photograph_files

MEAN = np.array([123.68, 116.78, 103.94])
COUNT = 150


def seed(number):
  return tf.constant([9, number], tf.int64)


def of(pixels):
  return photographs.from_pixels(pixels)


def coordinates(height, width):
  """An image whose pixels say where they are: y in red, x in green."""
  image = np.zeros([height, width, 3], np.uint8)
  image[..., 0] = np.arange(height)[:, None]
  image[..., 1] = np.arange(width)
  return image


def train(preprocessing, image, size, count=COUNT):
  stream = tf.data.Dataset.range(count).map(
    lambda n: preprocessing.train(
      of(tf.constant(image)), tf.stack([tf.constant(9, tf.int64), n]), size
    )
  )
  return np.stack(list(stream.as_numpy_iterator()))


@pytest.fixture(scope='module')
def crops():
  """Training images of `coordinates(256, 256)`, which nothing resizes."""
  return train(scaled.image_input(mean=0, std=1), coordinates(256, 256), 224)


@pytest.mark.parametrize('shape', [(375, 500), (500, 333), (256, 256)])
def test_vgg_evaluation_is_the_centre_of_the_scaled_image(shape):
  image = photograph_files.pixels(*shape)
  height, width = (int(side * (256 / min(shape))) for side in shape)
  whole = tf.image.resize(image, [height, width]).numpy()
  y, x = (height - 224) // 2, (width - 224) // 2
  result = scaled.VGG.evaluate(of(image), seed(0), 224)
  expected = whole[y : y + 224, x : x + 224] - MEAN
  # One pixel's worth of the steepest slope of these images, where the length
  # is rounded otherwise.
  np.testing.assert_allclose(result, expected, atol=1e-3)


def evaluation_of_whole_image(image, preprocessing_mean, std=1.0):
  """What evaluation is by its definition: all is resized, then cut."""
  shape = image.shape[:2]
  step = np.float32(min(shape)) / np.float32(256)
  size = np.maximum((np.float32(shape) / step).astype(int), 224)
  whole = tf.image.resize(image, size)
  y, x = (size - 224) // 2
  square = whole[y : y + 224, x : x + 224]
  result = square - np.full([224, 224, 3], preprocessing_mean, np.float32)
  return (result / std if std != 1 else result).numpy()


@pytest.mark.parametrize(
  'shape', [(375, 500), (97, 61), (60, 960), (320, 20), (1, 16)]
)
def test_evaluation_of_an_ordinary_image_is_that_of_the_whole(shape):
  image = photograph_files.pixels(*shape)
  for preprocessing, mean, std in (
    (scaled.VGG, np.float32(MEAN), 1.0),
    (scaled.CAFFE2, 128, 128.0),
  ):
    result = preprocessing.evaluate(of(image), seed(0), 224)
    expected = evaluation_of_whole_image(image, mean, std)
    np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize('shape', [(20, 1000), (1001, 20), (8, 500)])
def test_evaluation_of_a_strip_sees_its_middle_as_that_of_the_whole(shape):
  image = photograph_files.pixels(*shape)
  result = scaled.VGG.evaluate(of(image), seed(0), 224)
  expected = evaluation_of_whole_image(image, np.float32(MEAN))
  # Half a pixel of the result, where the length is rounded otherwise; in smooth
  # colours.
  np.testing.assert_allclose(result, expected, atol=2)


@pytest.mark.parametrize('name', ['VGG', 'CAFFE2', 'ALEXNET'])
@pytest.mark.parametrize('shape', [(60, 20000), (200000, 1)])
def test_strips_take_no_more_memory_than_photographs(name, shape):
  image = of(np.zeros([*shape, 3], np.uint8))
  step = getattr(scaled, name).evaluate
  step(of(np.zeros([300, 500, 3], np.uint8)), seed(0), 224)
  with bounded.memory(100 << 20):
    assert step(image, seed(0), 224).shape == (224, 224, 3)


def test_alexnet_evaluation_squeezes_the_image_to_a_square():
  image = photograph_files.pixels(300, 500)
  whole = tf.image.resize(image, [256, 256]).numpy()
  result = scaled.ALEXNET.evaluate(of(image), seed(0), 224)
  np.testing.assert_allclose(result, whole[16:240, 16:240] - MEAN, atol=1e-3)


def test_caffe2_evaluation_has_mean_and_std_of_128():
  image = np.full([256, 300, 3], 192, np.uint8)
  result = scaled.CAFFE2.evaluate(of(image), seed(0), 227)
  np.testing.assert_array_equal(result, np.full([227, 227, 3], 0.5))


def test_training_on_the_scaled_size_itself_is_a_plain_crop(crops):
  # 256 pixels are scaled to 256, so nothing is resized.
  image = coordinates(256, 256)
  y = crops[:, 0, 0, 0].astype(int)
  x = crops[..., 1].min((1, 2)).astype(int)
  mirrored = crops[:, 0, 0, 1] > crops[:, 0, -1, 1]
  for crop, top, left, is_flipped in zip(crops, y, x, mirrored, strict=True):
    expected = image[top : top + 224, left : left + 224]
    expected = expected[:, ::-1] if is_flipped else expected
    np.testing.assert_array_equal(crop, expected)


@pytest.mark.statistical
def test_positions_and_mirroring_are_uniform(crops):
  mirrored = crops[:, 0, 0, 1] > crops[:, 0, -1, 1]
  # A binomial's standard deviation is sqrt(n) / 2.
  assert abs(mirrored.sum() - COUNT / 2) < 5 * np.sqrt(COUNT) / 2
  for offsets in (crops[:, 0, 0, 0], crops[..., 1].min((1, 2))):
    # 0 to 32, of mean 16 and variance (33^2 - 1) / 12.
    assert offsets.min() >= 0
    assert offsets.max() <= 32
    assert abs(offsets.mean() - 16) < 5 * np.sqrt((33**2 - 1) / 12 / COUNT)
    assert len(np.unique(offsets)) > 25


def test_training_without_mirroring_keeps_left_at_the_left():
  unmirrored = scaled.image_input(mean=0, std=1, mirror=False)
  result = train(unmirrored, coordinates(256, 256), 224, 40)
  assert np.all(result[:, 0, 0, 1] < result[:, 0, -1, 1])


@pytest.mark.statistical
def test_vgg_draws_the_scale_from_256_to_512():
  # 200 pixels high: the square covers 200 * 224 / side of them.
  result = train(scaled.VGG, coordinates(200, 250), 224) + MEAN
  rows = result[..., 0]
  # 223 steps of 200 / side pixels between the centres of first and last row.
  side = 223 * 200 / np.ptp(rows, axis=(1, 2))
  # The extent is a whole number of pixels, of at least 87.
  tolerance = 1.02
  assert side.min() > 256 / tolerance
  assert side.max() < 512 * tolerance
  # Uniform in 256 values.
  assert abs(side.mean() - 384) < 5 * 256 / np.sqrt(12 * COUNT) + 384 * 0.01


def test_alexnet_training_takes_the_same_share_of_both_sides():
  result = train(scaled.ALEXNET, coordinates(128, 250), 224, 40) + MEAN
  height = np.ptp(result[..., 0], axis=(1, 2))
  width = np.ptp(result[..., 1], axis=(1, 2))
  # 224/256 of each, but for half a pixel of the result at each border.
  np.testing.assert_allclose(height, 112 * 223 / 224, rtol=0.01)
  np.testing.assert_allclose(width, 219 * 223 / 224, rtol=0.01)


def test_small_photographs_are_enlarged():
  for preprocessing in (scaled.VGG, scaled.ALEXNET, scaled.CAFFE2):
    for step in (preprocessing.train, preprocessing.evaluate):
      for shape in ((1, 1), (3, 200)):
        image = photograph_files.pixels(*shape)
        result = step(of(image), seed(4), 224)
        assert result.shape == (224, 224, 3)
        assert np.isfinite(result).all()


def test_a_result_is_a_function_of_image_and_seed():
  image = photograph_files.pixels(300, 400)
  first, again, other = (
    scaled.VGG.train(of(image), seed(n), 224) for n in (5, 5, 6)
  )
  np.testing.assert_array_equal(first, again)
  assert np.any(first != other)


@pytest.mark.parametrize('name', ['VGG', 'ALEXNET', 'CAFFE2'])
def test_square_larger_than_the_scaled_image_is_refused(name):
  preprocessing = getattr(scaled, name)
  for step in (preprocessing.train, preprocessing.evaluate):
    with pytest.raises(errors.DataError, match='at most 256, .* received 299'):
      step(of(coordinates(300, 300)), seed(0), 299)
