"""`terngrad report targets` on a finished sweep of two runs."""

import math

import pandas as pd
import pytest

from terngrad import errors
from terngrad.cli import flags
from terngrad.cli.report import targets
from terngrad.measure.planning import coding
from terngrad.measure.planning import model

TEXT = """\
[sweep]
program = text
baseline = float32

[flags]
--net = gpt_nano
--num_gpus = 1
--num_nodes = 2
--max_steps = 20

[codec]
float32 = --codec=identity
ternary = --codec=ternary
"""
ELEMENTS = 1_017_344


@pytest.fixture
def folder(tmp_path):
  (tmp_path / 'sweep.ini').write_text(TEXT, encoding='utf-8')
  runs, curves = [], []
  for variant, bits, last in (('float32', 32.0, 2.0), ('ternary', 1.6, 2.5)):
    runs.append((variant, 1, 20, 0.5, bits, 3.0))
    curves += [(variant, 1, 10, 0.3, 4.0), (variant, 1, 20, 0.5, last)]
  columns = 'variant', 'seed', 'steps', 'accuracy', 'bits_per_element'
  pd.DataFrame(runs, columns=[*columns, 'seconds']).to_csv(
    tmp_path / 'results.csv', index=False
  )
  columns = 'variant', 'seed', 'step', 'accuracy', 'bits_per_byte'
  pd.DataFrame(curves, columns=columns).to_csv(
    tmp_path / 'curves.csv', index=False
  )
  return tmp_path


def report(folder, **options):
  values = {'metric': 'bits_per_byte', 'targets': ('3', '2.2')} | options
  targets.act(targets.ReportTargetsFlags(definition=str(folder), **values))


def test_tables_have_steps_bytes_and_the_scores_at_the_end(folder, capsys):
  report(folder, output=str(folder / 'out'))
  table = pd.read_csv(folder / 'out/targets.csv')
  assert list(table['variant']) == ['ternary', 'float32', 'float32', 'ternary']
  first = table.iloc[1]
  assert first['steps'] == 15
  # Of two workers each sends all elements once, and the probe.
  sent = first['MB sent by a worker']
  assert sent == pytest.approx(15 * 4 * ELEMENTS / 1e6, rel=1e-4)
  assert list(table['reached']) == ['1 of 1'] * 3 + ['0 of 1']
  last = pd.read_csv(folder / 'out/last.csv').set_index('variant')
  assert last.loc['ternary', 'to float32'] == 0.5
  assert (folder / 'out/targets.png').stat().st_size
  assert not any('seconds' in name for name in table)
  assert 'ternary' in capsys.readouterr().out


def test_seconds_are_predicted_for_each_network(folder, monkeypatch):
  cost = model.Coding(send=0.0, receive=0.0, more=0.0)
  monkeypatch.setattr(coding, 'measure', lambda text: cost)
  networks = {'ratios': ('10',), 'bandwidths': ('1Gbit',)}
  report(folder, computing=0.5, output=str(folder), **networks)
  table = pd.read_csv(folder / 'targets.csv').set_index('variant')
  ratio, fast = (name for name in table if name.startswith('seconds'))
  assert ratio == 'seconds, wire / computing 10 (6.511 Mbit/s)'
  assert fast == 'seconds, 1 Gbit/s'
  float32 = table.loc['float32'].iloc[0]
  # Half a second of computing, ten times as much on the wire.
  assert float32[ratio] == pytest.approx(15 * 11 * 0.5, rel=0.01)
  assert float32[fast] == pytest.approx(15 * (0.5 + 0.0326), rel=0.01)


def test_a_worker_with_more_examples_computes_longer(folder, monkeypatch):
  """Ternary has one worker here, which sends nothing, for the whole batch."""
  text = TEXT.replace('--codec=ternary', '--codec=ternary --num_nodes=1')
  (folder / 'sweep.ini').write_text(text, encoding='utf-8')
  cost = model.Coding(send=0.0, receive=0.0, more=0.0)
  monkeypatch.setattr(coding, 'measure', lambda text: cost)
  report(folder, computing=0.5, bandwidths=('1Tbit',), output=str(folder))
  table = pd.read_csv(folder / 'targets.csv').set_index('variant')
  assert table.loc['ternary', 'MB sent by a worker'].iloc[0] == 0
  steps, seconds = table['steps'], table['seconds, 1 Tbit/s']
  assert list((seconds / steps).dropna().round(2)) == [1.0, 0.5, 0.5]


def test_a_worker_sends_one_of_several_fragments_in_a_step(folder):
  local = '--codec=identity --local_steps=20 --batch_size=80'
  text = TEXT.replace('--codec=ternary', f'{local} --fragments=4')
  (folder / 'sweep.ini').write_text(text, encoding='utf-8')
  runs = pd.read_csv(folder / 'results.csv').assign(bits_per_element=32.0)
  runs.to_csv(folder / 'results.csv', index=False)
  report(folder, output=str(folder), targets=('3',))
  sent = pd.read_csv(folder / 'targets.csv').set_index('variant')
  by_step = sent['MB sent by a worker'] / sent['steps']
  assert by_step['ternary'] == pytest.approx(by_step['float32'] / 4, rel=1e-4)


def test_a_seed_that_failed_reaches_no_target(folder, capsys):
  failures = ('ternary', 2, 1), ('float32', 1, 1), ('gone', 1, 1)
  columns = 'variant', 'seed', 'code'
  table = pd.DataFrame(failures, columns=columns).assign(error='not finite')
  table.to_csv(folder / 'failures.csv', index=False)
  report(folder, output=str(folder), targets=('3',))
  found = pd.read_csv(folder / 'targets.csv').set_index('variant')
  # A repeated run that succeeded has not failed.
  assert found.loc['float32', 'reached'] == '1 of 1'
  assert found.loc['ternary', 'reached'] == '1 of 2'
  assert pd.isna(found.loc['ternary', 'steps'])
  last = pd.read_csv(folder / 'last.csv').set_index('variant')['failed']
  assert dict(last) == {'float32': 0, 'ternary': 1}
  assert 'gone' not in capsys.readouterr().out


def test_runs_of_two_processors_are_noted(folder, capsys):
  runs = pd.read_csv(folder / 'results.csv').assign(processor=['one', 'two'])
  runs.to_csv(folder / 'results.csv', index=False)
  report(folder)
  assert 'to have the same processor (' in capsys.readouterr().out
  report(folder, only=('ternary',))
  assert 'the same' not in capsys.readouterr().out


def test_measured_steps_give_the_seconds_of_their_networks(folder):
  table = folder / 'steps.csv'
  rows = 'variant,network,seconds,commit\nfloat32,2 hosts,0.25,x\n'
  table.write_text(rows, encoding='utf-8')
  report(folder, measured=str(table), output=str(folder / 'out'))
  heading = 'seconds, 2 hosts (measured steps)'
  found = pd.read_csv(folder / 'out/targets.csv').set_index('variant')[heading]
  assert found.loc['float32'].iloc[0] == 15 * 0.25
  assert found.loc['ternary'].isna().all()
  assert (folder / 'out/targets.png').stat().st_size


@pytest.mark.parametrize(
  'text',
  ['variant,network\nfloat32,n\n', 'variant,network,seconds\na,n,x\n']
  + ['variant,network,seconds\na,n,1\na,n,2\n'],
)
def test_other_tables_of_steps_are_refused(folder, text):
  table = folder / 'steps.csv'
  table.write_text(text, encoding='utf-8')
  with pytest.raises(
    errors.ConfigError, match='measured: expected .*steps.csv'
  ):
    report(folder, measured=str(table))


@pytest.mark.parametrize(
  ('wrong', 'message'),
  [
    ({'computing': 0.5}, 'received 0.5 and no network'),
    ({'ratios': ('10',)}, 'received 0 and 10'),
    ({'computing': 0.5, 'ratios': ('x',)}, "--ratios: .*received 'x'"),
    ({'targets': ('nan',)}, "--targets: .*received 'nan'"),
  ],
)
def test_networks_without_computing_and_no_numbers_are_refused(
  folder, wrong, message
):
  with pytest.raises(flags.UsageError, match=message):
    report(folder, **wrong)


def test_an_unknown_score_and_one_that_was_not_recorded_are_refused(folder):
  with pytest.raises(errors.ConfigError, match='metric: expected'):
    report(folder, metric='speed')
  with pytest.raises(errors.ConfigError, match='--eval_subsets'):
    report(folder, metric='loss')


def test_variants_without_scored_epochs_are_refused(folder):
  curves = pd.read_csv(folder / 'curves.csv')
  curves[curves['variant'] == 'float32'].to_csv(
    folder / 'curves.csv', index=False
  )
  with pytest.raises(errors.ConfigError, match='only: .* received ternary'):
    report(folder, only=('ternary',), output=str(folder / 'out'))


def test_runs_with_servers_are_refused(folder):
  launch = 'launch = --num_ps=1 --num_workers=4'
  text = TEXT.replace('program = text', f'program = mnist\n{launch}')
  text = text.replace('gpt_nano', 'lenet').replace('--num_nodes = 2\n', '')
  (folder / 'sweep.ini').write_text(text, encoding='utf-8')
  with pytest.raises(errors.ConfigError, match='mode, received float32 with'):
    report(folder)


def test_launched_workers_without_servers_are_counted(folder):
  text = TEXT.replace('baseline', 'launch = --num_workers=4\nbaseline')
  text = text.replace('--num_nodes = 2\n', '')
  (folder / 'sweep.ini').write_text(text, encoding='utf-8')
  report(folder, output=str(folder))
  sent = pd.read_csv(folder / 'targets.csv').set_index('variant').iloc[1]
  # Slices of float32: once to add, and once added.
  assert sent['MB sent by a worker'] == pytest.approx(
    15 * 4 * ELEMENTS * 2 * 3 / 4 / 1e6, rel=1e-3
  )


@pytest.mark.parametrize('latency', [-1.0, math.nan])
def test_a_latency_below_0_is_refused(folder, latency):
  with pytest.raises(errors.ConfigError, match='latency: expected a number'):
    report(folder, latency=latency)
