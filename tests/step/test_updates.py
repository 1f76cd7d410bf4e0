"""The update of replicas: which ones share a compiled program."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from terngrad.reduce import weight_decay
from terngrad.step import optimizers
from terngrad.step import replicas
from terngrad.step import updates

NUMBERS = tf.constant(0, tf.int64), tf.constant(0.5), tf.constant(0.0)


def replica_of(value, optimizer):
  parameter = tf.Variable([value], trainable=False)
  slots = replicas.make_slots(optimizer, parameter)
  return replicas.Replica('/CPU:0', (parameter,), (), (slots,), ())


def test_replicas_of_a_shared_program_keep_their_own_values():
  first, second = (replica_of(v, optimizers.Momentum()) for v in (1.0, 5.0))
  for replica, mean in ((first, 1.0), (second, 2.0), (first, 1.0)):
    update = updates.Update(replica, optimizers.Momentum(), None)
    update([tf.constant([mean])], None, NUMBERS)
  # Velocities 1 and 1.9, times the rate 0.5.
  np.testing.assert_allclose(first.trainable[0], [1 - 0.5 * (1 + 1.9)])
  np.testing.assert_array_equal(second.trainable[0], [4.0])


@pytest.mark.parametrize(
  ('other', 'shares'),
  [
    (optimizers.Momentum(0.9), True),
    (optimizers.Momentum(0.8), False),
    (optimizers.Nesterov(0.9), False),
    (optimizers.Momentum(0.9).with_clip_norm(1.0), False),
  ],
)
def test_replicas_share_a_program_only_if_their_rules_are_equal(other, shares):
  program = updates._program(optimizers.Momentum(0.9), None, ((1,),))
  assert (updates._program(other, None, ((1,),)) is program) == shares


@pytest.mark.parametrize(
  ('term', 'shares'),
  [
    (keras.regularizers.L2(0.5), True),
    (keras.regularizers.L2(0.25), False),
    (keras.regularizers.L1(0.5), False),
    (None, False),
    # Its formula cannot be compared.
    (keras.regularizers.Regularizer(), False),
  ],
)
def test_replicas_share_a_program_only_if_their_l2_terms_are_equal(
  term, shares
):
  def program(term):
    decay = weight_decay.WeightDecay([term])
    return updates._program(optimizers.GradientDescent(), decay, ((1,),))

  assert (program(term) is program(keras.regularizers.L2(0.5))) == shares
