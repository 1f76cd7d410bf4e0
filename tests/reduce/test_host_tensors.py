"""On GPUs no words pass through host memory, for every code in every mode."""

import pytest
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing
from tests.reduce import gpu_steps
from tests.reduce import host_tensors

# Large tensors that may be in host memory, (kind, operation) by mode.
EXEMPT = {
  # The runtime's collectives send from host memory, unless NCCL sends.
  'collective': {(host_tensors.COPY, 'Identity')},
  # Servers are other processes. They forward, split, pad and add on CPUs what
  # workers push.
  'server': {
    (host_tensors.COPY, 'PartitionedCall'),
    (host_tensors.COPY, 'Reshape'),
    (host_tensors.COPY, 'Identity'),
    (host_tensors.COPY, 'Pad'),
    (host_tensors.COPY, 'Shape'),
    (host_tensors.COPY, 'StridedSlice'),
    (host_tensors.COPY, 'DynamicStitch'),
  },
  # Selects the names of variables whose gradients are not finite, for a log
  # line. Its length is known only then.
  gpu_steps.KERAS: {(host_tensors.NO_KERNEL, 'GatherV2')},
}
# A code of each kind in some modes: tracing takes a second or more.
SEVERAL = 'four nodes', 'NCCL', 'server'
SAMPLE = {
  # Integers that can be added.
  'ternary:packing=radix': gpu_steps.EXCHANGES,
  'identity': SEVERAL,
  # Words of variable length.
  'ternary:packing=huffman243': SEVERAL,
  # Nodes carry words in place of gradients.
  'ternary:sharing=requantize': ('four nodes',),
  # Two messages, one of integers and one of floats.
  'signsgd': SEVERAL,
  # Indices, with a state of each worker.
  'error_feedback+stc': ('one node',),
  # Several rounds.
  'bidirectional+qsgd': ('one node',),
  # Several rounds that are not compiled.
  'powersgd': SEVERAL,
}
WRAPPED = ('error_feedback+ternary', 'bidirectional+ternary', 'momentum+topk')


def find(codec, mode):
  """The `HostTensor`s of a step that are not in `EXEMPT`."""
  found = host_tensors.walk(gpu_steps.trace(codec, mode))
  allowed = EXEMPT.get(mode, ())
  return [one for one in found if (one.kind, one.operation) not in allowed]


@pytest.mark.parametrize(
  ('codec', 'mode'),
  [(codec, mode) for codec, modes in SAMPLE.items() for mode in modes],
)
@pytest.mark.gate_every(3)
def test_words_stay_on_the_gpu(codec, mode):
  assert find(codec, mode) == []


@pytest.mark.parametrize('mode', [gpu_steps.KERAS, gpu_steps.TRAINER])
def test_words_stay_on_the_gpu_in_programs(mode):
  assert find('ternary', mode) == []


def test_the_host_computes_the_keys_of_workers():
  placed = {}
  graph = gpu_steps.trace('ternary', gpu_steps.TRAINER)
  for op in host_tensors.operations(graph):
    # Part of deriving a key.
    assert op.type != 'LeftShift' or host_tensors.is_on_cpu(op)
    if 'f' in op.node_def.attr:
      placed[op.node_def.attr['f'].func.name] = host_tensors.is_on_cpu(op)
  assert {on_cpu for name, on_cpu in placed.items() if 'key' in name} == {True}
  assert {on_cpu for name, on_cpu in placed.items() if 'send' in name} == {
    False
  }


@pytest.mark.slow
@pytest.mark.parametrize('mode', gpu_steps.MODES)
@pytest.mark.parametrize(
  'codec', [*registry.list_kinds(), *registry.ALIASES, *WRAPPED]
)
def test_words_of_every_code_stay_on_the_gpu(codec, mode):
  assert find(codec, mode) == []


def kinds(function, *arguments):
  """The kinds and operations that the walk finds in a function."""
  graph = tracing.function(function)
  graph = graph.get_concrete_function(*arguments).graph
  return {(one.kind, one.operation) for one in host_tensors.walk(graph)}


LARGE, SMALL = tf.zeros([1025], tf.int32), tf.zeros([1024], tf.int32)


def test_a_tensor_in_host_memory_is_found():
  found = {(host_tensors.HOST, 'AddV2')}
  assert kinds(lambda x: tf.bitcast(x + 1, tf.float32), LARGE) == found
  assert kinds(lambda x: tf.bitcast(x + 1, tf.float32), SMALL) == set()
  floats = tf.bitcast(LARGE, tf.float32)
  assert kinds(lambda x: x + 1, floats) == set()


def test_a_data_type_without_a_kernel_is_found():
  unsigned = tf.bitcast(LARGE, tf.uint32)
  found = {(host_tensors.NO_KERNEL, 'Pad')}
  assert kinds(lambda x: tf.pad(x, [[0, 1]]), unsigned) == found


def test_int32_arguments_and_results_of_functions_are_found():
  compiled = tracing.function(lambda x: x + 1, jit_compile=True)
  call = (host_tensors.BOUNDARY, 'PartitionedCall')
  result = (host_tensors.BOUNDARY, 'Identity'), (host_tensors.HOST, 'Identity')
  assert kinds(compiled, LARGE) == {call, *result}
  # What happens inside of a compiled function stays there.
  inside = tracing.function(
    lambda x: tf.bitcast(tf.bitcast(x, tf.int32) + 1, tf.float32),
    jit_compile=True,
  )
  assert kinds(inside, tf.bitcast(LARGE, tf.float32)) == set()


def test_loops_are_searched():
  def loop(values):
    return tf.while_loop(
      lambda i, _: i < 3, lambda i, x: (i + 1, x + 1), (0, values)
    )[1]

  found = kinds(loop, LARGE)
  assert (host_tensors.BOUNDARY, 'StatelessWhile') in found
  assert (host_tensors.HOST, 'AddV2') in found


def test_a_copy_to_a_cpu_is_found():
  def copy(values):
    with tf.device('/CPU:0'):
      return tf.identity(values)

  found = {(host_tensors.COPY, 'Identity')}
  assert kinds(copy, tf.bitcast(LARGE, tf.float32)) == found
