"""What ternary sums leave out, through a checkpoint and back."""

import re
import types

import numpy as np
import pytest
import tensorflow as tf

from terngrad.exchange import cluster
from terngrad.exchange import collective
from terngrad.exchange import group
from terngrad.exchange import ways
from terngrad.training import checkpoints
from terngrad.training import kept_errors
from terngrad.training import replicas
from terngrad.training import resume
from terngrad.training import sources
from terngrad.training import together
from tests.training import small

# The logits travel before the other two variables.
PART_BYTES = 200


class Opened:
  """A training of one process whose sums are ternary, and its files."""

  def __init__(self, folder, way=ways.LOSSY, part_bytes=PART_BYTES):
    alone = cluster.make({'worker': ['127.0.0.1:1']}, 'worker', 0)
    devices = '/CPU:0', '/CPU:1'
    self.exchange = collective.Collective(
      group.Group(alone, 1), devices, 4, way
    )
    self.training = small.Training(
      small.dense_net,
      devices=2,
      workers=4,
      exchange=self.exchange,
      part_bytes=part_bytes,
    )
    copies = self.training.replicas
    names = replicas.variable_names(self.training.plan, copies[0])
    layout = checkpoints.Layout(
      *('small', 5, 'momentum', 2, 4, [0], 100),
      kept=', '.join(kept.of for kept in self.exchange.kept),
    )
    self.run = types.SimpleNamespace(
      replicas=copies, names=names, layout=layout
    )
    self.config = types.SimpleNamespace(train_dir=str(folder))
    self.shelf = kept_errors.Shelf(self.exchange)

  def save(self, step, layout=None):
    """Writes a checkpoint; returns its path."""
    writer = checkpoints.Writer(
      self.config.train_dir,
      layout or self.run.layout,
      self.run.replicas,
      self.run.names,
      self.shelf.variables,
    )
    with self.shelf.holding(kept_errors.gather(self.exchange)):
      return writer.save(step)

  def begin(self):
    """Goes on from the checkpoint; returns what was said after its path."""
    said = []
    restored = resume.continue_run(self.config, self.run, said.append)
    numbers = together.begin(
      self.exchange, self.run.replicas, (restored.step, 9), restored.kept
    )
    assert numbers == (restored.step, 9)
    return said[1:]

  def errors(self):
    """What is kept, as bits."""
    return [kept.error.numpy().view(np.uint32) for kept in self.exchange.kept]


def test_a_run_of_ternary_sums_goes_on_to_the_same_bits(tmp_path):
  opened = Opened(tmp_path)
  opened.training.run(2)
  opened.save(2)

  def end():
    opened.training.run(2, first=2)
    values = [opened.training.values(place) for place in range(2)]
    return values + opened.errors()

  undisturbed = end()
  assert len(undisturbed) == 4
  assert opened.begin() == []
  for received, expected in zip(end(), undisturbed, strict=True):
    np.testing.assert_array_equal(received, expected)
    assert np.any(received)


def test_every_bit_comes_back_and_nothing_is_held_meanwhile(
  tmp_path, monkeypatch
):
  # 20 pieces of one place of a word, and pieces of 12 and 8 places.
  monkeypatch.setattr(kept_errors, '_PIECE', 50)
  opened = Opened(tmp_path)
  for kept in opened.exchange.kept:
    bits = np.arange(kept.error.shape.num_elements(), dtype=np.uint32)
    # Zeros of both signs, subnormal numbers, infinities, all kinds of NaN.
    values = (bits * np.uint32(2**32 // bits.size)).view(np.float32)
    kept.error.assign(values.reshape(kept.error.shape))
  expected = opened.errors()
  path = opened.save(1)
  assert {v.numpy().size for v in opened.shelf.variables.values()} == {0}
  stored = list(kept_errors.read(path))
  for received, bits in zip(stored, expected, strict=True):
    np.testing.assert_array_equal(received.view(np.uint32), bits[np.newaxis])
  again = Opened(tmp_path)
  again.begin()
  for received, bits in zip(again.errors(), expected, strict=True):
    np.testing.assert_array_equal(received, bits)


@pytest.mark.parametrize(
  ('before', 'now', 'said'),
  [
    (('gather', 0), (ways.LOSSY, 0), r'\(none\) before and are now of 0 to '),
    ((ways.LOSSY, 0), ('gather', 0), r'0 to \d+ in .* now of \(none\)'),
    (
      (ways.LOSSY, 0),
      (ways.LOSSY, PART_BYTES),
      r'0 to (\d+) in 1 slices of 20 x \d+ before .* \d+ to \1 in .*, 0 to ',
    ),
  ],
)
def test_errors_of_something_else_are_left_and_it_is_said(
  before, now, said, tmp_path
):
  opened = Opened(tmp_path, *before)
  for kept in opened.exchange.kept:
    kept.error.assign(tf.ones_like(kept.error))
  opened.save(1)
  again = Opened(tmp_path, *now)
  (line,) = again.begin()
  assert 'begins with nothing kept and does not end at the same bits' in line
  np.testing.assert_array_equal(
    again.training.values(), opened.training.values()
  )
  assert not np.any([np.any(bits) for bits in again.errors()])
  assert re.search(said, line), line


def test_a_checkpoint_of_before_errors_were_stored_is_continued(tmp_path):
  opened = Opened(tmp_path, 'gather')
  values = opened.run.layout._asdict()
  del values['kept']
  opened.save(1, types.SimpleNamespace(places=[0], _asdict=lambda: values))
  (line,) = Opened(tmp_path).begin()
  assert 'kept errors were of elements (none) before' in line
  assert Opened(tmp_path, 'gather').begin() == []


def test_who_reads_parameters_does_not_see_them(tmp_path):
  opened = Opened(tmp_path)
  path = opened.save(1)
  assert checkpoints.newest(str(tmp_path)) == path
  source = sources.of_checkpoint(path, 'lenet')
  assert source.strange == []
  assert sorted(source.shapes) == sorted(opened.run.names)
