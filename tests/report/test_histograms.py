"""What codes do to gradients: lengths and angles by hand, and a chart."""

import numpy as np
import pytest

from terngrad import errors
from terngrad.cli.report import histograms as program
from terngrad.report import histograms

RNG = np.random.default_rng(4)
GRADIENTS = {
  'fc/kernel': RNG.normal(size=(100, 50)).astype(np.float32),
  'fc/bias': np.array([3.0, -4.0], np.float32),
  'still': np.zeros([4], np.float32),
}


def table(text, factor=2.5):
  decoded = histograms.encode_and_decode(text, GRADIENTS)
  return histograms.table(GRADIENTS, decoded, factor).set_index('variable')


def test_a_lossless_code_changes_neither_length_nor_angle():
  found = table('identity')
  assert list(found.index) == list(GRADIENTS)
  for name in ('fc/kernel', 'fc/bias'):
    assert found.loc[name, 'length, coded'] == 1
    # The arc cosine of 1 less one rounding is 1e-6 degrees.
    assert found.loc[name, 'angle, coded'] == pytest.approx(0, abs=1e-5)
  assert found.loc['fc/kernel', 'zeros, coded'] == 0
  assert np.isnan(found.loc['still', 'angle, coded'])


def test_length_and_angle_of_ternary_codes_match_the_formulas():
  row = table('ternary:clip_factor=0').loc['fc/kernel']
  values = np.abs(GRADIENTS['fc/kernel'].astype(np.float64))
  fires = (values / values.max()).sum()
  length = values.max() * np.sqrt(fires) / np.linalg.norm(values)
  # The number of codes that are not 0 has a standard deviation below its root.
  assert row['length, coded'] == pytest.approx(length, rel=3 / np.sqrt(fires))
  assert 1 - row['zeros, coded'] == pytest.approx(
    fires / values.size, abs=6 * np.sqrt(fires) / values.size
  )
  cosine = 1 / length  # The code is unbiased.
  assert np.cos(np.radians(row['angle, coded'])) == pytest.approx(
    cosine, rel=0.2
  )


def test_clipping_shortens_the_gradient_as_computed_by_hand():
  found = table('identity', 1.0)
  # Standard deviation 3.5 about the mean -0.5: only -4 is cut.
  row = found.loc['fc/bias']
  assert row['beyond the clip'] == 0.5
  assert row['length, clipped'] == pytest.approx(np.hypot(3, 3.5) / 5)
  angle = np.degrees(np.arctan2(4, 3) - np.arctan2(3.5, 3))
  assert row['angle, clipped'] == pytest.approx(angle)
  # P(|z| > 1) = 0.3173 of 5,000 elements.
  assert found.loc['fc/kernel', 'beyond the clip'] == pytest.approx(
    0.3173, abs=4 * np.sqrt(0.32 * 0.68 / 5000)
  )


def test_a_factor_of_0_does_not_clip():
  found = table('identity', 0.0)
  assert (found['beyond the clip'] == 0).all()
  assert found.loc['fc/kernel', 'length, clipped'] == 1


@pytest.mark.parametrize('factor', [-1.0, float('nan'), float('inf')])
def test_factors_below_0_are_refused(tmp_path, factor):
  values = program.ReportHistogramsFlags(
    gradients=str(tmp_path / 'no'), clip_factor=factor
  )
  with pytest.raises(errors.ConfigError, match='clip_factor: expected a numb'):
    program.act(values)


def test_table_and_chart_are_written(tmp_path, capsys):
  path = tmp_path / 'g.npz'
  # A row of the chart takes half a second.
  drawn = {name: GRADIENTS[name] for name in ('fc/kernel', 'still')}
  np.savez(path, **{k: np.stack([v, -v]) for k, v in drawn.items()})
  values = program.ReportHistogramsFlags(
    gradients=str(path), worker=1, output=str(tmp_path / 'made')
  )
  program.act(values)
  assert 'fc/kernel' in capsys.readouterr().out
  for name in ('histograms.csv', 'histograms.png'):
    assert (tmp_path / 'made' / name).stat().st_size


@pytest.mark.parametrize(
  ('values', 'message'),
  [
    ([1.0, np.nan], 'expected finite numbers .* received others of b'),
    ([1.0, np.inf], 'expected finite numbers .* received others of b'),
    ([], 'expected finite numbers .* received none of b'),
  ],
)
def test_gradients_that_are_not_finite_or_empty_are_refused(values, message):
  gradients = {'a': np.ones(3, np.float32), 'b': np.float32(values)}
  with pytest.raises(errors.ConfigError, match=message):
    histograms.encode_and_decode('ternary', gradients)


def test_unknown_workers_and_codecs_are_refused(tmp_path):
  path = tmp_path / 'g.npz'
  np.savez(path, a=np.zeros([2, 3]))
  with pytest.raises(errors.ConfigError, match='worker: expected .* 0 to 1'):
    program.act(program.ReportHistogramsFlags(gradients=str(path), worker=2))
  with pytest.raises(errors.ConfigError, match='gamma'):
    program.act(
      program.ReportHistogramsFlags(gradients=str(path), codec='gamma')
    )
