import concurrent.futures
import contextlib
import errno
import os
import re
import shutil
import socket
import tempfile

import pytest

from terngrad.cluster import file_rendezvous
from terngrad.cluster import rendezvous
from terngrad.cluster import spec

ADDRESSES = ('a:1', 'b:2', '[::1]:3')


def join(folder, *arguments):
  return rendezvous.join(file_rendezvous.Folder(folder), *arguments)


def refused(*arguments, timeout=0):
  with pytest.raises(spec.ClusterError) as caught:
    join(*arguments, timeout)
  assert '\n' not in str(caught.value)
  return str(caught.value)


def meet_all(folder, addresses=ADDRESSES):
  count = len(addresses)
  with concurrent.futures.ThreadPoolExecutor(count) as pool:
    # The last one comes first.
    coming = [
      pool.submit(join, folder, index, count, addresses[index], 60)
      for index in reversed(range(count))
    ]
    return [one.result() for one in reversed(coming)]


def test_processes_get_all_addresses_in_the_order_of_their_indices(tmp_path):
  folder = tmp_path / 'shared' / 'run 7'
  found = meet_all(folder)
  assert [one.jobs for one in found] == [{'worker': ADDRESSES}] * 3
  assert [one.index for one in found] == [0, 1, 2]
  # Nothing but whole files stays.
  assert sorted(os.listdir(folder)) == [f'task_{i}_of_3' for i in range(3)]


def test_a_restarted_run_finds_its_processes(tmp_path):
  assert meet_all(tmp_path) == meet_all(tmp_path)


def test_missing_processes_are_named(tmp_path):
  (tmp_path / 'task_2_of_4').write_text('c:3\n')
  message = refused(tmp_path, 1, 4, 'b:2')
  assert (
    'within --start_timeout=0 seconds, received 2; missing: 0, 3' in message
  )
  assert '--task_id=0' in message
  assert 'missing: 1, 2, 3' in refused(tmp_path / 'other', 0, 4, 'a:1')
  assert '20 and more.' in refused(tmp_path / 'large', 0, 400, 'a:1')


def test_entries_of_another_run_are_refused_and_not_changed(tmp_path):
  meet_all(tmp_path)
  message = refused(tmp_path, 1, 3, 'new:2')
  assert (
    'task_1_of_3: expected new:2, the address of this process, received b:2'
    in message
  )
  assert 'another --rendezvous_dir' in message
  assert (tmp_path / 'task_1_of_3').read_text() == 'b:2\n'
  assert len(os.listdir(tmp_path)) == 3


def test_an_earlier_run_of_another_size_is_refused(tmp_path):
  meet_all(tmp_path)
  message = refused(tmp_path, 0, 2, 'a:1')
  assert re.search('task_[012]_of_3: expected files of 2 processes', message)


def test_two_processes_at_one_address_are_refused(tmp_path):
  (tmp_path / 'task_1_of_2').write_text('a:1\n')
  assert 'a:1 and a:1. Give each task a different port' in refused(
    tmp_path, 0, 2, 'a:1'
  )


@pytest.mark.parametrize(
  'content',
  [
    *(b'', b'b:2', b'\n', b'b:2\n\n', b'b:2\nc:3\n', b'b:99999\n', b'/etc/x\n'),
    *(b'$(reboot):2\n', b'-o:2\n', b'\xff:2\n', b'\x1b[2J:2\n', b'b' * 10**6),
    'b٢:2\n'.encode(),
  ],
)
def test_hostile_files_are_refused_and_named(tmp_path, content):
  (tmp_path / 'task_1_of_2').write_bytes(content)
  message = refused(tmp_path, 0, 2, 'a:1')
  assert f'{tmp_path}/task_1_of_2: expected' in message
  assert len(message) < 1000


def test_links_pipes_and_folders_are_not_read(tmp_path):
  secret = tmp_path / 'secret'
  secret.write_text('b:2\n')
  path = tmp_path / 'run' / 'task_1_of_2'
  path.parent.mkdir()
  path.symlink_to(secret)
  assert 'received: Too many levels' in not_a_plain_file(path)
  path.unlink()
  path.symlink_to('nowhere')
  assert 'received: Too many levels' in not_a_plain_file(path)
  path.unlink()
  os.mkfifo(path)
  assert 'received: another kind of file' in not_a_plain_file(path)
  path.unlink()
  with socket.socket(socket.AF_UNIX) as listening:
    listening.bind(os.fspath(path))
    assert 'received: No such device' in not_a_plain_file(path)
  path.unlink()
  path.mkdir()
  assert 'received: another kind of file' in not_a_plain_file(path)


def not_a_plain_file(path):
  message = refused(path.parent, 0, 2, 'a:1')
  assert f'{path}: expected a plain file to read' in message
  return message


def test_a_huge_file_is_refused_and_not_read(tmp_path):
  with open(tmp_path / 'task_1_of_2', 'wb') as file:
    file.truncate(2**40)
  assert 'task_1_of_2: expected a line of host:port' in refused(
    tmp_path, 0, 2, 'a:1'
  )


def test_a_folder_with_too_many_files_is_refused(tmp_path, monkeypatch):
  meet_all(tmp_path)
  # Only now: while tasks meet, temporary files count too.
  monkeypatch.setattr(file_rendezvous, '_MAX_NAMES', 3)
  (tmp_path / 'a photograph').touch()
  message = refused(tmp_path, 0, 3, 'a:1')
  assert 'expected a folder of one run, received more than 3 names' in message
  assert 'another --rendezvous_dir' in message


def test_temporary_files_of_a_killed_process_are_ignored(tmp_path):
  left = f'task_0_of_1.{os.uname().nodename}.{os.getpid()}'
  (tmp_path / left).write_text('a:')
  assert join(tmp_path, 0, 1, 'a:1', 0).address == 'a:1'


@pytest.mark.parametrize(
  ('index', 'count', 'address', 'message'),
  [
    (0, 0, 'a:1', 'received 0 and 0'),
    (2, 2, 'a:1', 'received 2 and 2'),
    (-1, 2, 'a:1', 'received 2 and -1'),
    (0, 10**9, 'a:1', 'expected 1 to 4096 processes'),
    (0, 2, 'a', 'own_address: expected host:port'),
    (0, 2, 'a:1\nb:2', 'own_address: expected host:port'),
  ],
)
def test_invalid_arguments_are_refused_and_create_nothing(
  tmp_path, index, count, address, message
):
  folder = tmp_path / 'run'
  assert message in refused(folder, index, count, address)
  assert not folder.exists()


def test_unusable_folders_are_refused(tmp_path):
  assert 'received nothing' in refused('', 0, 2, 'a:1')
  (tmp_path / 'file').touch()
  assert 'File exists' in refused(tmp_path / 'file', 0, 2, 'a:1')


@contextlib.contextmanager
def without_privileges():
  """The superuser, who writes everywhere, is somebody else for a while."""
  user = os.geteuid()
  os.seteuid(user or 65534)
  try:
    yield
  finally:
    os.seteuid(user)


def test_a_folder_that_cannot_be_written_is_refused_at_once():
  with tempfile.TemporaryDirectory() as folder:
    os.chmod(folder, 0o555)
    with without_privileges():
      message = refused(folder, 0, 2, 'a:1', timeout=60)
  assert 'rendezvous_dir: expected a folder to write to' in message
  assert 'Permission denied' in message and folder in message


def test_a_folder_that_is_removed_later_raises_the_error_of_a_location(
  tmp_path,
):
  folder = file_rendezvous.Folder(str(tmp_path / 'run'))
  folder.sync(0, 2, 'a:1')
  shutil.rmtree(tmp_path / 'run')
  with pytest.raises(spec.ClusterError, match='No such file or directory'):
    folder.read_failure(0, 2)


@pytest.mark.parametrize('number', [errno.EPERM, errno.ENOSYS, errno.ENOTSUP])
def test_a_file_system_without_hard_links_is_refused(
  tmp_path, monkeypatch, number
):
  def link(*paths):
    raise OSError(number, os.strerror(number))

  monkeypatch.setattr(os, 'link', link)
  message = refused(tmp_path, 0, 2, 'a:1', timeout=60)
  assert 'expected a file system with hard links, received: ' in message
  assert os.strerror(number) in message
  assert list(tmp_path.iterdir()) == []
