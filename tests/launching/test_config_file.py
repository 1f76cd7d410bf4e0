"""What is written as a configuration is what is read."""

import pytest

from terngrad import errors
from terngrad.launching import config_file

WORDS = [
  '',
  'a b',
  "it's",
  '"',
  "'",
  '$(x)',
  '`x`',
  '#',
  'a\\',
  '~/a',
  'é',
  ')',
]


def test_written_words_are_read_back(tmp_path):
  path = tmp_path / 'config'
  path.write_text(config_file.write({'LIST': WORDS}, {'WORD': "a'b"}))
  lists, words = config_file.read(str(path), ['LIST'], ['WORD'])
  assert lists == {'LIST': tuple(WORDS)}
  assert words == {'WORD': "a'b"}


@pytest.mark.parametrize(
  ('text', 'words'),
  [
    ('A=(a b)', ('a', 'b')),
    ('A=(a\n  b # c\n)', ('a', 'b')),
    ('\tA=( )', ()),
    ('A=(\'a\'"b"c)', ('abc',)),
    ('A=(\'\' "")', ('', '')),
    ('# A=(x)\r\n\r\nA=(a)\r\n', ('a',)),
  ],
)
def test_lists_are_those_of_bash(tmp_path, text, words):
  path = tmp_path / 'config'
  path.write_bytes(text.encode())
  assert config_file.read(str(path), ['A'], []) == ({'A': words}, {})


@pytest.mark.parametrize('text', ['A=(a;b)', 'A=(a)b', 'A=(a\x00b)', 'A=(a{b)'])
def test_what_bash_would_execute_or_expand_is_refused(tmp_path, text):
  path = tmp_path / 'config'
  path.write_bytes(text.encode())
  with pytest.raises(errors.ConfigError, match='line 1'):
    config_file.read(str(path), ['A'], [])
