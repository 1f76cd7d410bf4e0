"""Functions that XLA compiles never contain operations with GPU kernels.

XLA has no kernels for these operations. Steps are traced as for a machine with
a GPU and its kernels.
"""

import pytest
import tensorflow as tf

from terngrad import native
from terngrad.compression import codec_states
from terngrad.native import gpu
from terngrad.step import fused_updates
from tests import seeming_gpu
from tests.keras import small
from tests.reduce import gpu_steps
from tests.reduce import host_tensors

pytestmark = pytest.mark.skipif(
  not native.available(), reason='needs the native kernels'
)
PREFIX = 'TerngradGpu'
CODECS = ('ternary', 'ternary:sharing=requantize', 'int8', 'qsgd', 'minmax')
CODECS += ('sign', 'fp8', 'natural', 'drive', 'eden', 'eden3', 'thc')
CODECS += ('error_feedback+topk', 'stc', 'threshold')
WRAPPED = ('error_feedback+ternary', 'error_feedback+eden3', 'dgc')
SmallCopy = host_tensors.SmallCopy
FROM_GPU, TO_GPU = host_tensors.FROM_GPU, host_tensors.TO_GPU


@pytest.fixture(autouse=True)
def kernels_on_gpus(monkeypatch):
  monkeypatch.setattr(gpu, 'unavailable_reason', lambda: None)
  # Otherwise this runs a kernel.
  monkeypatch.setattr(fused_updates, 'kernel_roundings', lambda *_: 0)


def called(node):
  """Names of the functions that an operation calls."""
  for attribute in node.attr.values():
    yield from [attribute.func.name] if attribute.HasField('func') else []
    yield from (one.name for one in attribute.list.func)


def operations(graph):
  """Returns the types of all operations, and of those that XLA compiles."""
  definition = graph.as_graph_def()
  functions = {one.signature.name: one for one in definition.library.function}
  compiled = {
    name for name, one in functions.items() if one.attr['_XlaMustCompile'].b
  }
  left = list(compiled)
  while left:
    for node in functions[left.pop()].node_def:
      new = set(called(node)) - compiled
      compiled |= new
      left += new
  of_all = [node.op for node in definition.node]
  of_all += [n.op for one in functions.values() for n in one.node_def]
  inside = [n.op for name in compiled for n in functions[name].node_def]
  return set(of_all), set(inside)


def gpu_operations(types):
  return {one for one in types if one.startswith(PREFIX)}


MODES = (gpu_steps.TRAINER, gpu_steps.KERAS, 'four nodes')


@pytest.mark.parametrize(
  ('codec', 'modes'),
  [
    ('ternary', MODES[:1]),
    *(pytest.param(codec, MODES, marks=pytest.mark.slow) for codec in CODECS),
  ],
)
def test_steps_have_the_operations_outside_of_compiled_functions(codec, modes):
  for mode in modes:
    everywhere, inside = operations(gpu_steps.trace(codec, mode))
    assert gpu_operations(everywhere), mode
    assert inside
    assert not gpu_operations(inside), mode


# The copies between host and GPU within a step. TensorFlow's copies
# wait until the GPU has done all work that was launched before.
COPIES = {
  gpu_steps.TRAINER: {
    # Labels and accuracy of a pass that is not compiled. TensorFlow copies the
    # labels once for these operations.
    SmallCopy(
      TO_GPU,
      'SparseSoftmaxCrossEntropyWithLogits',
      'labels',
      'int32',
    ),
    SmallCopy(TO_GPU, 'InTopKV2', 'targets', 'int32'),
    SmallCopy(TO_GPU, 'Cast', 'x', 'int32'),
    SmallCopy(TO_GPU, 'InTopKV2', 'k', 'int32'),
    # The condition of the loop over workers; TensorFlow removes this identity.
    SmallCopy(TO_GPU, 'Identity', 'input', 'bool'),
  },
  gpu_steps.KERAS: {
    # Which gradients are finite: the host takes the branches. Once in a step.
    SmallCopy(FROM_GPU, 'Identity', 'input', 'bool'),
    # The branch of a step that is not finite has them on the GPU.
    SmallCopy(TO_GPU, 'StatelessIf', 'input', 'bool'),
    SmallCopy(TO_GPU, 'If', 'input', 'bool'),
    # The seed, and Keras's number of the step, of which the host derives keys.
    SmallCopy(FROM_GPU, 'PartitionedCall', 'args', 'int64'),
  },
}


# Compiled programs of `thc` derive the keys of variables.
COPIED = (*(one for one in CODECS if one != 'thc'), *WRAPPED)


@pytest.mark.parametrize('mode', COPIES)
@pytest.mark.parametrize('codec', COPIED)
@pytest.mark.gate_every(5)
def test_only_few_numbers_are_copied_within_a_step(codec, mode):
  graph = gpu_steps.trace(codec, mode)
  allowed = set(COPIES[mode])
  if 'threshold' in codec:
    # How many elements it sends, for the report of sent bits.
    allowed.add(SmallCopy(FROM_GPU, 'Mul', 'y', 'int32'))
  assert host_tensors.copies(graph) <= allowed
  large = {(one.kind, one.operation) for one in host_tensors.walk(graph)}
  # Names of variables for a log line, after a step that was not finite.
  assert large <= {(host_tensors.NO_KERNEL, 'GatherV2')}


def on_gpu(codec, **compiling):
  """A model whose optimizer has the exchange of a machine with one GPU."""
  made = small.compiled(codec, **compiling)
  compressor = made.optimizer.compressor
  compressor._strategy = tf.distribute.get_strategy()
  exchange = gpu_steps.EXCHANGES['one node']()
  compressor._states = codec_states.CodecStates(exchange)
  return made


def operations_of_fit(made):
  """The operations of the function that `fit` calls for each batch."""
  batch = tuple(map(tf.constant, small.data(16)))
  step = tf.function(made.train_step, jit_compile=made.jit_compile)

  def fit(features, labels):
    with tf.device('/GPU:0'):
      return step((features, labels))

  return operations(tf.function(fit).get_concrete_function(*batch).graph)


def test_fit_with_default_compile_has_no_operations_that_xla_cannot_run(
  monkeypatch,
):
  seeming_gpu.pretend(monkeypatch)
  by_default = on_gpu('ternary')
  assert by_default.jit_compile
  everywhere, inside = operations_of_fit(by_default)
  assert not gpu_operations(everywhere)
  assert 'MatMul' in inside
  # Without XLA the same step has them.
  everywhere, inside = operations_of_fit(on_gpu('ternary', jit_compile=False))
  assert gpu_operations(everywhere) == {
    'TerngradGpuStatistics',
    'TerngradGpuEncode',
    'TerngradGpuDecodeSum',
  }
  assert not gpu_operations(inside)
