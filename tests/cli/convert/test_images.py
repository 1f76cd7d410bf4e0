"""The program, on folders of images, checked with plain TensorFlow."""

import codecs
import os
import pathlib
import re
import tarfile

import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.datasets import image_folder
from slim.datasets import labels
from terngrad.cli.convert import images
from tests.slim import image_files
from tests.slim import plain_records
from tests.slim import programs

KEYS = {
  *('image/encoded', 'image/format', 'image/class/label', 'image/class/text'),
  *('image/height', 'image/width', 'image/channels', 'image/colorspace'),
  'image/filename',
}


def build(tmp_path, **changes):
  config = {
    'train_directory': str(tmp_path / 'train'),
    'validation_directory': '',
    'output_directory': str(tmp_path / 'out'),
    **changes,
  }
  images.act(images.ConvertImagesFlags(**config))


def by_name(folder, split='train'):
  """Returns {class/file: example}."""
  only = plain_records.only
  return {
    f'{only(example, "image/class/text").decode()}/'
    f'{only(example, "image/filename").decode()}': example
    for example in plain_records.in_folder(folder, split)
  }


def check(example, content, label):
  """Compares a record with the JPEG it was made of."""
  assert set(example) == KEYS
  assert plain_records.only(example, 'image/encoded') == content
  assert plain_records.only(example, 'image/class/label') == label
  assert plain_records.only(example, 'image/format') == b'JPEG'
  assert plain_records.only(example, 'image/colorspace') == b'RGB'
  assert plain_records.only(example, 'image/channels') == 3
  size = [example[f'image/{side}'][0] for side in ('height', 'width')]
  assert size == list(tf.io.decode_jpeg(content).shape[:2])


def test_the_program_writes_both_splits_with_labels_from_one(tmp_path):
  train = image_files.write_folders(tmp_path / 'train', {'cat': 5, 'ape': 3})
  held = image_files.write_folders(tmp_path / 'held', {'cat': 2, 'ape': 2})
  (tmp_path / 'labels.txt').write_text('cat\nape\n')
  arguments = [
    *('--train_directory', tmp_path / 'train', '--train_shards', '3'),
    *('--validation_directory', tmp_path / 'held', '--skip_corrupt', 'True'),
    *('--output_directory', tmp_path / 'out', '--num_threads', '4'),
    *('--labels_file', tmp_path / 'labels.txt'),
  ]
  result = programs.start('build_image_data', *arguments, folder=tmp_path)
  assert result.returncode == 0, result.stderr
  lines = result.stdout.splitlines()
  assert lines[-1] == 'Finished writing all 12 images in data set.'
  for split, files in (('train', train), ('validation', held)):
    found = by_name(tmp_path / 'out', split)
    assert set(found) == set(files)
    for name, content in files.items():
      check(found[name], content, 1 if name.startswith('cat') else 2)
  names = {path.name for path in (tmp_path / 'out').iterdir()}
  assert names == {
    *(f'train-0000{i}-of-00003' for i in range(3)),
    *(f'validation-0000{i}-of-00002' for i in range(2)),
    *('labels.txt', 'shards.json'),
  }
  labels = (tmp_path / 'out' / 'labels.txt').read_text()
  assert labels == '0:background\n1:cat\n2:ape\n'
  verified = programs.start(
    'build_image_data',
    *('--output_directory', tmp_path / 'out', '--verify'),
    folder=tmp_path,
  )
  assert verified.stdout.endswith('8 train, 4 validation, in 5 shards.\n')


@pytest.mark.parametrize('missing', ['train_directory', 'output_directory'])
def test_folders_must_be_given(tmp_path, missing):
  names = {'train_directory', 'output_directory'} - {missing}
  given = [f'--{name}={tmp_path}' for name in names]
  result = programs.start('build_image_data', *given, folder=tmp_path)
  assert result.returncode == 2
  assert f'--{missing}: expected a value; received none' in result.stderr


def test_records_are_shuffled_reproducibly(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 9, 'b': 9})
  orders = []
  for out in ('one', 'two'):
    build(tmp_path, output_directory=str(tmp_path / out))
    orders.append(list(by_name(tmp_path / out)))
  assert orders[0] == orders[1] != sorted(orders[0])


def test_formats_are_found_by_content_whatever_the_name(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 2})
  picture = image_files.picture()
  folder = tmp_path / 'train' / 'a'
  (folder / 'png.jpg').write_bytes(image_files.saved(picture, 'PNG'))
  (folder / 'jpeg.png').write_bytes(image_files.jpeg())
  (folder / 'noend').write_bytes(image_files.saved(picture, 'BMP'))
  (folder / 'x.JPEG').write_bytes(
    image_files.saved(picture, 'WEBP', lossless=True)
  )
  build(tmp_path)
  found = by_name(tmp_path / 'out')
  assert len(found) == 6
  for name in ('png.jpg', 'jpeg.png', 'noend', 'x.JPEG'):
    content = plain_records.only(found[f'a/{name}'], 'image/encoded')
    assert content.startswith(b'\xff\xd8\xff')
    difference = tf.io.decode_jpeg(content).numpy() - np.asarray(
      picture, np.int64
    )
    assert np.abs(difference).mean() < 4
  check(found['a/jpeg.png'], image_files.jpeg(), 1)


def bad_files(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 3, 'b': 3})
  (tmp_path / 'train' / 'a' / 'notes.jpg').write_text('only text')
  (tmp_path / 'train' / 'b' / 'cut.jpg').write_bytes(image_files.jpeg()[:-20])
  (tmp_path / 'train' / 'b' / 'huge.png').write_bytes(image_files.bomb())


def test_unreadable_files_are_all_listed_and_fail_the_run(tmp_path):
  bad_files(tmp_path)
  with pytest.raises(errors.DataError) as caught:
    build(tmp_path)
  message = str(caught.value)
  assert 'received 3 that are not' in message
  assert f'{tmp_path}/train/a/notes.jpg: expected JPEG, PNG, GIF' in message
  assert f'{tmp_path}/train/b/cut.jpg: expected a whole JPEG' in message
  assert f'{tmp_path}/train/b/huge.png: expected at most 89478485' in message
  assert not list((tmp_path / 'out').glob('train-*'))


def test_unreadable_files_are_left_out_with_skip_corrupt(tmp_path, capsys):
  bad_files(tmp_path)
  build(tmp_path, skip_corrupt=True)
  assert len(by_name(tmp_path / 'out')) == 6
  printed = capsys.readouterr().out
  assert printed.startswith('Left out 3 unreadable images:\n')
  assert printed.endswith('Finished writing all 6 images in data set.\n')


def test_an_empty_class_folder_is_refused(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 3, 'b': 0})
  with pytest.raises(errors.DataError, match='train/b: expected images; rece'):
    build(tmp_path)


def test_a_class_without_a_folder_is_refused(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 3})
  (tmp_path / 'labels.txt').write_text('a\nb\n')
  with pytest.raises(errors.DataError, match="received none for 'b'. Add it"):
    build(tmp_path, labels_file=str(tmp_path / 'labels.txt'))


def test_a_folder_that_the_labels_do_not_name_is_refused(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 3, 'b': 3})
  (tmp_path / 'labels.txt').write_text('a\n')
  with pytest.raises(errors.DataError, match="received 'b', which the file of"):
    build(tmp_path, labels_file=str(tmp_path / 'labels.txt'))


@pytest.mark.parametrize(
  ('text', 'message'),
  [('a\na\n', "received 'a' twice"), ('\n', 'received no name')],
)
def test_a_bad_file_of_labels_is_refused(tmp_path, text, message):
  image_files.write_folders(tmp_path / 'train', {'a': 3})
  (tmp_path / 'labels.txt').write_text(text)
  with pytest.raises(errors.DataError, match=message):
    build(tmp_path, labels_file=str(tmp_path / 'labels.txt'))


@pytest.mark.parametrize(
  ('name', 'reason'),
  [
    (b'caf\xe9', 'not UTF-8'),
    (b'a\nb', 'a line end'),
    (b'a\rb', 'a line end'),
    ('a\u2028b'.encode(), 'a line end'),
    (b'a\x1cb', 'a line end'),
    (b'a ', 'ends with a space'),
    (b'\x1b[31mred', r"control character '\\x1b'"),
  ],
)
def test_a_class_whose_name_is_no_line_is_refused(tmp_path, name, reason):
  image_files.write_folders(tmp_path / 'train', {'a': 3, 'b': 3})
  (tmp_path / 'train' / 'b').rename(tmp_path / 'train' / os.fsdecode(name))
  with pytest.raises(errors.DataError, match='names can be lines') as caught:
    build(tmp_path)
  assert repr(name) in str(caught.value)
  assert re.search(reason, str(caught.value))
  assert not (tmp_path / 'out').exists()
  with pytest.raises(errors.DataError, match='names can be lines'):
    image_folder.open_split(tmp_path, 'train', None)


def test_files_of_any_name_are_taken(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 2})
  for name in (b'caf\xe9.jpg', b'two\nlines'):
    path = tmp_path / 'train' / 'a' / os.fsdecode(name)
    path.write_bytes(image_files.jpeg())
  build(tmp_path)
  found = plain_records.in_folder(tmp_path / 'out', 'train')
  names = {plain_records.only(record, 'image/filename') for record in found}
  assert {b'caf\xe9.jpg', b'two\nlines'} <= names
  source = image_folder.open_split(tmp_path, 'train', None)
  for number in range(source.count):
    assert source.read(number).encoded.numpy().startswith(b'\xff\xd8')


def test_labels_may_begin_with_a_byte_order_mark(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'cat': 1, 'ape': 1})
  path = tmp_path / 'labels.txt'
  path.write_bytes(codecs.BOM_UTF8 + b'cat\nape\n')
  build(tmp_path, labels_file=str(path))
  assert set(by_name(tmp_path / 'out')) == {'cat/0.jpg', 'ape/0.jpg'}
  names = labels.read(tmp_path, first_label=1)
  assert names == {1: 'cat', 2: 'ape'}


@pytest.mark.parametrize('name', ['missing', 'empty'])
def test_a_directory_without_classes_is_refused(tmp_path, name):
  (tmp_path / 'empty').mkdir()
  with pytest.raises(errors.DataError, match='expected a folder'):
    build(tmp_path, train_directory=str(tmp_path / name))


def test_a_folder_among_the_images_is_refused(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 3})
  (tmp_path / 'train' / 'a' / 'more').mkdir()
  with pytest.raises(errors.DataError, match='a/more: expected an image file'):
    build(tmp_path)


def test_hidden_files_and_files_beside_the_classes_are_not_seen(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 3})
  (tmp_path / 'train' / 'a' / '.DS_Store').write_text('x')
  (tmp_path / 'train' / 'LICENSE.txt').write_text('x')
  build(tmp_path)
  assert len(by_name(tmp_path / 'out')) == 3


def test_a_changed_image_is_not_silently_ignored(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'a': 3})
  build(tmp_path)
  (tmp_path / 'train' / 'a' / '0.jpg').write_bytes(image_files.jpeg(seed=7))
  with pytest.raises(errors.DataError, match='another source.*--overwrite'):
    build(tmp_path)
  build(tmp_path, overwrite=True)
  found = by_name(tmp_path / 'out')
  check(found['a/0.jpg'], image_files.jpeg(seed=7), 1)


def test_real_flower_photos_are_written_byte_for_byte(tmp_path):
  folder = os.getenv('TERNGRAD_TEST_DATA')
  if not folder:
    pytest.skip('TERNGRAD_TEST_DATA names no folder with the flower photos')
  with tarfile.open(pathlib.Path(folder) / 'flower_photos_small.tar') as tar:
    tar.extractall(tmp_path, filter='data')
  photos = tmp_path / 'flower_photos_small_set'
  build(tmp_path, train_directory=str(photos), train_shards=5)
  names = ['daisy', 'dandelion', 'roses', 'sunflowers', 'tulips']
  found = by_name(tmp_path / 'out')
  files = list(photos.glob('*/*'))
  assert len(found) == len(files) == 200
  for path in files:
    example = found[f'{path.parent.name}/{path.name}']
    check(example, path.read_bytes(), 1 + names.index(path.parent.name))
