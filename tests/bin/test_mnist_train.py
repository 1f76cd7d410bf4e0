"""mnist_train as a person meets it: exit codes, lines, files, signals."""

import json
import math
import re
import shutil
import signal
from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import pytest
import tensorflow as tf

from terngrad.config import options
from terngrad.config import training as configs
from tests.bin import programs

STEPS, SAVE_ITER = 45, 8  # of programs.whole_run_arguments
LAST = f'model.ckpt-{STEPS}'
VARIABLES = [
  f'{layer}/{part}'
  for layer in ('conv1', 'conv2', 'fc3', 'logits')
  for part in ('kernel', 'bias')
]
LINE = re.compile(
  r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: step (?P<step>\d+), '
  r'entropy_loss = (?P<entropy_loss>\d+\.\d\d), '
  r'reg_loss = (?P<reg_loss>\d+\.\d\d), '
  r'total_loss = (?P<total_loss>\d+\.\d\d) '
  r'\((?P<examples_per_sec>\d+\.\d) examples/sec; '
  r'(?P<sec_per_batch>\d+\.\d{3}) sec/batch; '
  r'(?P<bits_per_element>\d+\.\d\d) bits/element\)'
)
DECIMALS = {'examples_per_sec': 1, 'sec_per_batch': 3}


def train(worker, arguments):
  return worker.run('mnist_train', arguments)


def losses(train_dir):
  """The records of the loss, by step; no step may stand twice."""
  records = [r for r in programs.metrics(train_dir) if 'total_loss' in r]
  by_step = {record['step']: record for record in records}
  assert list(by_step) == [record['step'] for record in records]
  assert list(by_step) == sorted(by_step)
  return by_step


def assert_same_run(train_dir, whole_run):
  """The same bits and the same records as the run that nothing disturbed."""
  received = programs.tensors(train_dir / LAST)
  expected = programs.tensors(whole_run.train_dir / LAST)
  assert received.keys() == expected.keys()
  assert [n for n in expected if received[n] != expected[n]] == []
  there = losses(whole_run.train_dir)
  # A run that was stopped has a record of its last step too.
  here = {k: v for k, v in losses(train_dir).items() if k in there}
  assert list(here) == list(there)
  for field in ('entropy_loss', 'epoch_loss', 'reg_loss', 'learning_rate'):
    assert [r[field] for r in here.values()] == [
      r[field] for r in there.values()
    ]


class TestWholeRun:
  """What one run leaves behind."""

  def test_ends_well(self, whole_run):
    assert whole_run.finished.code == 0
    # TensorFlow and Keras may talk there; this package has nothing to say.
    assert not re.search('^error:', whole_run.finished.err, re.M)
    assert 'Traceback' not in whole_run.finished.err

  def test_keeps_five_checkpoints_named_by_step(self, whole_run):
    kept = [16, 24, 32, 40, STEPS]
    assert programs.checkpoint_steps(whole_run.train_dir) == kept
    state = tf.train.get_checkpoint_state(str(whole_run.train_dir))
    assert [
      path.rpartition('/')[2] for path in state.all_model_checkpoint_paths
    ] == [f'model.ckpt-{step}' for step in kept]

  def test_leaves_only_files_of_the_run(self, whole_run):
    own = re.compile(
      r'checkpoint|metrics\.jsonl|events\.out\.tfevents\..*'
      r'|model\.ckpt-\d+\.(index|data-00000-of-00001)'
    )
    names = [path.name for path in whole_run.train_dir.iterdir()]
    assert [name for name in names if not own.fullmatch(name)] == []

  def test_prints_a_line_every_ten_steps_and_at_checkpoints(self, whole_run):
    lines = whole_run.finished.out.splitlines()
    matches = [LINE.fullmatch(line) for line in lines if ': step ' in line]
    assert all(matches)
    tens = set(range(10, STEPS + 1, 10))
    saved = set(range(SAVE_ITER, STEPS + 1, SAVE_ITER))
    expected = sorted(tens | saved | {STEPS})
    assert [int(match['step']) for match in matches] == expected

  def test_line_shows_what_metrics_hold(self, whole_run):
    records = losses(whole_run.train_dir)
    matches = list(map(LINE.fullmatch, whole_run.finished.out.splitlines()))
    shown = [match.groupdict() for match in matches if match]
    assert len(shown) == len(records)
    for fields, record in zip(shown, records.values(), strict=True):
      assert int(fields.pop('step')) == record['step']
      for name, text in fields.items():
        assert text == f'{record[name]:.{DECIMALS.get(name, 2)}f}', name

  def test_total_loss_is_the_sum(self, whole_run):
    for record in losses(whole_run.train_dir).values():
      parts = record['entropy_loss'] + record['reg_loss']
      assert record['total_loss'] == pytest.approx(parts, rel=1e-6)
      assert record['reg_loss'] > 0

  def test_rates_agree_with_each_other(self, whole_run):
    for record in losses(whole_run.train_dir).values():
      batch = record['examples_per_sec'] * record['sec_per_batch']
      assert batch == pytest.approx(8)

  def test_bits_are_those_of_base3_and_one_scaler_a_variable(self, whole_run):
    """20 codes a word of 32 bits, and a float32 for each of 8 variables."""
    count = sum(
      programs.variable(whole_run.train_dir / LAST, 0, name).size
      for name in VARIABLES
    )
    for record in losses(whole_run.train_dir).values():
      sent = record['bits_per_element'] * count
      # Every variable ends in a word that may be partly empty.
      assert 1.6 * count + 8 * 32 <= sent + 1e-6
      assert sent <= 1.6 * count + 8 * (32 + 32) + 32

  def test_learning_rate_falls_as_the_square_root(self, whole_run):
    for step, record in losses(whole_run.train_dir).items():
      # `step` steps are taken: the last one was number step - 1 from 0.
      expected = 0.01 * math.sqrt(1 - (step - 1) / STEPS)
      assert record['learning_rate'] == pytest.approx(expected, rel=1e-6)

  def test_smoothed_loss_varies_less_than_the_raw_one(self, whole_run):
    raw = [r['entropy_loss'] for r in losses(whole_run.train_dir).values()]
    smoothed = [
      r['entropy_loss_smoothed'] for r in losses(whole_run.train_dir).values()
    ]
    assert np.ptp(smoothed) < np.ptp(raw)

  def test_tensorboard_has_the_scalars_of_metrics(self, whole_run):
    tags = {
      'entropy_loss': 'entropy_loss_raw',
      'total_loss': 'total_loss_raw',
      'entropy_loss_smoothed': 'entropy_loss',
      'total_loss_smoothed': 'total_loss',
    }
    expected = {}
    for record in programs.metrics(whole_run.train_dir):
      step = record.pop('step')
      for name, value in record.items():
        key = step, tags.get(name, name)
        assert key not in expected
        expected[key] = pytest.approx(value, rel=1e-6)
    events = programs.events(whole_run.train_dir)
    scalars = [event for event in events if event.kind == 'scalars']
    assert {(e.step, e.tag): float(e.value) for e in scalars} == expected
    assert len(scalars) == len(expected)
    found = {event.tag for event in scalars}
    assert {'learning_rate', 'reg_loss', *tags.values()} <= found

  def test_tensorboard_has_histograms_at_every_checkpoint(self, whole_run):
    events = programs.events(whole_run.train_dir)
    found = {(e.step, e.tag) for e in events if e.kind == 'histograms'}
    saved = range(SAVE_ITER, STEPS + 1, SAVE_ITER)
    assert found == {
      (step, f'tower_{device}/{name}{what}')
      for step in saved
      for device in (0, 1)
      for name in VARIABLES
      for what in ('', '/binary/gradients')
    }

  def test_histogram_of_a_variable_spans_its_checkpoint(self, whole_run):
    step = 40
    for event in programs.events(whole_run.train_dir):
      if event.step == step and event.tag.endswith('/kernel'):
        device, _, name = event.tag.partition('/')
        stored = programs.variable(
          whole_run.train_dir / f'model.ckpt-{step}', int(device[-1]), name
        )
        left, right, counts = event.value.T
        assert (left.min(), right.max()) == (stored.min(), stored.max())
        assert counts.sum() == stored.size

  def test_binary_gradients_take_three_values_and_sparsity_counts_zeros(
    self, whole_run
  ):
    sparsity = {}
    for record in programs.metrics(whole_run.train_dir):
      step = record['step']
      for tag, value in record.items():
        if tag.endswith('/sparsity'):
          sparsity[step, tag.removesuffix('/sparsity')] = value
    checked = 0
    for event in programs.events(whole_run.train_dir):
      if event.tag.endswith('/binary/gradients'):
        buckets = event.value[event.value[:, 2] > 0]
        assert len(buckets) <= 3, event.tag
        left, right, counts = buckets.T
        zeros = counts[(left <= 0) & (right >= 0)].sum() / counts.sum()
        key = event.step, event.tag.removesuffix('/gradients')
        assert sparsity[key] == pytest.approx(zeros, abs=1e-6), key
        checked += 1
    assert checked == len(sparsity) == 5 * 2 * len(VARIABLES)

  def test_two_devices_send_different_codes(self, whole_run):
    """Each has its own examples and its own random numbers."""
    records = programs.metrics(whole_run.train_dir)
    tag = 'fc3/kernel/binary/sparsity'
    sent = [r for r in records if f'tower_0/{tag}' in r]
    assert sent
    for record in sent:
      assert record[f'tower_0/{tag}'] != record[f'tower_1/{tag}']

  def test_stores_every_device_and_they_are_equal(self, whole_run):
    stored = programs.tensors(whole_run.train_dir / LAST)
    towers = [
      {
        name.partition('/')[2]: value
        for name, value in stored.items()
        if name.startswith(f'tower_{device}/')
      }
      for device in (0, 1)
    ]
    assert towers[0] and towers[0] == towers[1]
    assert not any(name.startswith('tower_2/') for name in stored)

  def test_same_command_has_nothing_left_to_do(
    self, whole_run, worker, data_dir
  ):
    before = programs.tensors(whole_run.train_dir / LAST)
    steps = list(losses(whole_run.train_dir))
    finished = train(
      worker, programs.whole_run_arguments(data_dir, whole_run.train_dir)
    )
    assert finished.code == 0
    assert f'continuing after step {STEPS}' in finished.out
    assert ': step ' not in finished.out
    assert programs.tensors(whole_run.train_dir / LAST) == before
    assert list(losses(whole_run.train_dir)) == steps


class TestStopped:
  """SIGTERM, SIGINT and kill -9 at several moments."""

  def stop(self, number, line, arguments):
    """A run that gets a signal once it has printed a line."""
    with programs.Program('mnist_train', arguments) as program:
      program.read_until(line)
      program.send(number)
      return program.wait()

  def check_continues(self, finished, stopped_after, train_dir, whole_run):
    assert finished.code == 0, finished.err
    restored = re.search(r'continuing after step (\d+)$', finished.out, re.M)
    assert int(restored[1]) == stopped_after
    assert 'not end with the same bits' not in finished.out
    assert programs.checkpoint_steps(train_dir)[-1] == STEPS
    assert len(programs.checkpoint_steps(train_dir)) == 5
    assert_same_run(train_dir, whole_run)

  def test_sigterm_saves_and_the_same_command_ends_at_the_same_bits(
    self, whole_run, worker, data_dir, tmp_path
  ):
    train_dir = tmp_path / 'train'
    arguments = programs.whole_run_arguments(data_dir, train_dir)
    stopped = self.stop(signal.SIGTERM, ': step 10,', arguments)
    assert stopped.code == 128 + signal.SIGTERM, stopped
    step = programs.checkpoint_steps(train_dir)[-1]
    assert 10 <= step < STEPS
    assert f'stopped by signal 15 after step {step}; ' in stopped.out
    assert re.search('the same command.* continues', stopped.out)
    before = losses(train_dir)
    finished = train(worker, arguments)
    self.check_continues(finished, step, train_dir, whole_run)
    after = losses(train_dir)
    assert {s: after[s] for s in before} == before, 'old records are kept'
    # Time is counted over both runs.
    seconds = [record['seconds'] for record in after.values()]
    assert seconds == sorted(seconds)

  @pytest.mark.slow
  @pytest.mark.parametrize(
    ('line', 'earliest'),
    [
      # Nothing is saved yet.
      ('gradients: ', 0),
      # These lines come just before histograms and a checkpoint are written.
      (': step 8,', 0),
      (': step 24,', 16),
      # The last checkpoint of the run.
      (f': step {STEPS},', 40),
    ],
  )
  def test_kill_9_and_the_same_command_ends_at_the_same_bits(
    self, line, earliest, whole_run, data_dir, tmp_path
  ):
    train_dir = tmp_path / 'train'
    arguments = programs.whole_run_arguments(data_dir, train_dir)
    killed = self.stop(signal.SIGKILL, line, arguments)
    assert killed.code == -signal.SIGKILL
    with programs.Program('mnist_train', arguments) as program:
      finished = program.wait()
    assert finished.code == 0, finished.err
    restored = re.search(r'continuing after step (\d+)$', finished.out, re.M)
    assert earliest <= (int(restored[1]) if restored else 0)
    assert_same_run(train_dir, whole_run)

  @pytest.mark.slow
  def test_killed_before_its_first_checkpoint_was_listed_it_continues(
    self, one_tower, worker, data_dir, tmp_path
  ):
    """A checkpoint is complete a moment before `checkpoint` names it."""
    folder = tmp_path / 'train'
    shutil.copytree(one_tower, folder)
    (folder / 'checkpoint').unlink()
    finished = train(
      worker, programs.one_tower_arguments(data_dir, folder, max_steps=4)
    )
    assert finished.code == 0, finished.err
    assert 'continuing after step 2' in finished.out
    assert programs.checkpoint_steps(folder) == [2, 4]

  @pytest.mark.slow
  def test_sigint_saves_too_and_a_fresh_process_continues(
    self, whole_run, data_dir, tmp_path
  ):
    train_dir = tmp_path / 'train'
    arguments = programs.whole_run_arguments(data_dir, train_dir)
    stopped = self.stop(signal.SIGINT, ': step 20,', arguments)
    assert stopped.code == 128 + signal.SIGINT, stopped
    step = programs.checkpoint_steps(train_dir)[-1]
    with programs.Program('mnist_train', arguments) as program:
      finished = program.wait()
    self.check_continues(finished, step, train_dir, whole_run)

  @pytest.mark.slow
  def test_stopped_three_times_ends_at_the_same_bits(
    self, whole_run, worker, data_dir, tmp_path
  ):
    train_dir = tmp_path / 'train'
    arguments = programs.whole_run_arguments(data_dir, train_dir)
    for number, line in (
      (signal.SIGTERM, ': step 10,'),
      (signal.SIGKILL, ': step 30,'),
      (signal.SIGTERM, ': step 32,'),
    ):
      self.stop(number, line, arguments)
    assert train(worker, arguments).code == 0
    assert_same_run(train_dir, whole_run)


class Paths(NamedTuple):
  """Where a bad command line is tried."""

  folder: object  # empty, of this case
  data_dir: object
  train_dir: object  # does not exist unless the case makes it

  def arguments(self, **changes):
    folders = {'data_dir': self.data_dir, 'train_dir': self.train_dir}
    return programs.short_run_arguments(**(folders | changes))


class Bad(NamedTuple):
  """A bad command line: how to make it, and what its message must say."""

  arguments: Callable  # from Paths
  expected: str  # regular expressions
  received: str
  remedy: str


def _flags(**changes):
  return lambda paths: paths.arguments(**changes)


def _damaged_data(damage):
  """Trains on a copy of the data whose bytes `damage` has changed."""

  def arguments(paths):
    data_dir = paths.folder / 'damaged'
    shutil.copytree(paths.data_dir, data_dir)
    # As in folders of 2017, whose records are counted.
    (data_dir / 'shards.json').unlink()
    file = data_dir / 'train-mnist.tfrecord'
    file.write_bytes(damage(file.read_bytes()))
    return paths._replace(data_dir=data_dir).arguments()

  return arguments


def _record_starts(content):
  starts, position = [], 0
  while position < len(content):
    starts.append(position)
    position += 16 + int.from_bytes(content[position : position + 8], 'little')
  return starts


def _cut_in_record_7(content):
  return content[: _record_starts(content)[7] + 30]


def _length_of_record_5_changed(content):
  position = _record_starts(content)[5]
  changed = bytes([content[position] ^ 1])
  return content[:position] + changed + content[position + 1 :]


def _without_data(paths):
  empty = paths.folder / 'empty'
  empty.mkdir()
  return paths._replace(data_dir=empty).arguments()


def _below_a_file(paths):
  (paths.folder / 'file').write_text('in the way')
  return paths.arguments(train_dir=paths.folder / 'file' / 'train')


def _over_a_file(paths):
  (paths.folder / 'file').write_text('in the way')
  return paths.arguments(train_dir=paths.folder / 'file')


def _over_a_link_to_nothing(paths):
  (paths.folder / 'link').symlink_to('gone')
  return paths.arguments(train_dir=paths.folder / 'link')


def write_layout(folder, step=2, **changes):
  """A checkpoint that has nothing but a step and a layout."""
  layout = {
    'net': 'lenet',
    'num_classes': 10,
    'optimizer': 'momentum',
    'num_devices': 2,
    'num_workers': 2,
    'places': [0, 1],
    'max_steps': 4,
  }
  manager = tf.train.CheckpointManager(
    tf.train.Checkpoint(
      step=tf.Variable(step, dtype=tf.int64),
      layout=tf.Variable(json.dumps(layout | changes)),
    ),
    str(folder),
    max_to_keep=5,
    checkpoint_name='model.ckpt',
  )
  manager.save(checkpoint_number=step)


def _after_layout(**changes):
  def arguments(paths):
    write_layout(paths.train_dir, **changes)
    return paths.arguments()

  return arguments


def _after_no_layout(paths):
  tf.train.CheckpointManager(
    tf.train.Checkpoint(step=tf.Variable(3, dtype=tf.int64)),
    str(paths.train_dir),
    max_to_keep=5,
    checkpoint_name='model.ckpt',
  ).save(checkpoint_number=3)
  return paths.arguments()


def _pretrained(layout):
  def arguments(paths):
    write_layout(paths.folder / 'other', **layout)
    return paths.arguments(
      pretrained_model_checkpoint_path=paths.folder / 'other'
    )

  return arguments


BAD = {
  'unknown net': Bad(
    _flags(net='lenett'), 'one of .*lenet', "'lenett'", "Did you mean 'lenet'"
  ),
  'unknown optimizer': Bad(
    _flags(optimizer='sdg'),
    'adadelta, adagrad, adam, ftrl, gd, momentum, muon, nesterov, rmsprop',
    "'sdg'",
    'Use|Did',
  ),
  'unknown decay': Bad(
    _flags(learning_rate_decay_type='polinomial'),
    'exponential, fixed, linear, polynomial',
    "'polinomial'",
    "Did you mean 'polynomial'",
  ),
  'unknown data set': Bad(
    _flags(dataset_name='mnits'), 'mnist', "'mnits'", "did you mean 'mnist'"
  ),
  'unknown subset': Bad(
    _flags(subset='trian'), 'train, test|test, train', "'trian'", "'train'"
  ),
  'unknown codec': Bad(
    _flags(codec='ternry'), 'ternary', 'ternry', 'Did you mean|[Uu]se'
  ),
  'unknown scaler rule': Bad(
    _flags(grad_bits=1, scaler_rule='max'),
    'expected one of max_clipped',
    "received 'max'",
    'stddev',
  ),
  'unknown packing': Bad(
    _flags(grad_bits=1, packing='base4'),
    'expected one of base3',
    "received 'base4'",
    'two_bit',
  ),
  'batch not divisible': Bad(
    _flags(batch_size=10, num_nodes=4),
    'a multiple of the 4 nodes',
    'received 10',
    '--batch_size=12',
  ),
  'batch smaller than the nodes': Bad(
    _flags(batch_size=3, num_nodes=4),
    'a multiple of the 4 nodes',
    'received 3',
    '--batch_size=4',
  ),
  'no GPU': Bad(
    _flags(num_gpus=0), 'a number >= 1', 'received 0', '--num_gpus=1'
  ),
  'negative clip factor': Bad(
    _flags(grad_bits=1, clip_factor=-2.5),
    'a number >= 0',
    'received -2.5',
    '--clip_factor=0',
  ),
  'clip factor that is no number': Bad(
    _flags(grad_bits=1, clip_factor='nan'),
    'a number >= 0',
    'received nan',
    '--clip_factor=0',
  ),
  '3 bits': Bad(
    _flags(grad_bits=3), '1 .*or 32', 'received 3', 'Use one of them'
  ),
  'codec and other bits': Bad(
    _flags(codec='fp16', grad_bits=1), 'left out', 'received 1', 'one of the'
  ),
  'tower that does not exist': Bad(
    _flags(save_tower=2), 'a node from 0 to 1', 'received 2', '--num_nodes'
  ),
  'no steps': Bad(
    _flags(max_steps=0), 'a number >= 1', 'received 0', '--max_steps=1'
  ),
  'wrong type': Bad(
    _flags(max_steps='many'), 'the type of', '--max_steps=many', '--help'
  ),
  'unknown flag': Bad(
    _flags(num_gpu=2), 'a flag of this', '--num_gpu:', 'mean --num_gpus'
  ),
  'stray word': Bad(
    lambda paths: [*paths.arguments(), 'True'], 'flags only', "'True'", '--'
  ),
  'no data': Bad(
    _without_data,
    'files train-\\*',
    '/empty: .*received none',
    'terngrad convert dataset .*--dataset_name=mnist',
  ),
  'no folder of data': Bad(
    _flags(data_dir='/nonexistent'),
    'files train-\\*',
    '/nonexistent',
    'terngrad convert dataset',
  ),
  'data cut short': Bad(
    _damaged_data(_cut_in_record_7),
    r'/train-mnist\.tfrecord: record 7 .*expected \d+ bytes',
    'received 30: the file was cut short',
    'Convert the data set again',
  ),
  'data with a damaged length': Bad(
    _damaged_data(_length_of_record_5_changed),
    r'/train-mnist\.tfrecord: record 5 .*matches its CRC',
    'does not',
    'Convert the data set again',
  ),
  'data file that is empty': Bad(
    _damaged_data(lambda content: b''),
    'at least one record',
    'an empty file',
    'Convert',
  ),
  'folder below a file': Bad(
    _below_a_file,
    'train_dir: expected a folder that can be written',
    'received .*/file/train .*(Not a directory|File exists)',
    'Choose another --train_dir',
  ),
  'folder that is a file': Bad(
    _over_a_file,
    'train_dir: expected a folder that can be written',
    'received .*/file ',
    'Choose another --train_dir',
  ),
  'folder that is a link to nothing': Bad(
    _over_a_link_to_nothing,
    'train_dir: expected a folder that can be written',
    'received .*/link .*is a link to gone, which does not exist',
    'Choose another --train_dir',
  ),
  'checkpoint of another net': Bad(
    _after_layout(net='vgg_a'),
    r'train/model\.ckpt-2: expected a checkpoint with net lenet',
    'received one with vgg_a',
    'the flags it was trained with, or another',
  ),
  'checkpoint of other classes': Bad(
    _after_layout(num_classes=1000),
    'num_classes 10',
    'received one with 1000',
    'another folder',
  ),
  'checkpoint of another optimizer': Bad(
    _after_layout(optimizer='adam'),
    'optimizer momentum',
    'received one with adam',
    'another folder',
  ),
  'checkpoint without the variables': Bad(
    _after_layout(),
    r'expected conv1/kernel of dtype float32 and shape \[5, 5, 1, 20\]',
    'received none',
    'or another folder',
  ),
  'checkpoint of another program': Bad(
    _after_no_layout,
    'a checkpoint of this package',
    'without a layout',
    'train again',
  ),
  'pretrained checkpoint that is not there': Bad(
    _flags(pretrained_model_checkpoint_path='/nonexistent/model.ckpt-7'),
    'a checkpoint prefix',
    '/nonexistent/model.ckpt-7',
    'Check the path',
  ),
  'pretrained checkpoint of another net': Bad(
    _pretrained({'net': 'vgg_a'}),
    'expected conv1/kernel|net lenet',
    'received',
    'the flags it was trained with, or another',
  ),
}


@pytest.mark.parametrize('case', BAD)
def test_bad_input_is_explained_and_nothing_is_written(
  case, worker, data_dir, tmp_path
):
  bad = BAD[case]
  paths = Paths(tmp_path, data_dir, tmp_path / 'train')
  arguments = bad.arguments(paths)
  before = programs.contents(tmp_path)
  folders = sorted(path for path in tmp_path.rglob('*') if path.is_dir())
  finished = train(worker, arguments)
  assert (finished.code, finished.out) == (2, ''), finished
  assert 'Traceback' not in finished.err
  message = finished.error
  for part in (bad.expected, bad.received, bad.remedy):
    assert re.search(part, message), (part, message)
  assert programs.contents(tmp_path) == before
  assert sorted(p for p in tmp_path.rglob('*') if p.is_dir()) == folders


def test_command_line_is_refused_in_a_separate_process(tmp_path):
  with programs.Program('mnist_train', ['--train_dri', tmp_path]) as program:
    finished = program.wait()
  assert finished.code == 2
  assert 'Did you mean --train_dir?' in finished.err
  assert finished.out == ''


def test_help_lists_flags_and_exits_0(worker, tmp_path):
  finished = train(worker, ['--net=nonsense', '--help'])
  assert (finished.code, finished.err) == (0, '')
  for field in options.fields(configs.TrainConfig):
    assert f'\n  --{field.name} (' in finished.out
  assert "--net (str, 'lenet'; general default 'alexnet')" in finished.out


@pytest.mark.slow
class TestNotANumber:
  """A learning rate under which the second step is no longer finite."""

  @pytest.fixture
  def spoil(self, one_tower, worker, data_dir, tmp_path):
    """(train_dir, arguments, checkpoints by file, what the program said)."""
    folder = tmp_path / 'train'
    shutil.copytree(one_tower, folder)
    arguments = programs.one_tower_arguments(
      data_dir,
      folder,
      max_steps=20,
      save_iter=10,
      initial_learning_rate=1e30,
    )
    saved = {
      name: content
      for name, content in programs.contents(folder).items()
      if name.startswith('model.ckpt')
    }
    return folder, arguments, saved, train(worker, arguments)

  def test_stops_the_run_and_the_last_good_checkpoint_stays(self, spoil):
    folder, _, saved, finished = spoil
    assert finished.code == 1
    match = re.search(
      r'^error: Step (\d+): expected finite numbers, received NaN or infinity '
      r'in the (.*)\. Lower --initial_learning_rate',
      finished.error,
    )
    assert 3 < int(match[1]) <= 10
    assert re.search('worker [0-3]', match[2])
    assert 'Traceback' not in finished.err
    after = programs.contents(folder)
    assert {n: c for n, c in after.items() if n.startswith('model')} == saved

  @pytest.mark.slow
  def test_the_same_command_continues_and_stops_at_the_same_step(
    self, spoil, worker
  ):
    _, arguments, _, finished = spoil
    again = train(worker, arguments)
    assert 'continuing after step 2' in again.out
    assert (again.code, again.error) == (1, finished.error)

  @pytest.mark.slow
  def test_a_lower_rate_continues_to_the_end(self, spoil, worker, data_dir):
    folder = spoil[0]
    better = programs.one_tower_arguments(data_dir, folder, max_steps=6)
    finished = train(worker, better)
    assert finished.code == 0, finished.err
    assert 'continuing after step 2' in finished.out
    assert programs.checkpoint_steps(folder) == [2, 4, 6]

  @pytest.mark.slow
  def test_names_the_variable_where_only_a_gradient_is_bad(
    self, worker, data_dir, tmp_path
  ):
    """Weights of 1e30 overflow in the L2 terms or in the backward pass."""
    finished = train(
      worker,
      programs.short_run_arguments(
        data_dir,
        tmp_path / 'train',
        max_steps=20,
        initial_learning_rate=1e30,
        grad_bits=1,
        quantize_logits=True,
      ),
    )
    assert finished.code == 1
    assert re.search(
      'gradient of (conv|fc|logits).* on worker [01]', finished.err
    )

  def test_infinite_parameters_are_not_saved(self, worker, data_dir, tmp_path):
    """The update itself overflows: loss and gradients were still finite."""
    folder = tmp_path / 'train'
    arguments = programs.short_run_arguments(
      data_dir,
      folder,
      num_gpus=1,
      max_steps=6,
      save_iter=1,
      initial_learning_rate=3e38,
      weight_decay=1000.0,
    )
    finished = train(worker, arguments)
    assert finished.code == 1
    for step in programs.checkpoint_steps(folder):
      for name in VARIABLES:
        stored = programs.variable(folder / f'model.ckpt-{step}', 0, name)
        assert np.isfinite(stored).all(), (step, name)


def test_overwrite_deletes_only_files_of_a_run(
  whole_run, worker, data_dir, tmp_path
):
  folder = tmp_path / 'train'
  shutil.copytree(whole_run.train_dir, folder)
  arguments = programs.short_run_arguments(data_dir, folder, num_gpus=1)
  mine = {
    'notes.txt': 'mine',
    'model.ckpt': 'mine',
    'metrics.jsonl.old': 'mine',
    'my.events.out.tfevents.1': 'mine',
    'checkpoints': 'mine',
    'plots/model.ckpt-2.index': 'mine',
  }
  for name, text in mine.items():
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text(text)
  old = programs.contents(folder)

  finished = train(worker, [*arguments, '--max_steps=3', '--overwrite', 'True'])
  assert finished.code == 0, finished.err
  assert 'continuing' not in finished.out
  after = programs.contents(folder)
  assert programs.checkpoint_steps(folder) == [2, 3]
  assert list(losses(folder)) == [2, 3]
  for name, content in old.items():
    if content == b'mine':
      assert after[name] == content, name
    elif 'events' in name:
      assert name not in after
    elif name in after:
      assert after[name] != content, name


@pytest.mark.slow
def test_events_of_a_run_and_its_continuation_have_one_graph(
  worker, data_dir, tmp_path
):
  """That of the net, which a run of an earlier version gets when it goes on."""
  for steps in (2, 3):
    words = programs.short_run_arguments(
      data_dir, tmp_path, num_gpus=1, max_steps=steps
    )
    done = train(worker, words)
    assert done.code == 0, done.err
  first, second = sorted(tmp_path.glob('events*'))
  (graph,) = graphs_in(first)
  assert any('logits' in node.name for node in graph.node)
  assert graphs_in(second) == []
  first.unlink()
  words = programs.short_run_arguments(
    data_dir, tmp_path, num_gpus=1, max_steps=4
  )
  assert train(worker, words).code == 0
  assert graphs_in(max(tmp_path.glob('events*'))) == [graph]


def graphs_in(path):
  """The graphs of an event file."""
  return [
    tf.compat.v1.GraphDef.FromString(event.graph_def)
    for event in tf.compat.v1.train.summary_iterator(str(path))
    if event.graph_def
  ]


def test_overwrite_that_cannot_begin_deletes_nothing(worker, tmp_path):
  folder = tmp_path / 'train'
  write_layout(folder)
  before = programs.contents(folder)
  finished = train(
    worker, programs.short_run_arguments(tmp_path, folder, overwrite=True)
  )
  assert finished.code == 2
  assert programs.contents(folder) == before


@pytest.mark.slow
def test_save_tower_stores_only_the_device_of_that_node(
  worker, data_dir, tmp_path
):
  """Node 3 of 4 lives on device 1 of 2; it is enough to continue from."""
  folder = tmp_path / 'train'
  arguments = programs.short_run_arguments(
    data_dir, folder, num_nodes=4, save_tower=3, save_iter=1, grad_bits=1
  )
  assert train(worker, arguments).code == 0
  stored = programs.tensors(folder / 'model.ckpt-4')
  assert {n.split('/')[0] for n in stored} == {'tower_1', 'step', 'layout'}

  finished = train(worker, [*arguments, '--max_steps=6'])
  assert finished.code == 0
  assert 'continuing after step 4' in finished.out
  # Its rates do not depend on the last step.
  assert 'max_steps was' not in finished.out
  records = losses(folder)
  assert list(records) == [1, 2, 3, 4, 5, 6]
  # Time and smoothed losses go on where the first run ended.
  smoothed, seconds = records[1]['entropy_loss'], 0
  for record in records.values():
    smoothed += 0.1 * (record['entropy_loss'] - smoothed)
    assert record['entropy_loss_smoothed'] == pytest.approx(smoothed, rel=1e-6)
    assert record['seconds'] > seconds
    seconds = record['seconds']


def test_payload_that_is_found_damaged_while_training_is_named(
  worker, data_dir, tmp_path
):
  """Only its CRC tells, which is not read before the start."""

  def damage(content):
    position = _record_starts(content)[3] + 20
    changed = bytes([content[position] ^ 1])
    return content[:position] + changed + content[position + 1 :]

  paths = Paths(tmp_path, data_dir, tmp_path / 'train')
  finished = train(worker, _damaged_data(damage)(paths))
  assert finished.code == 1
  assert re.match(
    r'error: .*/train-mnist\.tfrecord: record 3 .*CRC.*Convert the data',
    finished.error,
  )
  assert programs.checkpoint_steps(paths.train_dir) == []
