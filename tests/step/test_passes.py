import keras
import numpy as np
import pytest
import tensorflow as tf

from slim.nets import factory as nets
from terngrad.codec.stages import random_bits
from terngrad.step import model_variables
from terngrad.step import passes

LOGITS = tf.constant([[2.0, 0.0, -1.0, 0.5], [0.0, 1.0, 0.0, 3.0]])
LABELS = tf.constant([0, 3])


def log_softmax(logits):
  values = np.float64(logits)
  return values - np.log(np.exp(values).sum(axis=1, keepdims=True))


@pytest.mark.parametrize('label', [-1, LOGITS.shape[-1]])
def test_a_label_that_is_no_class_gives_no_loss_with_smoothing(label):
  labels = np.where(np.arange(len(LABELS)) == 0, label, LABELS)
  loss = passes.Loss(label_smoothing=0.2)(LOGITS, tf.constant(labels, tf.int32))
  assert np.isnan(loss)


def test_a_smoothed_label_gives_each_class_its_share():
  # 0.8 of the label stays and 0.2 / 4 goes to each of the four classes.
  targets = 0.05 + 0.8 * np.eye(4)[LABELS.numpy()]
  expected = -(targets * log_softmax(LOGITS)).sum(axis=1).mean()
  received = passes.Loss(label_smoothing=0.2)(LOGITS, LABELS)
  np.testing.assert_allclose(received, expected, rtol=1e-6)


def test_without_smoothing_the_loss_is_that_of_the_label():
  expected = -log_softmax(LOGITS)[[0, 1], LABELS.numpy()].mean()
  received = passes.PLAIN(LOGITS, LABELS)
  np.testing.assert_allclose(received, expected, rtol=1e-6)


def test_auxiliary_logits_count_with_their_weight_and_are_smoothed_too():
  loss = passes.Loss(label_smoothing=0.1, aux_weight=0.4)
  other = tf.reverse(LOGITS, [1])
  alone = [loss(logits, LABELS) for logits in (LOGITS, other)]
  received = loss([LOGITS, other], LABELS)
  np.testing.assert_allclose(received, alone[0] + 0.4 * alone[1], rtol=1e-6)


def test_logits_of_16_bits_are_scored_in_32():
  received = passes.PLAIN(tf.cast(LOGITS, tf.bfloat16), LABELS)
  assert received.dtype == tf.float32


@pytest.mark.parametrize(
  ('options', 'expected'),
  [((), (0.1, 0.4)), ((0.0, 0.0), (0.0, 0.0)), ((0.2, 1.0), (0.2, 1.0))],
)
def test_loss_options_default_to_those_of_the_net(options, expected):
  net = nets.NETS['lenet']._replace(label_smoothing=0.1, auxiliary_weight=0.4)
  assert passes.net_loss(net, *options) == passes.Loss(*expected)


@pytest.mark.parametrize('auxiliary', [False, True])
def test_labels_are_right_where_they_have_the_largest_logit(auxiliary):
  """Auxiliary logits do not count."""
  right = tf.one_hot([0, 1, 2, 3], 4)
  outputs = [right, tf.reverse(right, [0])] if auxiliary else right
  received = passes.is_correct(outputs, tf.constant([0, 1, 0, 3]))
  assert received.numpy().tolist() == [True, True, False, True]


def test_logits_that_are_not_numbers_are_not_right():
  logits = tf.fill([2, 4], float('nan'))
  assert not passes.is_correct(logits, tf.constant([0, 1])).numpy().any()


def test_equal_logits_predict_the_first_class_only():
  """A net whose logits are all equal is right by chance, not always."""
  labels, equal = tf.range(4), tf.ones([4, 4])
  assert passes.is_correct(equal, labels).numpy().tolist() == [1, 0, 0, 0]
  received = passes.is_in_top(labels, equal, 3)
  assert received.numpy().tolist() == [1, 1, 1, 0]
  two = tf.constant([[0.0, 2.0, 1.0, 2.0]] * 4)
  assert passes.is_in_top(labels, two).numpy().tolist() == [0, 1, 0, 0]
  assert passes.is_in_top(labels, two, 2).numpy().tolist() == [0, 1, 0, 1]


class Adding(keras.layers.Layer):
  """Adds the mean square of its inputs to the losses."""

  def call(self, inputs):
    self.add_loss(0.3 * keras.ops.mean(keras.ops.square(inputs)))
    return inputs


def test_losses_that_layers_add_are_trained_beside_l2_terms():
  regular = keras.layers.Dense(
    4, kernel_regularizer='l2', activity_regularizer=keras.regularizers.L2(0.2)
  )
  model = keras.Sequential([keras.layers.Input([3]), Adding(), regular])
  plan = model_variables.variables_of(model)
  images = tf.random.stateless_normal([2, 3], [1, 2])
  gradients, scores, _ = passes.ModelPass(model, plan).gradients(
    [tf.convert_to_tensor(v.value) for v in plan.trainable],
    [],
    images,
    LABELS,
    random_bits.worker_key(1, tf.constant(0, tf.int64), 0),
  )
  with tf.GradientTape() as tape:
    loss = passes.PLAIN(model(images, training=True), LABELS)
    added, activity, _ = model.losses
    loss += added + activity
  variables = [v.value for v in plan.trainable]
  np.testing.assert_allclose(scores[0], loss, rtol=1e-6)
  for ours, theirs in zip(
    gradients, tape.gradient(loss, variables), strict=True
  ):
    np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-7)
