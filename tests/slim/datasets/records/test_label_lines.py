import pytest

from slim.datasets import labels
from slim.datasets.records import label_lines


@pytest.mark.parametrize(
  'name',
  ['ape', ' ape', 'a b', 'tab\tin it', 'caf\u00e9', '', '7:x', '\U0001f984'],
)
def test_valid_names_are_read_as_written(tmp_path, name):
  assert label_lines.find_problem(name) == ''
  (tmp_path / 'labels.txt').write_text(f'0:{name}\n1:other\n')
  assert labels.read(tmp_path, first_label=0) == {0: name, 1: 'other'}


@pytest.mark.parametrize(
  ('name', 'reason'),
  [
    ('a\udce9', 'UTF-8'),
    ('a\nb', 'line end'),
    ('a\n', 'line end'),
    ('\u2028', 'line end'),
    ('trail ', 'ends with a space'),
    ('trail\t', 'ends with a space'),
    ('\x1b[31m', 'control character'),
    ('a\x07', 'control character'),
    ('a\x7f', 'control character'),
    ('a\x00', 'control character'),
  ],
)
def test_the_reason_fits_the_invalid_name(name, reason):
  assert reason in label_lines.find_problem(name)
