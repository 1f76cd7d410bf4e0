"""`resnet18_trainer`: what a user sees, with a smaller net in its place."""

import re

import pytest

from tests.bin import programs

# 90 examples, 16 a step: epochs end in the steps 6 and 12.
OPTIONS = (
  *('--dataset_name=mnist', '--net=lenet', '--num_gpus=2', '--batch_size=16'),
  *('--num_epochs=2', '--codec=ternary'),
)


@pytest.fixture(scope='module')
def trained(worker, data_dir, tmp_path_factory):
  """(folder, what was printed) of two epochs on two devices."""
  folder = tmp_path_factory.mktemp('resnet18') / 'two_devices'
  words = [f'--data_dir={data_dir}', f'--train_dir={folder}', *OPTIONS]
  finished = worker.run('resnet18_trainer', [*words, '--print_net'])
  assert finished.code == 0, finished.err
  return folder, finished.out


def test_devices_and_layers_are_logged_before_the_epochs(trained):
  _, printed = trained
  before, _, after = printed.partition('epoch 1 ended')
  assert 'Training on: 2 devices' in before
  assert re.search(r'^conv1 +Conv2D +\S+ +[\d,]+ +[\d,]+$', before, re.M)
  assert re.search(r'\d+ layers, [\d,]+ parameters, [\d,]+ mult', before)
  assert 'layers, ' not in after


def test_every_epoch_logs_loss_and_accuracy_of_training_and_test(trained):
  _, printed = trained
  lines = re.findall(
    r'epoch (\d) ended in step (\d+), loss = \d+\.\d+, accuracy = 0\.\d+, '
    r'test_precision_at_1 = 0\.\d+, .*test_loss = \d+\.\d+',
    printed,
  )
  assert lines == [('1', '6'), ('2', '12')]


def test_the_last_line_has_accuracy_and_seconds_per_epoch(trained):
  folder, printed = trained
  last = [r for r in programs.metrics(folder) if 'epoch' in r][-1]
  (found,) = re.findall(
    r': test acc (0\.\d{4}), train acc (0\.\d{4}), \d+\.\d s/epoch', printed
  )
  assert found[0] == f'{last["test_precision_at_1"]:.4f}'


def test_accuracy_is_drawn_beside_other_runs(
  worker, data_dir, tmp_path, trained
):
  folder, _ = trained
  assert 'two_devices' in (folder / 'accuracy.svg').read_text()
  words = [f'--data_dir={data_dir}', f'--train_dir={tmp_path / "one"}']
  words += [*OPTIONS, '--num_gpus=1', f'--compare={folder},{tmp_path / "no"}']
  finished = worker.run('resnet18_trainer', words)
  assert finished.code == 0, finished.err
  assert f'{tmp_path / "no"}: has no epochs to draw' in finished.out
  drawn = (tmp_path / 'one' / 'accuracy.svg').read_text()
  assert all(name in drawn for name in ('<!-- one -->', '<!-- two_devices -->'))
