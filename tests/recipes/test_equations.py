"""Each recipe over ten exchanges against the equations of its paper.

Workers are simulated: the outer step of each recipe runs on the changes of two
workers in one process, which are coded and averaged as in training. The local
steps are a pull to a target of each worker and phase, which is a stand-in for
the examples; Muon is compared apart from them. Results are float32, the
equations float64: they agree within 1e-5, which is the error of float32 over
ten steps of values near 1.
"""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.passes import inner_optimizers
from terngrad.recipes import catalog
from terngrad.step import optimizers
from tests.codec import rounds
from tests.recipes import equations

# A matrix of several chunks with a rest, and a vector.
SHAPES = (70, 90), (33,)
PHASES = 10


def local_steps(parameters, worker, phase):
  """The parameters after the local steps, float32."""
  rng = np.random.default_rng([worker, phase])
  return [
    (p - 0.1 * (p - rng.standard_t(3, size=p.shape))).astype(np.float32)
    for p in parameters
  ]


def begin():
  rng = np.random.default_rng(5)
  return [rng.normal(size=s).astype(np.float32) for s in SHAPES]


def run(recipe, codec, workers):
  """The parameters after each exchange, by the recipe's codec and optimizer."""
  variables = [tf.Variable(p) for p in begin()]
  rule = optimizers.parse(recipe.outer, 0.9)
  slots = [
    {n: tf.Variable(tf.fill(s, v)) for n, v in rule.slots.items()}
    for s in SHAPES
  ]
  code = rounds.codec_of(registry.method(codec).on_kernels(), SHAPES)
  group, found = rounds.Workers(code, workers), []
  for phase in range(PHASES):
    before = [v.numpy() for v in variables]
    changes = [
      [
        b - a
        for b, a in zip(before, local_steps(before, w, phase), strict=True)
      ]
      for w in range(workers)
    ]
    means = group.step(code, changes, phase)
    for variable, slot, mean in zip(variables, slots, means, strict=True):
      rule.apply(
        variable,
        slot,
        tf.constant(mean),
        tf.constant(recipe.outer_learning_rate),
        tf.constant(phase, tf.int64),
      )
    found.append([v.numpy() for v in variables])
  return found


def follow(feedbacks, movers, workers):
  """The same by the equations, float64."""
  parameters, found = [p.astype(np.float64) for p in begin()], []
  for phase in range(PHASES):
    # Workers start from float32 parameters.
    starts = [p.astype(np.float32) for p in parameters]
    sums = [np.zeros(s) for s in SHAPES]
    for worker in range(workers):
      ends = local_steps(starts, worker, phase)
      for i, (start, end) in enumerate(zip(starts, ends, strict=True)):
        change = (start - end).astype(np.float64)
        sums[i] += feedbacks[worker][i].send(change) if feedbacks else change
    parameters = [
      mover(p, total / workers)
      for mover, p, total in zip(movers, parameters, sums, strict=True)
    ]
    found.append(parameters)
  return found


def assert_follows(found, expected):
  for actual, wanted in zip(found, expected, strict=True):
    for one, other in zip(actual, wanted, strict=True):
      np.testing.assert_allclose(one, other, rtol=0, atol=1e-5)


def feedbacks(make, workers):
  return [[make() for _ in SHAPES] for _ in range(workers)]


def nesterov(mu, eta):
  return [equations.Nesterov(mu, eta).move for _ in SHAPES]


def test_sparseloco_follows_its_equations():
  recipe = catalog.find('sparseloco')
  expected = follow(
    feedbacks(lambda: equations.SparseFeedback(0.95, 4096, 64), 2),
    [lambda p, mean: p - 1.0 * mean] * 2,
    2,
  )
  assert_follows(run(recipe, recipe.codec, 2), expected)


def test_muloco_follows_its_equations():
  recipe = catalog.find('muloco')
  expected = follow(
    feedbacks(lambda: equations.Feedback(1.0), 2), nesterov(0.6, 0.7), 2
  )
  assert_follows(run(recipe, recipe.codec, 2), expected)


@pytest.mark.parametrize(
  ('name', 'mu', 'eta', 'workers'),
  [('diloco', 0.9, 0.7, 2), ('snoo', 0.75, 0.8, 1)],
)
def test_nesterov_on_the_mean_change_follows_the_equations(
  name, mu, eta, workers
):
  recipe = catalog.find(name)
  expected = follow([], nesterov(mu, eta), workers)
  assert_follows(run(recipe, recipe.codec, workers), expected)


@pytest.mark.parametrize('shape', [(5, 8), (8, 5), (3, 3, 2, 6)])
def test_muon_follows_its_equations_inside_and_outside(shape):
  rate = tf.constant(0.1)
  inner = inner_optimizers.parse('muon', 0.0)
  outer = optimizers.parse('muon', 0.9)
  value = tf.ones(shape)
  slots = [tf.zeros(shape), tf.zeros(shape)]
  variable = tf.Variable(value)
  named = {n: tf.Variable(tf.fill(shape, v)) for n, v in outer.slots.items()}
  columns = shape[-1]
  expected, velocity = np.ones(shape).reshape(-1, columns), 0.0
  scale = 0.2 * max(expected.shape) ** 0.5
  for step in range(10):
    rng = np.random.default_rng(step)
    gradient = rng.normal(size=expected.shape)
    direction, velocity = equations.muon_direction(gradient, velocity)
    expected = expected - 0.1 * scale * direction
    received = tf.constant(gradient.reshape(shape), tf.float32)
    value, slots = inner.apply(
      value, slots, received, None, rate, tf.constant(step + 1.0)
    )
    outer.apply(variable, named, received, rate, tf.constant(step, tf.int64))
  for actual in (value, variable):
    actual = actual.numpy().reshape(-1, columns)
    np.testing.assert_allclose(actual, expected, atol=2e-5)


def test_muon_moves_vectors_and_the_last_layer_by_adamw():
  muon = inner_optimizers.parse('muon', 0.0)
  adamw = inner_optimizers.parse('adamw', 0.0)
  for rule, shape in ((muon, [4]), (muon.elementwise, [4, 3])):
    value = tf.random.stateless_normal(shape, [1, 2])
    gradient = tf.random.stateless_normal(shape, [3, 4])
    slots = [tf.zeros(shape), tf.zeros(shape)]
    rest = gradient, 0.1 * value, tf.constant(0.1), tf.constant(1.0)
    (expected, _), (actual, _) = (
      one.apply(value, slots, *rest) for one in (adamw, rule)
    )
    np.testing.assert_array_equal(actual, expected)
