"""TensorFlow Datasets reads what converters write, in its order."""

import json

import numpy as np
import pytest
import tensorflow as tf
import tensorflow_datasets as tfds

from slim import errors
from slim.datasets import tfds_metadata
from slim.datasets.records import manifest
from slim.datasets.records import records
from slim.datasets.records import sharding
from slim.datasets.small_images import convert_arrays
from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from slim.datasets.text import convert_text
from slim.datasets.text import documents
from tests.slim import mnist_files


def converted(folder, layout):
  mnist_files.write_idx(folder / 'idx', 23, 11)
  convert_mnist.convert(
    str(folder / 'made'),
    source='idx',
    request=mnist_source.SourceOptions(
      str(folder / 'idx'), verify_checksums=False
    ),
    layout=layout,
  )
  return folder / 'made'


@pytest.fixture(scope='module')
def sharded(tmp_path_factory):
  layout = convert_arrays.FileLayout(shard=True, train_shards=3)
  return converted(tmp_path_factory.mktemp('tfds'), layout)


def test_examples_are_those_of_the_records_in_their_order(sharded):
  tfds_metadata.write(sharded)
  builder = tfds.builder_from_directory(sharded)
  counts = manifest.read(sharded).counts
  assert {n: s.num_examples for n, s in builder.info.splits.items()} == counts
  read = tfds.ReadConfig(interleave_cycle_length=1)
  found = list(
    builder.as_dataset(split='train', read_config=read).as_numpy_iterator()
  )
  expected = [
    tf.train.Example.FromString(serialized).features.feature
    for path in records.find(str(sharded), 'train')
    for serialized in tf.data.TFRecordDataset(path).as_numpy_iterator()
  ]
  for example, record in zip(found, expected, strict=True):
    (png,) = record['image/encoded'].bytes_list.value
    np.testing.assert_array_equal(
      example['image']['encoded'], tf.io.decode_png(png)
    )
    label = example['image']['class']['label']
    assert [label] == record['image/class/label'].int64_list.value
  names = builder.info.features['image']['class']['label'].names
  assert names[:2] == ['zero', 'one'] and len(names) == 10
  assert found[0]['image']['object']['bbox']['xmin'].shape == (0,)


def test_records_stay_readable_as_before(sharded):
  tfds_metadata.write(sharded)
  assert len(records.find(str(sharded), 'train')) == 3


def test_files_with_names_of_2017_are_refused(tmp_path):
  folder = converted(tmp_path, convert_arrays.FileLayout())
  with pytest.raises(errors.DataError, match='train-00000-of-00001 .* --shard'):
    tfds_metadata.write(folder)
  assert not (folder / 'dataset_info.json').exists()


def test_a_folder_without_a_manifest_is_refused(tmp_path):
  with pytest.raises(errors.DataError, match='shards.json that names'):
    tfds_metadata.write(tmp_path)


def test_a_folder_of_text_is_refused(tmp_path):
  (tmp_path / 'notes').write_text('to be or not to be\n' * 40)
  corpus = documents.read([str(tmp_path / 'notes')])
  layout = convert_text.TextLayout(sequence_length=8)
  sharding.write(tmp_path / 'made', convert_text.plan(corpus, layout))
  with pytest.raises(errors.DataError, match='images, received .* of text'):
    tfds_metadata.write(tmp_path / 'made')


def rewritten(folder, change):
  """A converted folder after a change of its manifest."""
  made = converted(
    folder, convert_arrays.FileLayout(shard=True, train_shards=2)
  )
  path = made / manifest.FILE_NAME
  found = json.loads(path.read_text())
  change(found)
  path.write_text(json.dumps(found))
  return made


def no_shards(found):
  found['splits']['train']['shards'] = []


def many_classes(found):
  found['num_classes'] = 2**31 - 1


def unknown_kind(found):
  found['features']['image/format'] = 'list'


@pytest.mark.parametrize('change', [no_shards, many_classes, unknown_kind])
def test_a_manifest_that_no_converter_writes_is_refused(change, tmp_path):
  with pytest.raises(errors.DataError, match='shards.json: '):
    tfds_metadata.write(rewritten(tmp_path, change))


@pytest.mark.parametrize('damage', ['zeros', 'no image'])
def test_a_first_record_that_is_no_image_is_refused(damage, tmp_path):
  made = converted(
    tmp_path, convert_arrays.FileLayout(shard=True, train_shards=2)
  )
  path, *_ = sorted(made.glob('*-00000-of-*'), reverse=True)
  if damage == 'zeros':
    path.write_bytes(bytes(path.stat().st_size))
  else:
    with tf.io.TFRecordWriter(str(path)) as writer:
      writer.write(tf.train.Example().SerializeToString())
  with pytest.raises(errors.DataError, match='record of an image, received'):
    tfds_metadata.write(made)
