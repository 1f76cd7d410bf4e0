import pytest

from slim import errors
from slim.datasets import labels


def read(folder, content, first_label=0):
  (folder / 'labels.txt').write_bytes(content)
  return labels.read(folder, first_label=first_label)


def test_numbered_lines_of_slim_s_converters(tmp_path):
  found = read(tmp_path, b'0:zero\n2:two: the second\n1:\n')
  assert found == {0: 'zero', 2: 'two: the second', 1: ''}


@pytest.mark.parametrize('first', [0, 1])
def test_names_of_the_flowers_script_begin_at_the_first_label(tmp_path, first):
  found = read(tmp_path, b'daisy\r\n\r\nrose\r\n', first)
  assert found == {first: 'daisy', first + 1: 'rose'}


def test_missing_file_is_none(tmp_path):
  assert labels.read(tmp_path, first_label=0) is None


@pytest.mark.parametrize(
  ('content', 'message'),
  [
    (b'', 'received no line'),
    (b'\n \n', 'received no line'),
    (b'\xff\xfe', 'invalid start byte'),
    (b'0:a\nrose\n', "the line 'rose', with no label"),
    (b'0:a\n0:b\n', "the line '0:b', .* a repeated one"),
  ],
)
def test_other_formats_are_refused(tmp_path, content, message):
  with pytest.raises(errors.DataError, match=message) as caught:
    read(tmp_path, content)
  assert str(tmp_path / 'labels.txt') in str(caught.value)
