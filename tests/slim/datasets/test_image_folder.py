"""Folders of images: their classes, and what is delivered of each file."""

import os

import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.datasets import factory
from slim.datasets import image_folder
from slim.preprocessing import photographs
from tests.slim import image_files
from tests.slim import image_kinds


def labels_of(folder, split):
  source = image_folder.open_split(folder, split, None)
  return [int(source.read(i).label) for i in range(source.count)]


def pixels_of(source, index=0):
  """What the pipeline decodes of an example."""
  stored = source.read(tf.constant(index, tf.int64))._asdict()
  del stored['label']
  return (
    photographs.from_encoded(stored.pop('encoded'), **stored).whole().numpy()
  )


def read(folder, name, content):
  (folder / 'train' / 'a').mkdir(parents=True, exist_ok=True)
  (folder / 'train' / 'a' / name).write_bytes(content)
  return pixels_of(image_folder.open_split(folder, 'train', None))


def test_a_class_without_images_in_a_split_leaves_the_labels_of_the_others(
  tmp_path,
):
  image_files.write_folders(tmp_path / 'train', {'ape': 1, 'bee': 1, 'cat': 1})
  image_files.write_folders(tmp_path / 'test', {'ape': 1, 'cat': 2})
  assert labels_of(tmp_path, 'test') == [0, 2, 2]
  source = image_folder.open_split(tmp_path, 'test', None)
  assert source.labels == {0: 'ape', 1: 'bee', 2: 'cat'}
  assert source.num_classes == 3


def test_the_classes_of_labels_txt_come_before_those_of_the_training_split(
  tmp_path,
):
  image_files.write_folders(tmp_path / 'train', {'ape': 1, 'cat': 1})
  image_files.write_folders(tmp_path / 'test', {'bee': 1, 'cat': 1})
  (tmp_path / 'labels.txt').write_text('cat\nbee\nape\n')
  assert labels_of(tmp_path, 'train') == [2, 0]
  assert labels_of(tmp_path, 'test') == [1, 0]


def test_a_name_that_occurs_twice_in_labels_txt_is_refused(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'cat': 1, 'dog': 1})
  (tmp_path / 'labels.txt').write_text('cat\ndog\ncat\n')
  with pytest.raises(errors.DataError, match="received 'cat' twice"):
    labels_of(tmp_path, 'train')


def test_names_with_a_number_and_a_colon_are_names_if_folders_have_them(
  tmp_path,
):
  image_files.write_folders(tmp_path / 'train', {'1:1': 1, '16:9': 1})
  image_files.write_folders(tmp_path / 'test', {'1:1': 1})
  (tmp_path / 'labels.txt').write_text('1:1\n16:9\n')
  assert labels_of(tmp_path, 'train') == [1, 0]
  assert labels_of(tmp_path, 'test') == [0]


def test_numbered_lines_name_the_folders_of_their_classes(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'1:1': 1, 'ape': 1})
  (tmp_path / 'labels.txt').write_text('0:ape\n1:1:1\n')
  assert labels_of(tmp_path, 'train') == [1, 0]


def test_the_digest_covers_names_and_labels_of_files(tmp_path):
  def digest(folder, classes, split='train'):
    image_files.write_folders(tmp_path / folder / split, classes)
    return image_folder.open_split(tmp_path / folder, split, None).digest

  first = digest('a', {'ape': 2, 'cat': 1})
  assert first == digest('b', {'ape': 2, 'cat': 1})
  assert first != digest('c', {'ape': 1, 'cat': 2})
  assert first != digest('d', {'ape': 2, 'dog': 1})
  (tmp_path / 'a' / 'labels.txt').write_text('cat\nape\n')
  assert image_folder.open_split(tmp_path / 'a', 'train', None).digest != first
  options = factory.ReadOptions(image_size=8, batch_size=1, training=True)
  _, split = factory.load('image_folder', tmp_path / 'b', 'train', options)
  assert split.digest == first


def test_a_split_alone_is_refused_without_labels_txt(tmp_path):
  image_files.write_folders(tmp_path / 'test', {'ape': 1, 'cat': 1})
  with pytest.raises(errors.DataError, match='expected labels.txt .*neither'):
    image_folder.open_split(tmp_path, 'test', None)
  (tmp_path / 'labels.txt').write_text('ape\nbee\ncat\n')
  assert labels_of(tmp_path, 'test') == [0, 2]


@pytest.mark.parametrize('kind', ['broken link', 'folder'])
def test_what_is_not_a_file_is_refused_and_not_left_out(tmp_path, kind):
  image_files.write_folders(tmp_path / 'train', {'ape': 2})
  path = tmp_path / 'train' / 'ape' / '1.jpg'
  path.unlink()
  if kind == 'folder':
    path.mkdir()
  else:
    path.symlink_to(tmp_path / 'missing.jpg')
  with pytest.raises(errors.DataError, match='1.jpg: expected an image file'):
    image_folder.open_split(tmp_path, 'train', None)


def test_links_to_files_are_read(tmp_path):
  image_files.write_folders(tmp_path / 'train', {'ape': 1})
  image_files.write_folders(tmp_path / 'elsewhere', {'ape': 1})
  link = tmp_path / 'train' / 'ape' / 'link.jpg'
  link.symlink_to(tmp_path / 'elsewhere' / 'ape' / '0.jpg')
  assert labels_of(tmp_path, 'train') == [0, 0]


@pytest.mark.parametrize('origin', ['train', 'labels.txt'])
def test_a_split_with_other_classes_is_refused_with_both_lists(
  tmp_path, origin
):
  image_files.write_folders(tmp_path / 'train', {'ape': 1, 'bee': 1, 'cat': 1})
  image_files.write_folders(tmp_path / 'test', {'ape': 1, 'dog': 1, 'eel': 1})
  if origin == 'labels.txt':
    (tmp_path / 'labels.txt').write_text('ape\nbee\ncat\n')
  with pytest.raises(
    errors.DataError,
    match=f'of {tmp_path}/{origin}, ape, bee, cat; received ape, dog, eel. Not '
    'among them: dog, eel',
  ):
    image_folder.open_split(tmp_path, 'test', None)


@pytest.mark.parametrize('name', image_kinds.ORDINARY)
def test_ordinary_files_are_decoded_as_tensorflow_decodes_them(tmp_path, name):
  content = image_kinds.ORDINARY[name]()
  expected = tf.io.decode_image(content, 3, expand_animations=False)
  np.testing.assert_array_equal(read(tmp_path, name, content), expected)


@pytest.mark.parametrize('name', image_kinds.RESOLVED)
def test_other_files_are_decoded_to_what_a_viewer_shows(tmp_path, name):
  content, expected, tolerance = image_kinds.RESOLVED[name]()
  found = read(tmp_path, name, content).astype(int)
  assert found.shape == expected.shape
  assert np.abs(found - expected).max() <= tolerance


@pytest.mark.parametrize('name', image_kinds.BAD)
def test_an_invalid_image_is_named_when_it_is_read(tmp_path, name):
  (tmp_path / 'train' / 'a').mkdir(parents=True)
  path = tmp_path / 'train' / 'a' / name
  image_kinds.write_bad(path)
  options = factory.ReadOptions(image_size=8, batch_size=1, training=False)
  batches, _ = factory.load('image_folder', tmp_path, 'train', options)
  with pytest.raises(tf.errors.InvalidArgumentError) as caught:
    list(batches)
  assert f'{path}: {image_kinds.BAD[name]}' in str(caught.value)


def test_a_file_whose_name_is_not_utf8_is_refused_like_others(tmp_path):
  name = os.fsdecode(b'caf\xe9.jpg')
  with pytest.raises(errors.DataError, match='caf.*.jpg: expected JPEG'):
    read(tmp_path, name, b'no image')
