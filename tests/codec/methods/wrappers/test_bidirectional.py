"""Codes both ways: what is sent, what is owed, and what it costs."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method as methods
from terngrad.codec import resharding
from terngrad.codec.methods import registry
from terngrad.codec.methods.wrappers import bidirectional
from terngrad.codec.stages import tracing
from terngrad.exchange import algorithms
from terngrad.reduce import bucketing
from tests.codec import rounds

# Ranges that are even, that end with zeros, that are all zeros.
SHAPES = ((12, 10), (7,), (), (0, 3))
STEPS, WORKERS = 4, 3


def some_gradients(step):
  rng = np.random.default_rng([step, 5])
  return [
    [rng.normal(size=s).astype(np.float32) for s in SHAPES]
    for _ in range(WORKERS)
  ]


def codec_of(text, workers=WORKERS, shapes=SHAPES):
  method = registry.method(text, workers).on_kernels()
  return rounds.codec_of(rounds.Traced(method), shapes)


def states(workers, codec, name):
  """For each variable what all workers remember, float64 of its shape."""
  found = []
  for index, state in enumerate(codec.states()[0]):
    if state.name != name:
      continue
    rows = np.stack([own[0][index].numpy() for own in workers.worker_states])
    size = int(np.prod(SHAPES[state.variable]))
    if state.resharding == methods.RANGES:
      assert not np.any(rows.ravel()[size:])
      total = rows.ravel()[:size]
    else:
      total = rows.mean(axis=0, dtype=np.float64)
    found.append(total.reshape(SHAPES[state.variable]))
  return found


class SparseTernary:
  """Algorithm 1 of Sattler et al., ranges in place of a server, on float64.

  Written from the paper: `stc` of a vector keeps its p n largest elements as
  plus or minus their mean magnitude; each worker sends stc(residual + gradient)
  and the server stc(its residual + the mean of what it received).
  """

  def __init__(self, ratio, feeds_back, residual):
    self.ratio, self.feeds_back, self.keeps = ratio, feeds_back, residual
    self.own = [[np.zeros(s) for s in SHAPES] for _ in range(WORKERS)]
    self.servers = [np.zeros(s) for s in SHAPES]

  def stc(self, values):
    if not values.size:
      return values
    # As many as `topk` keeps: of all elements of a range, zeros too.
    count = max(1, round(self.ratio * values.size))
    kept = np.argsort(-np.abs(values), kind='stable')[:count]
    coded = np.zeros_like(values)
    coded[kept] = np.sign(values[kept]) * np.abs(values[kept]).mean()
    return coded

  def coded(self, values):
    """`stc` of each range, the last one filled with zeros."""
    width = -(-values.size // WORKERS)
    padded = np.zeros(width * WORKERS)
    padded[: values.size] = values.ravel()
    rows = [self.stc(row) for row in padded.reshape(WORKERS, width)]
    return np.concatenate(rows)[: values.size].reshape(values.shape)

  def step(self, gradients):
    means = []
    for i in range(len(SHAPES)):
      sent = []
      for own, values in zip(self.own, gradients, strict=True):
        total = values[i] + own[i]
        sent.append(self.coded(total))
        if self.feeds_back:
          own[i] = total - sent[-1]
      mean = np.mean(sent, axis=0) + self.servers[i]
      means.append(self.coded(mean))
      if self.keeps:
        self.servers[i] = mean - means[-1]
    return means


@pytest.mark.parametrize(
  ('feeds_back', 'residual'),
  [
    (True, True),
    pytest.param(False, True, marks=pytest.mark.slow),
    pytest.param(True, False, marks=pytest.mark.slow),
    pytest.param(False, False, marks=pytest.mark.slow),
  ],
)
def test_steps_equal_those_of_sparse_ternary_compression(feeds_back, residual):
  before = 'error_feedback+' if feeds_back else ''
  codec = codec_of(f'{before}bidirectional:residual={residual}+stc:ratio=0.2')
  workers = rounds.Workers(codec, WORKERS)
  paper = SparseTernary(0.2, feeds_back, residual)
  for step in range(STEPS):
    values = some_gradients(step)
    for mean, expected in zip(
      workers.step(codec, values, step), paper.step(values), strict=True
    ):
      # Magnitudes are below 2**4, and rounded some ten times a step.
      limit = 10 * STEPS * 2.0**4 * 2.0**-24
      np.testing.assert_allclose(mean, expected, rtol=0, atol=limit)


@pytest.mark.parametrize(
  'text',
  [
    'stc:ratio=0.1',
    'ternary',
    'int8',
    pytest.param('sign', marks=pytest.mark.slow),
    pytest.param('thc', marks=pytest.mark.slow),
    pytest.param('eden3', marks=pytest.mark.slow),
    pytest.param('randomk:ratio=0.2', marks=pytest.mark.slow),
    pytest.param('identity', marks=pytest.mark.slow),
  ],
)
def test_sent_means_plus_residuals_equal_the_gradients(text):
  codec = codec_of(f'error_feedback+bidirectional+{text}')
  workers = rounds.Workers(codec, WORKERS)
  sent, were = workers.totals(codec, map(some_gradients, range(STEPS)))
  owed = states(workers, codec, 'residual')
  late = states(workers, codec, bidirectional.RESIDUAL)
  for i, total in enumerate(were):
    # Sums, residuals, means and coded means are rounded in each step; all are
    # below 2**6.
    limit = STEPS * (2 * WORKERS + 8) * 2.0**6 * 2.0**-24
    np.testing.assert_allclose(
      sent[i] + owed[i] + late[i], total, rtol=0, atol=limit
    )


@pytest.mark.parametrize(
  'text',
  ['stc:ratio=0.1', pytest.param('ternary', marks=pytest.mark.slow)],
)
def test_float_step_sends_and_clears_all_residuals(text):
  codec = codec_of(f'error_feedback+bidirectional+{text}')
  plain = bucketing.in_float(codec, registry.method('identity'))
  workers = rounds.Workers(codec, WORKERS)
  workers.step(codec, some_gradients(0), 0)
  owed = states(workers, codec, 'residual')
  late = states(workers, codec, bidirectional.RESIDUAL)
  assert all(np.any(one[0]) for one in (owed, late))
  values = some_gradients(1)
  means = workers.step(plain, values, 1)
  for i, mean in enumerate(means):
    own = np.mean([v[i] for v in values], axis=0, dtype=np.float64)
    expected = own + owed[i] + late[i]
    # Three sums of numbers below 2**6.
    limit = (WORKERS + 6) * 2.0**6 * 2.0**-24
    np.testing.assert_allclose(mean, expected, rtol=0, atol=limit)
  for name in ('residual', bidirectional.RESIDUAL):
    assert not any(np.any(one) for one in states(workers, codec, name))


@pytest.mark.slow
def test_without_residuals_an_unbiased_code_stays_unbiased():
  method = registry.method('bidirectional:residual=0+ternary:clip_factor=0', 2)
  assert method.traits.unbiased
  assert method.states(SHAPES) == ()
  codec = codec_of('bidirectional:residual=0+ternary:clip_factor=0', 2, [(8,)])
  values = [[np.linspace(-1, 1, 8, dtype=np.float32) * s] for s in (1.0, 0.5)]
  draws = 1000
  take = tracing.function(rounds.Workers(codec, 2).means)
  total = np.zeros(8)
  for step in range(draws):
    total += take(codec, values, tf.constant(step, tf.int64))[0].numpy()
  # A coded mean is between -1 and 1, so that its deviation is 1 at most; five
  # of them for eight elements are exceeded once in 200,000 times.
  expected = 0.75 * np.linspace(-1, 1, 8)
  np.testing.assert_allclose(total / draws, expected, atol=5 / draws**0.5)


@pytest.mark.parametrize('text', ['ternary', 'stc', 'qsgd', 'sign'])
def test_sent_words_do_not_grow_with_the_number_of_workers(text):
  sent = {}
  for count in (2, 4, 8, 64):
    codec = codec_of(f'bidirectional+{text}', count, [(1024, 1024)])
    (there,), (back,) = codec.messages(0), codec.messages(1)
    sent[count] = sum(
      sum(algorithms.sent_words(message, count, count).values())
      for message in (there, back)
    )
    plain = codec_of(text, count, [(1024, 1024)])
    (gathered,) = plain.messages(0)
    whole = algorithms.sent_words(gathered, count, count)['gather']
    # Twice (N - 1) / N of a gradient's words, and some scales; short ranges
    # have longer indices.
    expected = 2 * whole / count
    assert sent[count] == pytest.approx(
      expected, rel=0.2 if count > 8 else 0.02
    )
  assert sent[8] < 1.8 * sent[2]
  assert sent[64] < 2.4 * sent[2]


def test_ranges_are_sent_only_to_their_workers():
  codec = codec_of('bidirectional+stc', 4, [(1024,)])
  (message,) = codec.messages(0)
  assert message.combine == methods.SCATTER
  assert algorithms.choices([message], 4, 2) == ['scatter']
  assert algorithms.choices([message], 4, 2, 'two_shot') == ['scatter']


def test_ranges_are_split_again_for_another_number_of_workers():
  state = methods.State('r', methods.WORKER, 0, (3,), resharding=methods.RANGES)
  rows = np.array([[1, 2, 3, 4], [5, 6, 7, 0]], np.float32)
  np.testing.assert_array_equal(
    resharding.convert_state(state, rows, 3), [[1, 2, 3], [4, 5, 6], [7, 0, 0]]
  )
  wide = state._replace(shape=(7,))
  np.testing.assert_array_equal(
    resharding.convert_state(wide, rows, 1), [rows.ravel()[:7]]
  )


@pytest.mark.parametrize(
  ('text', 'workers', 'said'),
  [
    ('bidirectional+stc', 0, 'expected the number of workers'),
    ('bidirectional+powersgd', 2, 'one round'),
    ('bidirectional+error_feedback+stc', 2, 'Put error_feedback'),
    ('bidirectional+ternary:sharing=requantize', 2, 'sharing=requantize'),
    ('bidirectional+ternary:packing=huffman243', 2, 'fixed length'),
  ],
)
def test_unsupported_methods_are_refused(text, workers, said):
  with pytest.raises(ValueError, match=said):
    registry.method(text, workers)


def test_wrong_number_of_workers_is_refused():
  codec = codec_of('bidirectional:workers=4+stc')
  with pytest.raises(ValueError, match='4 workers'):
    rounds.Workers(codec, WORKERS).step(codec, some_gradients(0), 0)


@pytest.mark.parametrize(('text', 'probes'), [('stc', 2), ('ternary', 8)])
def test_ranges_have_separate_probes_only_if_the_method_uses_them(text, probes):
  codec = codec_of(f'bidirectional+{text}', 4, [(1024,), (12,)])
  plain = codec_of(text, 4, [(256,), (3,)])
  assert codec.num_probes == probes
  (back,) = codec.messages(1)
  of_a_range = probes // 4 if text == 'ternary' else 0
  assert back.num_words == plain.round_words(0) + of_a_range
