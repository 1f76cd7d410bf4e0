"""The CSV of epochs, in the form of Caffe2's trainer."""

from datetime import datetime

import pandas as pd
import pytest

from terngrad.report import epochs

NOW = datetime(2017, 4, 11, 14, 16, 17)
STEM = 'resnet50_gpu2_b64_L1000_lr0.10_v2'


def record(step, seconds, loss, accuracy, **more):
  return {
    'step': step,
    'seconds': seconds,
    'epoch_loss': loss,
    'accuracy': accuracy,
    'learning_rate': 0.1,
    **more,
  }


FOUND = [
  record(10, 4.0, 3.0, 0.1),
  record(12, 5.0, 2.5, 0.25),
  {'step': 12, 'epoch': 1, 'test_precision_at_1': 0.5},
  record(20, 8.0, 1.5, 0.5),
  record(24, 11.0, 1.25, 0.75),
  {'step': 24, 'epoch': 2},
  record(30, 12.0, 1.0, 1.0),
]


def test_a_new_log_has_the_time_in_its_name(tmp_path):
  path = epochs.path_in(tmp_path, STEM, NOW)
  assert path == tmp_path / f'{STEM}_20170411_141617.log'


def test_a_continued_run_finds_its_log(tmp_path):
  log = tmp_path / f'{STEM}_20170411_141617.log'
  log.write_text('')
  (tmp_path / 'resnet50_gpu1_b64_L1000_lr0.10_v2_20160101_000000.log').touch()
  assert epochs.path_in(tmp_path, STEM) == log


def test_runs_whose_folders_have_equal_names_are_named_by_their_paths():
  folders = ['/runs/a/train', '/runs/b/train/', '/runs/other', '/runs/other/']
  assert epochs.names(folders) == [
    *('/runs/a/train', '/runs/b/train', 'other', 'other')
  ]


def test_every_epoch_is_a_row():
  first, second = epochs.rows(FOUND, 64, 'test')
  assert tuple(first) == epochs.COLUMNS
  assert first == {
    'time_spent': 5.0,
    'cumulative_time_spent': 5.0,
    'input_count': 12 * 64,
    'cumulative_input_count': 12 * 64,
    'cumulative_batch_count': 12,
    'inputs_per_sec': 12 * 64 / 5.0,
    'accuracy': 0.25,
    'epoch': 1,
    'learning_rate': 0.1,
    'loss': 2.5,
    'test_accuracy': 0.5,
  }
  assert (second['time_spent'], second['cumulative_time_spent']) == (6.0, 11.0)
  assert second['inputs_per_sec'] == 12 * 64 / 6.0
  assert second['test_accuracy'] == -1


def test_pandas_reads_the_written_log(tmp_path):
  path = tmp_path / 'a.log'
  rows = epochs.rows(FOUND, 64, 'test')
  epochs.write(path, {'net': 'a,b\n"c"', 'batch': 64}, rows)
  first = path.read_text().splitlines()[0]
  assert first == '# {"batch": 64, "net": "a,b\\n\\"c\\""}'
  table = pd.read_csv(path, comment='#')
  assert list(table) == list(epochs.COLUMNS)
  assert table.to_dict('records') == rows


def test_epochs_that_were_not_tested_are_not_drawn():
  tested = {'tested': epochs.rows(FOUND, 64, 'test')}
  lines = epochs.chart(tested, 'test').axes[0].get_lines()
  drawn = {one.get_label(): [*one.get_ydata()] for one in lines}
  assert drawn == {'tested': [50.0], 'tested, training': [25.0, 75.0]}
  (axes,) = epochs.chart({'a': epochs.rows(FOUND, 64)}, '').axes
  assert [one.get_label() for one in axes.get_lines()] == ['a, training']
  assert axes.get_title(loc='left') == 'accuracy, training, %'


@pytest.mark.parametrize('found', [[], FOUND[:2]])
def test_a_run_without_an_epoch_has_no_row(found):
  assert epochs.rows(found, 64) == []


def test_records_without_a_time_change_no_row():
  # The sparsity is written at a save, which may end an epoch.
  sparsity = {'step': 12, 'gradient_sparsity': 0.5}
  found = [*FOUND[:2], sparsity, *FOUND[2:]]
  assert epochs.rows(found, 64, 'test') == epochs.rows(FOUND, 64, 'test')
