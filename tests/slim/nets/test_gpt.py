"""The transformers, against a transcription of their formulas to NumPy."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from slim import errors
from slim.nets import factory
from slim.nets.blocks import tokens
from terngrad.codec.stages import tracing
from tests.slim.nets import outlines

TINY = 'gpt_nano:blocks=2,width=16,heads=2'
VOCABULARY, LENGTH, BATCH, HEADS = 11, 7, 3, 2
TOKENS = np.random.default_rng(5).integers(
  0, VOCABULARY, (BATCH, LENGTH + 1), np.int32
)


def tiny():
  """A net whose norms scale by more than 1, so that they show."""
  model = factory.build(TINY, num_classes=VOCABULARY, seed=3)
  random = np.random.default_rng(6)
  for variable in model.trainable_variables:
    # Much larger than initial weights, so that each branch changes the logits.
    start = 1.0 if variable.path.endswith('scale') else 0.0
    variable.assign(start + 0.3 * random.standard_normal(variable.shape))
  return model


# The formulas of the papers in float64, from one token's point of view: no
# batches of positions, and no masks, because a position sees only a prefix.


def rms_norm(x, scale):
  return x / np.sqrt(np.mean(x * x) + 1e-6) * scale


def rotate(x, position):
  """Multiplies the complex numbers of both halves by exp(i * angle)."""
  half = len(x) // 2
  angles = position / 10000.0 ** (np.arange(half) / half)
  turned = (x[:half] + 1j * x[half:]) * np.exp(1j * angles)
  return np.concatenate([turned.real, turned.imag])


def attend(x, weights):
  """Maps normalized rows [T, width] to rows, each from those before it."""
  width = x.shape[1]
  size = width // HEADS
  rows = []
  for here in range(len(x)):
    found = []
    for head in range(HEADS):
      part = slice(head * size, (head + 1) * size)
      projected = [x[t] @ weights for t in range(here + 1)]
      query = rotate(projected[here][:width][part], here)
      scores = np.array(
        [
          query @ rotate(row[width : 2 * width][part], t) / np.sqrt(size)
          for t, row in enumerate(projected)
        ]
      )
      shares = np.exp(scores) / np.exp(scores).sum()
      found.append(
        sum(
          share * row[2 * width :][part]
          for share, row in zip(shares, projected, strict=True)
        )
      )
    rows.append(np.concatenate(found))
  return np.array(rows)


def transcribed_logits(weights, tokens):
  """Logits float64 [T, vocabulary] of one sequence."""
  x = weights['embedding/embeddings'][tokens]
  for block in (1, 2):
    name = f'block{block}_attention'
    y = np.array([rms_norm(row, weights[f'{name}_norm/scale']) for row in x])
    y = attend(y, weights[f'{name}_qkv/kernel'])
    x = x + y @ weights[f'{name}_out/kernel']
    name = f'block{block}_perceptron'
    y = np.array([rms_norm(row, weights[f'{name}_norm/scale']) for row in x])
    y = np.maximum(y @ weights[f'{name}_up/kernel'], 0) ** 2
    x = x + y @ weights[f'{name}_out/kernel']
  x = np.array([rms_norm(row, weights['norm/scale']) for row in x])
  return x @ weights['embedding/embeddings'].T


def transcribed_loss(weights):
  """Mean cross entropy of all next tokens, in nats."""
  losses = []
  for row in TOKENS:
    logits = transcribed_logits(weights, row[:-1])
    logits = logits - logits.max(axis=1, keepdims=True)
    logarithms = logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))
    losses.append(-logarithms[np.arange(LENGTH), row[1:]])
  return np.mean(losses)


@pytest.fixture(scope='module')
def net():
  model = tiny()
  weights = {
    outlines.path(model, v): v.numpy().astype(np.float64)
    for v in model.trainable_variables
  }
  return model, weights


def test_logits_are_those_of_the_transcription(net):
  model, weights = net
  logits = model(TOKENS[:, :-1]).numpy()
  expected = np.array([transcribed_logits(weights, r[:-1]) for r in TOKENS])
  # A logit is 16 products of numbers of about 1 after some 30 roundings to
  # float32, each of 6e-8: 1e-5 is a few times as much.
  np.testing.assert_allclose(logits, expected, rtol=0, atol=1e-5)


def test_gradients_are_those_of_the_transcription(net):
  model, weights = net
  with tf.GradientTape() as tape:
    logits = model(TOKENS[:, :-1], training=True)
    loss = tf.reduce_mean(
      tf.nn.sparse_softmax_cross_entropy_with_logits(TOKENS[:, 1:], logits)
    )
  np.testing.assert_allclose(loss, transcribed_loss(weights), rtol=0, atol=1e-5)
  variables = model.trainable_variables
  gradients = tape.gradient(loss, [v.value for v in variables])
  random = np.random.default_rng(7)
  for variable, gradient in zip(variables, gradients, strict=True):
    # The slope along a random direction, by a central difference in float64:
    # its error is h**2 = 1e-10 times a third derivative.
    name = outlines.path(model, variable)
    way = random.standard_normal(variable.shape)
    ahead, behind = (
      transcribed_loss(weights | {name: weights[name] + h * way})
      for h in (1e-5, -1e-5)
    )
    slope = np.sum(tf.convert_to_tensor(gradient).numpy() * way)
    assert slope == pytest.approx((ahead - behind) / 2e-5, rel=1e-4, abs=1e-5)


@pytest.mark.parametrize('compiled', [False, True])
def test_a_later_token_changes_no_earlier_logit(net, compiled):
  model, _ = net
  call = tracing.function(model, jit_compile=compiled)
  before = call(tf.constant(TOKENS)).numpy()
  for position in range(LENGTH + 1):
    changed = TOKENS.copy()
    changed[:, position] = (changed[:, position] + 1) % VOCABULARY
    after = call(tf.constant(changed)).numpy()
    np.testing.assert_array_equal(after[:, :position], before[:, :position])
    assert (after[:, position] != before[:, position]).any(axis=-1).all()


def test_attention_distinguishes_two_orders_of_equal_tokens(net):
  # The last token sees the same tokens: only the rotation distinguishes orders.
  model, _ = net
  first = model(np.array([[1, 2, 3, 3]], np.int32)).numpy()[0, -1]
  other = model(np.array([[2, 1, 3, 3]], np.int32)).numpy()[0, -1]
  assert not np.allclose(first, other, atol=1e-3)


@pytest.mark.parametrize(
  ('name', 'count'), [('gpt_nano', 1_017_344), ('gpt_small', 25_306_112)]
)
def test_has_the_documented_number_of_parameters(name, count):
  model = outlines.named(name, num_classes=257)
  assert outlines.parameters(model) == count
  # Twelve width**2 for each block, the scales, and one matrix of tokens.
  net = factory.NETS[name].build.keywords
  blocks, width = net['blocks'], net['width']
  scales = (2 * blocks + 1) * width
  assert count == 12 * blocks * width**2 + scales + 257 * width


def test_kernels_decay_and_the_embedding_and_scales_do_not():
  model = outlines.named(TINY, weight_decay=0.25)
  for variable in model.trainable_variables:
    decays = variable.regularizer is not None
    assert decays == variable.path.endswith('kernel')


def test_every_matrix_is_drawn_with_a_different_seed():
  model = factory.build(TINY, num_classes=VOCABULARY, seed=3)
  same = factory.build(TINY, num_classes=VOCABULARY, seed=3)
  firsts = set()
  for one, other in zip(
    model.trainable_variables, same.trainable_variables, strict=True
  ):
    np.testing.assert_array_equal(one.numpy(), other.numpy())
    if len(one.shape) == 2:
      firsts.add(float(one.numpy().flat[0] / one.numpy().std()))
  assert len(firsts) == 9


def test_logits_are_float32_under_a_16_bit_policy():
  before = keras.config.dtype_policy()
  keras.config.set_dtype_policy('mixed_bfloat16')
  try:
    model = factory.build(TINY, num_classes=VOCABULARY)
    assert model.output.dtype == 'float32'
    assert model(TOKENS).dtype == tf.float32
    assert model.get_layer('block1_attention').compute_dtype == 'bfloat16'
  finally:
    keras.config.set_dtype_policy(before)


def test_the_matrix_keeps_all_its_bits_under_a_16_bit_policy():
  layer = tokens.TiedEmbedding(VOCABULARY, 8, dtype='mixed_float16')
  embedded = layer(TOKENS)
  matrix = layer.embeddings.numpy()
  rows = matrix[TOKENS].astype(np.float16)
  assert embedded.dtype == tf.float16
  np.testing.assert_array_equal(embedded, rows)
  with tf.GradientTape() as tape:
    logits = layer(embedded, reverse=True)
    # In float16, a gradient of this size would be 0.
    loss = 1e-9 * tf.reduce_sum(logits)
  # Sums of 8 products of numbers below 0.05, in float32; in float16 the matrix
  # alone would be off by up to 1.5e-5.
  np.testing.assert_allclose(
    logits, rows.astype(np.float32) @ matrix.T, rtol=0, atol=1e-8
  )
  gradient = tape.gradient(loss, layer.embeddings.value)
  expected = 1e-9 * rows.astype(np.float32).sum((0, 1))
  np.testing.assert_allclose(
    gradient, np.tile(expected, (VOCABULARY, 1)), rtol=1e-4
  )


def test_a_net_made_from_its_configuration_has_equal_logits(net):
  model, _ = net
  made = keras.Model.from_config(model.get_config())
  pairs = zip(made.trainable_variables, model.trainable_variables, strict=True)
  for one, other in pairs:
    one.assign(other.value)
  np.testing.assert_array_equal(made(TOKENS), model(TOKENS))


@pytest.mark.parametrize(
  'options', ['width=10,heads=4', 'width=12,heads=4', 'blocks=0', 'heads=0']
)
def test_a_size_that_no_net_can_have_is_refused(options):
  with pytest.raises(
    errors.DataError, match='that 2 . heads divides; received'
  ):
    factory.build(f'gpt_nano:{options}', num_classes=VOCABULARY)
