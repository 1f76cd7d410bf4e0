"""Inner optimizers that stay, and fragments that are exchanged in turns."""

import numpy as np
import pytest
import tensorflow as tf

from terngrad.exchange import towers
from terngrad.step import optimizers
from tests.passes import transcription
from tests.step import small

RATE = 0.02
ADAMW = f'adamw:beta1={transcription.BETA1},beta2={transcription.BETA2}'
STAYING = 'momentum:momentum=0.9,stays=1'
NESTEROV = optimizers.Nesterov(0.9)
# Of two layers.
STREAMED = {
  'local': small.Local(3, ADAMW, 0.7, keeps=True, overlap=1, mixing=0.25),
  'fragments': 2,
}


def trained(build=small.dense_net, **options):
  options = {
    'devices': 1,
    'workers': 2,
    'batch': 24,
    'codec': 'identity',
    'optimizer': NESTEROV,
    'local': small.Local(3, ADAMW, 0.7),
  } | options
  return small.at_its_start(build, **options)


@pytest.mark.usefixtures('eager_in_gate')
@pytest.mark.parametrize(
  ('inner', 'text'),
  [
    # Of the options of `STREAMED`, so that another test shares the training.
    (transcription.AdamW, ADAMW),
    pytest.param(transcription.Descent, 'momentum', marks=pytest.mark.slow),
    pytest.param(transcription.Momentum, STAYING, marks=pytest.mark.slow),
    pytest.param(
      transcription.ResetMomentum,
      'momentum:momentum=0.9',
      marks=pytest.mark.slow,
    ),
  ],
)
@pytest.mark.parametrize(
  ('fragments', 'overlap', 'mixing'),
  [
    (2, 1, 0.25),
    *(
      pytest.param(*case, marks=pytest.mark.slow)
      for case in [(1, 0, 0.5), (2, 0, 0.5), (1, 2, 0.5)]
    ),
  ],
)
def test_runs_equal_a_transcription_of_the_algorithm(
  inner, text, fragments, overlap, mixing
):
  keeps = fragments > 1 or overlap > 0
  local = small.Local(3, text, 0.7, keeps, overlap, mixing)
  training = trained(local=local, fragments=fragments)
  expected = transcription.Run(
    training,
    inner,
    fragments=((0, 1), (2, 3)) if fragments > 1 else (range(4),),
    every=3 * fragments,
    overlap=overlap,
    mixing=mixing,
  )
  for number in range(5):
    images, labels = (x.numpy() for x in small.batch_of(number, (2, 3, 4)))
    result = training.take(
      number, images.reshape(2, 12, 8, 8, 1), labels.reshape(2, 12), RATE
    )
    for k in range(3):
      batches = [(images[r, k], labels[r, k]) for r in range(2)]
      expected.step(batches, RATE, 0.7, 0.9)
    np.testing.assert_allclose(result.entropy, expected.mean_losses, rtol=1e-3)
    for variable, value in zip(
      training.replicas[0].trainable, expected.outer, strict=True
    ):
      np.testing.assert_allclose(variable.numpy(), value, rtol=1e-3, atol=2e-5)


@pytest.mark.slow
@pytest.mark.parametrize('text', ['momentum:momentum=0.9', ADAMW])
def test_one_fragment_without_overlap_equals_plain_local_steps(text):
  plain = trained(local=small.Local(3, text, 0.7))
  streamed = trained(local=small.Local(3, text, 0.7, keeps=True))
  for training in (plain, streamed):
    training.run(3)
  np.testing.assert_array_equal(streamed.values(), plain.values())


@pytest.mark.slow
@pytest.mark.parametrize('codec', ['ternary', 'error_feedback+sign'])
def test_nodes_and_towers_end_at_the_same_bits(codec):
  options = {
    'build': small.conv_net,
    'codec': codec,
    'workers': 4,
    'part_bytes': 40,
    **STREAMED,
  }
  nodes, towers = trained(devices=1, **options), trained(devices=2, **options)
  nodes.run(4)
  towers.run(4)
  for index in range(2):
    np.testing.assert_array_equal(towers.values(index), nodes.values())
  for key, of_nodes in nodes.states.workers[0].items():
    # Worker r lives on device r mod 2.
    rows = [
      v
      for pair in zip(*(d[key] for d in towers.states.workers), strict=True)
      for v in pair
    ]
    for one, other in zip(of_nodes, rows, strict=True):
      np.testing.assert_array_equal(one, other)


def ancestors(operation):
  """All operations that run before one."""
  found, waiting = set(), [operation]
  while waiting:
    one = waiting.pop()
    for before in (*(t.op for t in one.inputs), *one.control_inputs):
      if before not in found:
        found.add(before)
        waiting.append(before)
  return found


def test_steps_that_overlap_and_the_exchange_do_not_wait_for_each_other():
  # With words there is a loop that sends them.
  exchange = towers.Towers(('/CPU:0',), 2, keeps_words=True)
  training = trained(workers=2, exchange=exchange, **STREAMED)
  images, labels = small.batch_of(0, training.shape)
  numbers = tf.constant(0, tf.int64), tf.constant(RATE), tf.constant(0.5)
  program = training.turns[0].take
  traced = program.get_concrete_function(images, labels, *numbers)
  # Loops over nodes: two that change what they remember, and what they send.
  kinds = 'While', 'StatelessWhile', 'StatefulPartitionedCall'
  named = {kind: [] for kind in kinds}
  for operation in traced.graph.get_operations():
    if operation.type in named:
      named[operation.type].append(operation)
  (first, meanwhile), (send,), (update,) = named.values()
  assert first in ancestors(meanwhile) & ancestors(send)
  assert send in ancestors(update)
  assert not {send, update} & ancestors(meanwhile)
  assert meanwhile not in ancestors(update)


@pytest.mark.usefixtures('eager_functions')
def test_a_step_exchanges_one_fragment():
  training = trained(**STREAMED)
  elements = [
    variable.shape.num_elements() for variable in training.plan.trainable
  ]
  for number, indices in enumerate([(0, 1), (2, 3), (0, 1)]):
    before = [v.numpy() for v in training.replicas[0].trainable]
    result = training.run(1, first=number)
    now = [v.numpy() for v in training.replicas[0].trainable]
    pairs = zip(before, now, strict=True)
    changed = tuple(
      i for i, pair in enumerate(pairs) if np.any(pair[0] != pair[1])
    )
    assert changed == indices
    assert set(result.sent.numpy()) == {sum(elements[i] for i in indices)}


@pytest.mark.slow
def test_clipping_uses_the_norm_of_the_fragment():
  rule = optimizers.GradientDescent().with_clip_norm(1e-3)
  training = trained(optimizer=rule, **STREAMED)
  for number, indices in enumerate([(0, 1), (2, 3)]):
    before = [v.numpy() for v in training.replicas[0].trainable]
    training.run(1, first=number)
    moved = [
      np.sum((variable.numpy() - value) ** 2)
      for variable, value in zip(
        training.replicas[0].trainable, before, strict=True
      )
    ]
    np.testing.assert_allclose(np.sqrt(sum(moved)), 0.7e-3, rtol=1e-3)
    assert np.sqrt(sum(moved[i] for i in indices)) == np.sqrt(sum(moved))


@pytest.mark.slow
def test_outer_adam_counts_the_updates_of_a_fragment():
  sizes = []
  for fragments in (1, 2):
    training = trained(
      optimizer=optimizers.Adam(),
      local=STREAMED['local']._replace(outer_rate=0.01),
      fragments=fragments,
    )
    before = training.replicas[0].trainable[2].numpy()
    training.run(fragments)
    sizes.append(
      np.abs(training.replicas[0].trainable[2].numpy() - before).max()
    )
  # Adam's first change is as large as the rate.
  np.testing.assert_allclose(sizes, 0.01, rtol=1e-3)
