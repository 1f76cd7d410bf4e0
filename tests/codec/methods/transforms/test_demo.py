"""DeMo: its algorithm in NumPy, with SciPy's cosine transform."""

import functools

import numpy as np
import pytest
import scipy.fft
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.methods.transforms import coefficients
from terngrad.codec.methods.transforms import dct
from terngrad.codec.stages import tracing
from terngrad.reduce import bucketing
from tests.codec import rounds

# Blocks of 64 x 50 and 5 x 6; a vector of two blocks; a prime number of
# elements, whose blocks are single elements; nothing.
SHAPES = ((128, 50), (5, 1, 6), (96,), (67,), (0, 3))
STEPS, WORKERS = 4, 3
DECAY = 0.999


def some_gradients(step):
  rng = np.random.default_rng([step, 11])
  return [
    [rng.normal(size=s).astype(np.float32) for s in SHAPES]
    for _ in range(WORKERS)
  ]


def blocks_of(shape):
  """The (rows, columns) of slices of a matrix of a variable."""
  columns = shape[-1] if shape else 1
  rows = int(np.prod(shape[:-1])) if shape else 1
  height, width = (
    max(d for d in range(1, 65) if n % d == 0) for n in (rows, columns)
  )
  return (rows, columns), [
    np.s_[i : i + height, j : j + width]
    for i in range(0, rows, height)
    for j in range(0, columns, width)
  ]


class Paper:
  """One variable of all workers, float64."""

  def __init__(self, shape, count, over_senders):
    self.shape, self.count, self.over_senders = shape, count, over_senders
    self.momentum = np.zeros((WORKERS, *shape))

  def step(self, gradients):
    """Returns the mean momentum; its signs are the update."""
    self.momentum = DECAY * self.momentum + np.stack(gradients)
    if not np.prod(self.shape):
      return np.zeros(self.shape)
    matrix, cuts = blocks_of(self.shape)
    means, sent = np.zeros(matrix), np.zeros((WORKERS, *matrix))
    rows = self.momentum.reshape(WORKERS, *matrix)
    for cut in cuts:
      chosen = [
        self.largest(scipy.fft.dctn(m[cut], norm='ortho')) for m in rows
      ]
      total = np.sum(chosen, axis=0)
      senders = np.maximum(1, np.sum([c != 0 for c in chosen], axis=0))
      mean = total / (senders if self.over_senders else WORKERS)
      means[cut] = scipy.fft.idctn(mean, norm='ortho')
      for worker, coded in enumerate(chosen):
        sent[worker][cut] = scipy.fft.idctn(coded, norm='ortho')
    self.momentum = self.momentum - sent.reshape(self.momentum.shape)
    return means.reshape(self.shape)

  def largest(self, found):
    order = np.argsort(-np.abs(found), axis=None, kind='stable')[: self.count]
    kept = np.zeros(found.size)
    kept[order] = found.ravel()[order]
    return kept.reshape(found.shape)


def codec_of(text):
  return rounds.codec_of(rounds.Traced(registry.method(text)), SHAPES)


def momentum(workers):
  return [[m.numpy() for m in own[0]] for own in workers.worker_states]


# A step rounds by 2**-20 of a block's largest magnitude, below 2**4; all
# steps add up.
LIMIT = STEPS * 2.0**4 * 2.0**-20


@functools.cache
def run(options, count, over_senders):
  """(found, expected) means of each step, and momenta after the last."""
  codec = codec_of(f'demo:{options}')
  workers = rounds.Workers(codec, WORKERS)
  papers = [Paper(shape, count, over_senders) for shape in SHAPES]
  means = []
  for step in range(STEPS):
    values = some_gradients(step)
    expected = [
      paper.step([own[i] for own in values]) for i, paper in enumerate(papers)
    ]
    means.append((workers.step(codec, values, step), expected))
  return means, momentum(workers), [paper.momentum for paper in papers]


@pytest.mark.parametrize(
  ('options', 'count', 'over_senders'),
  [
    ('signs=0,count=8', 8, True),
    pytest.param('signs=0', 32, True, marks=pytest.mark.slow),
    pytest.param(
      'signs=0,count=8,mean=workers', 8, False, marks=pytest.mark.slow
    ),
  ],
)
def test_steps_equal_those_of_the_paper(options, count, over_senders):
  means, found, expected = run(options, count, over_senders)
  for step in means:
    for mean, wanted in zip(*step, strict=True):
      np.testing.assert_allclose(mean, wanted, rtol=0, atol=LIMIT)
  for i, wanted in enumerate(expected):
    own = np.stack([row[i] for row in found])
    np.testing.assert_allclose(own, wanted, rtol=0, atol=LIMIT)


@pytest.mark.slow
def test_updates_are_the_signs_of_the_mean():
  signs, _, expected = run('count=8', 8, True)
  means, _, others = run('signs=0,count=8', 8, True)
  for (found, _), (values, _) in zip(signs, means, strict=True):
    for sign, value in zip(found, values, strict=True):
      np.testing.assert_array_equal(sign, np.sign(value))
  # What is sent does not depend on it.
  for own, other in zip(expected, others, strict=True):
    np.testing.assert_array_equal(own, other)


@pytest.mark.parametrize('mode', ['eager', 'graph', 'compiled'])
def test_transforms_are_those_of_scipy_with_equal_bits_in_every_mode(mode):
  values = np.random.default_rng(2).normal(size=(7, 64, 50))
  values = (values * 10.0 ** np.arange(-3, 4)[:, None, None]).astype('float32')
  functions = {
    'eager': dct.transform,
    'graph': tracing.function(dct.transform),
    'compiled': tracing.function(dct.transform, jit_compile=True),
  }
  for inverse, reference in ((False, scipy.fft.dctn), (True, scipy.fft.idctn)):
    found = functions[mode](tf.constant(values), inverse).numpy()
    for block, value in zip(found, values, strict=True):
      expected = reference(value.astype(np.float64), norm='ortho')
      limit = 2.0**-20 * np.abs(value).max()
      np.testing.assert_allclose(block, expected, rtol=0, atol=limit)
    np.testing.assert_array_equal(
      found, dct.transform(tf.constant(values), inverse)
    )


def test_sums_of_the_transform_are_exact_in_any_order():
  matrix = dct.matrix(64)
  assert np.array_equal(np.round(matrix * 2**22), matrix * 2**22)
  # The largest sums of products of integers, times the largest operands.
  assert np.abs(matrix * 2**22).sum(axis=1).max() * 8 * 2**23 < 2**53
  rng, order = np.random.default_rng(0), np.arange(64)
  values = np.round(rng.uniform(-1, 1, (64, 64)) * 2**26)
  expected = matrix @ values
  for _ in range(5):
    rng.shuffle(order)
    np.testing.assert_array_equal(matrix[:, order] @ values[order], expected)


@pytest.mark.parametrize(
  ('shape', 'most', 'bits', 'words'),
  [
    ((128, 128), 32, 12, 4 * 32 + 4 * 32 * 12 // 32),
    ((128, 50), 8, 12, 2 * 8 + 6),
    # 6 of 30: five bits each, in one word.
    ((5, 1, 6), 6, 5, 6 + 1),
    ((5, 1, 6), 32, 0, 30),
    ((67,), 32, 0, 67),
    ((), 32, 0, 1),
    ((0, 3), 32, 0, 0),
  ],
)
def test_a_payload_has_these_words(shape, most, bits, words):
  layout = coefficients.BlockLayout.of_shape(shape, most)
  assert (layout.index_bits, layout.num_words) == (bits, words)
  codec = rounds.codec_of(registry.method(f'demo:count={most}'), [shape])
  assert codec.round_words(0) == words


@pytest.mark.slow
def test_float_steps_send_the_whole_momentum():
  codec = codec_of('demo:count=1,signs=0')
  plain = bucketing.in_float(codec, registry.method('identity'))
  workers = rounds.Workers(codec, WORKERS)
  workers.step(codec, some_gradients(0), 0)
  owed, values = momentum(workers), some_gradients(1)
  means = workers.step(plain, values, 1)
  for i, mean in enumerate(means):
    rows = [DECAY * own[i] + g[i] for own, g in zip(owed, values, strict=True)]
    expected = np.mean(rows, axis=0)
    np.testing.assert_allclose(mean, expected, rtol=0, atol=2.0**-18)
  assert not any(np.any(m) for own in momentum(workers) for m in own)


def test_float_steps_of_signs_are_signs():
  codec = codec_of('demo')
  plain = bucketing.in_float(codec, registry.method('identity'))
  for mean in rounds.Workers(codec, WORKERS).step(plain, some_gradients(0), 0):
    np.testing.assert_array_equal(np.abs(mean), np.ones_like(mean))


@pytest.mark.parametrize(
  ('options', 'message'),
  [
    ('count=0', 'count >= 1, .* received count=0'),
    ('decay=1.5', 'decay=1.5'),
    ('mean=all', 'mean senders or workers .* mean=all'),
    ('signs=2', 'signs=2. Use demo:count=32'),
  ],
)
def test_options_out_of_range_are_refused(options, message):
  with pytest.raises(ValueError, match=message):
    registry.method(f'demo:{options}')


@pytest.mark.parametrize('wrapped', ['error_feedback', 'momentum', 'ef21'])
def test_wrappers_that_keep_the_rest_twice_are_refused(wrapped):
  with pytest.raises(ValueError, match=r'received demo\(32, 0\.999\)'):
    registry.method(f'{wrapped}+demo')
