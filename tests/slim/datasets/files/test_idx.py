import gzip
import hashlib
import struct

import numpy as np
import pytest

from slim import errors
from slim.datasets.files import idx
from tests.slim import mnist_files

VALUES = np.arange(2 * 3 * 4, dtype=np.uint8).reshape(2, 3, 4)
CONTENT = mnist_files.idx_bytes(VALUES)
# Without the time of day: it is part of a test's name, which all of pytest's
# processes have to collect alike.
COMPRESSED = gzip.compress(CONTENT, mtime=0)


def write(tmp_path, content):
  path = tmp_path / 'images'
  path.write_bytes(content)
  return path


@pytest.mark.parametrize('compress', [bytes, gzip.compress])
def test_values_and_hash_of_the_uncompressed_file_come_back(tmp_path, compress):
  content = idx.read(write(tmp_path, compress(CONTENT)), (3, 4))
  np.testing.assert_array_equal(content.values, VALUES)
  assert content.sha256 == hashlib.sha256(CONTENT).hexdigest()


def test_labels_have_no_item_shape(tmp_path):
  labels = np.array([3, 1, 4], np.uint8)
  path = write(tmp_path, mnist_files.idx_bytes(labels))
  np.testing.assert_array_equal(idx.read(path, ()).values, labels)


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (b'', 'header of 16 bytes; received 0'),
    (CONTENT[:15], 'header of 16 bytes; received 15'),
    (b'\0\0\x0d\x03' + CONTENT[4:], 'magic number 0x00000803; .* 0x00000d03'),
    (b'<html><head><title>404', 'magic number'),
    (CONTENT[:-1], '24 bytes after the header; received 23'),
    (CONTENT + b'\0', '24 bytes after the header; received more'),
    (struct.pack('>4I', 0x803, 2, 4, 3) + bytes(24), r'\(3, 4\); .*\(4, 3\)'),
    (struct.pack('>4I', 0x803, 0, 3, 4), 'items; received 0'),
    (struct.pack('>4I', 0x803, 2**32 - 1, 3, 4), 'items; received 4294967295'),
    (COMPRESSED[:-9], 'a whole, readable file'),
    (COMPRESSED[:12] + bytes(30), 'a whole, readable file'),
    (b'\x1f\x8b' + bytes(20), 'a whole, readable file'),
  ],
)
def test_files_other_than_the_expected_idx_are_refused(
  tmp_path, content, message
):
  with pytest.raises(errors.DataError, match=f'images: expected .*{message}'):
    idx.read(write(tmp_path, content), (3, 4))


def test_a_bomb_is_not_unpacked(tmp_path):
  # 100 MB of zeros behind a header that announces 24 bytes.
  bomb = gzip.compress(CONTENT[:16] + bytes(100_000_000), compresslevel=1)
  with pytest.raises(errors.DataError, match='received more'):
    idx.read(write(tmp_path, bomb), (3, 4))


def test_missing_file_is_named(tmp_path):
  with pytest.raises(errors.DataError, match='nothing.*No such file'):
    idx.read(tmp_path / 'nothing', ())
