"""Event files written by TensorFlow, read back as JSON, CSV and PNG."""

import csv
import io
import json

import numpy as np
import pytest
import tensorflow as tf
from PIL import Image

from slim.datasets.records import disk
from terngrad import errors
from terngrad.report import event_files
from terngrad.report import event_values
from terngrad.report import serialize


@pytest.fixture
def logdir(tmp_path):
  """Two runs; the second has a graph and a number that is not finite."""

  @tf.function
  def double(x):
    return 2 * x

  double(tf.constant(1.0))
  with tf.summary.create_file_writer(str(tmp_path / 'log')).as_default():
    for step in range(1200):  # TensorBoard keeps 1,000 by itself
      tf.summary.scalar('loss', 1.0 / (1 + step), step=step)
    tf.summary.histogram('conv1/kernel', tf.constant([0.0, 1.0, 1.0]), step=3)
    image = np.zeros([2, 4, 5, 3], np.uint8)
    image[1] = 255
    tf.summary.image('../../away', image, step=7)
  with tf.summary.create_file_writer(str(tmp_path / 'log/b')).as_default():
    tf.summary.scalar('loss', float('nan'), step=1)
    tf.summary.graph(double.get_concrete_function(tf.constant(1.0)).graph)
  return tmp_path / 'log'


def test_every_kind_is_written_and_listed(logdir, tmp_path):
  count = serialize.write(event_files.read(logdir), tmp_path / 'out')
  index = json.loads((tmp_path / 'out' / 'runs.json').read_text())
  assert set(index) == {'.', 'b'}
  listed = [
    file
    for run in index.values()
    for kind in event_values.KINDS
    for files in run[kind].values()
    for file in files
  ] + [run['graph'] for run in index.values() if run['graph']]
  assert count == len(listed) + 1
  assert all((tmp_path / 'out' / file).is_file() for file in listed)

  table, copy = index['.']['scalars']['loss']
  with open(tmp_path / 'out' / table, encoding='utf-8') as file:
    rows = list(csv.DictReader(file))
  assert [int(row['step']) for row in rows] == list(range(1200))
  assert float(rows[3]['value']) == pytest.approx(0.25)
  assert len(json.loads((tmp_path / 'out' / copy).read_text())) == 1200

  (file,) = index['.']['histograms']['conv1/kernel']
  (entry,) = json.loads((tmp_path / 'out' / file).read_text())
  assert entry['step'] == 3
  assert sum(bucket[2] for bucket in entry['buckets']) == 3

  images = index['.']['images']['../../away']
  colours = [
    np.asarray(Image.open(io.BytesIO((tmp_path / 'out' / p).read_bytes())))
    for p in images
  ]
  assert [c.shape for c in colours] == [(4, 5, 3)] * 2
  assert [c.max() for c in colours] == [0, 255]

  assert index['.']['graph'] is None
  assert 'node {' in (tmp_path / 'out' / index['b']['graph']).read_text()
  _, copy = index['b']['scalars']['loss']
  (entry,) = json.loads((tmp_path / 'out' / copy).read_text())
  assert (entry['step'], entry['value']) == (1, None)


def test_images_of_a_repeated_step_are_all_kept(tmp_path):
  with tf.summary.create_file_writer(str(tmp_path / 'log')).as_default():
    for colour in (0, 255):
      image = np.full([1, 4, 5, 3], colour, np.uint8)
      tf.summary.image('seen', image, step=7)
  runs = event_files.read(tmp_path / 'log', False)
  serialize.write(runs, tmp_path / 'out')
  index = json.loads((tmp_path / 'out' / 'runs.json').read_text())
  files = index['.']['images']['seen']
  assert len({*files}) == 2
  colours = [
    np.asarray(Image.open(tmp_path / 'out' / file)).max() for file in files
  ]
  assert colours == [0, 255]


@pytest.fixture
def events(logdir):
  """The event file of the second run."""
  (found,) = (logdir / 'b').glob('*tfevents*')
  return found


def test_a_damaged_event_file_is_refused_by_name(logdir, events):
  content = bytearray(events.read_bytes())
  content[-20] ^= 1
  events.write_bytes(content)
  with pytest.raises(errors.ConfigError, match=f'received {events}: corrupted'):
    event_files.read(logdir)


def test_an_event_file_of_a_run_that_goes_on_is_read(logdir, events, caplog):
  events.write_bytes(events.read_bytes()[:-5])
  assert event_files.read(logdir)['b'].tags['scalars']['loss']
  assert f'{events} ends in an incomplete record' in caplog.text


@pytest.mark.parametrize(
  ('kind', 'value'),
  [
    ('scalars', tf.constant('x')),
    ('scalars', tf.zeros([2])),
    ('histograms', tf.zeros([])),
    ('images', tf.constant('x')),
  ],
)
def test_values_that_do_not_fit_their_plugin_are_refused(tmp_path, kind, value):
  made = tf.compat.v1.SummaryMetadata()
  made.plugin_data.plugin_name = kind
  with tf.summary.create_file_writer(str(tmp_path)).as_default():
    tf.summary.write('odd', value, step=1, metadata=made)
  with pytest.raises(errors.ConfigError, match=f'expected {kind} with the tag'):
    event_files.read(tmp_path)


def test_file_names_stay_in_the_folder_and_do_not_collide():
  tags = ['a/b', 'a_b', 'a.b', '..', '.', '', '/', 'a' * 500, 'a' * 501, 'é']
  names = [serialize.file_name(tag) for tag in tags]
  assert len(set(names)) == len(tags)
  assert all(0 < len(name) < 120 for name in names)
  assert not any('/' in name or name.startswith('.') for name in names)


ONE = {
  'run': event_files.EventRun(
    {'scalars': {'loss': [event_files.EventValue(0.0, 1, 0.5)]}}, None
  )
}


def test_the_folder_that_a_link_names_is_replaced(tmp_path):
  folder, link = tmp_path / 'folder', tmp_path / 'link'
  serialize.replace(ONE, folder)
  (folder / 'old').touch()
  link.symlink_to(folder)
  assert serialize.replace(ONE, link) == 3
  assert link.is_symlink()
  assert {path.name for path in folder.iterdir()} == {'data', 'runs.json'}
  assert {path.name for path in tmp_path.iterdir()} == {'folder', 'link'}


def test_an_old_folder_stays_until_the_new_one_is_complete(
  tmp_path, monkeypatch
):
  folder = tmp_path / 'folder'
  serialize.replace(ONE, folder)
  (folder / 'old').touch()

  def fail(path):
    raise OSError(f'the disk is full: {path}')

  monkeypatch.setattr(disk, 'sync', fail)
  with pytest.raises(OSError, match='disk is full'):
    serialize.replace(ONE, folder)
  assert (folder / 'old').exists() and (folder / 'runs.json').exists()
