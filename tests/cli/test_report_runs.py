"""Which runs `terngrad report` shows, and with which options."""

import json

import pytest

from slim.datasets.small_images import convert_mnist
from slim.datasets.small_images import mnist_source
from terngrad.checkpoint import checkpoints
from terngrad.cli import command
from terngrad.cli.report import compare
from terngrad.cli.report import hosts
from terngrad.cli.report import page
from terngrad.training import records
from tests.checkpoint import test_pretrained
from tests.slim import mnist_files

CODECS = '--codecs=identity', '--codecs=ternary', '--net=lenet'


@pytest.mark.parametrize(
  ('module', 'words'), [(compare, ()), (hosts, CODECS), (page, ())]
)
def test_two_runs_of_one_name_are_refused(module, words, capsys):
  words = ['--runs=a=/x,b=/y,a=/z', *words]
  if module is hosts:
    words.append('--codecs=ternary')
  assert command.run(module.COMMAND, 'report', words) == command.REFUSED
  assert capsys.readouterr().err == (
    'error: --runs: expected a different name for each FOLDER, received a '
    'twice. Rename one.\n'
  )


@pytest.fixture
def shown(tmp_path, capsys):
  """Writes a page about a run on MNIST; returns (exit code, page, errors)."""
  mnist_files.write_idx(tmp_path / 'idx', 1, 40)
  source = mnist_source.SourceOptions(str(tmp_path / 'idx'), False)
  convert_mnist.convert(str(tmp_path / 'data'), source='idx', request=source)
  run = test_pretrained.Started().run
  train_dir, output = tmp_path / 'train', tmp_path / 'run.html'

  def show(**recorded):
    layout = run.layout._replace(may_change=run.layout.may_change | recorded)
    checkpoints.Writer(str(train_dir), layout, run.replicas, run.names).save(7)
    recorder = records.Recorder(train_dir)
    recorder.scalars(7, {'total_loss': 1.0})
    recorder.close()
    words = [
      f'--train_dir={train_dir}',
      f'--data_dir={tmp_path / "data"}',
      f'--output={output}',
      '--subset=test',
    ]
    code = command.run(page.COMMAND, 'report page', words)
    text = output.read_text() if output.exists() else ''
    return code, text, capsys.readouterr().err

  return show


def test_a_page_shows_the_images_that_the_run_was_trained_on(shown):
  code, text, error = shown()
  assert code == 0, error
  assert 'test of mnist, step 7' in text
  assert f'lenet, {test_pretrained.SIZE} pixels' in text


def test_a_page_reads_labels_with_the_offset_of_the_training(shown):
  """MNIST has labels from 0, so no run has this offset."""
  code, text, error = shown(labels_offset=1)
  assert (code, text) == (command.REFUSED, '')
  assert 'labels_offset: expected no label below 1' in error


def test_values_that_are_not_finite_are_compared_too(tmp_path, capsys):
  for name, number in (('a', 1.0), ('b', None)):
    folder = tmp_path / name
    (folder / 'eval').mkdir(parents=True)
    values = dict.fromkeys(('total_loss', 'entropy_loss_smoothed'), 1.0)
    values |= {'seconds': 2.0, 'bits_per_element': number}
    (folder / 'metrics.jsonl').write_text(
      json.dumps({'step': 10} | values) + '\n'
    )
    (folder / 'eval' / 'metrics.jsonl').write_text(
      json.dumps({'step': 10, 'precision_at_1': number}) + '\n'
    )
  runs = ','.join(f'{n}={tmp_path / n}' for n in 'ab')
  words = [f'--runs={runs}', f'--output={tmp_path}']
  assert command.run(compare.COMMAND, 'report', words) == command.DONE
  assert capsys.readouterr().out.count('not finite') == 2


def test_a_run_without_bits_is_compared_too(tmp_path, capsys):
  for name in ('é$x^$', 'b'):
    (tmp_path / name).mkdir()
    recorder = records.Recorder(tmp_path / name)
    sent = {'bits_per_element': 1.6} if name == 'b' else {}
    losses = dict.fromkeys(('total_loss', 'entropy_loss_smoothed'), 1.0)
    recorder.scalars(10, {**losses, 'seconds': 2.0, **sent})
    recorder.close()
  runs = ','.join(f'{n}={tmp_path / n}' for n in ('é$x^$', 'b'))
  words = [f'--runs={runs}', f'--output={tmp_path}']
  assert command.run(compare.COMMAND, 'report', words) == command.DONE
  assert 'not recorded' in capsys.readouterr().out
  assert (tmp_path / 'comparison.png').stat().st_size
