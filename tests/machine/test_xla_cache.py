"""XLA's cache of compiled code: private, checked, and never in the way."""

import os
import subprocess
import sys
import textwrap

import pytest

from terngrad.machine import xla_cache
from terngrad.machine import xla_entries

# Complete entries: a key, a module and an executable of some bytes.
ENTRY = b'\x0a\x02ab\x12\x01c\x1a\x80\x01' + b'd' * 128
OTHER = b'\x0a\x02ab\x12\x01c\x1a\x03abc'


@pytest.fixture
def cache(tmp_path, monkeypatch):
  """The folder of the cache, on for processes that decide now."""
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.delenv(xla_cache.VARIABLE, raising=False)
  monkeypatch.delenv(xla_cache.SWITCH, raising=False)
  yield tmp_path / 'terngrad' / 'xla'
  for file in xla_cache._locks:
    file.close()
  xla_cache._locks.clear()


def flags():
  return os.environ.get(xla_cache.VARIABLE, '')


def test_the_cache_is_in_a_private_folder_and_the_log_says_where(cache):
  xla_cache.prefer()
  assert f'{xla_cache.FLAG}_directory={cache} ' in flags()
  assert cache.stat().st_mode & 0o777 == 0o700
  assert xla_cache.describe() == f'compiled code: kept in {cache}'


def test_other_flags_of_the_user_stay(cache, monkeypatch):
  monkeypatch.setenv(xla_cache.VARIABLE, '--tf_xla_auto_jit=2')
  xla_cache.prefer()
  assert flags().endswith(' --tf_xla_auto_jit=2')
  assert f'_directory={cache} ' in flags()


@pytest.mark.parametrize(
  'given', [f'{xla_cache.FLAG}_directory=/their/own', 'a_file_with_flags']
)
def test_the_choice_of_the_user_wins(cache, monkeypatch, given):
  monkeypatch.setenv(xla_cache.VARIABLE, given)
  xla_cache.prefer()
  assert flags() == given
  assert not cache.exists()


def test_a_variable_turns_it_off(cache, monkeypatch):
  monkeypatch.setenv(xla_cache.SWITCH, '0')
  xla_cache.prefer()
  assert flags() == '' and not cache.exists()
  said = 'compiled code: not kept (TERNGRAD_XLA_CACHE=0)'
  assert xla_cache.describe() == said


@pytest.mark.parametrize('open_folder', ['xla', '', '..'])
def test_a_folder_that_others_can_write_is_not_used(cache, open_folder):
  cache.mkdir(parents=True, mode=0o700)
  changed = cache.parent / open_folder
  before = changed.stat().st_mode
  changed.chmod(0o777)
  xla_cache.prefer()
  changed.chmod(before)
  assert flags() == '' and not [*cache.iterdir()]
  assert 'received mode 0777 of user' in xla_cache.describe()
  assert 'Run chmod go-w' in xla_cache.describe()


def test_a_folder_where_no_file_can_be_made_is_not_used(cache):
  cache.parent.write_text('a file where the folder would be')
  xla_cache.prefer()
  assert flags() == ''


def test_a_path_that_flags_cannot_hold_is_not_used(
  tmp_path, monkeypatch, cache
):
  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path / 'a b'))
  xla_cache.prefer()
  assert flags() == ''
  assert 'expected a path without spaces' in xla_cache.describe()


def test_a_full_disk_is_only_read(cache, monkeypatch):
  usage = xla_cache.shutil._ntuple_diskusage(10, 10, 0)
  monkeypatch.setattr(xla_cache.shutil, 'disk_usage', lambda _: usage)
  xla_cache.prefer()
  assert f'{xla_cache.FLAG}_read_only=true' in flags()
  assert 'compiled code: only read from ' in xla_cache.describe()


def test_code_of_another_processor_is_not_loaded(cache, monkeypatch, tmp_path):
  first = xla_cache._machine()
  information = tmp_path / 'cpuinfo'
  information.write_text('flags : fpu sse\nbogomips : 3\n')
  monkeypatch.setattr(xla_cache, '_PROCESSOR', str(information))
  second = xla_cache._machine()
  monkeypatch.setenv('XLA_FLAGS', '--xla_cpu_enable_fast_math=true')
  assert len({first, second, xla_cache._machine()}) == 3


def put(folder, name, content):
  path = folder / f'terngrad__{name}.pb'
  path.write_bytes(content)
  return path


def names(folder):
  return {p.stem.partition('__')[2] for p in folder.glob('*.pb')}


@pytest.mark.parametrize(
  'damaged',
  [b'', ENTRY[:-1], bytes(len(ENTRY)), ENTRY + b'\0', ENTRY[4:], b'\x0a\xff'],
)
def test_incomplete_entries_are_removed_and_others_stay(tmp_path, damaged):
  assert xla_entries.is_complete(ENTRY) and xla_entries.is_complete(OTHER)
  put(tmp_path, 'whole', ENTRY)
  put(tmp_path, 'damaged', damaged)
  (tmp_path / 'x.pb123.tmp').write_bytes(b'written by a killed process')
  xla_entries.clean(tmp_path, 10**6)
  assert names(tmp_path) == {'whole'}
  assert not [*tmp_path.glob('*.tmp')]


def test_an_entry_whose_bytes_changed_since_it_was_sealed_is_removed(tmp_path):
  path = put(tmp_path, 'changed', ENTRY)
  put(tmp_path, 'same', OTHER)
  xla_entries.clean(tmp_path, 10**6)
  path.write_bytes(ENTRY.replace(b'dd', b'de', 1))
  xla_entries.clean(tmp_path, 10**6)
  assert names(tmp_path) == {'same'}


def test_after_the_machine_stopped_only_sealed_entries_stay(tmp_path):
  put(tmp_path, 'sealed', ENTRY)
  xla_entries.clean(tmp_path, 10**6)
  put(tmp_path, 'new', OTHER)
  for path in tmp_path.glob('*.pb'):
    os.utime(path, (1e9, 1e9))
  xla_entries.clean(tmp_path, 10**6)
  assert names(tmp_path) == {'sealed'}


def test_seals_that_are_no_json_are_made_again(tmp_path):
  put(tmp_path, 'whole', ENTRY)
  (tmp_path / xla_entries.SEALS).write_bytes(b'[1, \xff')
  xla_entries.clean(tmp_path, 10**6)
  assert names(tmp_path) == {'whole'}


def test_beyond_the_limit_those_unused_for_longest_are_removed(tmp_path):
  for number in range(8):
    path = put(tmp_path, f'{number}', ENTRY)
    seconds = path.stat().st_mtime - 100 + number
    os.utime(path, (seconds, seconds))
  xla_entries.clean(tmp_path, 8 * len(ENTRY))
  assert len(names(tmp_path)) == 8
  xla_entries.clean(tmp_path, 8 * len(ENTRY) - 1)
  assert names(tmp_path) == {'3', '4', '5', '6', '7'}


def test_entries_are_removed_only_when_no_other_process_uses_them(cache):
  xla_cache.prefer()
  damaged = cache / f'terngrad_{xla_cache._machine()}__1.pb'
  damaged.write_bytes(b'')
  del os.environ[xla_cache.VARIABLE]
  xla_cache.prefer()
  assert damaged.exists() and f'_directory={cache}' in flags()
  for file in xla_cache._locks:
    file.close()
  del os.environ[xla_cache.VARIABLE]
  xla_cache.prefer()
  assert not damaged.exists()


PROGRAM = textwrap.dedent("""
  import os
  from terngrad import quiet
  quiet.import_tensorflow()
  import tensorflow as tf
  twice = tf.function(lambda x: x * 2 + 1, jit_compile=True, autograph=False)
  print(twice(tf.ones([5])).numpy().tolist())
""")


def run(program=PROGRAM):
  environment = {**os.environ}
  environment.pop('TF_CPP_MIN_LOG_LEVEL', None)
  done = subprocess.run(
    [sys.executable, '-c', program],
    env=environment,
    capture_output=True,
    text=True,
    check=False,
    timeout=300,
  )
  assert done.returncode == 0, done.stderr
  return done


def output():
  done = run()
  return done.stdout, done.stderr


@pytest.mark.slow
def test_a_second_process_loads_what_the_first_compiled_and_repairs(cache):
  # Without XLA's errors about the form of its own entries.
  said = '[3.0, 3.0, 3.0, 3.0, 3.0]\n', ''
  assert output() == said
  (entry,) = cache.glob('*.pb')
  before = entry.stat().st_mtime_ns, entry.read_bytes()
  assert output() == said
  assert (entry.stat().st_mtime_ns, entry.read_bytes()) == before
  entry.write_bytes(before[1][: len(before[1]) // 2])
  assert output() == said
  assert xla_entries.is_complete(entry.read_bytes())


LIBRARY = textwrap.dedent("""
  import tensorflow as tf
  import terngrad
  print(terngrad.keep_compiled_code())
  twice = tf.function(lambda x: x * 2 + 1, jit_compile=True, autograph=False)
  twice(tf.ones([5]))
  try:
    terngrad.keep_compiled_code()
  except RuntimeError as error:
    print(error)
""")


@pytest.mark.slow
def test_a_program_that_imported_tensorflow_before_can_turn_it_on(cache):
  first, second = run(LIBRARY).stdout.splitlines()
  assert first == f'compiled code: kept in {cache}'
  assert len([*cache.glob('*.pb')]) == 1
  assert second.startswith('keep_compiled_code: expected a call before')
