import pytest

from terngrad import native
from tests.bin import programs


@pytest.mark.slow
def test_table_and_plot_are_made(tmp_path):
  rows = programs.measured(
    'measure_codec',
    tmp_path,
    '--codecs=ternary',
    '--codecs=identity',
    '--sizes=1e3,1e4',
    '--nets=lenet',
    '--rounds=1',
    '--compare',
  )
  assert {row['gradient'] for row in rows} == {'1e+03', '1e+04', 'lenet'}
  assert {row['codec'] for row in rows} >= {'ternary', 'identity', 'numpy'}
  assert all(float(row['update_to_copy'] or 1) > 0 for row in rows)
  assert 'fused_update_to_copy' in rows[0] or not native.available()
  assert (tmp_path / 'measure_codec.png').stat().st_size > 10_000


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--sizes=1.5', "expected whole numbers >= 1, received '1.5'"),
    ('--nets=lenat', "did you mean 'lenet'?"),
    ('--codecs=terniary', "Did you mean 'ternary'"),
  ],
)
def test_bad_arguments_are_refused(argument, message, worker):
  done = worker.run('measure_codec', [argument])
  assert done.code == 2
  assert message in done.error
