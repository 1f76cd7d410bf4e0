"""Image databases: made by write_db, read by `factory.load`."""

import itertools
import os
import shutil

import lmdb
import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.datasets import catalog
from slim.datasets import factory
from slim.datasets import write_db
from slim.datasets.files import databases
from slim.datasets.files import tensor_protos
from slim.datasets.photographs import images as image_contents
from tests.slim import image_files
from tests.slim import image_kinds
from tests.slim import photograph_files
from tests.slim import record_files

SIZES = [(40, 50), (33, 61), (64, 48), (50, 50), (45, 90), (72, 38), (41, 41)]


def pixels(number):
  return photograph_files.pixels(*SIZES[number], seed=number)


@pytest.fixture(scope='module')
def photos(tmp_path_factory):
  """A folder of seven PNGs in two classes."""
  folder = tmp_path_factory.mktemp('photos')
  for number in range(7):
    path = folder / 'train' / ('rose' if number > 3 else 'daisy')
    path.mkdir(parents=True, exist_ok=True)
    content = tf.io.encode_png(pixels(number)).numpy()
    (path / f'{number}.png').write_bytes(content)
  return folder


@pytest.fixture(scope='module', params=databases.KINDS)
def made(request, photos, tmp_path_factory):
  """The folder of a database `train`."""
  if request.param == 'leveldb':
    pytest.importorskip('plyvel', reason='no wheel for this Python')
  folder = tmp_path_factory.mktemp('databases')
  assert (
    write_db.write(images(photos), folder / 'train', kind=request.param) == 7
  )
  return folder


def images(folder, name='image_folder'):
  return write_db.open_images(catalog.DATASETS[name], folder, 'train')


def load(folder, count, num_classes=2, **options):
  options = {
    'image_size': 16,
    'batch_size': 1,
    'training': True,
    # Not random, so that images can be told apart.
    'preprocessing': 'lenet',
  } | options
  stream, split = factory.load(
    'image_db', folder, 'train', factory.ReadOptions(**options), num_classes
  )
  count = split.count if count is None else count
  batches = stream.as_numpy_iterator() if count else ()
  return list(itertools.islice(batches, count)), split


def expected(number):
  image = tf.image.resize_with_crop_or_pad(pixels(number), 16, 16)
  return (tf.cast(image, tf.float32).numpy() - 128) / 128


@pytest.mark.gate_every(2)
def test_images_and_labels_come_back_in_the_order_of_the_keys(made):
  batches, split = load(made, 9, training=False)
  assert (split.num_examples, split.count, split.channels) == (7, 7, 3)
  assert len(batches) == 7
  for number, (image, label) in enumerate(batches):
    np.testing.assert_array_equal(image[0], expected(number))
    assert label == [int(number > 3)]


@pytest.mark.gate_every(2)
def test_epochs_are_permutations_and_resume_by_position(made):
  whole, _ = load(made, 21)
  names = [image.tobytes() for image, _ in whole]
  epochs = [tuple(names[i : i + 7]) for i in (0, 7, 14)]
  assert len({frozenset(epoch) for epoch in epochs}) == 1
  assert len(set(epochs[0])) == 7
  assert len(set(epochs)) == 3
  for start in (7, 16):
    rest, _ = load(made, 21 - start, start=start)
    for one, other in zip(rest, whole[start:], strict=True):
      np.testing.assert_array_equal(one[0], other[0])
  other, _ = load(made, 7, seed=1)
  assert [image.tobytes() for image, _ in other] != names[:7]


@pytest.mark.gate_every(2)
def test_workers_of_one_process_split_it_in_memory(made):
  found = []
  for worker in range(3):
    batches, _ = load(made, None, worker=worker, num_workers=3)
    found += [image.tobytes() for image, _ in batches]
  assert len(found) == len(set(found)) == 7


def test_caffe2_s_preprocessing_is_the_default(made):
  batches, _ = load(made, 1, preprocessing='', image_size=224)
  assert batches[0][0].shape == (1, 224, 224, 3)
  assert -1 <= batches[0][0].min() < batches[0][0].max() <= 127 / 128


def test_a_database_written_by_caffe2_is_read(tmp_path):
  """Raw pixels, blue first, and keys with names."""
  image = pixels(1)
  record = tensor_protos.encode(
    tensor_protos.Image(image.tobytes(), b'RAW', SIZES[1], 1)
  )
  environment = lmdb.open(str(tmp_path / 'train'))
  with environment.begin(write=True) as transaction:
    transaction.put(b'00000000_cars/1.jpg', record)
  environment.close()
  batches, _ = load(tmp_path, 2, training=False)
  np.testing.assert_array_equal(batches[0][0][0], expected(1))


def test_zero_classes_are_refused(made):
  with pytest.raises(errors.DataError, match='or pass num_classes'):
    load(made, 0, num_classes=0)


def test_labels_txt_beside_the_database_defines_the_classes(made, tmp_path):
  with pytest.raises(errors.DataError, match='or pass num_classes'):
    load(made, 0, num_classes=None)
  (tmp_path / 'train').symlink_to(made / 'train')
  (tmp_path / 'labels.txt').write_text('daisy\nrose\ntulip\n')
  _, split = load(tmp_path, 0, num_classes=None)
  assert (split.num_classes, split.labels[1]) == (3, 'rose')


def test_label_beyond_the_classes_is_refused(made):
  with pytest.raises(
    tf.errors.InvalidArgumentError, match=r'expected labels in \[0, 1\)'
  ):
    load(made, 7, num_classes=1)


def test_invalid_record_is_named(tmp_path):
  environment = lmdb.open(str(tmp_path / 'train'))
  with environment.begin(write=True) as transaction:
    transaction.put(b'0', b'\xff')
  environment.close()
  with pytest.raises(
    tf.errors.InvalidArgumentError,
    match='train, key 0: Record: expected serialized TensorProtos',
  ):
    load(tmp_path, 1)


def test_tfrecords_are_copied_with_labels_and_pixels(tmp_path):
  content = photograph_files.jpeg(pixels(0))
  record_files.write(
    tmp_path / 'train-0',
    [
      photograph_files.example_2017(content, 5, SIZES[0]),
      photograph_files.example_2017(
        pixels(1).tobytes(), 2, SIZES[1], image_format=b'RAW'
      ),
    ],
  )
  write_db.write(images(tmp_path, 'imagenet'), tmp_path / 'db' / 'train')
  database = databases.open_database(tmp_path / 'db' / 'train')
  found = [tensor_protos.decode(database.read(i)) for i in range(2)]
  assert found[0] == (content, b'', (-1, -1), 5)
  assert found[1] == (pixels(1).tobytes(), b'RAW', SIZES[1], 2)


def test_a_class_without_images_leaves_the_labels_of_the_others(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'ape': 1, 'bee': 1, 'cat': 1})
  image_files.write_folders(tmp_path / 'test', {'ape': 1, 'cat': 2})
  found = write_db.open_images(
    catalog.DATASETS['image_folder'], tmp_path, 'test'
  )
  assert found.labels == {0: 'ape', 1: 'bee', 2: 'cat'}
  write_db.write(found, tmp_path / 'db')
  database = databases.open_database(tmp_path / 'db')
  stored = [tensor_protos.decode(database.read(i)).label for i in range(3)]
  assert stored == [0, 2, 2]


@pytest.mark.parametrize('name', image_kinds.RESOLVED)
def test_a_database_has_the_picture_that_its_folder_shows(tmp_path, name):
  content, shown, _ = image_kinds.RESOLVED[name]()
  (tmp_path / 'train' / 'a').mkdir(parents=True)
  (tmp_path / 'train' / 'a' / 'x').write_bytes(content)
  write_db.write(images(tmp_path), tmp_path / 'db')
  database = databases.open_database(tmp_path / 'db')
  stored = tensor_protos.decode(database.read(0)).encoded
  assert stored == image_contents.to_jpeg(content).content
  assert tf.io.decode_jpeg(stored).shape == shown.shape


def test_unreadable_files_are_named_and_no_database_is_written(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 2, 'b': 2})
  for name in image_kinds.BAD:
    image_kinds.write_bad(tmp_path / 'train' / 'b' / name)
  with pytest.raises(errors.DataError, match='received 5 that are') as caught:
    images(tmp_path)
  for name, reason in image_kinds.BAD.items():
    assert f'{tmp_path}/train/b/{name}: {reason}' in str(caught.value)


def test_unreadable_files_are_skipped_on_request(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 2, 'b': 2})
  for name in image_kinds.BAD:
    image_kinds.write_bad(tmp_path / 'train' / 'a' / name)
  dataset = catalog.DATASETS['image_folder']
  found = write_db.open_images(dataset, tmp_path, 'train', skip_corrupt=True)
  assert len(found.skipped) == len(image_kinds.BAD)
  assert write_db.write(found, tmp_path / 'db') == 4
  database = databases.open_database(tmp_path / 'db')
  stored = [tensor_protos.decode(database.read(i)).label for i in range(4)]
  assert stored == [0, 0, 1, 1]
  for path in (tmp_path / 'train').glob('*/*.jpg'):
    if path.name not in image_kinds.BAD:
      path.unlink()
  with pytest.raises(errors.DataError, match='received 5 that are not'):
    write_db.open_images(dataset, tmp_path, 'train', skip_corrupt=True)


def test_shuffled_keys_hold_every_image_once(photos, tmp_path):
  orders = []
  for number, seed in enumerate((1, 1, 2)):
    folder = tmp_path / str(number)
    write_db.write(images(photos), folder / 'train', shuffle_seed=seed)
    batches, _ = load(folder, 9, training=False)
    orders.append([image.tobytes() for image, _ in batches])
  assert orders[0] == orders[1] != orders[2]
  assert set(orders[0]) == {expected(n).tobytes() for n in range(7)}


def test_existing_path_is_not_overwritten(photos, tmp_path):
  (tmp_path / 'train').mkdir()
  with pytest.raises(errors.DataError, match='expected a path that does not'):
    write_db.write(images(photos), tmp_path / 'train')
  assert os.listdir(tmp_path) == ['train']


def test_a_failed_conversion_leaves_no_database(photos, tmp_path):
  folder = tmp_path / 'photos'
  shutil.copytree(photos, folder)
  opened = images(folder)
  (folder / 'train' / 'rose' / '5.png').unlink()
  with pytest.raises(errors.DataError, match='Reading the images: expected'):
    write_db.write(opened, tmp_path / 'db' / 'train')
  assert os.listdir(tmp_path / 'db') == []


def test_full_disk_is_explained(photos, tmp_path, monkeypatch):
  # LMDB finds its bound as it finds the end of a disk.
  monkeypatch.setattr(write_db, '_LMDB_MAP_BYTES', 2**14)
  with pytest.raises(errors.DataError, match='free space; received "mdb_put'):
    write_db.write(images(photos), tmp_path / 'train')
  assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
  ('content', 'label', 'changes', 'message'),
  [
    (b'x' * 13, 1, {'image_format': b'RAW'}, r'13 bytes and the size \(2, 2\)'),
    (b'x' * 9, 1, {'image_format': b'RAW'}, r'9 bytes and the size \(2, 2\)'),
    (b'x', -5, {}, 'a label from 0 to 2147483647; received -5'),
    (b'x', 2**31, {}, 'a label from 0 to 2147483647; received 2147483648'),
  ],
)
def test_records_that_no_database_can_hold_are_named(
  tmp_path, content, label, changes, message
):
  good = photograph_files.example_2017(b'x', 1, (2, 2))
  bad = photograph_files.example_2017(content, label, (2, 2), **changes)
  record_files.write(tmp_path / 'train-0', [good, bad])
  with pytest.raises(errors.DataError, match=f'Key 00000001: .*{message}'):
    write_db.write(images(tmp_path, 'imagenet'), tmp_path / 'db' / 'train')
  assert os.listdir(tmp_path / 'db') == []


def test_the_digest_covers_the_keys(photos, tmp_path):
  for number in range(3):
    opened = images(photos)
    if number == 2:
      opened = write_db.select_classes(opened, ['rose'])
    write_db.write(opened, tmp_path / str(number) / 'train')
  first, same, other = (
    load(tmp_path / str(number), 0)[1].digest for number in range(3)
  )
  assert first == same != other
