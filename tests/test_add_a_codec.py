"""The methods in docs/add_a_codec.md are short, keep all claims and train."""

import pathlib
import re

import numpy as np
import pytest

from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing
from terngrad.conformance import claims
from terngrad.conformance import subject as subjects
from terngrad.reduce import workers as stepping
from tests.codec import rounds

TEXT = pathlib.Path(__file__).parents[1] / 'docs' / 'add_a_codec.md'


FIRST, COMPARISON, CODE, SECOND = re.findall(
  '```python\n(.*?)```', TEXT.read_text(), re.DOTALL
)


@pytest.fixture
def snippets(tmp_path, monkeypatch):
  """The methods of the page can be imported; the first is installed."""
  (tmp_path / 'predicted.py').write_text(FIRST, encoding='utf-8')
  (tmp_path / 'nearest.py').write_text(CODE, encoding='utf-8')
  (tmp_path / 'largest.py').write_text(SECOND, encoding='utf-8')
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
  return tmp_path


@pytest.mark.slow
def test_the_comparison_learns_with_every_codec(snippets, capsys):
  exec(compile(COMPARISON, str(TEXT), 'exec'), {})
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


@pytest.mark.parametrize(
  'text', [FIRST, CODE, SECOND], ids=['first', 'code', 'second']
)
def test_the_method_is_short(text):
  body = text[text.index('class ') :]
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


@pytest.mark.parametrize('wrapper', ['', 'error_feedback+'])
def test_elements_are_rounded_to_the_nearest_level(snippets, wrapper):
  text = f'{wrapper}nearest'
  extra = {'nearest': 'nearest:Nearest'}
  codec = rounds.codec_of(registry.method(text, 2, extra), [(6, 5), (7,)])
  workers, rng = rounds.Workers(codec, 2), np.random.default_rng(1)
  left = [np.zeros((2, 6, 5)), np.zeros((2, 7))]
  for step in range(3):
    values = [rng.normal(size=rest.shape).astype(np.float32) for rest in left]
    means = workers.step(codec, list(zip(*values, strict=True)), step)
    for i, value in enumerate(values):
      whole = value + left[i]
      level = np.abs(whole).max() / 127
      sent = np.rint(whole / level) * level
      np.testing.assert_allclose(means[i], sent.mean(axis=0), atol=1e-5)
      left[i] = whole - sent if wrapper else left[i]


def test_the_largest_elements_are_sent_and_the_others_kept(snippets):
  codec = rounds.codec_of(
    registry.method('largest:ratio=0.1', 2, {'largest': 'largest:Largest'}),
    [(6, 5), (7,), ()],
  )
  workers, rng = rounds.Workers(codec, 2), np.random.default_rng(1)
  left = np.zeros((2, 38))
  for step in range(4):
    flat = rng.normal(size=(2, 38)).astype(np.float32)
    values = [[v[:30].reshape(6, 5), v[30:37], v[37]] for v in flat]
    means = workers.step(codec, values, step)
    sums = flat + left
    sent = np.zeros_like(sums)
    for worker, whole in enumerate(sums):
      chosen = np.argsort(-np.abs(whole))[:4]
      sent[worker, chosen] = whole[chosen]
    left = sums - sent
    mean = np.concatenate([np.ravel(m) for m in means])
    np.testing.assert_allclose(mean, sent.mean(axis=0), rtol=1e-5, atol=1e-6)
    kept = [
      np.concatenate([np.ravel(r) for r in w[0]])
      for w in (workers.worker_states)
    ]
    np.testing.assert_allclose(kept, left, rtol=1e-5, atol=1e-6)


@pytest.mark.slow
@pytest.mark.parametrize(
  'text',
  ['predicted', 'error_feedback+predicted', 'nearest', 'largest'],
)
def test_the_methods_keep_every_claim(snippets, text):
  extra = {'largest': 'largest:Largest', 'nearest': 'nearest:Nearest'}
  subject = subjects.MethodUnderTest(
    text, lambda workers: registry.method(text, workers, extra)
  )
  found = list(claims.check(subject))
  assert [o for o in found if o.state == claims.FAILED] == []
  assert sum(o.state == claims.OK for o in found) >= 12


@pytest.mark.slow
def test_a_program_of_many_elements_has_static_shapes(snippets):
  import nearest

  sizes = (35, 1063, 2**20)
  subject = subjects.MethodUnderTest('nearest', lambda _: nearest.Nearest())
  codec = subject.codec_for([(size,) for size in sizes])
  group = stepping.Workers(codec, 1)

  @tracing.compiled
  def means(*values):
    return group.take(codec, [values], 0).means

  values = [np.linspace(-1, 1, size, dtype=np.float32) for size in sizes]
  for mean, value in zip(means(*values), values, strict=True):
    np.testing.assert_allclose(mean, value, atol=0.5 / 127 + 1e-6)
