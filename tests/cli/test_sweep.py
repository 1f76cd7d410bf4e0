"""`terngrad sweep --report` of what is finished: no run, no data."""

import math

import pandas as pd
import pytest

from terngrad import errors
from terngrad.cli import flags
from terngrad.cli import sweep
from terngrad.cli.report import sweep as report_sweep
from terngrad.measure.planning import coding
from terngrad.measure.planning import model
from terngrad.sweep import definition
from terngrad.sweep import runs

TEXT = """\
[sweep]
baseline = float32

[flags]
--batch_size = 8
--max_steps = 50

[codec]
float32 = --codec=identity
ternary = --codec=ternary --num_nodes=4
"""


@pytest.fixture
def finished(tmp_path):
  """A folder with a definition, both of whose runs have a row."""
  (tmp_path / 'sweep.ini').write_text(TEXT, encoding='utf-8')
  rows = [
    {
      'variant': cell.variant,
      'seed': cell.seed,
      'steps': 50,
      'accuracy': 0.5,
      'bits_per_element': 1.6,
      'seconds': 3.0,
      'flags': runs.flags_of(cell),
    }
    for cell in definition.read(tmp_path).cells
  ]
  pd.DataFrame(rows).to_csv(tmp_path / runs.TABLE, index=False)
  return tmp_path


def report(folder, **options):
  """The table of the report, by variant."""
  values = sweep.SweepFlags(
    definition=str(folder),
    data_dir=str(folder),
    work_dir=str(folder / 'work'),
    report=True,
    **options,
  )
  assert sweep.act(values) == 0
  return pd.read_csv(folder / 'sweep.csv').set_index('variant')


def test_modelled_seconds_are_steps_of_the_plan_on_that_network(
  finished, monkeypatch
):
  # Otherwise it is what coding takes here and now.
  seconds = model.Coding(send=1e-9, receive=1e-9, more=0.0)
  monkeypatch.setattr(coding, 'measure', lambda text: seconds)
  # A step of LeNet's 1.3 million float32 by one worker has no wire; of ternary
  # by four at 1 Mbit/s it has 1.6 bits an element, there and back, and more.
  found = report(finished, bandwidth=1e6, computing=0.25)['modelled seconds']
  # Its worker has the whole batch, four times what each of four workers has.
  assert found['float32'] == pytest.approx(50 * 4 * 0.25, rel=0.05)
  wire = 50 * 1.25e6 * 1.6 / 1e6
  assert 50 * 0.25 + wire < found['ternary'] < 50 * 0.25 + 5 * wire
  faster = report(finished, bandwidth=1e9, computing=0.25)['modelled seconds']
  assert faster['ternary'] < 50 * 0.25 + 0.1 * wire


@pytest.mark.parametrize('name', ['bandwidth', 'computing'])
def test_a_network_has_a_bandwidth_and_workers_that_compute(finished, name):
  with pytest.raises(flags.UsageError, match='computing: expected seconds and'):
    report(finished, **{name: 1.0})


def test_without_a_network_no_seconds_are_modelled(finished):
  assert 'modelled seconds' not in report(finished)


@pytest.mark.parametrize('latency', [-1.0, math.nan])
def test_a_latency_below_0_is_refused(finished, latency):
  with pytest.raises(errors.ConfigError, match='latency: expected a number'):
    report(finished, latency=latency)


def test_the_report_has_the_level_of_the_flag(finished):
  assert 'its 95 %' in report(finished)
  assert 'its 97.5 %' in report(finished, level=97.5)


@pytest.mark.parametrize('level', [0.95, 100.0, math.nan])
def test_a_level_that_is_no_percentage_is_refused(finished, level):
  with pytest.raises(errors.ConfigError, match='level: expected a number from'):
    report(finished, level=level)
  with pytest.raises(errors.ConfigError, match='level: expected a number from'):
    report_sweep.act(report_sweep.ReportSweepFlags(level=level))


def test_finished_runs_are_printed_with_their_notes(finished, capsys):
  rows = pd.read_csv(finished / runs.TABLE).assign(processor=['one', 'two'])
  rows.to_csv(finished / runs.TABLE, index=False)
  report_sweep.act(
    report_sweep.ReportSweepFlags(
      results=str(finished / runs.TABLE), level=97.5
    )
  )
  out = capsys.readouterr().out
  assert ' 97.5 % ' in out and 'to have the same processor (' in out


@pytest.mark.parametrize('line', ['', 'rates = searched'])
def test_rates_that_a_sweep_searched_are_in_one_ranking(finished, line):
  text = TEXT.replace('=ternary', '=ternary --initial_learning_rate=0.5')
  text = text.replace('[sweep]', f'[sweep]\n{line}')
  (finished / 'sweep.ini').write_text(text, encoding='utf-8')
  made = [runs.flags_of(cell) for cell in definition.read(finished).cells]
  rows = pd.read_csv(finished / runs.TABLE).assign(flags=made)
  rows.to_csv(finished / runs.TABLE, index=False)
  assert ('ranking' in report(finished)) == (not line)
  sweep.render(finished, finished / 'rendered')
  rendered = pd.read_csv(finished / 'rendered/sweep.csv')
  assert ('ranking' in rendered) == (not line)
  assert ('were searched for' in sweep.page(finished)) == bool(line)


def test_a_data_set_without_servers_is_refused(finished):
  text = TEXT.replace(
    'baseline', 'program = text\nlaunch = --num_ps=1\nbaseline'
  )
  (finished / 'sweep.ini').write_text(text, encoding='utf-8')
  with pytest.raises(
    errors.ConfigError, match="data set of .* received 'text'"
  ):
    report(finished)


def test_the_flags_of_slim_are_refused(finished):
  text = TEXT.replace('baseline', 'program = slim\nbaseline')
  (finished / 'sweep.ini').write_text(text, encoding='utf-8')
  with pytest.raises(errors.ConfigError, match="received 'slim'"):
    sweep.configurations(definition.read(finished))


@pytest.mark.parametrize(
  ('section', 'message'),
  [
    ('[eval]\n--num_examples = 0', 'eval: num_examples: expected a number >='),
    ('[eval]\n--eval_dir = x', 'eval: expected no --eval_dir, which the sweep'),
    ('[eval values]\n--tower = -3', 'eval values: tower: expected a number'),
  ],
)
def test_options_of_the_evaluator_are_checked_before_the_first_run(
  finished, section, message
):
  text = f'{TEXT}\n{section}\n'
  (finished / 'sweep.ini').write_text(text, encoding='utf-8')
  with pytest.raises(errors.ConfigError, match=message):
    sweep.configurations(definition.read(finished))


@pytest.mark.parametrize('flag', ['--data_dir = x', '--train_dir = x'])
def test_flags_that_the_sweep_sets_are_refused(finished, flag):
  text = TEXT.replace('--max_steps = 50', f'--max_steps = 50\n{flag}')
  (finished / 'sweep.ini').write_text(text, encoding='utf-8')
  name = flag.partition(' ')[0]
  with pytest.raises(errors.ConfigError, match=f'expected no {name}, which'):
    sweep.configurations(definition.read(finished))


def test_steps_beside_epochs_are_refused(tmp_path):
  text = TEXT.replace('--max_steps = 50', '--num_epochs = 3')
  (tmp_path / 'sweep.ini').write_text(text, encoding='utf-8')
  folders = {'data_dir': str(tmp_path), 'work_dir': str(tmp_path / 'work')}
  values = sweep.SweepFlags(definition=str(tmp_path), steps=5, **folders)
  with pytest.raises(
    flags.UsageError, match='--steps: .* received float32 with --num_epochs=3'
  ):
    sweep.act(values)


def test_an_output_that_is_no_folder_is_one_error(finished):
  with pytest.raises(
    errors.TrainingError, match='sweep.ini: expected to write'
  ):
    report(finished, output=str(finished / 'sweep.ini'))
