"""Scripts of experiments compute the right figures and committed tables."""

import contextlib
import io
import os
import pathlib
import runpy
import shutil
import subprocess
import sys
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from matplotlib import figure

from terngrad.cli import ports
from terngrad.codec.methods import registry
from terngrad.report.statistics import paired
from terngrad.sweep import definition

ROOT = pathlib.Path(__file__).resolve().parents[2]


def run(script, *words):
  """What a script prints; in this process, which has TensorFlow."""
  arguments = [str(script), *map(str, words)]
  with (
    mock.patch.object(sys, 'argv', arguments),
    contextlib.redirect_stdout(io.StringIO()) as printed,
  ):
    runpy.run_path(arguments[0], run_name='__main__')
  return printed.getvalue()


def run_process(script, *words):
  """What a script prints that starts processes of a cluster."""
  done = subprocess.run(
    [sys.executable, script, *words],
    env=os.environ | {'PYTHONPATH': str(ROOT)},
    check=True,
    capture_output=True,
    text=True,
  )
  return done.stdout


@pytest.mark.parametrize(
  ('script', 'table'),
  [
    ('paper_scaling/model.py', 'model.csv'),
    pytest.param(
      *('plan_validation/validate.py', 'planned.csv'), marks=pytest.mark.slow
    ),
  ],
)
def test_script_writes_the_committed_table(
  script, table, tmp_path, monkeypatch
):
  # It is drawn, but laying out its texts takes longer than all figures.
  monkeypatch.setattr(figure.Figure, 'savefig', lambda *words, **more: None)
  committed = (ROOT / 'experiments' / script).parent
  copy = shutil.copytree(committed, tmp_path / committed.name)
  (copy / table).unlink()
  run(copy / pathlib.Path(script).name)
  expected, received = (pd.read_csv(p / table) for p in (committed, copy))
  # The last digit of what was rounded may be another where libraries differ.
  pd.testing.assert_frame_equal(received, expected, rtol=1e-3, atol=2e-4)


def test_accuracies_of_the_plan_are_those_of_the_sweeps(tmp_path, monkeypatch):
  # The table has none, and their integrals take seconds.
  monkeypatch.setattr(
    paired, 'p_values', lambda ratios, *more: [0.0] * len(ratios)
  )
  written = tmp_path / 'accuracy_table.py'
  run(ROOT / 'experiments/plan_accuracy/make_table.py', written)
  committed = ROOT / 'terngrad/measure/planning/accuracy_table.py'
  assert written.read_bytes() == committed.read_bytes()


def test_shared_scalers_match_those_by_hand(tmp_path):
  # Nothing is beyond 2.5 deviations. Scalers are 1 and 3: 3 over their mean 2.
  signs = np.float32([1, 1, -1, -1])
  path = tmp_path / 'two.npz'
  np.savez(path, kernel=np.stack([signs, 3 * signs]))
  script = ROOT / 'experiments/cifar10_causes/shared_scalers.py'
  name, *figures = run(script, path).splitlines()[1].split()
  # (4 (3 - 1) + 0) / 2^2 of the mean's square 16; x^4 41 over 5 squared.
  assert name == 'kernel'
  assert [*map(float, figures)] == pytest.approx(
    [1.5, 0.125, 0, 0, 1.64], abs=0.006
  )


@pytest.fixture
def clipping_codes(monkeypatch):
  monkeypatch.syspath_prepend(ROOT / 'experiments/lenet_clipping')
  return registry.method


def test_rescaled_gradients_keep_their_length_and_stay_clipped(clipping_codes):
  gradient = tf.constant(np.r_[np.ones(99), 50].astype(np.float32))
  rescaled = clipping_codes('rescaled').rescale(gradient).numpy()
  assert np.linalg.norm(rescaled) == pytest.approx(np.linalg.norm(gradient))
  # 2.5 deviations about the mean of 1.49 are 12.2.
  limit = 2.5 * np.std(gradient)
  assert rescaled[-1] / rescaled[0] == pytest.approx(limit, rel=1e-4)
  assert not clipping_codes('rescaled').rescale(tf.zeros(3)).numpy().any()


def test_clipped_gradients_are_sent_as_float32(clipping_codes):
  name = clipping_codes('clipped:clip_factor=1').name
  assert name == 'clip_by_stddev(1) > float32_words'


def test_a_rescaled_code_on_kernels_is_compiled_as_ternary_on_kernels(
  clipping_codes,
):
  code = clipping_codes('rescaled')
  assert code.on_kernels().compiled == code.method.on_kernels().compiled


def test_final_runs_have_the_best_trials_and_four_times_the_steps(tmp_path):
  for name, scores in (
    ('search', {'float32_r1': 2.5, 'float32_r4': 2.25, 'ternary_r2': 3.0}),
    ('search_outer', {'streaming_i2_o04': 2.0, 'streaming_i1_o02': 1.5}),
  ):
    (tmp_path / name).mkdir()
    rows = pd.Series(scores, name='bits_per_byte').rename_axis('variant')
    rows.reset_index().to_csv(tmp_path / name / 'results.csv', index=False)
  script = ROOT / 'experiments/records/choose.py'
  printed = run(script, f'--results={tmp_path}', f'--output={tmp_path}')
  assert 'bf16: 0 of 5 trials finished' in printed
  assert 'streaming: 2 of 5 trials finished' in printed
  # Not float32's 0.004, which has rates on both sides.
  warned = [line for line in printed.splitlines() if 'a rate beyond' in line]
  assert [line.split()[0] for line in warned] == ['--outer_learning_rate=0.2']
  found = definition.read(tmp_path / 'final')
  flags = {cell.variant: {*cell.flags} for cell in found.cells}
  assert {*flags} == {'float32', 'ternary', 'streaming'}
  assert {cell.seed for cell in found.cells} == {2, 3, 4}
  for entry, expected in (
    ('float32', {'--initial_learning_rate=0.004', '--max_steps=2000'}),
    ('streaming', {'--outer_learning_rate=0.2', '--max_steps=400'}),
  ):
    assert expected <= flags[entry]


@pytest.fixture
def records_words(tmp_path):
  """Arguments of scripts of experiments/records that train between hosts."""
  net = '--net = gpt_nano:blocks=1,width=16,heads=2\n'
  (tmp_path / 'sweep').mkdir()
  (tmp_path / 'sweep/sweep.ini').write_text(
    f'[sweep]\nprogram = text\nseeds = 2\n\n[flags]\n{net}'
    f'--eval_subsets = test\n\n[eval]\n{net}--subset = test\n'
    '--restore_avg_var = false\n\n'
    '[entry]\n'
    'ternary = --codec=ternary --num_nodes=4 --batch_size=16\n'
    'alone = --codec=identity --num_nodes=1 --batch_size=8 --local_steps=2 '
    '--optimizer=gd\n'
  )
  convert = 'from terngrad.cli import main; main.run()'
  subprocess.run(
    [sys.executable, '-c', convert, 'convert', 'text']
    + [f'--output_directory={tmp_path}/data', f'--source={ROOT}/docs'],
    check=True,
  )
  hosts = ','.join(f'127.0.0.1:{port}' for port in ports.free(2))
  words = [f'--data_dir={tmp_path}/data', f'--work_dir={tmp_path}/runs']
  words += [f'--hosts={hosts}', f'--sweep={tmp_path}/sweep']
  return [*words, '--ratio=1', '--on=env HOST={}']


@pytest.mark.slow
@pytest.mark.cluster
def test_steps_of_each_variant_are_measured_between_two_hosts(
  records_words, tmp_path
):
  words = [*records_words, '--updates=12', f'--output={tmp_path}/steps.csv']
  script = ROOT / 'experiments/records/measure_steps.py'
  run_process(script, *words, '--only=alone')
  run_process(script, *words)
  table = pd.read_csv(tmp_path / 'steps.csv').sort_values('variant')
  assert list(table['variant']) == ['alone', 'ternary']
  assert set(table['network']) == {'2 hosts, wire / computing 1'}
  assert (table['seconds'] > 0).all() and set(table['updates']) == {2}
  assert '--num_nodes=2 ' in table['flags'].iloc[1]


@pytest.mark.slow
@pytest.mark.cluster
def test_a_cell_is_trained_for_its_steps_and_scored(records_words, tmp_path):
  network = 'seconds, 2 hosts, wire / computing 1 (measured steps)'
  columns = {'bits a byte': [7, 7.5], 'variant': ['ternary'] * 2}
  rows = pd.DataFrame(columns | {'steps': [3.2, 2], network: [0.5, 0.25]})
  rows.to_csv(tmp_path / 'targets.csv', index=False)
  words = [*records_words, '--target=7', f'--targets={tmp_path}/targets.csv']
  words += [f'--output={tmp_path}/cells.csv', 'ternary']
  run_process(ROOT / 'experiments/records/run_cells.py', *words)
  (row,) = pd.read_csv(tmp_path / 'cells.csv').to_dict('records')
  assert (row['steps'], row['predicted seconds']) == (4, 0.5)
  # Both are rounded.
  assert row['over predicted'] == pytest.approx(row['seconds'] / 0.5, abs=0.11)
  # 256 bytes, each as likely as the others, have 8 bits.
  assert 6 < row['score'] < 8.5
  assert '--seed=2' in row['flags'] and '--max_steps=4' in row['flags']
