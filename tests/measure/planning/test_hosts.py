"""Steps on hosts follow from those on one machine and from the bytes sent."""

import re

import pytest

from terngrad import errors
from terngrad.cli import main
from terngrad.measure.planning import hosts
from terngrad.measure.planning import model
from terngrad.training import records

# 100,000 elements.
SHAPES = [(100, 999), (100,)]


def fill(folder, seconds):
  (folder / 'train').mkdir(parents=True)
  recorder = records.Recorder(folder / 'train')
  for step, value in enumerate(seconds):
    recorder.scalars(step, {'sec_per_batch': value})
  recorder.close()
  return str(folder)


def test_the_seconds_are_the_median_without_the_first_record(tmp_path):
  assert hosts.step_seconds(fill(tmp_path / 'a', [9, 0.1, 0.3, 0.2])) == 0.2
  assert hosts.step_seconds(fill(tmp_path / 'b', [0.5])) == 0.5
  with pytest.raises(errors.ConfigError, match='with seconds of steps'):
    hosts.step_seconds(fill(tmp_path / 'c', []))


def test_hosts_compute_a_share_and_wait_for_the_network():
  found = hosts.table(
    {'float32': 0.4, 'ternary': 0.46}, ['identity', 'ternary'], SHAPES, 4
  ).set_index('gradients')
  assert list(found['s/step here']) == [0.4, 0.46]
  slow, fast = (found[f'4 hosts, {name}'] for name in hosts.NETWORKS)
  # A ring sends 2 * 3 / 4 of 400,000 bytes; hops and probes take little.
  assert slow['float32'] == pytest.approx(0.1 + 8 * 600_000 / 1e8, rel=0.01)
  assert fast['float32'] == pytest.approx(0.1 + 8 * 600_000 / 1e9, rel=0.01)
  # What the step takes longer is coding.
  free = model.plan(
    'ternary',
    SHAPES,
    0.1,
    model.Network(1e8, 5e-5, 4),
    model.Coding(0, 0, 0),
  )
  assert slow['ternary'] == pytest.approx(free.step + 0.06)


def test_a_faster_run_has_no_coding_time():
  seconds = {'float32': 0.4, 'ternary': 0.3}
  found = hosts.table(seconds, ['identity', 'ternary'], SHAPES, 4)
  assert found['4 hosts, 1 Gbit/s'].min() > 0.1


def test_the_command_prints_both_runs(tmp_path, capsys):
  a = fill(tmp_path / 'a', [1, 0.2])
  b = fill(tmp_path / 'b', [1, 0.3])
  words = ['report', 'hosts', '--net=lenet', f'--runs=float32={a},ternary={b}']
  assert main.run([*words, '--codecs=identity', '--codecs=ternary']) == 0
  out = capsys.readouterr().out
  assert '4 hosts, 100 Mbit/s' in out
  plain, coded = re.findall(r'^ *(?:float32|ternary) +(.*)$', out, re.MULTILINE)
  (plain_here, plain_slow, _), (here, slow, _) = (
    map(float, row.split()) for row in (plain, coded)
  )
  assert (plain_here, here) == (0.2, 0.3)
  assert plain_slow > 3 * slow > 3 * 0.1


@pytest.mark.parametrize('codecs', [['ternary', 'identity'], ['identity']])
def test_a_codec_is_needed_for_each_run(codecs, tmp_path, capsys):
  words = [f'--codecs={text}' for text in codecs]
  code = main.run(['report', 'hosts', '--net=lenet', '--runs=a=A,b=B', *words])
  assert code == 2
  assert '--codecs: expected one for each of --runs' in capsys.readouterr().err
