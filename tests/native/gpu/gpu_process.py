"""A process whose GPU is a library that runs kernels on the CPU.

  python -m tests.native.gpu.gpu_process LIBRARY CASE

CASE is `load`, `again` for loading twice, a `few` codes, `all`, or `copies`
from the host. TensorFlow looks for GPUs before the library is there and so
finds none; its answers are replaced here.
"""

import ctypes
import json
import sys
from unittest import mock

import numpy as np
import tensorflow as tf

from terngrad.codec import method
from terngrad.codec.methods import registry
from terngrad.codec.stages import tracing
from terngrad.codec.stages import transport
from terngrad.native import cubins
from terngrad.native import gpu
from terngrad.native import ops

# The first ones are the few.
CODECS = (
  'ternary',
  'minmax:group_size=100',
  'fp8',
  'natural',
  'eden3',
  'ternary:packing=two_bit',
  'ternary:scaler_rule=stddev',
  'ternary:clip_factor=0',
  'ternary:packing=radix,workers=200',
  'ternary:packing=radix,workers=201,word_bits=64',
  'ternary:dither=stratified,workers=3',
  'sign',
  'int8',
  'qsgd',
  'qsgd:levels=3,norm=l2,group_size=0',
  'fp8:kind=e5m2,group_size=0',
  'drive',
  'eden:bits=2',
  'eden:bits=3',
  'eden:bits=4',
)
FEW = 5
# TensorFlow takes seconds to trace other codes for one size, and minutes for
# hundreds of variables.
OF_MANY = ('ternary', 'minmax', 'sign', 'int8', 'qsgd')
# One variable; a few, one of them empty and one of two statistics blocks; more
# than travel with a launch.
SIZES = ([1], [7, 0, 16390, 1, 300], [i % 5 for i in range(130)])
# Of few elements; one variable that takes several launches.
SPARSE = ('stc', 'topk:ratio=0.2', 'stc:ratio=0.3', 'threshold:above=1.2')
SPARSE_SIZES = (
  [70_001, 0, 5],
  [7, 0, 16390, 1, 300],
  [i % 5 for i in range(50)],
)
SPARSE_SIZES += ([1], [0, 0])
GPU_OPERATIONS = ('Statistics', 'Encode', 'DecodeSum', 'ScaleSums')
GPU_OPERATIONS += ('EncodeGroups', 'DecodeGroups')
GPU_OPERATIONS += ('EncodeNatural', 'DecodeNatural', 'Requantize')
GPU_OPERATIONS += ('EncodeRotated', 'DecodeRotated')
GPU_OPERATIONS += ('EncodeTable', 'DecodeTable')
GPU_OPERATIONS += ('FusedUpdate', 'FusedUpdateOfSums')
GPU_OPERATIONS += ('EncodeElements', 'AddElements', 'Numbers')


def load(library):
  """Loads the kernels as on a machine with one GPU; returns the reason."""
  tf.config.list_physical_devices()
  ctypes.CDLL(library)
  device = tf.config.PhysicalDevice('/physical_device:GPU:0', 'GPU')
  details = {'compute_capability': (9, 0)}
  with (
    mock.patch.object(tf.config, 'get_visible_devices', lambda _: [device]),
    mock.patch.object(
      tf.config.experimental, 'get_device_details', lambda _: details
    ),
    mock.patch.object(cubins, 'cubins', lambda _: 2 * [b'\x7fELF']),
  ):
    return gpu.unavailable_reason()


def emulated(function):
  """Returns a function whose graph runs the kernels with the test's label."""

  def traced(*arguments):
    labels = {
      f'TerngradGpu{name}': 'terngrad_emulated' for name in GPU_OPERATIONS
    }
    graph = tf.compat.v1.get_default_graph()
    with graph._kernel_label_map(labels):
      return function(*arguments)

  return tracing.function(traced)


@emulated
def coded(code, gradients, key, workers):
  """Returns probe, words, and the means of words and of sums."""
  sizes = [gradient.shape.num_elements() for gradient in gradients]
  shapes = [gradient.shape for gradient in gradients]
  probe = code.probe(gradients)
  # Some elements are above the scaler of the others.
  shared = 0.75 * probe
  words = code.encode_pieces(gradients, sizes, probe, shared, key)
  rows = tf.stack([tf.roll(words, i, 0) for i in range(workers)])
  means = [code.decode_sum([rows], shared, shapes, 1 / workers)]
  means.append(code.decode_sum([words[tf.newaxis]], shared, shapes))
  if code.summable:
    totals = tf.range(sum(sizes)) % 7 - 3
    for kind in (tf.int8, tf.int32, tf.float32):
      sums = tf.cast(totals, kind)
      means.append(code.decode_sums(sums, shared, shapes, 1 / workers))
    means.append(code.requantize(words, shared, probe, shapes, key + 1))
  return probe, words, means


@emulated
def sent(thc, gradients, context):
  """Returns the words, the mean of three workers, and the estimate of `thc`."""
  carried, probe = thc.begin(gradients, (), context)
  context = context._replace(local_probe=probe, shared_probe=probe)
  (words,), _ = thc.send(0, carried, (), [], context)
  rows = transport.to_float32(tf.stack([words, tf.roll(words, 1, 0), words]))
  messages = thc.messages(context.shapes)[0]
  received = [method.payloads(messages, [method.Piece(0, [rows])])]
  means, _ = thc.decode(received, (), context)
  return words, means, thc.estimate([words], context)


def updated(on_gpus):
  """Returns the variables after updates by words and by sums."""
  random = np.random.default_rng(3)
  sizes = (7, 0, 4099, 300)

  def variables():
    return [
      tf.Variable(random.normal(size=n).astype(np.float32), trainable=False)
      for n in sizes
    ]

  tensors = ops.UpdateTensors(variables(), variables(), variables(), 0.9)
  digits = (ops.GpuDigits if on_gpus else ops.Digits)(3, 20)
  num_words = -(-sum(sizes) // 20)
  words = tf.constant(random.integers(0, 2**31, [3, num_words]), tf.int32)
  sums = tf.constant(random.integers(-3, 3, sum(sizes)), tf.int8)
  scalers = tf.constant(random.random(len(sizes)), tf.float32)

  def update():
    rates = tf.constant(0.03), tf.constant(0.99)
    piece = method.Piece(3, [words[:, 3:-2]])
    # A value that is read later, so that the update copies the variable.
    before = tensors.parameters[2].read_value()
    with tf.control_dependencies([before]):
      ops.fused_update(digits, piece, scalers, 0.5, tensors, rates)
    ops.fused_update_of_sums(sums, 0, scalers, 0.5, tensors, rates, on_gpus)
    return before + 0.0

  before = emulated(update)()
  return [before, *tensors.parameters, *tensors.velocities, *tensors.averages]


def bits(tensor):
  """The bits of a tensor; any NaN is like any other."""
  array = tensor.numpy()
  if array.dtype == np.float32:
    array[np.isnan(array)] = np.nan
  return array.tobytes()


def differences(cases):
  """Returns the cases in which the GPU's kernels give other bits."""
  random = np.random.default_rng(1)
  found = []
  for text, sizes_of_cases in cases:
    code = registry.parse(text)
    for sizes in sizes_of_cases:
      gradients = [
        tf.constant(random.normal(0.1, 1, n), tf.float32) for n in sizes
      ]
      # Strata need the third number.
      numbers = random.integers(0, 2**32, 3 if 'stratified' in text else 2)
      key = tf.constant(numbers, tf.uint32)
      workers = 70 if len(sizes) == 1 else 3
      results = [
        tf.nest.map_structure(bits, coded(one, gradients, key, workers))
        for one in (code.on_kernels(), code.on_gpus())
      ]
      if results[0] != results[1]:
        found.append((text, len(sizes)))
  return found


def bits_of(tensors):
  return tf.nest.map_structure(lambda tensor: tensor.numpy().tobytes(), tensors)


@emulated
def moved(numbers):
  return ops.numbers_on_gpu(numbers)


def other_differences():
  """Returns the other cases: `thc`, updates of variables, moved numbers."""
  random = np.random.default_rng(2)
  found, thc = [], registry.method('thc')
  for sizes in SIZES[1:2]:
    gradients = [tf.constant(random.normal(size=n), tf.float32) for n in sizes]
    zero = tf.constant(0, tf.int64)
    context = method.Context(
      tuple((n,) for n in sizes), 3, 0, sum(sizes), zero, zero, zero
    )
    context = context._replace(key=tf.constant([5, 6, 0], tf.uint32))
    results = [
      bits_of(sent(one, gradients, context))
      for one in (thc.on_kernels(), thc.on_gpus())
    ]
    if results[0] != results[1]:
      found.append(('thc', len(sizes)))
  if bits_of(updated(False)) != bits_of(updated(True)):
    found.append(('updates', 4))
  # A signalling NaN, a subnormal and -0.0; a matrix; nothing.
  words = tf.constant([0x7F800001, 1, -(2**31)], tf.int32)
  for one in (words, tf.reshape(tf.range(6), [2, 3]), tf.zeros([0], tf.int32)):
    numbers = tf.bitcast(one, tf.float32)
    if bits_of(moved(numbers)) != bits_of(numbers):
      found.append(('numbers', one.shape.rank))
  return found


def different_copies(library):
  """Returns the copies from the host that are not what was to be copied."""
  random = np.random.default_rng(4)
  # Tables too long for a launch, which reads them.
  found = differences([('ternary', SIZES[2:]), ('qsgd', SIZES[2:])])
  # More at a time than one buffer holds, and once more when all are copied.
  for _ in range(2):
    numbers = [
      tf.constant(random.normal(size=n), tf.float32) for n in (3, 5000, 3, 4)
    ]
    copies = [moved(one) for one in numbers]
    ctypes.CDLL(library).fake_cuda_synchronize()
    pairs = zip(copies, numbers, strict=True)
    found += [
      ('numbers', b.shape[0]) for a, b in pairs if bits_of(a) != bits_of(b)
    ]
  return found


def main():
  library, case = sys.argv[1:]
  result = {'reason': load(library)}
  if case == 'again':
    gpu.unavailable_reason.cache_clear()
    load(library)
  elif case == 'copies':
    result['differences'] = different_copies(library)
  elif case != 'load':
    codecs = CODECS[: FEW if case == 'few' else None]
    cases = [
      (text, SIZES if text.startswith(OF_MANY) else SIZES[1:2])
      for text in codecs
    ]
    if case == 'few':
      cases.append((SPARSE[0], SPARSE_SIZES[:1]))
    else:
      cases += [(text, SPARSE_SIZES) for text in SPARSE]
    result['differences'] = differences(cases) + other_differences()
  calls = ctypes.CDLL(library).fake_cuda_calls
  calls.restype = ctypes.c_char_p
  result['calls'] = calls().decode().split('\n')[:-1]
  sys.stdout.write(json.dumps(result))


if __name__ == '__main__':
  main()
