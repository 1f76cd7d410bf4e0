"""The table of exchanges: what its cases mean, and which are refused."""

import pytest

from terngrad import errors
from terngrad.measure.processes import exchange_table


@pytest.mark.parametrize(
  ('text', 'case'),
  [
    ('ternary', ('ternary', 'auto', 7)),
    ('ternary@slices', ('ternary', 'slices', 7)),
    ('eden3:a=1,b=2@gather@0', ('eden3:a=1,b=2', 'gather', 0)),
  ],
)
def test_a_case_has_a_codec_an_algorithm_and_bytes(text, case):
  assert exchange_table.parse(text, 7) == (text, *case)


@pytest.mark.parametrize(
  'text', ['ternary@all', 'ternary@gather@-1', 'ternary@gather@0@0']
)
def test_invalid_cases_are_refused(text):
  with pytest.raises(
    errors.ConfigError, match='expected CODEC, CODEC@ALGORITHM or'
  ):
    exchange_table.parse(text, 0)
