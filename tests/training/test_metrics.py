"""The tables of metrics: the lines of 2017, and that one entry is enough."""

import json
import re
import types

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from terngrad.config import options as options_lib
from terngrad.config import training as configs
from terngrad.parameter_server import server_tasks
from terngrad.report import comparison
from terngrad.report import curves
from terngrad.report import run_facts
from terngrad.step import schedules
from terngrad.training import evaluation
from terngrad.training import meter
from terngrad.training import metric
from terngrad.training import metrics
from terngrad.training import records
from terngrad.training import start
from tests import eager
from tests.bin import programs
from tests.slim import mnist_files

EPOCHS = schedules.Epochs(num_examples=20, batch_size=8)
NOW = r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+'
WORST = metric.Metric(
  'worst_loss',
  lambda measured: float(measured.result.entropy.numpy().max()),
  tag='Loss @ worst',
  brackets='worst {worst_loss:.3f}',
  curve=metric.CurveFormat(metric.Axes('loss of the worst node')),
  fact=metric.CellFormat('worst loss', '{:.1f}'.format),
  column=metric.CellFormat('worst', lambda value: round(value, 2)),
  compared=metric.CurveFormat(metric.Axes('worst loss')),
)
LIKELIHOOD = metric.Metric(
  'log_likelihood',
  lambda labels, logits: (
    -tf.nn.sparse_softmax_cross_entropy_with_logits(labels, logits)
  ),
  tag='Likelihood',
  line='log likelihood = {log_likelihood:.3f}',
  curve=metric.CurveFormat(metric.Axes('log likelihood')),
  fact=metric.CellFormat('log likelihood', '{:.3f}'.format),
  column=metric.CellFormat('likelihood', '{:.2f}'.format),
  compared=metric.CurveFormat(metric.Axes('test log likelihood')),
)
VALUES = {
  'entropy_loss': 1.234,
  'reg_loss': 0.5,
  'total_loss': 1.734,
  'examples_per_sec': 1234.56,
  'sec_per_batch': 0.0321,
  'bits_per_element': 1.634,
}
LATE = {'staleness': 2 / 3, 'largest_staleness': 3, 'dropped_gradients': 7}


def measured(**more):
  """Of a step of two workers that sent two words and three probes each."""
  result = types.SimpleNamespace(
    sent=tf.constant([2, 2]),
    probes=tf.zeros([2, 3]),
    entropy=tf.constant([1.0, 5.0]),
    accuracy=tf.constant([0.75, 0.25]),
  )
  gauge = meter.Meter(EPOCHS, {'seconds': 100.0, 'entropy_loss_smoothed': 13.0})
  gauge.add(result)
  return gauge.values(10, 0.25, 0.5, **more)


def test_names_and_tags_are_those_of_2017():
  assert list(measured()) == [
    *('entropy_loss', 'reg_loss', 'total_loss'),
    *('entropy_loss_smoothed', 'total_loss_smoothed', 'learning_rate'),
    *('examples_per_sec', 'sec_per_batch', 'bits_per_element', 'seconds'),
    *('epoch_loss', 'accuracy'),
  ]
  assert metric.tags(metrics.TRAINING) == {
    'entropy_loss': 'entropy_loss_raw',
    'total_loss': 'total_loss_raw',
    'entropy_loss_smoothed': 'entropy_loss',
    'total_loss_smoothed': 'total_loss',
  }
  assert metric.tags(metrics.EVALUATION) == {
    'precision_at_1': 'Accuracy @ 1',
    'recall_at_5': 'Accuracy @ 5',
    'loss': 'Loss',
  }


def test_metrics_of_one_step():
  values = measured()
  rate = values.pop('examples_per_sec')
  assert rate == 8 / values.pop('sec_per_batch')
  assert values.pop('seconds') > 100
  assert values == {
    'entropy_loss': 3.0,
    'reg_loss': 0.5,
    'total_loss': 3.5,
    'entropy_loss_smoothed': pytest.approx(12.0),
    'total_loss_smoothed': pytest.approx(12.5),
    'learning_rate': 0.25,
    'bits_per_element': 32 * (2 + 3) / 10,
    'epoch_loss': 3.0,
    'accuracy': 0.5,
  }


def step_result(number):
  """What a step says that has its own loss and accuracy."""
  return types.SimpleNamespace(
    sent=tf.constant([1]),
    probes=tf.zeros([1, 1]),
    entropy=tf.constant([float(number**2)]),
    accuracy=tf.constant([number / 7.0]),
  )


def test_the_smoothed_loss_starts_at_the_raw_one_and_follows_it():
  gauge = meter.Meter(EPOCHS, {})
  found = []
  for step in (3, 1, 2):
    gauge.add(step_result(step))
    found.append(gauge.values(1, 0.1, 0.0)['entropy_loss_smoothed'])
  assert found == pytest.approx([9.0, 8.2, 7.78])


def test_loss_and_accuracy_are_means_since_the_epoch_began():
  """Epochs of 20 examples, 8 a step, end in the steps 3, 5, 8."""
  gauge = meter.Meter(EPOCHS, {})
  found = {}
  for step in range(1, 9):
    gauge.add(step_result(step))
    found[step] = gauge.values(1, 0.1, 0.0)
  for step, members in {2: (1, 2), 3: (1, 2, 3), 5: (4, 5), 7: (6, 7)}.items():
    losses = [n**2 for n in members]
    assert found[step]['epoch_loss'] == pytest.approx(np.mean(losses))
    shares = [n / 7 for n in members]
    assert found[step]['accuracy'] == pytest.approx(np.mean(shares), rel=1e-6)


@pytest.mark.parametrize('begin', [0, 1, 2, 3, 4])
def test_resumed_epoch_means_are_bit_identical(begin):
  whole, last = meter.Meter(EPOCHS, {}), {}
  for step in range(1, 6):
    whole.add(step_result(step))
    values = whole.values(1, 0.1, 0.0)
    if step == begin:
      last = json.loads(json.dumps({'step': step, **values}))
  rest = meter.Meter(EPOCHS, last, begin)
  for step in range(begin + 1, 6):
    rest.add(step_result(step))
  received = rest.values(1, 0.1, 0.0)
  for name in ('epoch_loss', 'accuracy'):
    assert received[name] == values[name]


def test_epoch_means_without_a_record_start_with_the_run():
  gauge = meter.Meter(EPOCHS, {'step': 3, 'epoch_loss': 50.0}, 4)
  gauge.add(step_result(5))
  assert gauge.values(1, 0.1, 0.0)['epoch_loss'] == 25.0


def test_a_loss_that_is_not_finite_is_left_out_of_means():
  """As of the first steps with a loss scale that overflows."""
  gauge = meter.Meter(EPOCHS, {})
  found = []
  for loss in (np.inf, np.nan, 2.0, 4.0):
    result = step_result(1)
    result.entropy = tf.constant([loss], tf.float32)
    gauge.add(result)
    found.append(gauge.values(1, 0.1, 0.0))
    if loss == 2.0:
      # Epochs end after the third step.
      assert found[-1]['epoch_loss'] == 2.0
  assert not np.isfinite(found[0]['epoch_loss'])
  smoothed = [values['entropy_loss_smoothed'] for values in found[2:]]
  assert smoothed == pytest.approx([2.0, 2.2])
  assert found[3]['epoch_loss'] == 4.0


def test_metrics_that_a_run_lacks_are_left_out():
  scaled = measured(scaling=(tf.Variable(8.0), tf.Variable(0.0)))
  assert scaled.keys() - measured().keys() == {'loss_scale'}
  assert scaled['loss_scale'] == 8.0
  late = measured(arrivals=metrics.Arrivals([0, 3], dropped=0))
  assert {name: late[name] for name in late.keys() - measured().keys()} == {
    'staleness': 1.5,
    'largest_staleness': 3,
    'dropped_gradients': 0,
  }


def test_log_lines_are_those_of_2017():
  assert re.fullmatch(
    f'{NOW}: step 9, entropy_loss = 1.23, reg_loss = 0.50, total_loss = 1.73 '
    r'\(1234\.6 examples/sec; 0\.032 sec/batch; 1\.63 bits/element\)',
    meter.log_line(9, VALUES),
  )
  assert re.fullmatch(
    f'global_step/sec: 31.15\nWorker 0: {NOW}: step 9, loss = 1.73 '
    r'\(617\.3 examples/sec; 0\.032 sec/batch; 1\.63 bits/element\)',
    server_tasks.chief_line(2, 9, VALUES),
  )


@pytest.mark.parametrize(
  ('without', 'late'),
  [((), 'staleness 0.67, at most 3; '), (('staleness',), '')],
)
def test_an_asynchronous_chief_logs_stale_gradients(without, late):
  line = server_tasks.chief_line(
    2, 9, VALUES | LATE, batches=2.0, without=without
  )
  assert line.endswith(
    f'(617.3 examples/sec; 0.064 sec/batch; 1.63 bits/element; {late}7 dropped)'
  )


@pytest.fixture(scope='module')
def added(tmp_path_factory):
  """The folder of a run, in `train` and `eval`, and the lines it printed.

  It logs twice and is scored once. Each table has one entry more.
  """
  folder = tmp_path_factory.mktemp('added')
  mnist_files.write_idx(folder / 'idx', 16, 7)
  convert_mnist.convert(
    str(folder / 'data'),
    source='idx',
    request=mnist_source.SourceOptions(
      str(folder / 'idx'), verify_checksums=False
    ),
  )
  lines = []
  data = {
    'dataset_name': 'mnist',
    'data_dir': str(folder / 'data'),
    'net': 'lenet',
    'image_size': 8,
    'batch_size': 4,
  }
  with pytest.MonkeyPatch.context() as patch:
    for table, entry in (('TRAINING', WORST), ('EVALUATION', LIKELIHOOD)):
      patch.setattr(metrics, table, (*getattr(metrics, table), entry))
    train = options_lib.build(
      configs.TrainConfig,
      train_dir=str(folder / 'train'),
      num_nodes=2,
      save_iter=1,
      max_steps=2,
      **data,
    )
    score = options_lib.build(
      configs.EvalConfig,
      checkpoint_dir=str(folder / 'train'),
      eval_dir=str(folder / 'eval'),
      subset='test',
      run_once=True,
      **data,
    )
    with eager.functions():
      start.train(train, lines.append)
      evaluation.evaluate(score, lines.append)
    yield folder, lines


def test_a_net_whose_logits_are_equal_scores_as_chance():
  labels, logits = tf.range(10), tf.zeros([10, 10])
  first, five, _ = (
    np.mean(entry.compute(labels, logits)) for entry in metrics.EVALUATION
  )
  assert (first, five) == (0.1, 0.5)


def logged(folder, name):
  """What of a metric is in the lines of JSON of a folder."""
  return [r[name] for r in records.read(folder) if name in r]


def event_values(folder, tag):
  return [event.value for event in programs.events(folder) if event.tag == tag]


@pytest.mark.slow
def test_one_entry_logs_another_metric(added):
  folder, lines = added
  values = logged(folder / 'train', 'worst_loss')
  losses = logged(folder / 'train', 'entropy_loss')
  assert [v >= loss for v, loss in zip(values, losses, strict=True)] == [1, 1]
  said = [line for line in lines if 'total_loss' in line]
  assert [line.rpartition('; ')[2] for line in said] == [
    f'worst {value:.3f})' for value in values
  ]
  assert event_values(folder / 'train', 'Loss @ worst') == pytest.approx(values)
  chief = server_tasks.chief_line(2, 9, VALUES | {'worst_loss': 4.0})
  assert chief.endswith('bits/element; worst 4.000)')


def test_one_entry_scores_by_another_metric(added):
  folder, lines = added
  values = logged(folder / 'eval', 'log_likelihood')
  assert len(values) == 1 and values[0] < 0
  said = [line for line in lines if 'precision @ 1' in line]
  assert [re.search('(log like.*) \\[7 examples', s)[1] for s in said] == [
    f'log likelihood = {value:.3f}' for value in values
  ]
  assert event_values(folder / 'eval', 'Likelihood') == pytest.approx(values)


def reported(folder):
  """The records of training and those of evaluation."""
  return records.read(folder / 'train'), records.read(folder / 'eval')


def test_pages_and_comparisons_show_what_one_entry_added(added):
  folder, _ = added
  trained, scored = reported(folder)
  found = {plot.title: plot.curves for plot in curves.plots(trained, scored)}
  worst, (score,) = (
    logged(folder / 'train', 'worst_loss'),
    logged(folder / 'eval', 'log_likelihood'),
  )
  (curve,) = found['loss of the worst node']
  assert curve.points == list(zip((1, 2), worst, strict=True))
  (curve,) = found['log likelihood']
  assert curve.points == [(2, score)]
  facts = run_facts.last_values(trained, scored)
  assert facts['worst loss'] == f'{worst[-1]:.1f}'
  assert facts['log likelihood'] == f'{score:.3f}'
  (row,) = comparison.table({'run': comparison.read(folder)}).to_dict('records')
  assert row['worst'] == round(worst[-1], 2)
  assert row['likelihood'] == f'{score:.2f}'


def test_comparisons_draw_what_one_entry_added(added):
  run = comparison.read(added[0])
  # Scores are drawn where there are two at least.
  twice = run._replace(scores=pd.concat([run.scores] * 2))
  drawn = {}
  for axes in comparison.chart({'run': twice}).axes:
    (line,) = axes.lines
    drawn[axes.get_ylabel()] = list(line.get_xdata())
  assert drawn == {
    'training cross entropy, moving average': [1, 2],
    'worst loss': [1, 2],
    'evaluated accuracy, %': [2, 2],
    'test log likelihood': [2, 2],
  }
