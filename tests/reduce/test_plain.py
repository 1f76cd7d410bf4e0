"""Workers of one device add float32 gradients without messages or copies."""

import collections

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing
from terngrad.exchange import towers
from terngrad.reduce import bucketing
from terngrad.reduce import plain
from terngrad.reduce import reducer as reducers
from terngrad.reduce import states
from terngrad.reduce import weight_decay
from terngrad.step import loss_scaling
from terngrad.step import optimizers
from terngrad.step import updates
from tests.step import small

# Bytes of the smallest kernel of `small.dense_net`, 12 x 5 float32.
_LARGE = 240


def large_results(function, *arguments):
  """Counts (operation, bytes) of the large results of a traced function.

  What XLA compiles counts as one operation.
  """
  counts, seen = collections.Counter(), set()

  def walk(graph):
    for operation in graph.get_operations():
      sizes = [
        output.shape.num_elements() * output.dtype.size
        for output in operation.outputs
        if output.dtype.is_floating or output.dtype.is_integer
      ]
      for size in sizes:
        if size >= _LARGE:
          counts[operation.type, size] += 1
      if operation.type not in ('PartitionedCall', 'StatefulPartitionedCall'):
        continue
      name = operation.get_attr('f').name
      called = graph._get_function(name)
      if name not in seen:
        seen.add(name)
        if not called.cached_definition.attr['_XlaMustCompile'].b:
          walk(called.graph)

  walk(function.get_concrete_function(*arguments).graph)
  return counts


def step_without_codec(training):
  """A step of one worker that knows no codec: pass, L2 terms, update."""
  (replica,) = training.replicas
  update = updates.Update(replica, training.optimizer, None)
  decay = weight_decay.WeightDecay.of(training.plan.trainable)

  @tracing.function(jit_compile=True)
  def terms(gradients, parameters):
    found = decay.gradients(parameters)
    return [
      None if term is None else gradient + term
      for gradient, term in zip(gradients, found, strict=True)
    ]

  @tracing.function
  def step(images, labels, number):
    parameters = [tf.convert_to_tensor(v) for v in replica.trainable]
    key = tf.constant([1, 2], tf.uint32)
    gradients, scores, _ = training.node_pass.gradients(
      parameters, [], images[0], labels[0], key
    )
    decayed = [
      gradient if term is None else term
      for gradient, term in zip(
        gradients, terms(gradients, parameters), strict=True
      )
    ]
    update(decayed, None, (number, tf.constant(0.05), tf.constant(0.5)))
    return scores

  return step


def test_one_worker_runs_the_operations_of_a_step_without_a_codec():
  training = small.Training(
    small.dense_net, devices=1, workers=1, codec='identity', on_kernels=True
  )
  images, labels = small.batch_of(0, training.shape)
  number, rates = tf.constant(0, tf.int64), [tf.constant(0.05)] * 2
  expected = large_results(step_without_codec(training), images, labels, number)
  assert sum(expected.values()) > 10
  taken = large_results(training.step.take, images, labels, number, *rates)
  assert taken == expected


ADAM = optimizers.Adam().with_clip_norm(0.05)


@pytest.mark.parametrize(
  ('workers', 'options'),
  [
    (4, {'on_kernels': True, 'part_bytes': 200}),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in (
        (1, {'on_kernels': True, 'part_bytes': 200}),
        (1, {'optimizer': ADAM, 'scaling': loss_scaling.START}),
        (4, {'optimizer': ADAM, 'scaling': loss_scaling.START}),
      )
    ),
  ],
)
def test_training_has_the_bits_of_encoded_gradients(workers, options):
  found = []
  for keeps_words in (False, True):
    training = small.Training(
      small.dense_net,
      devices=1,
      workers=workers,
      codec='identity',
      exchange=towers.Towers(('/CPU:0',), workers, keeps_words),
      **options,
    )
    result = training.run(3)
    assert bool(result.words[0]) == keeps_words
    found.append((training.values(), result))
  (values, result), (other_values, other) = found
  np.testing.assert_array_equal(values, other_values)
  for field in ('entropy', 'accuracy', 'probes', 'shared', 'sent'):
    np.testing.assert_array_equal(getattr(result, field), getattr(other, field))


def reduce(gradients, keeps_words=False):
  """The mean of workers' gradients of one variable, float32 [n, size]."""
  count, size = gradients.shape
  codec = bucketing.gradient_codec(
    [small.policy.VariableSpec('v', (size,))], [registry.method('identity')]
  )
  exchange = towers.Towers(('/CPU:0',), count, keeps_words)
  reducer = reducers.Reducer(
    codec,
    exchange,
    [states.DeviceStates({}, {})],
    seed=1,
    options=reducers.ReducerOptions(compiles=False),
  )
  rows = tf.constant(gradients)

  @tracing.function
  def step():
    start = reducer.begin(
      [lambda worker: reducers.WorkerGradients([rows[worker]])],
      [tf.constant(0, tf.int64)],
    )
    ((pending,),) = reducer.exchange(start, [None])
    return pending.means()[0]

  return step().numpy()


def test_a_sum_keeps_the_sign_of_zero_and_the_order_of_the_workers():
  large = np.float32(2**24)
  gradients = np.array(
    [[-0.0, 0.0, large, 1.0], [-0.0, -0.0, 1.0, 1.0], [-0.0, 0.0, 1.0, large]],
    np.float32,
  )
  mean = reduce(gradients)
  np.testing.assert_array_equal(np.signbit(mean), [True, False, False, False])
  # 2**24 + 1 is no float32.
  third = np.float32(1 / 3)
  np.testing.assert_array_equal(mean[2:], [large * third, (large + 2) * third])
  encoded = reduce(gradients, keeps_words=True)
  np.testing.assert_array_equal(mean.view('i4'), encoded.view('i4'))


@pytest.mark.parametrize(
  ('codec', 'exchange', 'expected'),
  [
    ('identity', towers.Towers(('/CPU:0',), 3), True),
    ('identity', towers.Towers(('/CPU:0', '/CPU:1'), 3), False),
    ('identity', towers.Towers(('/CPU:0',), 3, keeps_words=True), False),
    ('fp16', towers.Towers(('/CPU:0',), 3), False),
    ('error_feedback+identity', towers.Towers(('/CPU:0',), 3), False),
  ],
)
def test_only_float32_of_one_device_is_added_without_messages(
  codec, exchange, expected
):
  made = bucketing.gradient_codec(
    [small.policy.VariableSpec('v', (2,))], [registry.method(codec)]
  )
  for one in (made, bucketing.on_kernels(made), bucketing.on_gpus(made)):
    assert plain.adds_directly(one, exchange) == expected
