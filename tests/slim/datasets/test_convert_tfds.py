"""A set of tensorflow-datasets becomes shards that a trainer reads by name."""

import io

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds
from PIL import Image

from slim import errors
from slim.datasets import catalog
from slim.datasets import convert_tfds
from slim.datasets import factory
from slim.datasets.records import sharding
from slim.datasets.small_images import convert_arrays

CLASSES = ('round', 'square', 'other')
SIZES = {'train': 23, 'test': 7}


def picture(number):
  """A JPEG whose brightness tells its number."""
  pixels = np.full([12, 10, 3], 8 * number, np.uint8)
  with io.BytesIO() as held:
    Image.fromarray(pixels).save(held, 'JPEG', quality=100)
    return held.getvalue()


class Shapes(tfds.core.GeneratorBasedBuilder):
  """Made of nothing, in the order of the numbers."""

  VERSION = tfds.core.Version('1.0.0')

  def _info(self):
    return self.dataset_info_from_configs(
      features=tfds.features.FeaturesDict(
        {
          'image': tfds.features.Image(shape=(None, None, 3)),
          'label': tfds.features.ClassLabel(names=CLASSES),
          'number': tf.int64,
        }
      ),
      disable_shuffling=True,
    )

  def _split_generators(self, dl_manager):
    return {split: self._generate_examples(split) for split in SIZES}

  def _generate_examples(self, split):
    for number in range(SIZES[split]):
      yield (
        number,
        {
          'image': io.BytesIO(picture(number)),
          'label': number % len(CLASSES),
          'number': number,
        },
      )


class Unnamed(Shapes):
  """Pictures without a class."""

  def _info(self):
    return self.dataset_info_from_configs(
      features=tfds.features.FeaturesDict(
        {'image': tfds.features.Image(shape=(None, None, 3))}
      )
    )

  def _generate_examples(self, split):
    for number in range(SIZES[split]):
      yield number, {'image': io.BytesIO(picture(number))}


@pytest.fixture(scope='module')
def prepared(tmp_path_factory):
  """A folder where tensorflow-datasets has `shapes`."""
  folder = tmp_path_factory.mktemp('tfds')
  Shapes(data_dir=folder).download_and_prepare()
  return str(folder)


def convert(folder, prepared, name='tfds:shapes', **options):
  layout = convert_arrays.FileLayout(**options)
  return convert_tfds.convert(
    folder, name, prepared, layout, sharding.ConversionOptions()
  )


def read(folder, split, name='tfds:shapes'):
  """(brightness, labels) of all examples of a split, in its order."""
  stream, info = factory.load(
    name,
    folder,
    split,
    factory.ReadOptions(
      image_size=8, batch_size=5, training=False, preprocessing='caffe2'
    ),
  )
  found = [(image[..., 0], labels) for image, labels in stream]
  brightness = np.concatenate([np.mean(i, axis=(1, 2)) for i, _ in found])
  return brightness, np.concatenate([labels for _, labels in found]), info


@pytest.mark.parametrize('shard', [False, True])
def test_every_example_comes_with_its_class_in_order(tmp_path, prepared, shard):
  convert(tmp_path, prepared, shard=shard, train_shards=4)
  for split, size in SIZES.items():
    brightness, labels, info = read(tmp_path, split)
    assert len(labels) == size == info.num_examples
    assert info.num_classes == 4
    # Label 0 is the background.
    np.testing.assert_array_equal(labels, 1 + np.arange(size) % 3)
    assert np.all(np.diff(brightness) > 0)


def test_jpegs_are_copied_unchanged(tmp_path, prepared):
  convert(tmp_path, prepared)
  (path,) = tmp_path.glob('test-*')
  record = next(iter(tf.data.TFRecordDataset(str(path))))
  example = tf.train.Example.FromString(record.numpy()).features.feature
  assert example['image/encoded'].bytes_list.value[0] == picture(0)
  assert example['image/class/text'].bytes_list.value[0] == b'round'


def test_a_second_conversion_reuses_the_files(tmp_path, prepared):
  assert convert(tmp_path, prepared).written
  assert not convert(tmp_path, prepared).written


def test_the_folder_is_read_as_images_too(tmp_path, prepared):
  convert(tmp_path, prepared)
  assert len(read(tmp_path, 'train', 'images')[1]) == SIZES['train']


def test_an_unavailable_data_set_is_refused(tmp_path, prepared):
  with pytest.raises(errors.DataError, match='tfds:no_shapes: expected a data'):
    convert(tmp_path, prepared, 'tfds:no_shapes')


def test_a_data_set_without_classes_is_refused(prepared):
  Unnamed(data_dir=prepared).download_and_prepare()
  with pytest.raises(errors.DataError, match=r"\['image'\] and classes \[\]"):
    convert_tfds.find('unnamed', prepared)


def test_names_of_tfds_are_photographs_and_others_are_looked_up():
  assert (
    catalog.find('tfds:beans')._replace(name='images')
    == (catalog.DATASETS['images'])
  )
  with pytest.raises(errors.UnknownNameError, match="did you mean 'mnist'"):
    catalog.find('mnst')
