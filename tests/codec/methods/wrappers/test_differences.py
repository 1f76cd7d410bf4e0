"""EF21, EF21-SGDM and DIANA: their papers' algorithms in NumPy, on float64."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import by_variable
from terngrad.codec.methods import registry
from terngrad.codec.methods.wrappers import diana
from terngrad.codec.stages import tracing
from terngrad.reduce import bucketing
from tests.codec import rounds

SHAPES = ((12, 10), (7,), ())
STEPS, WORKERS, RATIO = 10, 3, 0.1
# Numbers are below 2**4, and rounded some five times a step.
LIMIT = 5 * STEPS * 2.0**4 * 2.0**-24


def some_gradients(step):
  rng = np.random.default_rng([step, 7])
  return [
    [rng.normal(size=s).astype(np.float32) for s in SHAPES]
    for _ in range(WORKERS)
  ]


def topk(values):
  """The largest elements, zeros elsewhere."""
  count = max(1, int(np.ceil(RATIO * values.size)))
  order = np.argsort(-np.abs(values), axis=None, kind='stable')[:count]
  sent = np.zeros(values.size)
  sent[order] = values.ravel()[order]
  return sent.reshape(values.shape)


def codec_of(text, shapes=SHAPES):
  method = registry.method(text).on_kernels()
  return rounds.codec_of(rounds.Traced(method), shapes)


def states(workers, name, codec):
  """For each variable its states of a name, [workers, *shape] or [*shape]."""
  kinds = [state.name for state in codec.states()[0]]
  found = [i for i, kind in enumerate(kinds) if kind == name]
  if (shared := workers.shared[0][found[0]]) is not None:
    return [workers.shared[0][i].numpy() for i in found]
  del shared
  rows = [own[0] for own in workers.worker_states]
  return [np.stack([row[i].numpy() for row in rows]) for i in found]


class Paper:
  """EF21-SGDM, and with eta = 1 EF21, for one variable of all workers."""

  def __init__(self, shape, eta):
    self.workers = np.zeros((WORKERS, *shape))
    self.momentum = np.zeros((WORKERS, *shape))
    self.common = np.zeros(shape)
    self.eta = eta

  def step(self, gradients, number, code=topk):
    eta = 1 if number == 0 else self.eta
    sent = []
    for i, gradient in enumerate(gradients):
      self.momentum[i] = (1 - eta) * self.momentum[i] + eta * gradient
      sent.append(code(self.momentum[i] - self.workers[i]))
      self.workers[i] += sent[-1]
    self.common = self.common + np.mean(sent, axis=0)
    return self.common


def test_the_first_coded_gradient_of_any_step_is_the_first_momentum():
  codec = codec_of('ef21_sgdm+topk:ratio=0.1')
  workers = rounds.Workers(codec, WORKERS)
  for step in (3, 4):
    workers.step(codec, some_gradients(step), step)
  expected = [
    [Paper(shape, 0.125) for shape in SHAPES],
    states(workers, 'ef21_momentum', codec),
  ]
  for i, (paper, momentum) in enumerate(zip(*expected, strict=True)):
    for number, step in enumerate((3, 4)):
      paper.step([own[i] for own in some_gradients(step)], number)
    np.testing.assert_allclose(momentum, paper.momentum, rtol=0, atol=LIMIT)


@pytest.mark.parametrize(
  ('wrapper', 'eta'),
  [
    ('ef21_sgdm', 0.125),
    pytest.param('ef21', 1, marks=pytest.mark.slow),
    pytest.param('ef21_sgdm:eta=0.3', 0.3, marks=pytest.mark.slow),
  ],
)
def test_steps_equal_those_of_ef21_in_numpy(wrapper, eta):
  codec = codec_of(f'{wrapper}+topk:ratio={RATIO}')
  workers = rounds.Workers(codec, WORKERS)
  papers = [Paper(shape, eta) for shape in SHAPES]
  for number in range(STEPS):
    values = some_gradients(number)
    means = workers.step(codec, values, number)
    for i, (mean, paper) in enumerate(zip(means, papers, strict=True)):
      expected = paper.step([own[i] for own in values], number)
      np.testing.assert_allclose(mean, expected, rtol=0, atol=LIMIT)
  name = wrapper.partition(':')[0]
  known = states(workers, f'{name}_worker', codec)
  common = states(workers, f'{name}_common', codec)
  for rows, mean, paper in zip(known, common, papers, strict=True):
    np.testing.assert_allclose(rows, paper.workers, rtol=0, atol=LIMIT)
    np.testing.assert_allclose(mean, rows.mean(axis=0), rtol=0, atol=LIMIT)


@pytest.mark.parametrize('number', [0, 2])
def test_a_first_step_in_float32_sets_all_vectors_to_the_gradients(number):
  codec = codec_of('ef21_sgdm+topk:ratio=0.1')
  plain = bucketing.in_float(codec, registry.method('identity'))
  workers = rounds.Workers(codec, WORKERS)
  values = some_gradients(0)
  means = workers.step(plain, values, number)
  for name in ('ef21_sgdm_worker', 'ef21_momentum'):
    for i, rows in enumerate(states(workers, name, codec)):
      np.testing.assert_array_equal(rows, [own[i] for own in values])
  common = states(workers, 'ef21_sgdm_common', codec)
  for i, (mean, vector) in enumerate(zip(means, common, strict=True)):
    expected = np.mean([own[i] for own in values], axis=0, dtype=np.float64)
    np.testing.assert_allclose(mean, expected, rtol=0, atol=LIMIT)
    np.testing.assert_array_equal(mean, vector)


class Floors(by_variable.ByVariable):
  """Rounds down to multiples of 1/16; its traits call it unbiased."""

  name = 'floors'
  traits = by_variable.RANDOM._replace(randomness='none')

  def omega(self, num_elements):
    return 3.0

  def num_words(self, num_elements):
    return num_elements

  def encode_variable(self, values, draws):
    return tf.cast(tf.floor(values * 16), tf.int32)

  def planes(self, words, num_elements):
    return tf.cast(words, tf.float32) / 16

  def check(self, words, num_elements):
    return None


@pytest.mark.parametrize('alpha', [0.0, 0.2])
def test_steps_equal_those_of_diana_in_numpy(alpha):
  codec = rounds.codec_of(rounds.Traced(diana.Diana(Floors(), alpha)), SHAPES)
  workers = rounds.Workers(codec, WORKERS)
  rate = alpha or 0.25
  learned = [np.zeros((WORKERS, *shape)) for shape in SHAPES]
  common = [np.zeros(shape) for shape in SHAPES]
  for number in range(STEPS):
    # Odd multiples of 1/2048, so that differences, with multiples of 1/64 or
    # 1/80, are at least 1/10240 from the multiples of 1/16.
    values = [
      [(np.round(g * 1024) + np.float32(0.5)) / 1024 for g in own]
      for own in some_gradients(number)
    ]
    means = workers.step(codec, values, number)
    for i, mean in enumerate(means):
      rows = np.stack([own[i] for own in values]).astype(np.float64)
      sent = np.floor((rows - learned[i]) * 16) / 16
      expected = common[i] + sent.mean(axis=0)
      learned[i] = learned[i] + rate * sent
      common[i] = common[i] + rate * sent.mean(axis=0)
      np.testing.assert_allclose(mean, expected, rtol=0, atol=LIMIT)
  for name, expected in (('worker', learned), ('common', common)):
    found = states(workers, f'diana_{name}', codec)
    for value, one in zip(found, expected, strict=True):
      np.testing.assert_allclose(value, one, rtol=0, atol=LIMIT)


def test_the_error_of_diana_vanishes_where_gradients_differ_and_stay():
  text = 'qsgd:levels=3,group_size=16'
  errors = {}
  values = [[np.sin(np.arange(64, dtype=np.float32) * (i + 1))] for i in (0, 1)]
  mean = np.mean(values, axis=0)[0]
  for name in (text, f'diana+{text}'):
    codec = codec_of(name, ((64,),))
    take = tracing.function(rounds.Workers(codec, 2).means)
    for number in range(40):
      (found,) = take(codec, values, tf.constant(number, tf.int64))
    errors[name] = np.sum((found - mean) ** 2) / np.sum(mean**2)
  assert errors[text] > 1e-3
  assert errors[f'diana+{text}'] < 1e-4 * errors[text]


@pytest.mark.parametrize('text', ['ef21+topk:ratio=0.1', 'diana+natural'])
def test_payloads_are_those_of_the_wrapped_code(text):
  codec, inner = codec_of(text), codec_of(text.partition('+')[2])
  assert codec.num_words == inner.num_words
  assert codec.bits(WORKERS) == inner.bits(WORKERS)


@pytest.mark.parametrize(
  ('text', 'size', 'omega'),
  [
    ('randomk:ratio=0.1,unbiased=1', 100, 9),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in (
        ('natural', 100, 1 / 8),
        ('identity', 100, 0),
        ('qsgd:levels=1,group_size=0', 100, 4.5),
        ('qsgd:levels=1,group_size=25', 100, 2),
        ('qsgd:levels=4,group_size=0,norm=l2', 4096, 16),
        ('qsgd:levels=100,group_size=0,norm=l2', 100, 0.0025),
        ('minmax:bits=1,group_size=0', 100, 49),
        ('asymmetric:clip_factor=0', 100, 4.5),
      )
    ),
  ],
)
def test_omega_bounds_the_error_of_any_gradient(text, size, omega):
  method = registry.method(text)
  assert method.omega(size) == pytest.approx(omega, rel=1e-4)
  codec, ratios = rounds.codec_of(method, [(size,)]), []
  take = tracing.function(rounds.Workers(codec, 1).means)
  signs = np.where(np.arange(size) % 2, -1.0, 1.0)
  # One large element beside others that are worst for a quantizer of levels.
  worst = np.r_[1.0, -1.0 * (text[:3] == 'min'), np.full(size - 2, 0.09)]
  for values in (worst, worst * signs, np.full(size, 0.3), np.arange(size)):
    values = values.astype(np.float32)
    errors = []
    for step in range(50):
      (mean,) = take(codec, [[values]], tf.constant(step, tf.int64))
      errors.append(np.sum((mean.numpy() - values) ** 2.0))
    ratios.append(np.mean(errors) / np.sum(values**2.0))
  # A mean of 50 draws; those of randomk and of one level vary most.
  assert max(ratios) <= 1.4 * omega + 1e-12
  assert max(ratios) >= omega / 8


@pytest.mark.parametrize('text', ['qsgd:group_size=1', 'minmax:group_size=2'])
def test_omega_covers_the_largest_magnitude_of_a_group(text):
  """Steps are rounded up, so the last level is rarely the magnitude itself."""
  code = registry.method(text)
  sizes = 10**6
  values = np.random.default_rng(3).uniform(0.5, 1, sizes).astype(np.float32)
  if text.startswith('minmax'):
    values[::2] *= -1
  key = tf.constant([1, 2, 3, 4], tf.uint32)
  words = code.encode([tf.constant(values)], tf.zeros([1]), tf.zeros([1]), key)
  (decoded,) = code.decode_sum([words[None]], tf.zeros([1]), [(sizes,)])
  # About 100 elements are rounded to the level below.
  ratio = np.sum((decoded - values) ** 2.0) / np.sum(values**2.0)
  assert 0 < ratio < code.omega(code.size)


@pytest.mark.parametrize(
  ('text', 'message'),
  [
    ('ef21+powersgd', 'ef21: expected a codec with one round and no state'),
    ('ef21+error_feedback+topk', 'received error feedback > topk'),
    ('ef21_sgdm+dgc', 'ef21_sgdm: expected a codec with one round'),
    ('ef21_sgdm:eta=0+topk', 'eta above 0 and at most 1, received 0.0'),
    ('ef21_sgdm:eta=1.5+topk', 'received 1.5. Use ef21_sgdm:eta=0.125'),
    ('ef21+ternary:sharing=requantize', 'Remove its wrapper or sharing'),
    ('error_feedback+ef21+topk', 'keep what it does not send, received ef21'),
    ('momentum+diana+natural', 'Leave out error_feedback, or momentum'),
    ('diana+topk', 'an unbiased codec whose variance has a bound, received to'),
    ('diana+ternary', r'received clip_by_stddev\(2.5\) > ternarize > base3'),
    ('diana+asymmetric', 'Use qsgd, natural, minmax, asymmetric:clip_factor=0'),
    ('diana+randomk', 'randomk:unbiased=1, or ef21. for others'),
    ('diana:alpha=2+natural', 'alpha from 0 to 1, received 2.0. Leave it out'),
  ],
)
def test_unsupported_codes_and_options_are_refused(text, message):
  with pytest.raises(ValueError, match=message):
    registry.method(text, 2)


def test_an_alpha_above_its_limit_is_refused_for_the_variable():
  method = registry.method('diana:alpha=0.2+randomk:ratio=0.1,unbiased=1')
  with pytest.raises(
    ValueError,
    match=r'at most 0\.1, which is 1 / \(1 \+ omega\) of randomk.* of 1000 '
    'elements, received 0.2. Leave alpha out',
  ):
    rounds.codec_of(method, [(3,), (1000,)]).states()
  allowed = registry.method('diana:alpha=0.1+randomk:ratio=0.1,unbiased=1')
  assert allowed.rates([1000]) == [0.1]
  chosen = registry.method('diana+randomk:ratio=0.1,unbiased=1')
  assert chosen.rates([1000, 1]) == [0.1, 1.0]
