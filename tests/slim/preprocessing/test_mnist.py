import numpy as np
import pytest

from slim.preprocessing import mnist

SEED = np.array([0, 0])


def test_bytes_become_minus_one_to_plus_one():
  image = np.array([[0, 255], [51, 204]], np.uint8)[..., None]
  result = mnist.MNIST.train(image, SEED, 2).numpy()
  assert result.dtype == np.float32
  np.testing.assert_allclose(
    result[..., 0], [[-1, 1], [-0.6, 0.6]], rtol=0, atol=2**-22
  )


def test_larger_images_lose_their_border():
  image = np.arange(36, dtype=np.uint8).reshape(6, 6, 1)
  result = mnist.MNIST.train(image, SEED, 2)
  whole = mnist.MNIST.train(image, SEED, 6)
  np.testing.assert_array_equal(result, whole[2:4, 2:4])


def test_smaller_images_get_a_dark_border():
  image = np.full([2, 2, 1], 255, np.uint8)
  result = mnist.MNIST.train(image, SEED, 6)[..., 0]
  expected = -np.ones([6, 6])
  expected[2:4, 2:4] = 1
  np.testing.assert_array_equal(result, expected)


@pytest.mark.parametrize('image_size', [1, 27, 28, 29, 32])
def test_a_batch_equals_its_images(image_size):
  images = np.random.default_rng(0).integers(0, 256, [3, 28, 28, 1], np.uint8)
  batch = mnist.MNIST.train(images, np.zeros([3, 2], np.int64), image_size)
  assert batch.shape == (3, image_size, image_size, 1)
  for image, result in zip(images, batch, strict=True):
    np.testing.assert_array_equal(
      mnist.MNIST.train(image, SEED, image_size), result
    )


def test_nothing_is_random():
  image = np.random.default_rng(0).integers(0, 256, [28, 28, 1], np.uint8)
  np.testing.assert_array_equal(
    mnist.MNIST.train(image, np.array([1, 2]), 24),
    mnist.MNIST.train(image, np.array([3, 4]), 24),
  )
