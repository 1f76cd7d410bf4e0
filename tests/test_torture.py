"""The torture tests detect planted differences, and find none otherwise."""

import io
import tarfile

import numpy as np
import pytest

from tests.bin import programs
from tests.slim import archives_made
from tests.torture import archives
from tests.torture import cluster_faults
from tests.torture import disk_faults
from tests.torture import faults
from tests.torture import references


@pytest.mark.parametrize(
  'done',
  [
    programs.Finished(
      1, '', 'Traceback (most recent call last):\nerror: Expected'
    ),
    programs.Finished(2, '', 'something went wrong'),
    programs.Finished(-11, '', 'error: Expected a file'),
    programs.Finished(75, '', 'error: Expected a file'),
  ],
)
def test_an_exit_without_a_proper_error_is_a_difference(done):
  with pytest.raises(references.Difference, match='a file was damaged'):
    references.check_refusal(done, 'a file was damaged')


def test_a_proper_error_or_success_is_no_difference():
  references.check_refusal(programs.Finished(0, 'done', ''), '')
  error = 'error: Expected a file, received none.'
  references.check_refusal(programs.Finished(2, '', error), '')


def test_damage_changes_a_file_or_removes_it(tmp_path):
  path = tmp_path / 'file'
  changed = set()
  for seed in range(40):
    path.write_bytes(b'x' * 100)
    faults.damage(path, np.random.default_rng(seed))
    changed.add(path.read_bytes() if path.exists() else None)
  assert None in changed and len(changed) > 25
  assert b'x' * 100 not in changed


def test_a_faulty_tar_has_one_wrong_header_with_a_valid_checksum():
  whole = archives_made.tar(
    [archives_made.member(str(i), b'content') for i in range(3)]
  )
  read, changed = 0, set()
  for seed in range(40):
    content = archives.lie(np.random.default_rng(seed), whole)
    assert len(content) == len(whole)
    blocks = [
      i
      for i in range(0, len(whole), 512)
      if content[i : i + 512] != whole[i : i + 512]
    ]
    changed.update(blocks)
    try:
      with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        read += len(archive.getmembers())
    except tarfile.TarError:
      pass
  # Of headers alone, and nearly all are read as they are.
  assert changed == {0, 1024, 2048}
  assert read > 40


@pytest.fixture(scope='module')
def reference(tmp_path_factory):
  return references.make_reference(tmp_path_factory.mktemp('torture'))


@pytest.mark.slow
@pytest.mark.parametrize(
  'fault', faults.FAULTS + disk_faults.FAULTS, ids=lambda fault: fault.__name__
)
def test_a_round_of_each_fault_finds_no_difference(fault, reference, tmp_path):
  place = references.Place(tmp_path, reference)
  assert fault(place, np.random.default_rng(5)) > 0


@pytest.mark.slow
@pytest.mark.cluster
@pytest.mark.parametrize(
  'fault', cluster_faults.FAULTS, ids=lambda fault: fault.__name__
)
def test_a_round_of_each_fault_of_a_cluster_finds_no_difference(
  fault, reference, tmp_path
):
  place = references.Place(tmp_path, reference)
  assert fault(place, np.random.default_rng(5)) > 0
