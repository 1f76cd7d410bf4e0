"""Words that are NaNs and subnormals as float32 survive loops and exchanges."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec import policy
from terngrad.codec.stages import contract
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.exchange import server
from terngrad.exchange import towers
from terngrad.reduce import bucketing
from terngrad.reduce import reducer as reducers
from terngrad.reduce import states as states_lib
from tests.exchange import conformance

COUNT = 2000
SHAPE = (40, 3)


def words_of(worker):
  """int32 [COUNT]: the fragile words, and in one place the worker."""
  repeated = np.resize(conformance.FRAGILE, COUNT)
  return tf.tensor_scatter_nd_update(
    tf.constant(repeated), [[COUNT - 1]], [worker]
  )


class Fragile(method.Method):
  """A method of two rounds as another package might define it, with int32.

  Its mean is the fraction of words that arrived as they were sent. In the
  second round each worker sends what it has received from the last.
  """

  name = 'fragile'
  traits = contract.Traits(False, False, False, 'none')
  agrees = False
  carries = True
  num_rounds = 2

  def __init__(self, compiled):
    self.compiled = compiled

  def messages(self, shapes):
    return ((method.gathered(COUNT),), (method.gathered(COUNT),))

  def carry(self, gradients, context):
    return words_of(context.worker)

  def carry_words(self, shapes):
    return COUNT

  def send(self, number, gradients, states, received, context):
    (words,) = gradients
    if number:
      words = method.stack_by_worker(received[0][0].parts)[-1]
    assert words.dtype == tf.int32
    return [words], states

  def decode(self, received, states, context):
    workers = tf.range(context.num_workers)
    expected = tf.map_fn(words_of, workers, tf.int32)
    shares = []
    for one, wanted in zip(received, (expected, expected[-1]), strict=True):
      rows = method.stack_by_worker(one[0].parts)
      assert rows.dtype == tf.int32
      equal = tf.cast(tf.equal(rows, wanted), tf.float32)
      shares.append(tf.reduce_mean(equal))
    mean = tf.reduce_mean(tf.stack(shares))
    return [tf.fill(shape, mean) for shape in context.shapes], states


EXCHANGES = {
  'one worker': lambda: towers.Towers(('/CPU:0',), 1),
  'a loop of workers': lambda: towers.Towers(('/CPU:0',), 4),
  'two devices': lambda: towers.Towers(('/CPU:0', '/CPU:1'), 4),
  'servers': lambda: server.Servers(
    towers.Towers(('/CPU:0', '/CPU:1'), 2), ('/CPU:2', '/CPU:3'), 2
  ),
}


@pytest.mark.parametrize('compiled', [False, True])
@pytest.mark.parametrize('name', EXCHANGES)
@pytest.mark.gate_every(3)
def test_every_bit_arrives(name, compiled):
  exchange = EXCHANGES[name]()
  code = Fragile(compiled)
  codec = bucketing.gradient_codec([policy.VariableSpec('v', SHAPE)], [code])
  states = states_lib.DeviceStates({}, {})
  count = len(exchange.devices)
  reducer = reducers.Reducer(codec, exchange, [states] * count, 1)

  # In a traced function TensorFlow's threads flush subnormals to zero.
  @tracing.function
  def step():
    def gradients_of(worker):
      del worker
      return reducers.WorkerGradients([tf.ones(SHAPE)])

    zero = tf.constant(0, tf.int64)
    start = reducer.begin([gradients_of] * count, [zero] * count)
    (pending,) = reducer.exchange(start, [None] * count)
    words = [one.words for one in pending]
    return [one.means()[0] for one in pending], words

  means, words = step()
  for mean in means:
    np.testing.assert_array_equal(mean, np.ones(SHAPE))
  assert {one.dtype for one in tf.nest.flatten(words)} == {tf.float32}


def test_threads_of_tensorflow_flush_subnormals():
  # So `test_every_bit_arrives` would fail if words were added or compared.
  subnormal = tf.bitcast(tf.constant([1] * 100), tf.float32)
  add = tracing.function(lambda x: tf.bitcast(x * 1.0 + 0.0 * x, tf.int32))
  assert add(subnormal).numpy().max() == 0


def test_casts_invert_each_other_and_leave_other_types():
  words = tf.constant(conformance.FRAGILE)
  moved = transport.to_float32(words)
  assert moved.dtype == tf.float32
  np.testing.assert_array_equal(transport.to_int32(moved), words)
  assert transport.to_int32(words) is words
  assert transport.to_float32(moved) is moved
  sums = tf.constant([1], tf.int8)
  assert transport.to_float32(sums) is sums
  assert transport.to_int32(sums) is sums
