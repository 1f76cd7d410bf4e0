import numpy as np
import pytest
from PIL import Image

from slim import errors
from slim.datasets import factory
from slim.datasets import single_images
from tests.slim import image_files
from tests.slim import image_kinds
from tests.slim import photograph_files
from tests.slim import record_files


@pytest.mark.parametrize('net', ['alexnet', 'vgg_16', 'inception_v3'])
def test_file_is_seen_as_evaluation_sees_it_in_its_data_set(net, tmp_path):
  content = image_files.jpeg()
  (tmp_path / 'a.jpg').write_bytes(content)
  example = photograph_files.example_2017(content, 1, (20, 30))
  record_files.write(tmp_path / 'validation-00000-of-00001', [example])
  read_options = factory.ReadOptions(
    image_size=16, batch_size=1, training=False, net=net
  )
  stream, _ = factory.load('imagenet', tmp_path, 'validation', read_options)
  ((expected, _),) = stream.as_numpy_iterator()
  target = single_images.Target('imagenet', net, 16)
  received = single_images.load(tmp_path / 'a.jpg', target).numpy()
  np.testing.assert_array_equal(received, expected[0])


@pytest.mark.parametrize('name', ['photo on its left', 'webp with alpha'])
def test_file_is_seen_as_evaluation_sees_it_in_a_folder(name, tmp_path):
  content, _, _ = image_kinds.RESOLVED[name]()
  (tmp_path / 'train' / 'a').mkdir(parents=True)
  path = tmp_path / 'train' / 'a' / 'a.jpg'
  path.write_bytes(content)
  read_options = factory.ReadOptions(
    image_size=16, batch_size=1, training=False, net='vgg_16'
  )
  stream, _ = factory.load('image_folder', tmp_path, 'train', read_options)
  ((expected, _),) = stream.as_numpy_iterator()
  target = single_images.Target('image_folder', 'vgg_16', 16)
  received = single_images.load(path, target).numpy()
  np.testing.assert_array_equal(received, expected[0])


def test_a_damaged_jpeg_is_refused_by_name(tmp_path):
  path = tmp_path / 'a.jpg'
  content = image_files.jpeg()
  tables = content.index(b'\xff\xc4')
  path.write_bytes(content[: tables + 4] + b'\xff' + content[tables + 5 :])
  target = single_images.Target('imagenet', 'vgg_16', 16)
  with pytest.raises(errors.DataError, match='a.jpg: expected an image; rec'):
    single_images.load(path, target)


def test_file_is_converted_to_the_size_and_colours_of_small_images(tmp_path):
  pixels = np.zeros([56, 84, 3], np.uint8)
  pixels[:, :21] = 255  # a quarter at the left, which a crop would lose
  (tmp_path / 'a.png').write_bytes(
    image_files.saved(Image.fromarray(pixels), 'PNG')
  )
  target = single_images.Target('mnist', 'lenet', 28)
  image = single_images.load(tmp_path / 'a.png', target).numpy()
  assert (image.shape, image.dtype) == ((28, 28, 1), np.float32)
  np.testing.assert_allclose(image[:, :6], 1, atol=1e-6)
  np.testing.assert_allclose(image[:, 8:], -1, atol=1e-6)


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (None, 'a.png: .*No such file.*Give an image file'),
    (b'text', 'a.png: expected JPEG, PNG'),
    (image_files.bomb(), 'a.png: expected at most 89478485 pixels'),
  ],
)
def test_files_that_are_not_images_are_refused_by_name(
  content, message, tmp_path
):
  if content is not None:
    (tmp_path / 'a.png').write_bytes(content)
  target = single_images.Target('cifar10', 'cifar10_alexnet', 24)
  with pytest.raises(errors.DataError, match=message):
    single_images.load(tmp_path / 'a.png', target)
