"""The method in docs/add_a_codec.md is short and trains."""

import pathlib
import re

import numpy as np
import pytest

from terngrad.codec.methods import registry
from tests.codec import rounds

TEXT = pathlib.Path(__file__).parents[1] / 'docs' / 'add_a_codec.md'


@pytest.fixture
def snippets(tmp_path, monkeypatch):
  """The programs of the page, the first of which can be imported."""
  found = re.findall('```python\n(.*?)```', TEXT.read_text(), re.DOTALL)
  (tmp_path / 'predicted.py').write_text(found[0], encoding='utf-8')
  info = tmp_path / 'predicted-1.0.dist-info'
  info.mkdir()
  (info / 'METADATA').write_text('Name: predicted\nVersion: 1.0\n')
  entry = re.findall(r'(\[project.*\n)    (predicted = ".*")', TEXT.read_text())
  ((group, line),) = entry
  name = re.findall('"(.*)"', group)[0]
  (info / 'entry_points.txt').write_text(
    f'[{name}]\n' + line.replace('"', '') + '\n'
  )
  monkeypatch.syspath_prepend(tmp_path)
  return found


@pytest.mark.slow
def test_the_comparison_learns_with_every_codec(snippets, capsys):
  exec(compile(snippets[1], str(TEXT), 'exec'), {})
  lines = capsys.readouterr().out.splitlines()
  assert [line.split(':')[0] for line in lines] == [
    'float32',
    'ternary',
    'predicted',
  ]
  for line in lines:
    loss, bits, right = re.findall(r'[\d.]+', line.split(':')[1])
    assert float(loss) < 0.5
    assert int(right) >= 80
  # A sign, and a scale and a norm a variable.
  assert 1 < float(bits) < 1.4


def test_the_method_is_short(snippets):
  body = snippets[0][snippets[0].index('class Predicted') :]
  assert len([line for line in body.splitlines() if line.strip()]) < 50


@pytest.mark.parametrize('wrapper', ['', 'error_feedback+'])
def test_signs_of_prediction_errors_are_sent(snippets, wrapper):
  codec = rounds.codec_of(
    registry.method(f'{wrapper}predicted:decay=0.5'), [(6, 5), (7,)]
  )
  workers = rounds.Workers(codec, 2)
  rng = np.random.default_rng(1)
  known = [np.zeros((6, 5)), np.zeros(7)]
  left = [[np.zeros_like(k) for k in known] for _ in range(2)]
  for step in range(4):
    values = [
      [rng.normal(size=k.shape).astype(np.float32) for k in known]
      for _ in range(2)
    ]
    means = workers.step(codec, values, step)
    for i, mean in enumerate(means):
      rest = [v[i] + r[i] - known[i] for v, r in zip(values, left, strict=True)]
      scale = np.mean([np.abs(r).mean() for r in rest])
      votes = sum(np.where(r < 0, -1, 1) for r in rest)
      expected = known[i] + votes * scale / 2
      np.testing.assert_allclose(mean, expected, rtol=1e-4, atol=1e-5)
      if wrapper:
        for worker, gradient in enumerate(values):
          left[worker][i] = gradient[i] + left[worker][i] - mean
      known[i] = 0.5 * known[i] + 0.5 * mean
