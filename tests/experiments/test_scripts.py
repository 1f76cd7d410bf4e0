"""Scripts of experiments compute the right figures and committed tables."""

import contextlib
import importlib
import io
import os
import pathlib
import re
import runpy
import shutil
import subprocess
import sys
from unittest import mock

import numpy as np
import pandas as pd
import pytest
import tensorflow as tf
from absl import app
from absl import flags
from matplotlib import figure

from terngrad.cli import ports
from terngrad.codec.methods import registry
from terngrad.machine import processor
from terngrad.report.statistics import paired
from terngrad.sweep import definition
from terngrad.sweep import results
from tests.bin import clusters

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
    ('network/join_starts.py', 'race.csv'),
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


def test_a_fit_without_waiting_has_the_least_error():
  script = runpy.run_path(str(ROOT / 'experiments/paper_scaling/model.py'))
  rows = script['bars']()
  rows = rows[(rows['cluster'] == 'InfiniBand') & (rows['gpus'] > 4)]
  size = rows['net'].map(lambda net: script['NETS'][net][0])
  times = rows['gpus'].map(script['transfers'])
  found = script['fit'](rows)
  assert found[2] == 0

  def error(second, bits):
    width = np.where(rows['code'] == 'float32', 32, bits)
    seconds = rows['computing'] + times * size * width * second
    return (((seconds * rows['paper'] / rows['images']) - 1) ** 2).sum()

  second, bits, _ = found
  for factor in (0.999, 1.001):
    assert error(second * factor, bits / factor) > error(second, bits)
    assert error(second, bits * factor) > error(second, bits)


def test_accuracies_of_the_plan_are_those_of_the_sweeps(tmp_path, monkeypatch):
  # The table has none, and their integrals take seconds.
  monkeypatch.setattr(
    paired, 'p_values', lambda ratios, *more: [0.0] * len(ratios)
  )
  written = tmp_path / 'accuracy_table.py'
  run(ROOT / 'experiments/plan_accuracy/make_table.py', written)
  committed = ROOT / 'terngrad/measure/planning/accuracy_table.py'
  assert written.read_bytes() == committed.read_bytes()


@pytest.fixture
def race(tmp_path):
  """A copy of join_starts.py, and `runs` with two starts of four cases."""
  script = shutil.copy(ROOT / 'experiments/network/join_starts.py', tmp_path)
  runs = tmp_path / 'runs/net/10mbit/batch_2'
  cases = ['error_feedback+stc', 'error_feedback+powersgd:rank=1']
  cases += ['ddp:hook=powersgd,rank=1', 'ddp']
  for start, *times in ((1, 100, 50, 200, 400), (2, 300, 600, 2400, 1200)):
    (runs / f'start_{start}').mkdir(parents=True)
    table = pd.DataFrame({'case': cases, 'milliseconds': times})
    more = ('quartiles', 'payload_bytes', 'interface_bytes', 'threads')
    table[[*more, 'processor', 'oneDNN']] = ['', 5, 6, 1, 'P', 'on']
    table['peer'] = [None, None, '1 bucket', '']
    table.to_csv(runs / f'start_{start}/measure_exchange.csv', index=False)
  return script


@pytest.mark.parametrize('case', ['ddp', 'error_feedback+stc'])
def test_starts_that_lack_a_case_are_refused(case, race, tmp_path):
  path = tmp_path / 'runs/net/10mbit/batch_2/start_2/measure_exchange.csv'
  table = pd.read_csv(path)
  table[table['case'] != case].to_csv(path, index=False)
  expected = f'processor=P: .*received start 2 without {re.escape(case)}'
  with pytest.raises(SystemExit, match=expected):
    run(race, tmp_path / 'runs')
  assert not (tmp_path / 'starts.csv').exists()


def test_the_picture_of_the_race_has_the_batch_and_starts_of_the_table(
  tmp_path, monkeypatch
):
  labels = []
  monkeypatch.setattr(
    figure.Figure,
    'savefig',
    lambda drawn, *words, **more: labels.append(drawn.axes[0].get_xlabel()),
  )
  folder = ROOT / 'experiments/network'
  shutil.copy(folder / 'draw.py', tmp_path)
  table = pd.read_csv(folder / 'race.csv').assign(starts=7)
  table.to_csv(tmp_path / 'race.csv', index=False)
  run(tmp_path / 'draw.py')
  assert labels[0].splitlines()[1].startswith('batch 2 and')
  assert '; 7 starts, 95 % intervals' in labels[0]


def test_starts_of_a_race_are_joined_once_and_compared_start_by_start(
  race, tmp_path
):
  run(race, tmp_path / 'runs')
  run(race, tmp_path / 'runs')
  assert len(pd.read_csv(tmp_path / 'starts.csv')) == 8
  table = pd.read_csv(tmp_path / 'race.csv').set_index('case')
  found = table.loc['ddp:hook=powersgd,rank=1']
  # Means of 0.2 and 2.4 s; the root of 1/2 times 1/8.
  assert (found['starts'], found['seconds']) == (2, 1.3)
  assert found['candidate over case'] == 0.25
  # Student's t with one degree of freedom; the logarithms differ by log 4.
  half = 12.71 * np.log(4) / np.sqrt(2) / np.sqrt(2)
  high = pytest.approx(0.25 * np.exp(half), rel=1e-3)
  assert found['candidate high'] == high
  assert found['same over case'] == 0.25
  # 0.2 of one hook and 1.2 s of the other.
  assert table.loc['fastest ddp', 'seconds'] == 0.7
  fastest = table.loc['fastest ddp', 'candidate over case']
  assert fastest == pytest.approx(np.sqrt(0.1 / 0.2 * 0.3 / 1.2), rel=1e-4)


@pytest.fixture
def join(tmp_path):
  """Joins tables like those of error_beside_grace; returns the rows."""
  folder = ROOT / 'experiments/error_beside_grace'
  beside = pd.read_csv(folder / 'beside.csv')
  columns = {'bits ours': 'bits', 'error ours': 'mean', 'sem ours': 'mean_sem'}
  ours = beside[['gradients', 'codec', *columns]].drop_duplicates()
  tables = {
    'ours': ours.rename(columns=columns),
    'others': pd.read_csv(folder / 'others.csv'),
  }

  def act(**changed):
    for name, table in (tables | changed).items():
      table.to_csv(tmp_path / f'{name}.csv', index=False)
    paths = (tmp_path / f'{name}.csv' for name in ('ours', 'others', 'beside'))
    run(folder / 'join.py', *paths)
    return pd.read_csv(tmp_path / 'beside.csv')

  act.beside, act.tables = beside, tables
  return act


def test_pairs_of_codes_are_joined_for_every_gradient(join):
  pd.testing.assert_frame_equal(join(), join.beside)


@pytest.mark.parametrize(
  ('table', 'column', 'code'),
  [('others', 'name', 'natural'), ('ours', 'codec', 'natural')],
)
def test_pairs_that_lack_a_row_are_refused(table, column, code, join, tmp_path):
  rows = join.tables[table]
  lacking = (rows[column] == code) & (rows['gradients'] == 'student')
  for left_out, named in (
    (rows[column] == code, 'natural of kernel; natural of normal'),
    (lacking, 'none for natural of student. Measure'),
  ):
    with pytest.raises(SystemExit, match=named):
      join(**{table: rows[~left_out]})
  assert not (tmp_path / 'beside.csv').exists()


@pytest.mark.parametrize('table', ['others', 'ours'])
def test_rows_that_a_table_has_twice_are_refused(table, join):
  rows = join.tables[table]
  with pytest.raises(SystemExit, match='received several for .* of normal'):
    join(**{table: pd.concat([rows, rows[:1]])})


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
  return [*words, '--ratio=1', '--computing=0.32', '--on=env HOST={}']


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


@pytest.fixture
def refusal(monkeypatch, tmp_path, capsys):
  """The message of a script of experiments/records that must not train."""
  folder = ROOT / 'experiments/records'
  monkeypatch.syspath_prepend(folder)

  def train(*words, **more):
    raise AssertionError('a run was started')

  monkeypatch.setattr(importlib.import_module('measure_steps'), 'train', train)
  monkeypatch.setattr('terngrad.cli.children.run', train)
  words = ['--data_dir=D', f'--work_dir={tmp_path}', '--hosts=a:1,b:1']
  words += ['--computing=0.32']

  def act(script, *more):
    with pytest.raises(SystemExit) as error:
      run(folder / script, *words, *more)
    return capsys.readouterr().err + str(error.value)

  return act


@pytest.mark.parametrize(
  ('column', 'value'), [('processor', 'Z80'), ('mbit_s', '9'), ('switches', '')]
)
def test_steps_of_other_conditions_are_not_added_to_a_network(
  column, value, refusal, tmp_path
):
  table = pd.read_csv(ROOT / 'experiments/records/steps.csv', dtype=str)
  rows = table[table['network'] == '2 hosts, wire / computing 10'][:1]
  here = results.provenance()
  rows.assign(**here | {column: value}).to_csv(
    tmp_path / 'steps.csv', index=False
  )
  words = ['--ratio=10', '--only=ternary', f'--output={tmp_path}/steps.csv']
  message = refusal('measure_steps.py', *words)
  assert f'received {column} ' in message
  assert f'{value!r} for float32 in {tmp_path}/steps.csv' in message
  assert 'Give another --output' in message


@pytest.mark.parametrize(
  'word',
  ['--ratio=-1', '--ratio=0', '--ratio=nan', '--ratio=inf', '--computing=0'],
)
@pytest.mark.parametrize('script', ['measure_steps.py', 'run_cells.py'])
def test_links_without_a_bandwidth_are_refused(script, word, refusal):
  message = refusal(script, '--ratio=1', word)
  name, value = word.split('=')
  assert (
    f'{name}: expected a finite number above 0, received {value}' in message
  )


def test_the_seconds_of_computing_have_no_default(monkeypatch, capsys):
  script = ROOT / 'experiments/records/measure_steps.py'
  monkeypatch.syspath_prepend(script.parent)
  words = ['--ratio=1', '--data_dir=D', '--work_dir=W', '--hosts=a:1,b:1']
  with pytest.raises(SystemExit):
    run(script, *words, '--dry_run')
  assert 'required: --computing' in capsys.readouterr().err


@pytest.mark.parametrize(
  ('script', 'more'),
  [
    ('measure_steps.py', ['--only=snoo,ternary', '--dry_run']),
    ('run_cells.py', ['--target=2.0', 'ternary']),
  ],
)
def test_hosts_that_cannot_share_the_workers_are_refused(
  script, more, refusal, tmp_path
):
  words = ['--ratio=10', '--hosts=a:1,b:1,c:1']
  if script == 'run_cells.py':
    heading = 'seconds, 3 hosts, wire / computing 10 (measured steps)'
    row = {'bits a byte': 2, 'variant': 'ternary', 'steps': 9, heading: 1}
    pd.DataFrame([row]).to_csv(tmp_path / 'targets.csv', index=False)
    words += [f'--targets={tmp_path}/targets.csv']
    words += [f'--steps={tmp_path}/steps.csv']
  message = refusal(script, *words, *more)
  assert 'divides the 4 workers of ternary, received 3' in message


@pytest.mark.parametrize(
  'words',
  [
    # It does not reach the target.
    ['--target=2.0', '--ratio=10', 'ternary', 'diloco_stc'],
    # Such steps were not measured, of any variant and of this one.
    ['--target=2.0', '--ratio=3', 'diloco_stc'],
    ['--target=2.0', '--ratio=100', 'diloco_stc'],
  ],
)
def test_cells_without_steps_or_seconds_are_refused_before_the_first_run(
  words, refusal
):
  message = refusal('run_cells.py', *words)
  assert 'expected some of which' in message
  assert 'received diloco_stc. Choose among these' in message


def test_cells_of_steps_of_another_processor_are_refused(refusal, tmp_path):
  table = pd.read_csv(ROOT / 'experiments/records/steps.csv', dtype=str)
  rows = table[table['network'] == '2 hosts, wire / computing 10'][:1]
  rows.assign(**results.provenance() | {'processor': 'Z80'}).to_csv(
    tmp_path / 'steps.csv', index=False
  )
  words = ['--target=2.0', '--ratio=10', f'--steps={tmp_path}/steps.csv']
  message = refusal('run_cells.py', *words, 'ternary')
  assert "'Z80' for float32" in message
  assert 'Measure this network here' in message


@pytest.mark.slow
@pytest.mark.cluster
def test_a_cell_is_trained_for_its_steps_and_scored(records_words, tmp_path):
  network = 'seconds, 2 hosts, wire / computing 1 (measured steps)'
  columns = {'bits a byte': [7, 7.5], 'variant': ['ternary'] * 2}
  rows = pd.DataFrame(columns | {'steps': [3.2, 2], network: [0.5, 0.25]})
  rows.to_csv(tmp_path / 'targets.csv', index=False)
  words = [*records_words, '--target=7', f'--targets={tmp_path}/targets.csv']
  # No steps of any processor.
  words += [f'--steps={tmp_path}/steps.csv']
  words += [f'--output={tmp_path}/cells.csv', 'ternary']
  run_process(ROOT / 'experiments/records/run_cells.py', *words)
  (row,) = pd.read_csv(tmp_path / 'cells.csv').to_dict('records')
  assert (row['steps'], row['predicted seconds']) == (4, 0.5)
  # Both are rounded.
  assert row['over predicted'] == pytest.approx(row['seconds'] / 0.5, abs=0.11)
  # 256 bytes, each as likely as the others, have 8 bits.
  assert 6 < row['score'] < 8.5
  assert '--seed=2' in row['flags'] and '--max_steps=4' in row['flags']


def test_memory_is_counted_in_megabytes_of_a_million_bytes(monkeypatch):
  monkeypatch.syspath_prepend(ROOT / 'experiments/onednn')
  memory = importlib.import_module('memory')
  status = 'VmHWM:\t 2000000 kB\nVmRSS:\t 1000000 kB\n'
  with mock.patch.object(pathlib.Path, 'read_text', lambda *a, **k: status):
    found = memory.memory()
  # The kernel's kB are 1024 bytes.
  assert found == (1024, 2048)


@pytest.fixture
def repeat(monkeypatch, tmp_path):
  """Runs onednn/repeat.py on a processor; returns variables of its runs."""
  folder = ROOT / 'experiments/onednn'
  monkeypatch.syspath_prepend(folder)
  monkeypatch.setattr(clusters, 'state', lambda *words: {'a': np.ones(2)})
  started = []

  def train(words, env, check):
    (path,) = (w[12:] for w in words if w.startswith('--train_dir='))
    os.makedirs(path)
    metrics = pathlib.Path(path, 'metrics.jsonl')
    metrics.write_text('{"step": 50, "total_loss": 1.5}\n')
    started.append(env)
    if len(started) == 2:
      raise KeyboardInterrupt

  monkeypatch.setattr(subprocess, 'run', train)

  def act(name):
    measure = importlib.import_module('measure')
    monkeypatch.setattr(measure, 'processor', lambda: name)
    with contextlib.suppress(KeyboardInterrupt):
      run(
        *(folder / 'repeat.py', '--data_dir=D', f'--work_dir={tmp_path}/runs'),
        f'--output={tmp_path}/repeats.csv',
      )
    return started

  return act


def test_stopped_repeats_begin_again_and_processors_have_separate_rows(
  repeat, tmp_path
):
  # The second run is stopped.
  assert [len(repeat(name)) for name in 'AABA'] == [2, 13, 25, 25]
  table = pd.read_csv(tmp_path / 'repeats.csv')
  keys = table[['processor', 'codec', 'setting']]
  assert len(table) == 24 and not keys.duplicated().any()
  assert set(table['loss']) == {1.5}


def test_repeats_inherit_no_limits_of_instructions(repeat, monkeypatch):
  monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'SSE41')
  monkeypatch.setenv('XLA_FLAGS', '--xla_cpu_max_isa=SSE4_2')
  repeat('A')
  plain, *_, limited = repeat('A')
  assert not {'ONEDNN_MAX_CPU_ISA', 'XLA_FLAGS'} & {*plain}
  assert plain['TF_ENABLE_ONEDNN_OPTS'] == '1'
  assert limited['ONEDNN_MAX_CPU_ISA'] == 'AVX2'
  assert limited['TF_ENABLE_ONEDNN_OPTS'] == '0'


@pytest.fixture
def run_modes(tmp_path):
  """Calls lenet_modes/run_modes.py for one run."""
  before = {*flags.FLAGS}
  script = ROOT / 'experiments/lenet_modes/run_modes.py'
  main = runpy.run_path(str(script))['main']

  def act(name):
    words = ['--steps=3', f'--work_dir={tmp_path}', f'--only={name}']
    flags.FLAGS(['run_modes', '--data_dir=D', *words])
    return main(['run_modes'])

  yield act
  for name in {*flags.FLAGS} - before:
    delattr(flags.FLAGS, name)
  flags.FLAGS.unparse_flags()


@pytest.mark.parametrize(
  ('columns', 'received'),
  [({}, 'an unknown processor'), ({'processor': 'Z80'}, 'Z80')],
)
def test_modes_are_not_compared_between_processors(
  columns, received, run_modes, tmp_path
):
  row = {'method': 'topk', 'mode': 'nodes', 'steps': 3} | columns
  (tmp_path / '3_steps').mkdir()
  pd.DataFrame([row]).to_csv(tmp_path / '3_steps/results.csv', index=False)
  message = (
    rf'{processor.model()} to compare.* topk/nodes of {received}. Remove'
  )
  with pytest.raises(app.UsageError, match=message):
    run_modes('topk/towers')
