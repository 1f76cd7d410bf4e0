"""Codes on an accelerator; here a CPU takes its place."""

import pytest

from terngrad.measure import codec_table
from terngrad.measure import device_codec_table


@pytest.mark.parametrize(
  ('text', 'kind', 'works'),
  [
    (
      'identity',
      'XLA',
      'probe encode decode decode_sum update',
    ),
    pytest.param(
      'error_feedback+powersgd',
      'graph',
      'probe encode decode decode_sum finish update',
      marks=pytest.mark.slow,
    ),
  ],
)
def test_all_works_are_timed_relative_to_a_copy(text, kind, works):
  steps = []
  (row,) = device_codec_table.measure(
    '/CPU:0', text, 'case', [(20, 12), (10,)], 1, lambda: steps.append(1)
  )
  found = [key.removesuffix('_to_copy') for key in row if 'to_copy' in key]
  assert found == works.split()
  assert len(steps) == 2
  line = codec_table.line(row)
  assert line.startswith(f'case  {text} ({kind}, device): copies: probe ')
  assert line.endswith(' bits')
  assert codec_table.table([row])['kind'].tolist() == [f'{kind}, device']


def test_works_that_are_not_wanted_are_not_timed():
  (row,) = device_codec_table.measure(
    '/CPU:0', 'identity', 'case', [(10,)], 1, works=('decode',)
  )
  assert [key for key in row if 'to_copy' in key] == ['decode_to_copy']
