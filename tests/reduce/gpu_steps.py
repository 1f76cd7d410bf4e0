"""Traces steps as GPUs run them, on a machine without one; nothing is run.

The variables have so many elements that the words of every code take more than
`host_tensors.LEAST_BYTES`.
"""

import functools

import keras
import tensorflow as tf

import terngrad.keras
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.compression import codec_states
from terngrad.exchange import collective
from terngrad.exchange import device_groups
from terngrad.exchange import group
from terngrad.exchange import server
from terngrad.exchange import towers
from terngrad.native import gpu
from terngrad.reduce import bucketing
from terngrad.reduce import reducer as reducers
from terngrad.reduce import states as states_lib
from tests.step import small

SHAPES = {'a/kernel': (1024, 1024), 'a/bias': (1024,), 'b/kernel': (300, 7)}
_GPU = '/GPU:0'
_WORKERS = tuple(f'/job:worker/task:{i}/device:GPU:0' for i in range(2))


def _collective(communication, workers):
  made = group.Group.from_strategy(2, 0)
  made._set_up(2, 0, communication, group._PIECE)
  return collective.Collective(made, (_GPU,), workers)


EXCHANGES = {
  'one node': lambda: towers.Towers((_GPU,), 1),
  'four nodes': lambda: towers.Towers((_GPU,), 4),
  'two GPUs': lambda: towers.Towers((_GPU, '/GPU:1'), 4),
  'groups': lambda: device_groups.make(
    towers.Towers((_GPU, '/GPU:2'), 2), tuple(f'/GPU:{i}' for i in range(4))
  ),
  'collective': lambda: _collective('auto', 2),
  'NCCL': lambda: _collective(group.NCCL, 4),
  'server': lambda: server.Servers(
    towers.Towers(_WORKERS, 2), ('/job:ps/task:0/device:CPU:0',), 2
  ),
}
KERAS, TRAINER = 'Keras', 'trainer'
MODES = (*EXCHANGES, KERAS, TRAINER)


def trace(codec, mode):
  """Returns the graph of a step with a code.

  Args:
    codec: text of `--codec`.
    mode: a key of `EXCHANGES`, for a step from given gradients to their mean;
      KERAS: `CompressedOptimizer.apply`; TRAINER: a step of a trainer with four
      nodes, from images to updated parameters.
  """
  if mode == KERAS:
    return _trace_keras(codec)
  kernels = gpu.available()
  if mode == TRAINER:
    return _trace_trainer(codec, kernels)
  exchange = EXCHANGES[mode]()
  return _trace_reducer(_codec(codec, exchange.num_workers, kernels), exchange)


# A step has other operations where GPU kernels are, or seem to be, available.
@functools.cache
def _codec(text, workers, kernels):
  assert kernels == gpu.available()
  specs = [policy.VariableSpec(*item) for item in SHAPES.items()]
  method = registry.method(text, workers)
  codec = bucketing.gradient_codec(specs, [method] * len(specs))
  return bucketing.on_gpus(codec)


def _trace_reducer(codec, exchange):
  declared = states_lib.declarations(codec)
  shared = states_lib.shared(codec)
  counts = [len(exchange.workers_of(i)) for i, _ in enumerate(exchange.devices)]
  states = [
    states_lib.DeviceStates(
      states_lib.make_worker_variables(declared, '/CPU:0', count),
      states_lib.make_shared_variables(shared, '/CPU:0'),
    )
    for count in counts
  ]
  reducer = reducers.Reducer(codec, exchange, states, 1)

  def reduce(gradients, step):
    def gradients_of(worker):
      return reducers.WorkerGradients([tf.gather(g, worker) for g in gradients])

    passes = [gradients_of] * len(device_groups.leading_devices(exchange))
    start = reducer.begin(passes, [step] * len(counts))
    pending = reducer.exchange(start, [None] * len(counts))
    return [[one.means() for one in row] for row in pending]

  specs = [
    tf.TensorSpec([exchange.num_workers, *shape]) for shape in SHAPES.values()
  ]
  return _graph(reduce, specs, tf.TensorSpec([], tf.int64))


def _graph(function, *arguments):
  traced = tf.function(function, autograph=False)
  return traced.get_concrete_function(*arguments).graph


def _trace_keras(codec):
  optimizer = terngrad.keras.CompressedOptimizer(keras.optimizers.SGD(), codec)
  # The exchange that it finds where there is a GPU.
  compressor = optimizer.compressor
  compressor._strategy = tf.distribute.get_strategy()
  compressor._states = codec_states.CodecStates(EXCHANGES['one node']())
  variables = [
    keras.Variable(tf.zeros(shape), name=name.replace('/', '_'))
    for name, shape in SHAPES.items()
  ]

  def apply(gradients):
    with tf.device(_GPU):
      optimizer.apply(gradients, variables)

  return _graph(apply, list(map(tf.TensorSpec, SHAPES.values())))


def _net():
  layers = [
    keras.layers.Flatten(),
    keras.layers.Dense(2048, activation='relu', name='fc1'),
    keras.layers.Dense(512, activation='relu', name='fc2'),
    keras.layers.Dense(5, name='logits'),
  ]
  return keras.Sequential([keras.Input((8, 8, 1)), *layers])


@functools.cache
def _trace_trainer(codec, kernels):
  assert kernels == gpu.available()
  workers = 4
  training = small.Training(
    _net,
    devices=1,
    workers=workers,
    codec=codec,
    names=(_GPU,),
    on_gpus=True,
  )
  take = training.turns[0].take
  return take.get_concrete_function(
    *small.batch_of(0, training.shape),
    tf.constant(0, tf.int64),
    tf.constant(0.1),
    tf.constant(0.5),
  ).graph
