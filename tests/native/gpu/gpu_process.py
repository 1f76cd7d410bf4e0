"""A process whose GPU is a library that runs kernels on the CPU.

  python -m tests.native.gpu.gpu_process LIBRARY CASE

CASE is `load`, `few` codes, or `all`. TensorFlow looks for GPUs before the
library is there and so finds none; its answers are replaced here.
"""

import ctypes
import json
import sys
from unittest import mock

import numpy as np
import tensorflow as tf

from terngrad.codec.methods import registry
from terngrad.native import cubins
from terngrad.native import gpu

CODECS = (
  'ternary',
  'minmax:group_size=100',
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
)
# One variable; a few, one of them empty and one of two statistics blocks; more
# than travel with a launch.
SIZES = ([1], [7, 0, 16390, 1, 300], [i % 5 for i in range(300)])
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
GPU_OPERATIONS += ('EncodeElements', 'AddElements')


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
    mock.patch.object(cubins, 'cubin', lambda _: b'\x7fELF'),
  ):
    return gpu.unavailable_reason()


@tf.function
def coded(code, gradients, key, workers):
  """Returns probe, words, and the means of words and of sums."""
  graph = tf.compat.v1.get_default_graph()
  labels = {
    f'TerngradGpu{name}': 'terngrad_emulated' for name in GPU_OPERATIONS
  }
  with graph._kernel_label_map(labels):
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
  return probe, words, means


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
      key = tf.constant(random.integers(0, 2**32, 2), tf.uint32)
      workers = 70 if len(sizes) == 1 else 3
      results = [
        tf.nest.map_structure(bits, coded(one, gradients, key, workers))
        for one in (code.on_kernels(), code.on_gpus())
      ]
      if results[0] != results[1]:
        found.append((text, len(sizes)))
  return found


def main():
  library, case = sys.argv[1:]
  result = {'reason': load(library)}
  if case == 'few':
    cases = [(text, SIZES) for text in CODECS[:2]]
    result['differences'] = differences([*cases, (SPARSE[0], SPARSE_SIZES[:1])])
  elif case == 'all':
    cases = [(text, SIZES) for text in CODECS]
    cases += [(text, SPARSE_SIZES) for text in SPARSE]
    result['differences'] = differences(cases)
  calls = ctypes.CDLL(library).fake_cuda_calls
  calls.restype = ctypes.c_char_p
  result['calls'] = calls().decode().split('\n')[:-1]
  sys.stdout.write(json.dumps(result))


if __name__ == '__main__':
  main()
