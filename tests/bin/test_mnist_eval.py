"""mnist_eval as a person meets it: lines, records, towers, polling."""

import json
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from terngrad.config import options
from terngrad.config import training as configs
from tests.bin import programs

EXAMPLES = 37  # in the test split of `data_dir`
STEPS = 45  # of `whole_run`
# Steps of `one_tower`, and the device that it stores.
TRAINED, PLACE = 2, 1
VARIABLES = [
  f'{layer}/{part}'
  for layer in ('conv1', 'conv2', 'fc3', 'logits')
  for part in ('kernel', 'bias')
]
NOW = r'\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+: '
SCORE = re.compile(
  NOW + r'precision @ 1 = (?P<precision>[01]\.\d{4}) '
  r'recall @ 5 = (?P<recall>[01]\.\d{4}) \[(?P<count>\d+) examples\]'
)


def arguments(data_dir, checkpoint_dir, eval_dir, **changes):
  values = {
    'data_dir': data_dir,
    'checkpoint_dir': checkpoint_dir,
    'eval_dir': eval_dir,
    'run_once': True,
  }
  return programs.as_flags(**(values | changes))


@pytest.fixture
def evaluate(worker, data_dir, tmp_path):
  """Evaluates once; returns a `programs.Finished`."""

  def run(checkpoint_dir, eval_dir=tmp_path / 'eval', **changes):
    usual = arguments(data_dir, checkpoint_dir, eval_dir)
    # Of a flag that is given twice the last one counts.
    return worker.run('mnist_eval', usual + programs.as_flags(**changes))

  return run


def score_of(finished):
  assert finished.code == 0, finished.err
  found = [SCORE.fullmatch(line) for line in finished.out.splitlines()]
  (match,) = filter(None, found)
  return float(match['precision']), float(match['recall']), int(match['count'])


def weights(eval_dir):
  """{name: (least, greatest, elements)} of the weights' histograms."""
  return {
    event.tag: (
      event.value[:, 0].min(),
      event.value[:, 1].max(),
      event.value[:, 2].sum(),
    )
    for event in programs.events(eval_dir)
    if event.kind == 'histograms' and event.tag in VARIABLES
  }


def stored_weights(prefix, device, suffix=''):
  values = {
    name: programs.variable(prefix, device, name + suffix) for name in VARIABLES
  }
  return {n: (v.min(), v.max(), v.size) for n, v in values.items()}


def test_scores_every_example_once_and_writes_its_records(
  one_tower, evaluate, tmp_path
):
  """The last of four batches of 10 holds 7."""
  finished = evaluate(one_tower, batch_size=10)
  precision, recall, count = score_of(finished)
  assert count == EXAMPLES

  checkpoint = one_tower / f'model.ckpt-{TRAINED}'
  loaded, starting, scored = finished.out.splitlines()
  assert re.fullmatch(
    NOW + f'loaded {re.escape(str(checkpoint))} at step {TRAINED}', loaded
  )
  assert re.fullmatch(NOW + 'starting evaluation on test', starting)
  assert SCORE.fullmatch(scored)

  (record,) = programs.metrics(tmp_path / 'eval')
  assert (record['step'], record['num_examples']) == (TRAINED, EXAMPLES)
  hits = [record[name] * EXAMPLES for name in ('precision_at_1', 'recall_at_5')]
  assert hits == pytest.approx([round(h) for h in hits], abs=1e-9)
  assert f'{record["precision_at_1"]:.4f}' == f'{precision:.4f}'
  assert f'{record["recall_at_5"]:.4f}' == f'{recall:.4f}'
  assert recall >= precision

  events = programs.events(tmp_path / 'eval')
  assert {event.step for event in events} == {TRAINED}
  scalars = {e.tag: float(e.value) for e in events if e.kind == 'scalars'}
  assert scalars['Accuracy @ 1'] == pytest.approx(record['precision_at_1'])
  assert scalars['Accuracy @ 5'] == pytest.approx(record['recall_at_5'])
  histograms = {e.tag for e in events if e.kind == 'histograms'}
  for layer in ('conv1', 'conv2', 'fc3', 'logits'):
    assert 0 <= scalars[f'{layer}/sparsity'] <= 1
    assert f'{layer}/activations' in histograms
  assert set(VARIABLES) <= histograms
  # The averages, as --restore_avg_var is True by default.
  assert weights(tmp_path / 'eval') == stored_weights(
    checkpoint, PLACE, '/average'
  )

  # However the examples are split into batches, they score the same.
  one = evaluate(one_tower, tmp_path / 'one', batch_size=1)
  assert score_of(one) == (precision, recall, count)


def test_num_examples_cuts_within_a_batch(one_tower, evaluate):
  finished = evaluate(one_tower, batch_size=10, num_examples=13)
  precision, _, count = score_of(finished)
  assert count == 13
  assert precision * 13 == pytest.approx(round(precision * 13), abs=1e-3)


def test_prints_a_line_every_hundred_batches(one_tower, evaluate, data_dir):
  """Six copies of the file: 222 examples."""
  copies = data_dir.parent / 'copies'
  shutil.copytree(data_dir, copies, dirs_exist_ok=True)
  (copies / 'shards.json').unlink()  # it lists one file
  for number in range(5):
    shutil.copy(
      data_dir / 'test-mnist.tfrecord', copies / f'test-again-{number}.tfrecord'
    )
  finished = evaluate(one_tower, data_dir=copies, batch_size=1)
  total = 6 * EXAMPLES
  lines = [line for line in finished.out.splitlines() if ' out of ' in line]
  assert [
    re.fullmatch(
      NOW + r'\[(\d+) batches out of (\d+)\] '
      r'\(\d+\.\d examples/sec; \d+\.\d{3} sec/batch\)',
      line,
    ).groups()
    for line in lines
  ] == [('100', f'{total}'), ('200', f'{total}')]
  assert score_of(finished)[2] == total


def test_restore_avg_var_false_reads_the_parameters_themselves(
  one_tower, evaluate, tmp_path
):
  checkpoint = one_tower / f'model.ckpt-{TRAINED}'
  raw = stored_weights(checkpoint, PLACE)
  assert raw != stored_weights(checkpoint, PLACE, '/average')
  score_of(evaluate(one_tower, restore_avg_var=False))
  assert weights(tmp_path / 'eval') == raw


@pytest.fixture(scope='module')
def two_towers(one_tower, tmp_path_factory):
  """A checkpoint whose device 1 holds other values than device 0.

  Training never writes one, as its replicas are equal.
  """
  folder = tmp_path_factory.mktemp('towers')
  source = one_tower / f'model.ckpt-{TRAINED}'
  reader = tf.train.load_checkpoint(str(source))

  def tower(factor):
    return {
      name + suffix: tf.Variable(
        factor * programs.variable(source, PLACE, name + suffix)
      )
      for name in VARIABLES
      for suffix in ('', '/average')
    }

  layout = json.loads(
    reader.get_tensor('layout/.ATTRIBUTES/VARIABLE_VALUE').decode()
  )
  tf.train.CheckpointManager(
    tf.train.Checkpoint(
      step=tf.Variable(7, dtype=tf.int64),
      layout=tf.Variable(json.dumps(layout | {'places': [0, 1]})),
      tower_0=tower(1.0),
      tower_1=tower(2.0),
    ),
    str(folder),
    max_to_keep=5,
    checkpoint_name='model.ckpt',
  ).save(checkpoint_number=7)
  return folder


@pytest.mark.parametrize(
  ('tower', 'device'),
  [
    (-1, 0),
    pytest.param(0, 0, marks=pytest.mark.slow),
    pytest.param(1, 1, marks=pytest.mark.slow),
    (2, 0),
    (3, 1),
  ],
)
def test_tower_reads_the_device_of_that_node(
  tower, device, two_towers, evaluate, tmp_path
):
  """Four nodes on two devices: 0 and 2 on the first, 1 and 3 on the other."""
  score_of(evaluate(two_towers, tower=tower))
  assert weights(tmp_path / 'eval') == stored_weights(
    two_towers / 'model.ckpt-7', device, '/average'
  )


def test_without_a_tower_it_reads_the_stored_one(one_tower, evaluate, tmp_path):
  score = score_of(evaluate(one_tower))
  assert weights(tmp_path / 'eval') == stored_weights(
    one_tower / 'model.ckpt-2', 1, '/average'
  )
  assert score_of(evaluate(one_tower, tower=3)) == score


@pytest.mark.parametrize('tower', [0, 2, 4])
def test_tower_that_was_not_saved_is_refused(
  tower, one_tower, evaluate, tmp_path
):
  finished = evaluate(one_tower, tower=tower)
  assert (finished.code, finished.out) == (2, '')
  assert re.search(
    r'^error: tower: expected a node whose device is stored in '
    rf'.*/model\.ckpt-2, one of \[1, 3\], received {tower}\. '
    'Leave --tower out .*--save_tower=-1',
    finished.err,
  )
  assert not (tmp_path / 'eval').exists()


# Flags, and what the message must say was expected and received.
BAD = {
  'unknown net': ({'net': 'lenett'}, 'one of .*lenet', "'lenett'"),
  'unknown data set': ({'dataset_name': 'mnits'}, 'mnist', "'mnits'"),
  'unknown subset': ({'subset': 'validation'}, 'test', "'validation'"),
  'no examples': ({'num_examples': 0}, 'a number >= 1', 'received 0'),
  'negative interval': (
    {'eval_interval_secs': -1},
    'a number from 0 to 2147483647',
    'received -1',
  ),
  'no batch': ({'batch_size': 0}, 'a number >= 1', 'received 0'),
  'no device': ({'device': '/gpu:x'}, "like '/gpu:0'", "'/gpu:x'"),
  'no data': ({'data_dir': '/nonexistent'}, 'files test-', '/nonexistent'),
  'no checkpoint': (
    {'checkpoint_dir': '/nonexistent'},
    'a checkpoint prefix',
    '/nonexistent',
  ),
  'unknown flag': ({'run_onec': True}, 'a flag', 'run_onec.*--run_once'),
}


@pytest.mark.parametrize('case', BAD)
def test_bad_input_is_explained_and_nothing_is_written(
  case, one_tower, data_dir, worker, tmp_path
):
  changes, expected, received = BAD[case]
  flags = {'checkpoint_dir': one_tower, 'eval_dir': tmp_path / 'eval'} | changes
  finished = worker.run(
    'mnist_eval',
    programs.as_flags(**({'data_dir': data_dir, 'run_once': True} | flags)),
  )
  assert (finished.code, finished.out) == (2, ''), finished
  assert re.search(expected, finished.error), finished.err
  assert re.search(received, finished.error), finished.err
  assert list(tmp_path.iterdir()) == []


def test_folder_that_cannot_be_written_is_refused(
  one_tower, evaluate, tmp_path
):
  (tmp_path / 'file').write_text('in the way')
  finished = evaluate(one_tower, tmp_path / 'file' / 'eval')
  assert finished.code == 2
  assert re.search(
    'eval_dir: expected a folder that can be written, received .*/file/eval',
    finished.err,
  )


def test_record_that_is_damaged_is_named(
  one_tower, evaluate, data_dir, tmp_path
):
  damaged = tmp_path / 'damaged'
  shutil.copytree(data_dir, damaged)
  file = damaged / 'test-mnist.tfrecord'
  file.write_bytes(file.read_bytes()[:-3])
  finished = evaluate(one_tower, data_dir=damaged)
  assert finished.code == 2
  assert re.search(
    rf'test-mnist\.tfrecord: record {EXAMPLES - 1} .*cut short', finished.err
  )


def test_help_lists_flags_and_exits_0():
  with programs.Program('mnist_eval', ['--help']) as program:
    finished = program.wait()
  assert finished.code == 0
  for field in options.fields(configs.EvalConfig):
    assert f'\n  --{field.name} (' in finished.out
  assert "--subset (str, 'test'; general default 'validation')" in finished.out


@pytest.mark.slow
def test_polling_waits_for_the_first_checkpoint_and_ends_after_the_last(
  data_dir, tmp_path
):
  """It starts before there is anything to see, and looks every second."""
  train_dir, eval_dir = tmp_path / 'train', tmp_path / 'eval'
  polling = arguments(
    data_dir, train_dir, eval_dir, run_once=False, eval_interval_secs=1
  )
  with programs.Program('mnist_eval', polling) as evaluation:
    evaluation.read_until(f'no checkpoint in {re.escape(str(train_dir))} yet')
    trained = programs.whole_run_arguments(data_dir, train_dir)
    with programs.Program('mnist_train', trained) as training:
      evaluation.read_until(' at step ')
      assert training.wait().code == 0
    finished = evaluation.wait()
  assert finished.code == 0, finished.err
  loaded = [int(n) for n in re.findall(r' at step (\d+)', finished.out)]
  assert loaded[-1] == STEPS
  assert loaded == sorted(set(loaded)), 'each once'
  records = programs.metrics(eval_dir)
  assert [record['step'] for record in records] == loaded
  assert all(np.isfinite(record['precision_at_1']) for record in records)
  accuracies = [
    event.step
    for event in programs.events(eval_dir)
    if event.tag == 'Accuracy @ 1'
  ]
  assert sorted(accuracies) == loaded


@pytest.mark.slow
def test_run_once_in_a_separate_process_scores_the_newest(
  whole_run, data_dir, tmp_path
):
  once = arguments(data_dir, whole_run.train_dir, tmp_path / 'eval')
  with programs.Program('mnist_eval', once) as program:
    finished = program.wait()
  assert score_of(finished)[2] == EXAMPLES
  assert f'at step {STEPS}' in finished.out
