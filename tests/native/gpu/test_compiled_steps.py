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

pytestmark = pytest.mark.skipif(
  not native.available(), reason='needs the native kernels'
)
PREFIX = 'TerngradGpu'
CODECS = ('ternary', 'ternary:sharing=requantize', 'int8', 'qsgd', 'minmax')
CODECS += ('sign', 'fp8', 'natural', 'drive', 'eden', 'eden3', 'thc')
CODECS += ('error_feedback+topk', 'stc', 'threshold')


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
