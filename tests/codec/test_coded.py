"""Codes and methods that subclass ours compute what they say, everywhere."""

import numpy as np
import pytest
import tensorflow as tf

import terngrad
from terngrad.codec import chain
from terngrad.codec import coded
from terngrad.codec.methods import registry
from terngrad.codec.methods import validation
from terngrad.codec.methods.scalar import minmax
from terngrad.codec.methods.scalar import qsgd
from terngrad.codec.methods.scalar import sign
from terngrad.codec.methods.sparse import stc
from terngrad.codec.methods.sparse import threshold
from terngrad.codec.methods.sparse import topk
from terngrad.codec.methods.transforms import eden
from terngrad.codec.methods.transforms import thc
from terngrad.codec.methods.wrappers import error_feedback
from terngrad.codec.stages import contract
from terngrad.reduce import bucketing
from tests.codec import rounds

FLOATS = contract.Traits(
  unbiased=True, lossless=False, additive=False, randomness='none'
)


class Halves(coded.Code):
  """Floats, two in a word; without stages."""

  name, traits = 'halves', FLOATS

  def num_words(self, num_elements):
    return -(-num_elements // 2)

  def encode_pieces(self, pieces, sizes, local_probe, shared_probe, key):
    flat = tf.concat(pieces, axis=0)
    flat = tf.pad(flat, [[0, sum(sizes) % 2]])
    halves = tf.reshape(tf.cast(flat, tf.float16), [-1, 2])
    return tf.bitcast(halves, tf.int32)

  def decode_sum(self, parts, shared_probe, shapes, scale=1.0):
    halves = [tf.bitcast(part, tf.float16) for part in parts]
    rows = [tf.reshape(h, [h.shape[0], -1]) for h in halves]
    total = sum(tf.reduce_sum(tf.cast(r, tf.float32), axis=0) for r in rows)
    sizes = [tf.TensorShape(shape).num_elements() for shape in shapes]
    values = tf.split(total[: sum(sizes)] * scale, sizes)
    return [tf.reshape(v, s) for v, s in zip(values, shapes, strict=True)]


@pytest.mark.usefixtures('eager_functions')
def test_a_code_without_stages_trains():
  model = tf.keras.Sequential(
    [tf.keras.Input((3,)), tf.keras.layers.Dense(5, name='logits')]
  )
  trainer = terngrad.Trainer(model, Halves(), num_workers=2)
  rows = np.random.default_rng(1).normal(size=[2, 4, 3]).astype('float32')
  before = [weight.numpy() for weight in model.weights]
  result = trainer.step(rows, np.zeros([2, 4], np.int32), learning_rate=0.1)
  assert any(
    np.any(weight.numpy() != known)
    for weight, known in zip(model.weights, before, strict=True)
  )
  # Ten words for 20 elements, and a norm of each of two variables.
  assert trainer.bits_per_element(result) == pytest.approx(32 * 12 / 20)


def test_all_words_of_a_code_without_stages_are_sent():
  code = Halves()
  assert code.packing is None
  assert code.bits(7, 2) == 32 * (4 + 1)
  words = tf.zeros([2, 4], tf.int32)
  np.testing.assert_array_equal(code.sent_words(words), [4, 4])
  assert validation.validate(code, words[0], 7).size == 4
  with pytest.raises(ValueError, match='halves: expected 5 words'):
    validation.validate(code, words[0], 9)


def test_code_without_stages_and_num_words_is_an_error_with_a_remedy():
  class Short(Halves):
    num_words = coded.Code.num_words

  with pytest.raises(
    NotImplementedError, match='halves: expected stages or a num_w'
  ):
    Short().words_of([3])


OURS = {
  'ternary': chain.Chain,
  'ternary:packing=huffman243': chain.Chain,
  'identity': chain.Chain,
  'qsgd': qsgd.Qsgd,
  'minmax': minmax.Minmax,
  'sign': sign.Sign,
  'topk': topk.TopK,
  'stc': stc.Stc,
  'threshold': threshold.Threshold,
  'eden3': eden.Eden,
}


@pytest.mark.parametrize('on', ['on_kernels', 'on_gpus'])
@pytest.mark.parametrize('text', OURS)
def test_overridden_methods_of_code_subclasses_are_called(text, on):
  """Kernels compute what our very classes do."""

  class Mine(OURS[text]):
    def probe(self, gradients):
      return tf.fill([len(gradients)], 7.0)

    def decode_sum(self, parts, shared_probe, shapes, scale=1.0):
      return [tf.fill(shape, 5.0) for shape in shapes]

  code = registry.parse(text)
  mine = Mine.from_code(code)
  assert type(code) is OURS[text]
  gradients = [tf.ones([40])]
  made = getattr(mine, on)()
  np.testing.assert_array_equal(made.probe(gradients), [7.0])
  np.testing.assert_array_equal(
    made.decode_sum([], None, [(40,)])[0], np.full(40, 5.0)
  )


def test_overridden_methods_of_method_subclasses_are_called():
  class Mine(thc.Thc):
    def decode(self, received, states, context):
      return [tf.fill(shape, 5.0) for shape in context.shapes], states

  codec = bucketing.on_kernels(rounds.codec_of(Mine(3.0), [(40,)]))
  workers = rounds.Workers(codec, 2)
  means = workers.step(codec, [[np.ones(40, np.float32)]] * 2, 0)
  np.testing.assert_array_equal(means[0], np.full(40, 5.0))


def test_overridden_methods_of_wrapper_subclasses_are_called():
  class Mine(error_feedback.ErrorFeedback):
    def __init__(self, method):
      super().__init__(method)
      self.name = 'mine'

    def decode(self, received, states, context):
      return [tf.fill(shape, 5.0) for shape in context.shapes], states

  mine = Mine(registry.parse('ternary'))
  fast = mine.on_kernels()
  assert fast.name == 'mine'
  assert type(fast.method) is type(mine.method.on_kernels())
  codec = bucketing.on_kernels(rounds.codec_of(mine, [(40,)]))
  workers = rounds.Workers(codec, 2)
  means = workers.step(codec, [[np.ones(40, np.float32)]] * 2, 0)
  np.testing.assert_array_equal(means[0], np.full(40, 5.0))
