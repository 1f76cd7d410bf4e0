import pytest

from slim import errors
from slim.datasets import catalog
from slim.datasets import shards
from tests.slim import record_files
from tests.slim import shard_files

IMAGES = catalog.DATASETS['images']
FLOWERS = catalog.DATASETS['flowers']
MNIST = catalog.DATASETS['mnist']
SPLITS = {'train': [[b'a', b'b'], [b'c'], [b'd', b'e', b'f']]}


@pytest.fixture
def flowers(tmp_path):
  shard_files.write(tmp_path, 'flowers', SPLITS, num_classes=3)
  return tmp_path


def test_flowers_that_build_image_data_wrote_are_accepted(tmp_path, caplog):
  """As the scripts of 2017 made them."""
  shard_files.write(tmp_path, 'images', SPLITS, num_classes=6)
  assert shards.find(FLOWERS, tmp_path, 'train').num_classes == 6
  assert 'read as flowers because it has as many classes (6 with' in caplog.text


@pytest.mark.parametrize(
  ('dataset', 'num_classes'), [(FLOWERS, 5), (FLOWERS, 7), (MNIST, 10)]
)
def test_images_of_other_classes_are_refused(tmp_path, dataset, num_classes):
  shard_files.write(tmp_path, 'images', SPLITS, num_classes=num_classes)
  with pytest.raises(errors.DataError, match='received images, as its shards'):
    shards.find(dataset, tmp_path, 'train')


def part(folder, name, files):
  """A folder of links, as scripts/split_dataset.sh makes one."""
  worker = folder / name
  worker.mkdir()
  for file in files:
    (worker / file).symlink_to(folder / file)
  return worker


def test_constants_are_those_of_shards_json(flowers):
  found = shards.find(FLOWERS, flowers, 'train')
  assert [file.count for file in found.files] == [2, 1, 3]
  assert (found.num_examples, found.num_classes) == (6, 3)


def test_shards_are_scanned_once(flowers, monkeypatch):
  shards.find(FLOWERS, flowers, 'train')
  monkeypatch.setattr(shards.records, 'scan', None)  # calling it would fail
  shards.find(FLOWERS, flowers, 'train')


# Lengths 2**40 and 2**62, and the masked CRC-32C of each.
@pytest.mark.parametrize(
  'header', ['0000000000010000aa3d6be4', '00000000000000407f85f000']
)
def test_length_beyond_the_file_is_refused_though_shards_json_lists_the_file(
  flowers, header
):
  """TensorFlow ends the process with SIGSEGV when it reads such a record."""
  path = flowers / 'train-00001-of-00003'
  path.write_bytes(bytes.fromhex(header) + bytes(5))
  assert path.stat().st_size == 17
  with pytest.raises(errors.DataError, match='record 0 .*cut short'):
    shards.find(FLOWERS, flowers, 'train')


def test_count_that_contradicts_shards_json_is_refused(flowers):
  # The framing of a record is 16 bytes: one record of 33 or two.
  path = flowers / 'train-00000-of-00003'
  assert path.stat().st_size == 2 * 17
  record_files.write(path, [b'x' * 18])
  with pytest.raises(errors.DataError, match='the 2 records .* received 1'):
    shards.find(FLOWERS, flowers, 'train')


def test_worker_s_folder_keeps_the_counts_of_the_whole_set(flowers):
  names = ['train-00001-of-00003', 'shards.json']
  worker = part(flowers, 'worker_1_of_3', names)
  found = shards.find(FLOWERS, worker, 'train')
  assert [file.count for file in found.files] == [1]
  assert found.num_examples == 6


@pytest.mark.parametrize(
  ('folder', 'names', 'count', 'absent'),
  [
    ('worker_0_of_2', ['train-00001-of-00003'], 2, 'train-00000-of-00003'),
    ('worker_0_of_2', ['train-00000-of-00003'], 2, 'train-00001-of-00003'),
    ('worker_1_of_2', ['train-00001-of-00003'], 1, 'train-00002-of-00003'),
    ('worker_2_of_3', ['train-00000-of-00003'], 1, 'train-00002-of-00003'),
  ],
)
def test_worker_s_folder_that_lacks_a_shard_is_refused(
  flowers, folder, names, count, absent
):
  worker = part(flowers, folder, [*names, 'shards.json'])
  with pytest.raises(
    errors.DataError, match=rf'the {count} shards of worker .* {absent}\. Rem'
  ):
    shards.find(FLOWERS, worker, 'train')


def test_worker_s_folder_of_an_uneven_split_is_complete(flowers):
  first = ['train-00000-of-00003', 'train-00001-of-00003']
  for folder, names in (
    ('worker_0_of_2', first),
    ('worker_1_of_2', ['train-00002-of-00003']),
  ):
    worker = part(flowers, folder, [*names, 'shards.json'])
    assert len(shards.find(FLOWERS, worker, 'train').files) == len(names)


def test_worker_s_folder_of_2017_keeps_the_counts_of_the_whole_set(tmp_path):
  for number in (1, 2, 3):
    record_files.write(tmp_path / f'train-{number}', [b'x'] * number)
  worker = part(tmp_path, 'worker_1_of_3', ['train-2'])
  found = shards.find(FLOWERS, worker, 'train')
  assert [file.count for file in found.files] == [2]
  assert found.num_examples == 6


def test_other_folder_of_links_is_a_separate_set(tmp_path):
  for number in (1, 2, 3):
    record_files.write(tmp_path / f'train-{number}', [b'x'] * number)
  subset = part(tmp_path, 'subset', ['train-2'])
  assert shards.find(FLOWERS, subset, 'train').num_examples == 2


def test_classes_of_2017_are_labels_txt_s_or_the_data_set_s(tmp_path):
  record_files.write(tmp_path / 'train-0', [b'x'])
  assert shards.find(MNIST, tmp_path, 'train').num_classes == 10
  assert shards.find(FLOWERS, tmp_path, 'train').num_classes == 6
  (tmp_path / 'labels.txt').write_text('daisy\nrose\n')
  found = shards.find(FLOWERS, tmp_path, 'train')
  assert (found.num_classes, found.labels) == (3, {1: 'daisy', 2: 'rose'})
  assert shards.find(FLOWERS, tmp_path, 'train', 7).num_classes == 7


def test_unknown_number_of_classes_is_refused(tmp_path):
  record_files.write(tmp_path / 'train-0', [b'x'])
  with pytest.raises(errors.DataError, match='or pass num_classes'):
    shards.find(IMAGES, tmp_path, 'train')
  assert shards.find(IMAGES, tmp_path, 'train', 9).num_classes == 9


def test_classes_that_contradict_shards_json_are_refused(flowers):
  assert shards.find(FLOWERS, flowers, 'train', 3).num_classes == 3
  with pytest.raises(errors.DataError, match='expected 3, as .* received 6'):
    shards.find(FLOWERS, flowers, 'train', 6)


def test_missing_shard_is_refused(flowers):
  (flowers / 'train-00001-of-00003').unlink()
  with pytest.raises(
    errors.DataError, match='received 2, without train-00001-of-00003'
  ):
    shards.find(FLOWERS, flowers, 'train')


@pytest.mark.parametrize(
  ('names', 'received'),
  [
    (['train-00000-of-00003', 'train-00002-of-00003'], 'without train-00001-o'),
    (
      ['train-00000-of-00004'],
      'the 4 shards of train-.* without train-00001-o',
    ),
    (
      ['train-00000-of-00001', 'train-00000-of-00002', 'train-00001-of-00002'],
      r'received train-\*-of-00001 and train-\*-of-00002',
    ),
  ],
)
def test_numbered_shards_that_are_no_whole_set_are_refused(
  tmp_path, names, received
):
  for name in names:
    record_files.write(tmp_path / name, [b'x'])
  with pytest.raises(errors.DataError, match=received):
    shards.find(FLOWERS, tmp_path, 'train')
  worker = part(tmp_path, 'worker_0_of_2', names[:1])
  assert len(shards.find(FLOWERS, worker, 'train').files) == 1


def test_numbered_shards_of_a_whole_set_need_no_shards_json(flowers):
  (flowers / 'shards.json').unlink()
  record_files.write(flowers / 'train-extra', [b'x'])
  assert len(shards.find(FLOWERS, flowers, 'train').files) == 4


def test_cut_shard_is_refused(flowers):
  path = flowers / 'train-00001-of-00003'
  path.write_bytes(path.read_bytes()[:-1])
  with pytest.raises(errors.DataError, match='record 0 .*cut short'):
    shards.find(FLOWERS, flowers, 'train')


def test_files_of_a_split_whose_name_begins_with_another_s_are_apart(tmp_path):
  splits = {'test': [[b'a']], 'test-small': [[b'b'], [b'c']]}
  shard_files.write(tmp_path, 'flowers', splits, num_classes=3)
  for split, count in (('test', 1), ('test-small', 2)):
    files = shards.find(FLOWERS, tmp_path, split).files
    assert len(files) == count


def test_file_that_is_not_listed_is_refused(flowers):
  record_files.write(flowers / 'train-extra', [b'x'])
  with pytest.raises(errors.DataError, match='train-extra: expected a file'):
    shards.find(FLOWERS, flowers, 'train')


def test_broken_link_is_refused(flowers):
  worker = part(
    flowers, 'worker_0_of_3', ['train-00000-of-00003', 'shards.json']
  )
  (flowers / 'train-00000-of-00003').unlink()
  with pytest.raises(errors.DataError, match='No such file'):
    shards.find(FLOWERS, worker, 'train')


def test_split_that_was_not_converted_is_refused(flowers):
  record_files.write(flowers / 'validation-0', [b'x'])
  with pytest.raises(errors.DataError, match='a shards.json with train'):
    shards.find(FLOWERS, flowers, 'validation')


def test_folder_of_another_data_set_is_refused(flowers):
  with pytest.raises(
    errors.DataError, match='expected the data set mnist; rec'
  ):
    shards.find(MNIST, flowers, 'train')
  # But any set of shards can be read as images.
  assert shards.find(IMAGES, flowers, 'train').num_examples == 6


@pytest.mark.parametrize(
  ('split', 'name'),
  [
    ('train', 'train-images-idx3-ubyte.gz'),
    ('train', 'train-labels-idx1-ubyte'),
    # No file has the prefix of this split.
    ('test', 't10k-images-idx3-ubyte.gz'),
  ],
)
def test_published_files_of_mnist_are_to_be_converted(tmp_path, split, name):
  (tmp_path / name).write_bytes(b'\x1f\x8b')
  for dataset, chosen in (
    (MNIST, 'mnist'),
    (catalog.DATASETS['fashion_mnist'], 'fashion_mnist'),
    (catalog.DATASETS['cifar10'], 'mnist'),
  ):
    with pytest.raises(errors.DataError) as caught:
      shards.find(dataset, tmp_path, split)
    assert str(caught.value).endswith(
      f'received {name}, as it was downloaded. Convert it to another folder D, '
      f'and read that: terngrad convert dataset --dataset_name={chosen} '
      f'--source_dir={tmp_path} --dataset_dir=D'
    )


def test_published_files_do_not_hide_missing_or_damaged_records(tmp_path):
  (tmp_path / 't10k-images-idx3-ubyte').write_bytes(b'x')
  record_files.write(tmp_path / 'train-1', [b'x'])
  assert shards.find(MNIST, tmp_path, 'train').num_examples == 1
  (tmp_path / 'train-labels-idx1-ubyte').write_bytes(b'x' * 20)
  with pytest.raises(errors.DataError, match='ubyte: record 0 .* is damaged'):
    shards.find(MNIST, tmp_path, 'train')
