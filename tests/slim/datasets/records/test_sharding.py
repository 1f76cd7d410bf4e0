import fcntl
import io
import json
import os
import pathlib
import re
import signal
import subprocess
import sys

import pytest

from slim import errors
from slim.datasets import catalog
from slim.datasets import shards
from slim.datasets.records import features
from slim.datasets.records import shard_manifest
from slim.datasets.records import shard_writer
from slim.datasets.records import sharding
from slim.datasets.records import staging
from terngrad.sweep import warm
from tests.slim import plain_records
from tests.slim import shard_files
from tests.slim import small_disk

ROOT = pathlib.Path(__file__).resolve().parents[4]

# Converts 20 items into 5 shards; item 13 waits for ever if a third argument
# says so, after saying that it does.
CONVERTS = """
import pathlib, sys, threading
from tests.slim.datasets.records import test_sharding
def stall(item):
  if item == 13 and sys.argv[2:]:
    print('stalled', flush=True)
    threading.Event().wait()
plan = test_sharding.plan(before=stall)
from slim.datasets.records import sharding
options = sharding.ConversionOptions(num_threads=1)
sharding.write(pathlib.Path(sys.argv[1]), plan, options)
"""


def payload(item):
  return features.serialize(
    {
      'image/encoded': features.bytes_feature(b'%d' % item * 100),
      'image/class/label': features.int_feature(item % 3),
    }
  )


def plan(*, items=20, number=5, before=None, unreadable=(), identity='a'):
  def encode(some):
    for item in some:
      if before:
        before(item)
      if item in unreadable:
        yield shard_writer.Unreadable(f'file {item}', 'it is bad')
      else:
        yield payload(item)

  return sharding.ConversionPlan(
    dataset='things',
    class_names=('a', 'b', 'c'),
    splits=(
      sharding.OutputSplit(
        'train', sharding.file_names('train', number), range(items)
      ),
      sharding.OutputSplit('test', ('test-00000-of-00001',), range(100, 104)),
    ),
    encode=encode,
    source='a test',
    identity=identity,
    items_per_call=2,
  )


def items_of(folder):
  contents = [
    plain_records.only(example, 'image/encoded')
    for example in plain_records.in_folder(folder, 'train')
  ]
  return [int(content[: len(content) // 100]) for content in contents]


def start(folder, *more):
  return subprocess.Popen(
    [sys.executable, '-c', CONVERTS, str(folder), *more],
    env={**os.environ, 'PYTHONPATH': str(ROOT), 'TF_CPP_MIN_LOG_LEVEL': '3'},
    stdout=subprocess.PIPE,
    text=True,
  )


def train_files(folder):
  return sorted(path.name for path in folder.glob('train-*'))


@pytest.mark.parametrize('threads', [1, 4])
def test_every_item_is_written_once_in_order(tmp_path, threads):
  report = sharding.write(
    tmp_path, plan(), sharding.ConversionOptions(num_threads=threads)
  )
  assert report.written and report.counts == {'train': 20, 'test': 4}
  assert items_of(tmp_path) == list(range(20))
  assert train_files(tmp_path) == [f'train-0000{i}-of-00005' for i in range(5)]
  names = {path.name for path in tmp_path.iterdir()}
  expected = {*train_files(tmp_path), 'test-00000-of-00001'}
  assert names == expected | {'labels.txt', 'shards.json'}


def test_a_terminal_sees_a_bar_with_examples_a_second(tmp_path, monkeypatch):
  class Terminal(io.StringIO):
    def isatty(self):
      return True

  monkeypatch.setattr(sys, 'stderr', Terminal())
  sharding.write(tmp_path, plan())
  last = sys.stderr.getvalue().rpartition('\r')[2]
  assert '24/24' in last and re.search(r'[\d.]+ examples/s', last)


def test_a_remainder_is_spread_over_the_shards(tmp_path):
  sharding.write(tmp_path, plan(items=22, number=4))
  counts = [
    len(plain_records.examples([tmp_path / name]))
    for name in train_files(tmp_path)
  ]
  assert counts == [5, 6, 5, 6]


def test_the_manifest_describes_the_shards(tmp_path):
  sharding.write(tmp_path, plan())
  content = json.loads((tmp_path / 'shards.json').read_text())
  assert content['labels'] == {'0': 'a', '1': 'b', '2': 'c'}
  assert content['num_classes'] == 3
  assert content['features'] == {
    'image/class/label': 'int64_list',
    'image/encoded': 'bytes_list',
  }
  train = content['splits']['train']
  assert train['num_examples'] == 20
  for shard in train['shards']:
    path = tmp_path / shard['file']
    digest = subprocess.check_output(['sha256sum', str(path)], text=True)
    assert shard['sha256'] == digest.split()[0]
    assert (shard['size'], shard['num_examples']) == (path.stat().st_size, 4)
  assert (tmp_path / 'labels.txt').read_text() == '0:a\n1:b\n2:c\n'
  assert shard_manifest.verify(tmp_path).counts == {'train': 20, 'test': 4}


def test_verify_finds_a_changed_record(tmp_path):
  sharding.write(tmp_path, plan())
  path = tmp_path / 'train-00002-of-00005'
  content = bytearray(path.read_bytes())
  content[40] ^= 1
  path.write_bytes(content)
  with pytest.raises(errors.DataError, match='train-00002-of-00005: record 0'):
    shard_manifest.verify(tmp_path)


def test_verify_finds_a_shard_replaced_by_another(tmp_path):
  sharding.write(tmp_path, plan())
  first, second = (tmp_path / f'train-0000{i}-of-00005' for i in range(2))
  first.write_bytes(second.read_bytes())
  with pytest.raises(errors.DataError, match='expected sha256 .* as shards'):
    shard_manifest.verify(tmp_path)


@pytest.mark.parametrize(
  ('payload', 'received'),
  [
    (b'\xff\xff', 'expected examples, .* in record 0'),
    (b'', r'expected the features .* received \{\} in record 0'),
    (
      features.serialize({'image/class/label': features.int_feature()}),
      r'expected a label in \[0, 3\), .* received \[\] in record 0',
    ),
  ],
  ids=['damaged', 'empty', 'without a label'],
)
def test_verify_finds_a_record_that_is_not_an_example(
  tmp_path, payload, received
):
  """Of a shards.json that fits it: both come from elsewhere."""
  shard_files.write(tmp_path, 'mnist', {'train': [[payload]]})
  content = json.loads((tmp_path / 'shards.json').read_text())
  content['features'] = {'image/class/label': 'int64_list'}
  (tmp_path / 'shards.json').write_text(json.dumps(content))
  with pytest.raises(errors.DataError, match=received):
    shard_manifest.verify(tmp_path)


def test_verify_checks_no_features_that_shards_json_does_not_list(tmp_path):
  shard_files.write(tmp_path, 'mnist', {'train': [[payload(1)], [payload(2)]]})
  assert shard_manifest.verify(tmp_path).counts == {'train': 2}


def test_verify_without_a_manifest_is_refused(tmp_path):
  with pytest.raises(errors.DataError, match='expected shards.json; received'):
    shard_manifest.verify(tmp_path)


def test_the_same_conversion_is_reused_and_another_refused(tmp_path):
  sharding.write(tmp_path, plan())
  before = [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())]
  assert not sharding.write(tmp_path, plan()).written
  with pytest.raises(errors.DataError, match='another source or other options'):
    sharding.write(tmp_path, plan(identity='b'))
  with pytest.raises(errors.DataError, match='another source or other options'):
    sharding.write(tmp_path, plan(number=4))
  after = [path.stat().st_mtime_ns for path in sorted(tmp_path.iterdir())]
  assert before == after


def test_overwrite_removes_the_shards_of_the_other_conversion(tmp_path):
  sharding.write(tmp_path, plan())
  sharding.write(
    tmp_path, plan(number=2), sharding.ConversionOptions(overwrite=True)
  )
  assert train_files(tmp_path) == [f'train-0000{i}-of-00002' for i in range(2)]
  assert items_of(tmp_path) == list(range(20))


def test_files_of_other_tools_are_never_removed(tmp_path):
  (tmp_path / 'train-mine').write_text('precious')
  with pytest.raises(errors.DataError, match='received train-mine'):
    sharding.write(tmp_path, plan(), sharding.ConversionOptions(overwrite=True))
  assert (tmp_path / 'train-mine').read_text() == 'precious'


@pytest.mark.parametrize(
  'name', ['train-00000-of-00005', 'labels.txt', 'shards.json']
)
def test_unlisted_files_are_replaced_only_by_overwrite(tmp_path, name):
  (tmp_path / name).write_text('precious')
  with pytest.raises(errors.DataError, match=f'received {name} .*--overwrite'):
    sharding.write(tmp_path, plan())
  assert [path.name for path in tmp_path.iterdir()] == [name]
  assert (tmp_path / name).read_text() == 'precious'
  options = sharding.ConversionOptions(overwrite=True)
  assert sharding.write(tmp_path, plan(), options).written
  assert items_of(tmp_path) == list(range(20))


@pytest.mark.parametrize('name', ['test-00000-of-00001', 'labels.txt'])
def test_a_damaged_conversion_is_repaired_only_by_the_same_plan(tmp_path, name):
  sharding.write(tmp_path, plan())
  (tmp_path / name).unlink()
  before = {path: path.read_bytes() for path in tmp_path.iterdir()}
  with pytest.raises(errors.DataError, match='another source or other options'):
    sharding.write(tmp_path, plan(identity='b'))
  assert before == {path: path.read_bytes() for path in tmp_path.iterdir()}
  assert sharding.write(tmp_path, plan()).written
  assert not sharding.write(tmp_path, plan()).written


def test_more_shards_than_examples_are_refused(tmp_path):
  with pytest.raises(errors.DataError, match='expected 1 to 3 shards'):
    sharding.write(tmp_path / 'new', plan(items=3))
  assert not (tmp_path / 'new').exists()


@pytest.mark.parametrize('number', [0, -3, 100_000, 10**9])
def test_a_number_of_shards_out_of_range_is_refused(number):
  with pytest.raises(
    errors.DataError, match=f'expected 1 to 99999 shards; received {number}'
  ):
    sharding.file_names('train', number)


def test_a_negative_number_of_threads_is_refused(tmp_path):
  with pytest.raises(errors.DataError, match='at least 0; received -1'):
    sharding.write(tmp_path, plan(), sharding.ConversionOptions(num_threads=-1))


def test_unreadable_items_are_all_named_and_nothing_is_published(tmp_path):
  with pytest.raises(errors.DataError) as caught:
    sharding.write(tmp_path, plan(unreadable=(3, 17)))
  assert 'received 2 that are not:\n  file 3: it is bad\n  file 17: ' in str(
    caught.value
  )
  assert '--skip_corrupt' in str(caught.value)
  assert [path.name for path in tmp_path.iterdir()] == [staging.FOLDER]
  with pytest.raises(errors.DataError, match='expected a finished conversion'):
    shards.find(catalog.DATASETS['mnist'], tmp_path, 'train')


def test_unreadable_items_are_skipped_on_request(tmp_path):
  with pytest.raises(errors.DataError):
    sharding.write(tmp_path, plan(unreadable=(3, 17)))
  seen = []
  report = sharding.write(
    tmp_path,
    plan(unreadable=(3, 17), before=seen.append),
    sharding.ConversionOptions(skip_unreadable=True),
  )
  # Only the shards that lacked one are written now.
  assert sorted(seen) == [0, 1, 2, 3, 16, 17, 18, 19]
  assert report.skipped == ('file 3: it is bad', 'file 17: it is bad')
  assert report.counts == {'train': 18, 'test': 4}
  assert items_of(tmp_path) == [i for i in range(20) if i not in (3, 17)]
  again = sharding.write(
    tmp_path,
    plan(unreadable=(3, 17)),
    sharding.ConversionOptions(skip_unreadable=True),
  )
  assert (again.written, again.skipped) == (False, report.skipped)


def test_files_without_the_skipped_items_are_reused_only_on_request(tmp_path):
  skipping = sharding.ConversionOptions(skip_unreadable=True)
  sharding.write(tmp_path, plan(unreadable=(3,)), skipping)
  with pytest.raises(errors.DataError, match='file 3: it is bad'):
    sharding.write(tmp_path, plan(unreadable=(3,)))
  assert shard_manifest.verify(tmp_path).counts['train'] == 19
  report = sharding.write(tmp_path, plan())  # file 3 was repaired
  assert (report.written, report.skipped) == (True, ())
  assert items_of(tmp_path) == list(range(20))


def test_shards_without_the_skipped_items_are_finished_only_on_request(
  tmp_path,
):
  with pytest.raises(errors.DataError, match='expected at least one readable'):
    sharding.write(
      tmp_path,
      plan(unreadable=(3, *range(16, 20))),
      sharding.ConversionOptions(skip_unreadable=True, num_threads=1),
    )
  assert list((tmp_path / staging.FOLDER).glob('train-00000*.json'))
  assert sharding.write(tmp_path, plan()).skipped == ()
  assert items_of(tmp_path) == list(range(20))


def test_names_that_are_not_utf_8_are_escaped_in_the_manifest(tmp_path):
  def encode(items):
    for item in items:
      name = 'caf\udce9'  # as Python decodes the byte 0xe9 of a file name
      yield payload(item) if item else shard_writer.Unreadable(name, 'bad')

  named = plan()._replace(encode=encode, source='t\udce9xt')
  options = sharding.ConversionOptions(skip_unreadable=True)
  report = sharding.write(tmp_path, named, options)
  found = shard_manifest.verify(tmp_path)
  assert found.skipped == report.skipped == (r'caf\udce9: bad',)
  assert found.source == r't\udce9xt'
  again = sharding.write(tmp_path, named, options)
  assert (again.written, again.skipped) == (False, report.skipped)


def test_a_shard_without_a_readable_item_is_refused(tmp_path):
  with pytest.raises(errors.DataError, match='expected at least one readable'):
    sharding.write(
      tmp_path,
      plan(unreadable=range(4)),
      sharding.ConversionOptions(skip_unreadable=True),
    )


def test_an_encoder_s_failure_leaves_only_finished_shards(tmp_path):
  def fail(item):
    if item == 13:
      raise RuntimeError('a bug')

  with pytest.raises(RuntimeError, match='a bug'):
    sharding.write(
      tmp_path, plan(before=fail), sharding.ConversionOptions(num_threads=1)
    )
  assert not list(tmp_path.glob('**/*.part'))
  seen = []
  sharding.write(tmp_path, plan(before=seen.append))
  assert 13 in seen and 0 not in seen
  assert items_of(tmp_path) == list(range(20))


def test_another_plan_starts_from_the_beginning(tmp_path):
  with pytest.raises(errors.DataError):
    sharding.write(tmp_path, plan(unreadable=(3,)))
  seen = []
  sharding.write(tmp_path, plan(identity='b', before=seen.append))
  assert len(seen) == 24


def test_a_damaged_unfinished_shard_is_written_again(tmp_path):
  with pytest.raises(errors.DataError):
    sharding.write(tmp_path, plan(unreadable=(3,)))
  path = tmp_path / staging.FOLDER / 'train-00001-of-00005'
  path.write_bytes(path.read_bytes()[:-1])
  sharding.write(tmp_path, plan())
  assert items_of(tmp_path) == list(range(20))


def test_a_full_disk_is_reported_and_leaves_no_shards(tmp_path):
  with small_disk.mounted(tmp_path / 'disk', 256) as disk:
    folder = disk / 'data'
    big = plan(items=2000, number=8)
    with pytest.raises(errors.DataError, match='free space; received .*space'):
      sharding.write(folder, big, sharding.ConversionOptions(num_threads=2))
    assert train_files(folder) == []
    assert not list(folder.glob('**/*.part'))
    with pytest.raises(errors.DataError):
      shards.find(catalog.DATASETS['mnist'], folder, 'train')


def test_after_a_full_disk_the_rest_is_written(tmp_path):
  with small_disk.mounted(tmp_path / 'disk', 512) as disk:
    (disk / 'ballast').write_bytes(bytes(300 << 10))
    folder = disk / 'data'
    big = plan(items=600, number=8)
    with pytest.raises(errors.DataError, match='free space'):
      sharding.write(folder, big, sharding.ConversionOptions(num_threads=1))
    (disk / 'ballast').unlink()
    seen = []
    sharding.write(folder, plan(items=600, number=8, before=seen.append))
    assert 0 not in seen
    assert items_of(folder) == list(range(600))


def test_a_killed_run_is_continued_and_refused_by_readers_until_then(tmp_path):
  there, here = os.pipe()
  with open(there) as lines:
    with open(here, 'w') as out:
      child = warm.start(
        *(None, [CONVERTS, tmp_path, 'stall'], out, sys.__stderr__),
        environment=os.environ | {'PYTHONPATH': str(ROOT)},
      )
    assert lines.readline() == 'stalled\n'
  with pytest.raises(errors.DataError, match=f'process {child.pid} is writing'):
    sharding.write(tmp_path, plan())  # two processes, one folder
  os.kill(child.pid, signal.SIGKILL)
  child.join(60)
  assert child.exitcode == -signal.SIGKILL
  child.close()
  assert train_files(tmp_path) == []
  with pytest.raises(errors.DataError, match='expected a finished conversion'):
    shards.find(catalog.DATASETS['mnist'], tmp_path, 'train')
  seen = []
  report = sharding.write(tmp_path, plan(before=seen.append))
  assert report.counts == {'train': 20, 'test': 4}
  assert 0 not in seen and 13 in seen
  assert items_of(tmp_path) == list(range(20))


def test_a_run_that_was_stopped_while_it_replaced_another_continues(
  tmp_path, monkeypatch
):
  sharding.write(tmp_path, plan(number=2))
  overwrite = sharding.ConversionOptions(overwrite=True)

  def stop(*_):
    raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(shard_manifest, 'write', stop)
    with pytest.raises(KeyboardInterrupt):
      sharding.write(tmp_path, plan(), overwrite)
  assert not (tmp_path / 'shards.json').exists()
  assert sharding.write(tmp_path, plan(), overwrite).written
  assert items_of(tmp_path) == list(range(20))

  unlink = pathlib.Path.unlink

  def stop_after_the_list(path, **options):
    unlink(path, **options)
    if path.name == 'shards.json':
      raise KeyboardInterrupt

  with monkeypatch.context() as patch:
    patch.setattr(pathlib.Path, 'unlink', stop_after_the_list)
    with pytest.raises(KeyboardInterrupt):
      sharding.write(tmp_path, plan(number=2), overwrite)
  assert sharding.write(tmp_path, plan(number=2), overwrite).written
  assert items_of(tmp_path) == list(range(20))


@pytest.mark.slow
def test_concurrent_runs_write_one_complete_set(tmp_path):
  children = [start(tmp_path) for _ in range(2)]
  codes = [child.wait(timeout=120) for child in children]
  for child in children:
    child.stdout.close()
  assert 0 in codes
  assert shard_manifest.verify(tmp_path).counts == {'train': 20, 'test': 4}
  assert not (tmp_path / staging.FOLDER).exists()


def test_a_lock_on_a_file_that_its_holder_removed_is_void(
  tmp_path, monkeypatch
):
  lock = fcntl.flock

  def remove_first(descriptor, operation):
    monkeypatch.undo()
    staging.remove(tmp_path / staging.FOLDER)
    lock(descriptor, operation)

  monkeypatch.setattr(fcntl, 'flock', remove_first)
  with staging.lock_folder(tmp_path):
    with pytest.raises(errors.DataError, match=f'process {os.getpid()} is wr'):
      sharding.write(tmp_path, plan())


@pytest.mark.parametrize('name', ['\x1b[31m', 'a\nb'])
def test_class_names_that_cannot_be_lines_are_refused(tmp_path, name):
  named = plan()._replace(class_names=('a', name, 'c'))
  with pytest.raises(errors.DataError, match='class names that can be lines'):
    sharding.write(tmp_path / 'out', named)
  assert not (tmp_path / 'out').exists()
