import base64
import hashlib

import pytest

from slim import errors
from slim.datasets.files import downloads
from slim.datasets.records import disk
from tests.slim import file_server
from tests.slim import small_disk

CONTENT = bytes(range(256)) * 4000


@pytest.fixture
def site():
  with file_server.serving() as served:
    served.files['/a.tar'] = CONTENT
    yield served


def remote(site, *, digest=None, name='a.tar'):
  digest = hashlib.md5(CONTENT).hexdigest() if digest is None else digest
  return downloads.Remote(
    f'{site.url}/{name}', name, 'md5' if digest else '', digest
  )


def client(**changes):
  return downloads.Client(pause=lambda seconds: None, **changes)


def asked(site):
  """Returns the ranges of the downloads, in order."""
  return [ranges for method, _, ranges, _ in site.seen if method == 'GET']


def test_a_file_is_fetched_once(site, tmp_path):
  folder = tmp_path / 'new'
  path = downloads.fetch(remote(site), folder, client())
  assert (path, path.read_bytes()) == (folder / 'a.tar', CONTENT)
  downloads.fetch(remote(site), folder, client())
  assert asked(site) == [None]
  assert [p.name for p in folder.iterdir()] == ['a.tar']


def test_a_lost_connection_is_resumed_where_it_broke(site, tmp_path):
  site.cuts = [1000, 50_000]
  path = downloads.fetch(remote(site), tmp_path, client())
  assert path.read_bytes() == CONTENT
  assert asked(site) == [None, 'bytes=1000-', 'bytes=51000-']


def test_an_earlier_run_is_resumed(site, tmp_path):
  site.cuts = [1000, 0]
  with pytest.raises(errors.DataError, match='the connection ended early'):
    downloads.fetch(remote(site), tmp_path, client(attempts=1))
  assert not (tmp_path / 'a.tar').exists()
  path = downloads.fetch(remote(site), tmp_path, client())
  assert path.read_bytes() == CONTENT
  assert asked(site)[-1] == 'bytes=1000-'


def test_a_part_that_is_whole_needs_only_its_name(site, tmp_path):
  (tmp_path / 'a.tar.part').write_bytes(CONTENT)
  path = downloads.fetch(remote(site), tmp_path, client())
  assert path.read_bytes() == CONTENT


def test_a_part_of_another_file_is_replaced(site, tmp_path):
  (tmp_path / 'a.tar.part').write_bytes(CONTENT + b'more')
  path = downloads.fetch(remote(site), tmp_path, client())
  assert path.read_bytes() == CONTENT


def test_a_server_without_range_requests_starts_again(site, tmp_path):
  site.ranges = False
  site.cuts = [1000]
  path = downloads.fetch(remote(site), tmp_path, client())
  assert path.read_bytes() == CONTENT


def test_a_busy_server_is_asked_again_after_growing_pauses(site, tmp_path):
  site.errors = [503, 500]
  pauses = []
  downloads.fetch(remote(site), tmp_path, downloads.Client(pause=pauses.append))
  assert pauses == [2, 4]


@pytest.mark.parametrize('code', [401, 403, 404])
def test_client_errors_are_not_retried(site, tmp_path, code):
  site.errors = [code] * 9
  with pytest.raises(errors.DataError, match=f'received "{code} .*credentials'):
    downloads.fetch(remote(site), tmp_path, client())
  assert len(site.seen) == 1


def test_an_unreachable_server_is_named(tmp_path):
  with file_server.serving() as gone:
    pass
  with pytest.raises(errors.DataError, match='Connection refused.*other means'):
    downloads.fetch(remote(gone), tmp_path, client(attempts=2))


def test_a_wrong_checksum_leaves_no_file(site, tmp_path):
  with pytest.raises(errors.DataError, match='expected md5 00; received'):
    downloads.fetch(remote(site, digest='00'), tmp_path, client())
  assert list(tmp_path.iterdir()) == []
  path = downloads.fetch(remote(site, digest='00'), tmp_path, client(verify=0))
  assert path.read_bytes() == CONTENT


def test_a_file_that_is_there_is_checked_and_never_removed(site, tmp_path):
  (tmp_path / 'a.tar').write_bytes(b'mine')
  with pytest.raises(errors.DataError, match='expected md5 .* received'):
    downloads.fetch(remote(site), tmp_path, client())
  assert (tmp_path / 'a.tar').read_bytes() == b'mine'
  assert site.seen == []


def test_without_a_checksum_a_part_is_not_trusted(site, tmp_path):
  (tmp_path / 'a.tar.part').write_bytes(b'x' * 1000)
  path = downloads.fetch(remote(site, digest=''), tmp_path, client())
  assert path.read_bytes() == CONTENT
  assert asked(site) == [None]


def test_two_processes_do_not_fetch_into_one_file(site, tmp_path):
  with open(tmp_path / 'a.tar.part', 'ab') as file:
    assert disk.lock(file)
    with pytest.raises(errors.DataError, match='no other process downloads'):
      downloads.fetch(remote(site), tmp_path, client())


def test_a_file_that_another_process_has_just_finished_is_left_as_it_is(
  site, tmp_path, monkeypatch
):
  lock = disk.lock

  def finish_first(file):
    monkeypatch.setattr(disk, 'lock', lock)
    downloads.fetch(remote(site, digest=''), tmp_path, client())
    return lock(file)

  monkeypatch.setattr(disk, 'lock', finish_first)
  path = downloads.fetch(remote(site, digest=''), tmp_path, client())
  assert path.read_bytes() == CONTENT
  assert len(asked(site)) == 1


def test_credentials_go_to_the_site_and_to_no_other(site, tmp_path):
  with file_server.serving() as other:
    other.files['/real'] = CONTENT
    site.redirects['/a.tar'] = f'{other.url}/real'
    known = client(credentials=downloads.Credentials('me', 'secret'))
    downloads.fetch(remote(site), tmp_path, known)
    token = base64.b64encode(b'me:secret').decode()
    assert site.seen[0][3] == f'Basic {token}'
    assert other.seen[0][3] is None


def test_credentials_are_not_sent_in_the_clear(tmp_path):
  known = client(credentials=downloads.Credentials('me', 'secret'))
  far = downloads.Remote('http://example.org/a', 'a')
  with pytest.raises(errors.DataError, match='expected https, because cred'):
    downloads.fetch(far, tmp_path, known)


def test_space_is_checked_before_anything_is_fetched(site, tmp_path):
  downloads.check_space(tmp_path / 'new', [remote(site)], client())
  with pytest.raises(errors.DataError, match='of free space for the files'):
    downloads.check_space(
      tmp_path, [remote(site)], client(), lambda total: total * 10**12
    )
  assert asked(site) == []


def test_existing_files_need_no_space(site, tmp_path):
  with small_disk.mounted(tmp_path / 'disk', 1200) as disk:
    downloads.check_space(disk, [remote(site)], client())
    (disk / 'a.tar.part').write_bytes(CONTENT[:800_000])
    downloads.check_space(disk, [remote(site)], client())
    (disk / 'other').write_bytes(bytes(300_000))
    with pytest.raises(errors.DataError, match='expected 224,000 bytes'):
      downloads.check_space(disk, [remote(site)], client())


def test_a_full_disk_is_named_and_keeps_the_part(site, tmp_path):
  with small_disk.mounted(tmp_path / 'disk', 300) as disk:
    with pytest.raises(errors.DataError, match='free space; received .*space'):
      downloads.fetch(remote(site), disk, client())
    assert not (disk / 'a.tar').exists()
    assert (disk / 'a.tar.part').stat().st_size > 0
