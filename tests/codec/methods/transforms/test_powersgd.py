"""PowerSGD: the arithmetic of PyTorch's hook, in NumPy and over steps."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.methods.transforms import low_rank
from terngrad.codec.methods.transforms import powersgd
from terngrad.codec.stages import tracing
from terngrad.reduce import bucketing
from tests.codec import rounds

# A kernel, a vector, a matrix that is not worth it, one that is, a scalar.
SHAPES = ((3, 3, 2, 8), (8,), (2, 2), (16, 12), ())
COMPRESSED = (0, 3)
EPSILON = 1e-8


def some_gradients(workers, step):
  """Alike from worker to worker and from step to step, and not quite."""
  common = np.random.default_rng(0)
  rng = np.random.default_rng([step, 7])
  base = [common.normal(size=s) for s in SHAPES]
  return [
    [(b + 0.3 * rng.normal(size=b.shape)).astype(np.float32) for b in base]
    for _ in range(workers)
  ]


def orthogonal(matrix):
  matrix = matrix.copy()
  for i in range(matrix.shape[1]):
    column = matrix[:, i : i + 1]
    column /= np.linalg.norm(column) + EPSILON
    rest = matrix[:, i + 1 :]
    rest -= np.sum(column * rest, axis=0) * column
  return matrix


class Hook:
  """float64, for variables that are compressed all with the first Q's."""

  def __init__(self, qs, workers, feedback):
    self.qs = qs
    self.errors = [[np.zeros(s) for s in SHAPES] for _ in range(workers)]
    self.feedback = feedback

  def step(self, values):
    values = [
      [v + e for v, e in zip(*pair, strict=True)]
      for pair in zip(values, self.errors, strict=True)
    ]
    means = []
    for i, shape in enumerate(SHAPES):
      own = [worker[i] for worker in values]
      if i in self.qs:
        own = [v.reshape(-1, shape[-1]) for v in own]
        q = orthogonal(self.qs[i])
        p = orthogonal(sum(m @ q for m in own))
        self.qs[i] = sum(m.T @ p for m in own) / len(own)
        means.append((p @ self.qs[i].T).reshape(shape))
      else:
        means.append(sum(own) / len(own))
    if self.feedback:
      self.errors = [
        [v - m for v, m in zip(worker, means, strict=True)] for worker in values
      ]
    return means


@pytest.mark.parametrize('rank', [1, 3])
@pytest.mark.parametrize('feedback', [False, True])
@pytest.mark.gate_every(2)
def test_steps_equal_those_of_the_pytorch_hook(rank, feedback):
  text = f'powersgd:rank={rank},min_compression=1'
  method = registry.method('error_feedback+' * feedback + text)
  codec = rounds.codec_of(method, SHAPES)
  assert codec.num_rounds == 2
  workers = rounds.Workers(codec, 3)
  (states,) = codec.states()
  first = {
    s.variable: s.first_value().numpy().astype(np.float64)
    for s in states
    if s.name == powersgd.Q
  }
  assert set(first) == set(COMPRESSED)
  hook = Hook(first, 3, feedback)
  for step in range(4):
    values = some_gradients(3, step)
    means = workers.step(codec, values, step)
    for mean, expected in zip(means, hook.step(values), strict=True):
      # 2**-24 a rounding: of sums of some 20 terms, thrice, of numbers up to
      # 10, which normalizing a column that others were taken from enlarges by
      # up to 10; and each step adds as much.
      limit = 2.0**-24 * 60 * 10 * 10 * (step + 1)
      np.testing.assert_allclose(mean, expected, rtol=0, atol=limit)


@pytest.mark.parametrize('warm_start', [0, 1])
def test_matrix_of_low_rank_decodes_exactly(warm_start):
  rng = np.random.default_rng(1)
  low = rng.normal(size=(30, 2)) @ rng.normal(size=(2, 20))
  method = registry.method(f'powersgd:rank=2,warm_start={warm_start}')
  codec = rounds.codec_of(method, [low.shape])
  values = [[low.astype(np.float32)]] * 2
  (mean,) = rounds.Workers(codec, 2).step(codec, values, 0)
  np.testing.assert_allclose(mean, low, rtol=0, atol=1e-4)


@pytest.mark.parametrize('prefix', ['', 'error_feedback+'])
def test_matrix_of_a_lower_rank_than_the_code_decodes_exactly(prefix):
  rng = np.random.default_rng(1)
  low = rng.normal(size=(30, 1)) * rng.normal(size=20) * 1e-3
  codec = rounds.codec_of(
    registry.method(f'{prefix}powersgd:rank=4,min_compression=1'), [low.shape]
  )
  workers = rounds.Workers(codec, 2)
  for step in range(3):
    (mean,) = workers.step(codec, [[low.astype(np.float32)]] * 2, step)
    np.testing.assert_allclose(mean, low, rtol=0, atol=1e-7)


@pytest.mark.parametrize('number', [1, 6])
@pytest.mark.parametrize('value', [np.nan, np.inf])
def test_columns_that_are_not_finite_are_not_hidden(value, number):
  matrix = np.ones((6, 2), np.float32)
  matrix[:number] = value
  base = low_rank.orthogonal(tf.constant(matrix), EPSILON).numpy()
  assert not np.all(np.isfinite(base[:, 0]))


def test_columns_in_the_span_of_others_become_zero():
  rng = np.random.default_rng(1)
  two = rng.normal(size=(300, 2))
  matrix = two @ rng.normal(size=(2, 8)) * 10.0 ** np.arange(-20, 20, 5)
  base = low_rank.orthogonal(tf.constant(matrix, tf.float32), EPSILON).numpy()
  expected = np.diag([1.0, 1.0, 0, 0, 0, 0, 0, 0])
  np.testing.assert_allclose(base.T @ base, expected, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
  ('exponent', 'warm_start'),
  [
    (-100, 1),
    (100, 0),
    pytest.param(-100, 0, marks=pytest.mark.slow),
    pytest.param(100, 1, marks=pytest.mark.slow),
  ],
)
def test_very_small_and_large_gradients_are_coded_as_others(
  exponent, warm_start
):
  method = registry.method(f'powersgd:rank=2,warm_start={warm_start}')
  codec = rounds.codec_of(method, [(30, 20)])
  found = []
  # The second step begins with a Q of the first one's size.
  for scale in (1.0, 2.0**exponent):
    rng = np.random.default_rng(1)
    workers = rounds.Workers(codec, 2)
    for number in range(2):
      values = rng.normal(size=(2, 30, 20)) * scale
      own = [[value.astype(np.float32)] for value in values]
      (mean,) = workers.step(codec, own, number)
    found.append(mean / scale)
  assert np.any(found[0])
  np.testing.assert_allclose(found[1], found[0], rtol=1e-3, atol=1e-5)


def test_words_hold_p_and_q_and_uncompressed_variables():
  codec = rounds.codec_of(
    registry.method('powersgd:rank=2,min_compression=1'), SHAPES
  )
  small = 8 + 4 + 1
  assert codec.round_words(0) == 2 * (18 + 16) + small
  assert codec.round_words(1) == 2 * (8 + 12)
  assert codec.bits(4) == 32 * (codec.num_words + len(SHAPES))


@pytest.mark.parametrize(
  ('shape', 'rank', 'expected'),
  [
    ((3, 3, 2, 8), 1, (18, 8, 1)),
    ((8,), 1, None),
    ((), 1, None),
    ((0, 9), 1, None),
    ((1, 9), 1, None),
    ((4, 4), 1, None),  # 2 (4 + 4) is not less than 16
    ((5, 4), 1, (5, 4, 1)),
    ((100, 100), 400, None),
  ],
)
def test_variable_is_compressed_only_if_it_saves_enough(shape, rank, expected):
  assert low_rank.split([shape], rank, 2.0).factors == (expected,)


def test_gradient_of_zeros_does_not_affect_later_steps():
  method = registry.method('powersgd')
  codec = rounds.codec_of(method, [(20, 20)])
  workers = rounds.Workers(codec, 1)
  zeros, values = np.zeros((20, 20), np.float32), np.ones((20, 20), np.float32)
  (mean,) = workers.step(codec, [[zeros]], 0)
  np.testing.assert_array_equal(mean, zeros)
  (mean,) = workers.step(codec, [[values]], 1)
  np.testing.assert_allclose(mean, values, rtol=1e-5)


def test_cold_start_depends_only_on_the_step():
  rng = np.random.default_rng(1)
  values = [[rng.normal(size=(20, 20)).astype(np.float32)] for _ in range(2)]
  codec = rounds.codec_of(registry.method('powersgd:warm_start=0'), [(20, 20)])
  assert codec.states() == [()]
  first, again, other = (
    rounds.Workers(codec, 2).step(codec, values, step)[0] for step in (0, 0, 1)
  )
  np.testing.assert_array_equal(first, again)
  assert np.any(first != other)


def test_float_steps_keep_q():
  method = registry.method('error_feedback+powersgd:rank=2')
  codec = rounds.codec_of(method, SHAPES)
  plain = bucketing.in_float(codec, registry.method('identity'))
  assert plain.states() == codec.states()
  workers = rounds.Workers(codec, 2)
  workers.step(codec, some_gradients(2, 0), 0)
  before = workers.shared
  workers.step(plain, some_gradients(2, 1), 1)
  for one, other in zip(before[0], workers.shared[0], strict=True):
    if one is not None:
      np.testing.assert_array_equal(one, other)


def test_first_q_is_nearly_normal():
  values = low_rank.first_q((2000, 2)).numpy()
  # Five standard errors.
  assert abs(values.mean()) < 5 / 4000**0.5
  assert abs(values.var() - 1) < 5 * (2 / 4000) ** 0.5
  assert len(np.unique(values)) > 3800


@pytest.mark.parametrize('shape', [(216, 5), (31, 33)])
@pytest.mark.gate_every(2)
def test_products_and_bases_are_the_same_in_graphs(shape):
  rng = np.random.default_rng(1)
  matrix = tf.constant(rng.normal(size=shape), tf.float32)
  q = tf.constant(rng.normal(size=(shape[1], 3)), tf.float32)

  def work(matrix, q):
    p = low_rank.orthogonal(low_rank.product(matrix, q), EPSILON)
    q = low_rank.product(matrix, p, transpose_a=True)
    return p, q, low_rank.product(p, q, transpose_b=True)

  for a, b in zip(
    work(matrix, q), tracing.function(work)(matrix, q), strict=True
  ):
    np.testing.assert_array_equal(a, b)
