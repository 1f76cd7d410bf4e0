import os

import pytest

from slim import errors
from slim.datasets.photographs import imagenet
from slim.datasets.photographs import imagenet_download
from tests.slim import archives_made
from tests.slim import imagenet_made

SYNSETS = list(imagenet_made.SYNSETS)


def train_tar(tmp_path, content):
  path = tmp_path / 'train.tar'
  path.write_bytes(content)
  return path


def validation_tar(tmp_path, names):
  path = tmp_path / 'validation.tar'
  path.write_bytes(
    archives_made.tar(archives_made.member(name, b'x') for name in names)
  )
  return path


def val(number):
  return f'ILSVRC2012_val_{number:08d}.JPEG'


def test_training_images_are_found_in_nested_tars(tmp_path):
  images = imagenet_made.training_images()
  path = train_tar(tmp_path, imagenet_made.train_tar(images))
  items = imagenet.training_items(path, SYNSETS)
  assert {item.file.name: item.file.read() for item in items} == images
  for item in items:
    assert SYNSETS[item.label - 1] == item.file.name.partition('/')[0]


def test_a_class_that_the_tar_lacks_is_refused(tmp_path):
  images = imagenet_made.training_images()
  path = train_tar(tmp_path, imagenet_made.train_tar(images, SYNSETS[:2]))
  with pytest.raises(errors.DataError, match='received none for n02105855.tar'):
    imagenet.training_items(path, SYNSETS)


def test_a_class_that_the_list_lacks_is_refused(tmp_path):
  images = imagenet_made.training_images()
  path = train_tar(tmp_path, imagenet_made.train_tar(images))
  with pytest.raises(errors.DataError, match="received 'n02105855.tar', which"):
    imagenet.training_items(path, SYNSETS[:2])


def test_a_repeated_class_is_refused(tmp_path):
  twice = [*SYNSETS, SYNSETS[1]]
  inner = archives_made.tar([archives_made.member('a.JPEG', b'x')])
  path = train_tar(
    tmp_path,
    archives_made.tar(
      archives_made.member(f'{synset}.tar', inner) for synset in twice
    ),
  )
  with pytest.raises(errors.DataError, match=f"{SYNSETS[1]}.tar' again"):
    imagenet.training_items(path, SYNSETS)


def test_an_empty_class_is_refused(tmp_path):
  images = imagenet_made.training_images()
  some = {k: v for k, v in images.items() if not k.startswith(SYNSETS[1])}
  path = train_tar(tmp_path, imagenet_made.train_tar(some))
  with pytest.raises(errors.DataError, match='received an empty tar'):
    imagenet.training_items(path, SYNSETS)


@pytest.mark.parametrize('share', [0.3, 0.6])
def test_a_cut_tar_is_refused(tmp_path, share):
  content = imagenet_made.train_tar(imagenet_made.training_images())
  path = train_tar(tmp_path, content[: int(share * len(content)) // 512 * 512])
  with pytest.raises(errors.DataError, match='expected a complete tar'):
    imagenet.training_items(path, SYNSETS)


def test_validation_images_get_the_label_of_their_number(tmp_path):
  path = validation_tar(tmp_path, [val(3), val(1), val(2)])
  items = imagenet.validation_items(path, SYNSETS, [7, 8, 9])
  assert {item.file.name: item.label for item in items} == {
    val(1): 7,
    val(2): 8,
    val(3): 9,
  }


@pytest.mark.parametrize(
  ('names', 'message'),
  [
    ([val(1), val(3)], "received 'ILSVRC2012_val_00000003"),
    ([val(1), 'x.JPEG'], "received 'x.JPEG'"),
    ([val(1)], 'expected 2 images, one per label; received 1'),
    ([val(1), val(1)], f"received '{val(1)}' again"),
    ([val(1), val(2), val(2)], f"received '{val(2)}' again"),
    ([val(1), f'x/{val(1)}'], f"received 'x/{val(1)}' again"),
  ],
)
def test_validation_images_that_do_not_match_the_labels_are_refused(
  tmp_path, names, message
):
  path = validation_tar(tmp_path, names)
  with pytest.raises(errors.DataError, match=message):
    imagenet.validation_items(path, SYNSETS, [1, 2])


def test_sorting_moves_no_image_if_one_is_missing(tmp_path):
  (tmp_path / val(1)).write_text('x')
  with pytest.raises(errors.DataError, match='00000002.JPEG: expected the ima'):
    imagenet.sort_validation(tmp_path, SYNSETS[:2])
  assert os.listdir(tmp_path) == [val(1)]


def test_sorting_continues_after_an_interruption(tmp_path):
  for number in (1, 2, 3):
    (tmp_path / val(number)).write_text(str(number))
  (tmp_path / SYNSETS[0]).mkdir()
  (tmp_path / val(1)).rename(tmp_path / SYNSETS[0] / val(1))
  assert imagenet.sort_validation(tmp_path, SYNSETS) == 2
  assert imagenet.sort_validation(tmp_path, SYNSETS) == 0
  for number, synset in enumerate(SYNSETS, 1):
    assert (tmp_path / synset / val(number)).read_text() == str(number)


def test_a_removed_list_is_named(tmp_path):
  name = imagenet_download.SYNSETS[0]
  with pytest.raises(errors.DataError, match=f'{name}: expected a readable'):
    imagenet_download.classes(tmp_path)
  with pytest.raises(errors.DataError, match='synset_labels.txt: expected'):
    imagenet_download.validation_labels(tmp_path, SYNSETS)
