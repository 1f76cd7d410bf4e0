"""The bench of Keras's fit."""

import pytest

from terngrad.measure.keras import fit


@pytest.mark.slow
def test_a_row_a_codec_and_plain_keras_is_1():
  table = fit.table(('ternary',), ('/CPU:0',), 8, rounds=2, steps=2)
  assert list(table['codec']) == ['none', 'ternary']
  plain, coded = table.to_dict('records')
  assert plain['ratio'] == plain['least ratio'] == 1
  assert coded['least ratio'] <= coded['ratio'] <= coded['largest ratio']
  assert 0 < coded['least ms'] <= coded['ms a step']
