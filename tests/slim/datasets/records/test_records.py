import random
import shutil

import pytest
import tensorflow as tf

from slim import errors
from slim.datasets.records import records
from tests.slim import record_files

# Lengths of 0 and 1, and one that needs two bytes.
PAYLOADS = [b'', b'x', b'some payload' * 30] + [
  bytes([i]) * (7 * i + 3) for i in range(17)
]


@pytest.fixture
def path(tmp_path):
  path = tmp_path / 'train-a'
  record_files.write(path, PAYLOADS)
  return path


def record_at(byte):
  """The number of the record that holds this byte of the file."""
  end = 0
  for number, payload in enumerate(PAYLOADS):
    end += record_files.FRAMING_BYTES + len(payload)
    if byte < end:
      return number
  raise IndexError(byte)


def is_in_payload(byte):
  """Whether the byte is none of a record's length or the length's CRC."""
  start = 0
  for payload in PAYLOADS:
    if start <= byte < start + 12:
      return False
    start += record_files.FRAMING_BYTES + len(payload)
  return True


def borders():
  end, found = 0, [0]
  for payload in PAYLOADS:
    end += record_files.FRAMING_BYTES + len(payload)
    found.append(end)
  return found


def test_whole_file_is_counted(path):
  assert records.scan(path) == records.verify(path) == len(PAYLOADS)


def test_cut_file_is_found_with_its_record(path):
  content = path.read_bytes()
  cuts = set(random.Random(0).sample(range(1, len(content)), 200))
  for cut in sorted(cuts - set(borders())):
    path.write_bytes(content[:cut])
    for check in (records.scan, records.verify):
      with pytest.raises(
        errors.DataError,
        match=rf'train-a: record {record_at(cut)} \(counted from 0\).*Convert',
      ):
        check(path)


def test_cut_between_records_is_a_shorter_file(path):
  content = path.read_bytes()
  for number, border in enumerate(borders()[1:], start=1):
    path.write_bytes(content[:border])
    assert records.scan(path) == number


def test_flipped_bit_is_found_with_its_record(path):
  content = path.read_bytes()
  generator = random.Random(1)
  for byte in generator.sample(range(len(content)), 60):
    damaged = bytearray(content)
    damaged[byte] ^= 1 << generator.randrange(8)
    path.write_bytes(damaged)
    with pytest.raises(errors.DataError, match=f'record {record_at(byte)} '):
      records.verify(path)
    if is_in_payload(byte):
      assert records.scan(path) == len(PAYLOADS)
    else:
      with pytest.raises(errors.DataError, match=f'record {record_at(byte)} '):
        records.scan(path)


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (b'', 'an empty file'),
    (b'\x00', 'header of 12 bytes; received 1'),
    (
      b'\x1f\x8b' + bytes(40),
      'length that matches its CRC.*not a TFRecord file',
    ),
  ],
)
def test_files_without_records_are_refused(path, content, message):
  path.write_bytes(content)
  with pytest.raises(errors.DataError, match=message):
    records.scan(path)


def test_length_beyond_the_file_is_not_read(path):
  # A payload of these eight bytes ends with the CRC that a length of 2**62
  # bytes needs.
  length = (2**62).to_bytes(8, 'little')
  record_files.write(path, [length])
  path.write_bytes(length + path.read_bytes()[-4:] + bytes(100))
  with pytest.raises(errors.DataError, match='record 0.*cut short'):
    records.scan(path)


def test_unreadable_file_is_named(tmp_path):
  with pytest.raises(errors.DataError, match='nothing.*No such file'):
    records.scan(tmp_path / 'nothing')


def test_find_takes_the_split_s_files_in_order(tmp_path):
  for name in ('train-b', 'train-a', 'test-a', 'train', '.train-c.tmp'):
    (tmp_path / name).write_bytes(b'')
  (tmp_path / 'train-folder').mkdir()
  assert records.find(tmp_path, 'train') == [
    str(tmp_path / 'train-a'),
    str(tmp_path / 'train-b'),
  ]


def test_find_in_a_missing_folder_returns_an_empty_list(tmp_path):
  assert records.find(tmp_path / 'none', 'train') == []


def test_find_takes_brackets_in_folder_names_as_they_are(tmp_path):
  folder = tmp_path / 'data[1]*'
  folder.mkdir()
  (folder / 'train-a').write_bytes(b'')
  assert records.find(folder, 'train') == [str(folder / 'train-a')]


def test_scan_all_keeps_the_order_and_names_the_damaged(path):
  other = path.with_name('train-b')
  record_files.write(other, PAYLOADS[:3])
  assert records.scan_all([other, path]) == (
    records.RecordFile(str(other), 3),
    records.RecordFile(str(path), len(PAYLOADS)),
  )
  other.write_bytes(path.read_bytes()[:-1])
  with pytest.raises(errors.DataError, match=f'train-b.*{len(PAYLOADS) - 1}'):
    records.scan_all([path, other])


def test_explain_names_file_and_record_of_a_data_loss(path):
  whole = path.with_name('train-0')
  shutil.copy(path, whole)
  content = bytearray(path.read_bytes())
  content[-1] ^= 1
  path.write_bytes(content)
  with pytest.raises(tf.errors.DataLossError) as caught:
    list(tf.data.TFRecordDataset([str(whole), str(path)]))
  explained = records.explain(caught.value, [whole, path])
  assert isinstance(explained, errors.DataError)
  assert f'train-a: record {len(PAYLOADS) - 1} ' in str(explained)


def test_explain_repeats_the_message_if_no_file_is_damaged(path):
  error = tf.errors.InvalidArgumentError(None, None, 'a strange label')
  message = str(records.explain(error, [path]))
  assert 'train-a' in message and '"a strange label"' in message
