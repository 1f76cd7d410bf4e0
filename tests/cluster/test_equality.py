import numpy as np
import pytest

from terngrad import errors
from terngrad.cluster import equality

NAMES = ['conv/kernel', 'conv/bias']


def digests(*replicas):
  return [np.stack([equality.digest(v) for v in one]) for one in replicas]


def values():
  return [np.zeros([2, 3], np.float32), np.ones([3], np.float32)]


def test_equal_replicas_pass():
  equality.check(digests(values(), values()), NAMES, ['worker 0', 'worker 1'])


@pytest.mark.parametrize('other', [np.nextafter(1, 2, dtype=np.float32), -1.0])
def test_the_first_variable_that_differs_is_named_with_its_replica(other):
  changed = values()
  changed[1][2] = other
  replicas = ['worker 0', 'worker 1', 'worker 2']
  with pytest.raises(
    errors.TrainingError, match='conv/bias on worker 2 to equal .* worker 0'
  ):
    equality.check(digests(values(), values(), changed), NAMES, replicas)


def test_zeros_of_other_signs_differ():
  changed = values()
  changed[0][0, 0] = -0.0
  with pytest.raises(errors.TrainingError, match='conv/kernel on /CPU:1'):
    equality.check(digests(values(), changed), NAMES, ['/CPU:0', '/CPU:1'])


def test_digests_of_one_number_per_variable_are_compared():
  with pytest.raises(errors.TrainingError, match='conv/bias'):
    equality.check([np.array([1, 2]), np.array([1, 3])], NAMES, ['a', 'b'])
