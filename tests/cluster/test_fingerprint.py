import pytest

from terngrad.cluster import fingerprint
from terngrad.machine import onednn


def test_equal_choices_are_equal_and_the_first_difference_is_named():
  chief = fingerprint.fingerprint(net='lenet', codec='ternary', variables=8)
  same = fingerprint.fingerprint(net='lenet', codec='ternary', variables=8)
  fingerprint.check_equal(chief, same, 'worker 1')
  other = fingerprint.fingerprint(net='alexnet', codec='identity', variables=8)
  with pytest.raises(
    fingerprint.MismatchError,
    match="net to be 'lenet'.*received 'alexnet' on worker 1.*Install",
  ):
    fingerprint.check_equal(chief, other, 'worker 1')


@pytest.mark.parametrize(
  'name', ['terngrad', 'tensorflow', 'threads', 'onednn']
)
def test_version_threads_and_kernels_are_compared_first(name):
  chief = fingerprint.fingerprint(net='lenet')
  other = chief | {name: 'other', 'net': 'alexnet'}
  with pytest.raises(fingerprint.MismatchError, match=f'expected {name} to be'):
    fingerprint.check_equal(chief, other, 'ps 0')


def test_fields_that_one_side_lacks_differ():
  chief = fingerprint.fingerprint(net='lenet')
  with pytest.raises(fingerprint.MismatchError, match="'nothing' on worker 1"):
    fingerprint.check_equal(chief, {}, 'worker 1')
  with pytest.raises(fingerprint.MismatchError, match='extra to be'):
    fingerprint.check_equal(chief, chief | {'extra': '1'}, 'worker 1')


def test_fingerprints_contain_the_threads():
  assert int(fingerprint.fingerprint()['threads']) > 0


@pytest.mark.parametrize('switch', ['on', 'off'])
def test_fingerprints_contain_onednn(switch, monkeypatch):
  monkeypatch.setattr(onednn, 'is_on', lambda: switch == 'on')
  assert fingerprint.fingerprint()['onednn'] == switch


def test_bytes_decode_to_the_same_fields():
  # A run has more than 60 options.
  options = {f'option_{number}': str(number) for number in range(120)}
  fields = fingerprint.fingerprint(net='lenet', text='é\n"', **options)
  data = fingerprint.to_bytes(fields, 4096)
  assert len(data) == 4096
  assert fingerprint.from_bytes(data, 'worker 1') == fields
  with pytest.raises(ValueError, match='at most 10 bytes, received'):
    fingerprint.to_bytes(fields, 10)


@pytest.mark.parametrize(
  'data', [b'', b'\xff', b'3', b'[]', b'{"a": 1}', b'[' * 100000, b'null']
)
def test_invalid_bytes_are_refused(data):
  with pytest.raises(fingerprint.MismatchError, match='worker 1.*addresses'):
    fingerprint.from_bytes(data, 'worker 1')
