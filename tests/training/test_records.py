import contextlib
import json
import pathlib
import re
import shutil

import numpy as np
import pytest
import tensorflow as tf

from terngrad import errors
from terngrad.report import event_files
from terngrad.training import records
from tests import forked
from tests import power_cut


def write(folder, steps, **options):
  recorder = records.Recorder(folder, **options)
  with contextlib.closing(recorder):
    for step in steps:
      recorder.scalars(step, {'loss': 1.0 / step})
  return recorder


def steps_in(folder):
  return [record['step'] for record in records.read(folder)]


def test_a_resumed_run_records_no_step_twice(tmp_path):
  write(tmp_path, [10, 20, 30])
  recorder = write(tmp_path, [25, 35], step=20)
  assert recorder.last == {'step': 20, 'loss': 0.05}
  assert steps_in(tmp_path) == [10, 20, 25, 35]


def test_readers_of_events_drop_the_steps_that_a_resumed_run_repeats(tmp_path):
  write(tmp_path, [10, 20, 30])
  write(tmp_path, [20, 25], step=10)
  found = event_files.read(tmp_path)['.'].tags['scalars']['loss']
  assert [value.step for value in found] == [10, 20, 25]


def test_an_incomplete_last_line_is_dropped(tmp_path):
  write(tmp_path, [10, 20])
  path = tmp_path / records.FILE_NAME
  path.write_text(path.read_text() + '{"step": 30, "lo')
  assert steps_in(tmp_path) == [10, 20]
  write(tmp_path, [30], step=20)
  lines = path.read_text().splitlines()
  assert [json.loads(line)['step'] for line in lines] == [10, 20, 30]


def test_numbers_that_are_not_finite_are_written_as_null(tmp_path):
  recorder = records.Recorder(tmp_path)
  with contextlib.closing(recorder):
    recorder.scalars(1, {'loss': float('nan'), 'rate': float('inf')})
  assert records.read(tmp_path) == [{'step': 1, 'loss': None, 'rate': None}]


def test_a_folder_without_records_has_none(tmp_path):
  assert records.read(tmp_path) == []


def histogram_events(folder):
  """Of the only event file: the values, without their times."""
  (path,) = folder.glob('events*')
  return [
    value
    for event in tf.compat.v1.train.summary_iterator(str(path))
    for value in event.summary.value
  ]


@pytest.mark.parametrize(
  'values',
  [
    np.random.default_rng(3).normal(size=[70, 90]).astype(np.float32),
    np.full([5], 0.25, np.float32),
    np.zeros([0], np.float32),
    np.arange(7),
  ],
  ids=['normal', 'constant', 'empty', 'integers'],
)
def test_histograms_equal_those_of_tensorboard(values, tmp_path):
  for name in ('ours', 'theirs'):
    (tmp_path / name).mkdir()
  recorder = records.Recorder(tmp_path / 'ours')
  with contextlib.closing(recorder):
    recorder.histograms(4, {'a/b': tf.constant(values)})
  writer = tf.summary.create_file_writer(str(tmp_path / 'theirs'))
  with writer.as_default(step=4):
    tf.summary.histogram('a/b', values)
  writer.close()
  (ours,) = histogram_events(tmp_path / 'ours')
  (theirs,) = histogram_events(tmp_path / 'theirs')
  assert (ours.tag, ours.metadata) == (theirs.tag, theirs.metadata)
  counted, expected = (
    tf.make_ndarray(ours.tensor),
    tf.make_ndarray(theirs.tensor),
  )
  assert counted.dtype == expected.dtype
  assert counted.shape == expected.shape
  np.testing.assert_allclose(counted[:, :2], expected[:, :2], atol=1e-6)
  # One element on an edge may fall to either side of it.
  np.testing.assert_allclose(counted[:, 2], expected[:, 2], atol=1)
  assert counted[:, 2].sum() == values.size


def test_histograms_skip_values_that_are_not_finite():
  counted = records.buckets(tf.constant([1.0, np.nan, 3.0, np.inf, 2.0]))
  assert counted[:, 2].sum() == 3
  assert (counted[0, 0], counted[-1, 1]) == (1, 3)


@pytest.mark.parametrize(
  'values',
  [
    np.float32([1, np.nextafter(np.float32(1), 0)]),
    np.float32([0, 1e-45]),
    np.float32([-3e38, 3e38]),
    # Thirty float32 numbers, for 31 edges.
    1 + np.arange(30, dtype=np.float32) * np.float32(2**-23),
  ],
)
def test_histograms_have_every_value_however_close_or_far_they_are(values):
  counted = records.buckets(tf.constant(values))
  assert counted[:, 2].sum() == len(values)
  assert (counted[0, 0], counted[-1, 1]) == (values.min(), values.max())
  assert counted[0, 2] == counted[-1, 2] == 1
  assert (np.diff(counted[:, 0]) > 0).all()


def largest_memory():
  """Of this process, bytes."""
  status = pathlib.Path('/proc/self/status').read_text()
  return 1024 * int(re.search(r'VmHWM:\s+(\d+) kB', status)[1])


def test_histogram_of_a_large_layer_takes_a_few_bytes_per_element(tmp_path):
  """With 240 bytes an element no VGG fits in 24 GB."""
  tensor = tf.random.normal([1 << 23])
  # Forget the largest memory so far.
  pathlib.Path('/proc/self/clear_refs').write_text('5')
  before = largest_memory()
  recorder = records.Recorder(tmp_path)
  with contextlib.closing(recorder):
    recorder.histograms(1, {'fc6': tensor})
  assert largest_memory() - before < 20 * (1 << 23)


def flipped_bits(content):
  """All that one wrong bit makes of some bytes."""
  for position in range(8 * len(content)):
    wrong = bytearray(content)
    wrong[position // 8] ^= 1 << position % 8
    yield bytes(wrong)


def test_a_flipped_bit_never_changes_a_record(tmp_path):
  write(tmp_path, [10, 20, 30])
  path = tmp_path / records.FILE_NAME
  content, right = path.read_bytes(), records.read(tmp_path)
  for wrong in flipped_bits(content):
    path.write_bytes(wrong)
    assert all(record in right for record in records.read(tmp_path))
  assert len(records.read(tmp_path)) == 2


def test_lines_without_checksums_are_read(tmp_path):
  path = tmp_path / records.FILE_NAME
  path.write_text('{"step": 10, "loss": 0.5}\n{"step": 20, "loss": null}\n')
  recorder = write(tmp_path, [30], step=20)
  assert recorder.remarks == []
  assert steps_in(tmp_path) == [10, 20, 30]


@pytest.mark.parametrize(
  'line',
  [
    b'\xff',
    b'[' * 100_000,
    b'7',
    b'{"step": "10"}',
    b'{"step": 5, "loss": 1' + b'0' * 400 + b'}',
    b'',
  ],
)
def test_a_damaged_line_is_skipped_and_reported(tmp_path, line, caplog):
  write(tmp_path, [10, 20])
  path = tmp_path / records.FILE_NAME
  path.write_bytes(line + b'\n' + path.read_bytes())
  assert steps_in(tmp_path) == [10, 20]
  (remark,) = write(tmp_path, [], step=20).remarks
  assert (
    remark
    == f'{path}: skipped 1 damaged or incomplete lines, the first is line 1'
  )
  assert write(tmp_path, [], step=20).remarks == []


def test_dropped_lines_are_reported(tmp_path):
  write(tmp_path, [10, 20, 30])
  (remark,) = write(tmp_path, [], step=10).remarks
  assert remark.endswith('dropped 2 lines of steps after 10')


def test_synced_records_survive_a_power_cut(tmp_path, monkeypatch):
  disk = power_cut.Disk(monkeypatch)
  work = tmp_path / 'work'
  work.mkdir()
  recorder = records.Recorder(work)
  with contextlib.closing(recorder):
    recorder.scalars(10, {'loss': 0.5})
    recorder.sync()
    recorder.scalars(20, {'loss': 0.25})
    left = disk.after_power_cut(work, tmp_path / 'left')
  assert steps_in(left) == [10]


LIMITED = """
import resource, sys
import tensorflow as tf
from terngrad import errors
from terngrad.training import records
recorder = records.Recorder(sys.argv[1])
resource.setrlimit(resource.RLIMIT_FSIZE, (2000, 2000))
try:
  for step in range(1000):
    recorder.histograms(step, {'a': tf.range(100.0)})
    recorder.flush()
except OSError as error:
  print('caught:', error.strerror)
"""


def test_a_failed_write_of_events_raises_os_error(tmp_path):
  done = forked.run(None, LIMITED, tmp_path)
  assert done.returncode == 0, done.stderr
  assert done.stdout == 'caught: Input/output error\n'


def remove(folder):
  shutil.rmtree(folder)


def rename(folder):
  folder.rename(folder.with_name('renamed'))


def replace(folder):
  """As another trainer of the same command does, once the first was renamed."""
  shutil.copytree(folder, folder.with_name('copy'))
  rename(folder)
  folder.with_name('copy').rename(folder)


def remove_file(folder):
  (folder / records.FILE_NAME).unlink()


def replace_by_file(folder):
  remove(folder)
  folder.touch()


@pytest.mark.parametrize(
  'change', [remove, rename, replace, remove_file, replace_by_file]
)
@pytest.mark.parametrize('call', ['scalars', 'sync'])
def test_a_removed_or_renamed_file_is_an_error(tmp_path, change, call):
  folder = tmp_path / 'run'
  folder.mkdir()
  recorder = records.Recorder(folder)
  recorder.scalars(1, {'loss': 2.0})
  change(folder)
  with pytest.raises(errors.TrainingError) as caught:
    recorder.sync() if call == 'sync' else recorder.scalars(2, {'loss': 1.0})
  recorder.close()
  message = str(caught.value)
  received = 'another one' if change is replace else 'none'
  assert f'{folder}/{records.FILE_NAME}: expected the file that' in message
  assert f'received {received}: ' in message and '\n' not in message


def test_a_folder_behind_a_symbolic_link_may_move(tmp_path):
  (tmp_path / 'disk').mkdir()
  (tmp_path / 'run').symlink_to('disk')
  recorder = records.Recorder(tmp_path / 'run')
  (tmp_path / 'disk').rename(tmp_path / 'other')
  (tmp_path / 'run').unlink()
  (tmp_path / 'run').symlink_to('other')
  recorder.scalars(1, {'loss': 2.0})
  recorder.sync()
  recorder.close()
  assert records.read(tmp_path / 'other') == [{'step': 1, 'loss': 2.0}]


def graph_of(*names):
  graph = tf.Graph()
  with graph.as_default():
    for name in names:
      tf.zeros([], name=name)
  return graph.as_graph_def()


def test_a_graph_is_found_again(tmp_path):
  recorder = records.Recorder(tmp_path)
  with contextlib.closing(recorder):
    recorder.scalars(1, {'loss': 1.0})
  assert not records.has_graph(tmp_path)
  recorder = records.Recorder(tmp_path)
  with contextlib.closing(recorder):
    recorder.graph(graph_of('first', 'second'))
  assert records.has_graph(tmp_path)
  (run,) = event_files.read(tmp_path).values()
  assert 'name: "first"' in run.graph and 'name: "second"' in run.graph


def test_damaged_event_files_have_no_graph(tmp_path):
  with tf.io.TFRecordWriter(str(tmp_path / 'events.out.tfevents.1')) as file:
    file.write(b'\xff\xff no event')
  (tmp_path / 'events.out.tfevents.2').write_bytes(b'x' * 1000)
  (tmp_path / 'events.out.tfevents.3').touch()
  assert not records.has_graph(tmp_path)
