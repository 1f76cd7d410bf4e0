"""Every code beside gradients that are not finite: what the tests share."""

import itertools

import keras
import numpy as np
import tensorflow as tf

from terngrad.codec.methods import registry

SHAPE = (16, 8)
WORKERS = 2
# Makes updates, so that it cannot be beside the others.
_ALONE = 'demo'
_KINDS = [text for text in registry.list_kinds() if text != _ALONE]
CODES = (
  *_KINDS,
  *registry.ALIASES,
  # Codes that are sent before the shared scaler is known leave nothing out.
  *(f'error_feedback+{t}' for t in _KINDS if 'sharing=requantize' not in t),
  *(f'momentum+{text}' for text in ('topk', 'threshold', 'randomk')),
  *(f'bidirectional+{text}' for text in ('ternary', 'eden3', 'sign', 'qsgd')),
  'error_feedback+bidirectional+ternary',
  *('ef21+topk', 'ef21_sgdm+sign', 'diana+natural'),
)
# Each code is compiled, so that few of them are tested at once.
_COUNT = 62
GROUPS = (
  *(CODES[number::_COUNT] for number in range(_COUNT)),
  (_ALONE,),
)
# With and without states.
SOME = ('qsgd', 'error_feedback+topk:ratio=0.1')
# (value, whether in all elements, whether on all workers).
CASES = tuple(
  itertools.product((np.nan, np.inf, -np.inf), (False, True), (False, True))
)


def name(number):
  """The name of the variable that the code of this number is for."""
  return f'code_{number:03}'


def rules(codes):
  """The codec of a `Compressor`: a variable for each of the codes."""
  return {name(i): text for i, text in enumerate(codes)}


def gradients(codes, seed=0):
  """float32 [WORKERS, codes, *SHAPE]."""
  rng = np.random.default_rng(seed)
  return rng.normal(size=(WORKERS, len(codes), *SHAPE)).astype(np.float32)


def poison(codes, case):
  """What is added to `gradients`: zeros, but for the numbers of a case."""
  value, everywhere, everyone = case
  added = np.zeros((WORKERS, len(codes), *SHAPE), np.float32)
  workers = slice(None) if everyone else slice(WORKERS - 1, None)
  elements = slice(None) if everywhere else slice(3, 4)
  added[workers, :, elements, elements] = value
  return added


@keras.saving.register_keras_serializable(package='tests')
class Poisoned(keras.layers.Layer):
  """A kernel for each of some codes, all added up; inputs poison gradients.

  An input is SHAPE[0] features and then, for each kernel, what is added to its
  gradient; the loss does not depend on this.
  """

  def __init__(self, count, **options):
    super().__init__(**options)
    self.count = count

  def build(self, shape):
    del shape
    self.kernels = [
      self.add_weight(shape=SHAPE, name=name(i)) for i in range(self.count)
    ]

  def call(self, inputs):
    features, added = inputs[:, : SHAPE[0]], inputs[:, SHAPE[0] :]
    added = tf.reshape(tf.reduce_sum(added, axis=0), [self.count, *SHAPE])
    return tf.add_n(
      [
        tf.matmul(features, _poisoned(tf.convert_to_tensor(kernel), added[i]))
        for i, kernel in enumerate(self.kernels)
      ]
    )

  def get_config(self):
    return super().get_config() | {'count': self.count}


@tf.custom_gradient
def _poisoned(kernel, added):
  return tf.identity(kernel), lambda upstream: (upstream + added, None)


def model(codes):
  """A model of `Poisoned`, with a kernel for each code."""
  size = SHAPE[0] + len(codes) * SHAPE[0] * SHAPE[1]
  return keras.Sequential(
    [keras.Input((size,)), Poisoned(len(codes), name='logits')]
  )


def examples(codes, case=None, seed=0):
  """(float32 [WORKERS, 2, size], int32 [WORKERS, 2]): two a worker."""
  rng = np.random.default_rng(seed)
  inputs = rng.normal(size=(WORKERS, 2, SHAPE[0])).astype(np.float32)
  added = np.zeros((WORKERS, 2, len(codes) * SHAPE[0] * SHAPE[1]), np.float32)
  if case:
    added[:, 0] = poison(codes, case).reshape(WORKERS, -1)
  labels = rng.integers(0, SHAPE[1], (WORKERS, 2)).astype(np.int32)
  return np.concatenate([inputs, added], axis=2), labels


def assert_unchanged(now, before):
  """Of dicts of arrays: nothing has changed, and all is finite."""
  assert now.keys() == before.keys()
  for key, array in before.items():
    np.testing.assert_array_equal(now[key], array, err_msg=key)
    assert np.isfinite(np.asarray(array, np.float64)).all(), key
