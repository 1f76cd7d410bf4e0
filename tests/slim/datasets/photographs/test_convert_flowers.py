import os
import pathlib
import tarfile

import pytest

from slim import errors
from slim.datasets.files import archives
from slim.datasets.files import downloads
from slim.datasets.photographs import convert_flowers
from slim.datasets.records import sharding
from slim.datasets.small_images import convert_arrays
from tests.slim import archives_made
from tests.slim import file_server
from tests.slim import image_files
from tests.slim import plain_records
from tests.slim import programs

CLASSES = ('daisy', 'dandelion', 'roses', 'sunflowers', 'tulips')
ANY = downloads.Client(verify=False)


@pytest.fixture
def photos(tmp_path):
  """Photos by name, in tmp_path/flower_photos."""
  folder = tmp_path / 'flower_photos'
  written = image_files.write_folders(folder, dict.fromkeys(CLASSES, 6))
  (folder / 'LICENSE.txt').write_text('a licence')
  return written


def archive(photos, more=()):
  return archives_made.tar(
    [
      archives_made.member('flower_photos/LICENSE.txt', b'a licence'),
      *(
        archives_made.member(f'flower_photos/{name}', content)
        for name, content in photos.items()
      ),
      *more,
    ],
    'w:gz',
  )


def convert(tmp_path, source, number=7, layout=None):
  return convert_flowers.convert(
    tmp_path / 'out',
    source,
    number,
    layout or convert_arrays.FileLayout(),
    sharding.ConversionOptions(),
    ANY,
  )


def check(folder, photos, first_label):
  """Every photo is in one of the splits, byte for byte; returns the names."""
  only = plain_records.only
  names = {}
  for split in ('train', 'validation'):
    names[split] = []
    for example in plain_records.in_folder(folder, split):
      text = only(example, 'image/class/text').decode()
      name = f'{text}/{only(example, "image/filename").decode()}'
      assert only(example, 'image/encoded') == photos[name]
      label = only(example, 'image/class/label')
      assert label == first_label + CLASSES.index(text)
      names[split].append(name)
  assert sorted(names['train'] + names['validation']) == sorted(photos)
  return names


def test_folder_and_archive_give_the_same_splits(tmp_path, photos):
  (tmp_path / 'flower_photos.tgz').write_bytes(archive(photos))
  found = []
  for source in (
    tmp_path,  # its folder flower_photos
    tmp_path / 'flower_photos',
    tmp_path / 'flower_photos.tgz',
  ):
    (tmp_path / 'new').mkdir(exist_ok=True)
    target = tmp_path / 'new' / str(len(found))
    target.mkdir()
    report = convert(target, source)
    assert report.counts == {'train': 23, 'validation': 7}
    found.append(check(target / 'out', photos, 0))
  assert found[0] == found[1] == found[2]
  assert found[0]['train'] != sorted(found[0]['train'])


def test_shards_are_named_for_readers(tmp_path, photos):
  convert(tmp_path, tmp_path, layout=convert_arrays.FileLayout(True, 5))
  names = {path.name for path in (tmp_path / 'out').iterdir()}
  assert names == {
    *(f'train-0000{i}-of-00005' for i in range(5)),
    *('validation-00000-of-00001', 'labels.txt', 'shards.json'),
  }
  labels = (tmp_path / 'out' / 'labels.txt').read_text().splitlines()
  assert labels == [f'{i}:{name}' for i, name in enumerate(CLASSES)]


def test_the_archive_is_downloaded_without_a_source(
  tmp_path, photos, monkeypatch
):
  with file_server.serving() as site:
    site.files['/flower_photos.tgz'] = archive(photos)
    monkeypatch.setattr(
      convert_flowers,
      'ARCHIVE',
      convert_flowers.ARCHIVE._replace(url=f'{site.url}/flower_photos.tgz'),
    )
    assert convert(tmp_path, None).counts == {'train': 23, 'validation': 7}
  check(tmp_path / 'out', photos, 0)


def test_held_out_images_can_be_as_many_of_each_class(tmp_path, photos):
  items = convert_flowers.find(tmp_path, 1, False)
  splits = convert_flowers.hold_out_of_each(items, 10)
  labels = [item.label for item in splits['validation']]
  assert sorted(labels) == sorted([1, 2, 3, 4, 5] * 2)
  assert len(splits['train']) == 20
  assert splits == convert_flowers.hold_out_of_each(items, 10)


@pytest.mark.parametrize(
  ('function', 'number', 'message'),
  [
    ('hold_out', 0, 'expected 1 to 29; received 0'),
    ('hold_out', 30, 'expected 1 to 29; received 30'),
    ('hold_out_of_each', 12, 'a multiple of 5; received 12'),
    ('hold_out_of_each', 30, 'less than 30; received 30'),
  ],
)
def test_impossible_numbers_are_refused(
  tmp_path, photos, function, number, message
):
  items = convert_flowers.find(tmp_path, 0, False)
  with pytest.raises(errors.DataError, match=message):
    getattr(convert_flowers, function)(items, number)


def test_another_archive_is_refused_by_default(tmp_path, photos):
  path = tmp_path / 'flowers.tgz'
  path.write_bytes(archive(photos))
  with pytest.raises(errors.DataError, match='sha256 4c54ace7.*--noverify'):
    convert_flowers.find(path, 0, True)


def test_an_archive_with_a_link_is_refused(tmp_path, photos):
  path = tmp_path / 'flowers.tgz'
  evil = archives_made.member(
    'flower_photos/daisy/x.jpg', kind=tarfile.SYMTYPE, target='/etc/passwd'
  )
  path.write_bytes(archive(photos, [evil]))
  with pytest.raises(errors.DataError, match='a link'):
    convert_flowers.find(path, 0, False)


def test_an_archive_without_a_class_is_refused(tmp_path, photos):
  path = tmp_path / 'flowers.tgz'
  some = {k: v for k, v in photos.items() if not k.startswith('roses')}
  path.write_bytes(archive(some))
  with pytest.raises(errors.DataError, match='received none of roses'):
    convert_flowers.find(path, 0, False)


def test_a_folder_without_flowers_is_refused(tmp_path):
  with pytest.raises(errors.DataError, match='received neither. Download http'):
    convert_flowers.find(tmp_path, 0, False)


def test_a_file_in_memory_reads_like_one_on_disk(tmp_path):
  (tmp_path / 'a.jpg').write_bytes(b'abc')
  member = archives.Member('a.jpg', str(tmp_path / 'a.jpg'), 0, 3)
  held = archives.Member('a.jpg', 'flowers.tgz', 0, 3, b'abc')
  assert held.read() == member.read() == b'abc'


def test_the_program_writes_what_flowers_train_reads(tmp_path, photos):
  result = programs.start(
    'download_and_preprocess_flowers',
    *(tmp_path, '--validation_images', '10', '--train_shards', '3'),
    folder=tmp_path,
  )
  assert result.returncode == 0, result.stderr
  assert result.stdout.endswith('Finished writing all 30 images in data set.\n')
  names = check(tmp_path, photos, 1)
  assert len(names['validation']) == 10
  assert (tmp_path / 'labels.txt').read_text().startswith('0:background\n1:dai')


@pytest.mark.slow
def test_the_real_photos_are_split_and_written_byte_for_byte(tmp_path):
  folder = os.getenv('TERNGRAD_TEST_DATA')
  if not folder:
    pytest.skip('TERNGRAD_TEST_DATA names no folder with the flower photos')
  with tarfile.open(pathlib.Path(folder) / 'flower_photos_small.tar') as tar:
    tar.extractall(tmp_path, filter='data')
  source = tmp_path / 'flower_photos_small_set'
  report = convert(tmp_path, source, number=35)
  assert report.counts == {'train': 165, 'validation': 35}
  photos = {
    f'{path.parent.name}/{path.name}': path.read_bytes()
    for path in source.glob('*/*')
  }
  check(tmp_path / 'out', photos, 0)
