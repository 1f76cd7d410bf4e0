import tarfile

import pytest

from slim import errors
from slim.datasets.files import archives
from slim.datasets.photographs import image_folders
from slim.datasets.photographs import images
from slim.datasets.photographs import labeled_images
from tests.slim import image_files

TERABYTE = 1 << 40


def grown(path):
  """Makes a file as long as that, without a byte on the disk."""
  with open(path, 'r+b') as file:
    file.truncate(TERABYTE)


def in_a_folder(folder):
  image_files.write_folders(folder / 'photos', {'ape': 1})
  grown(folder / 'photos' / 'ape' / '0.jpg')
  (item,) = image_folders.find(folder / 'photos', ['ape'], 0)
  return item


def in_a_tar(folder):
  path = folder / 'photos.tar'
  info = tarfile.TarInfo('ape/0.jpg')
  info.size = TERABYTE
  path.write_bytes(info.tobuf(tarfile.GNU_FORMAT) + image_files.jpeg())
  with open(path, 'r+b') as file:
    file.truncate(TERABYTE + 4096)
  (member,) = archives.index(path)
  return labeled_images.Item(member, 0)


@pytest.mark.parametrize('find', [in_a_folder, in_a_tar])
def test_a_file_of_a_terabyte_is_refused_before_it_is_read(tmp_path, find):
  item = find(tmp_path)
  found = labeled_images.read(item, images.to_jpeg)
  assert 'at most 715827880 bytes; received 1099511627776' in found.reason
  assert '0.jpg' in found.name
  with pytest.raises(errors.DataError, match='at most 715827880 bytes'):
    labeled_images.unpack([item], ['ape'], tmp_path / 'unpacked')
