"""The accuracy of codes, as committed sweeps measured it."""

import pytest

from terngrad.measure.planning import accuracy


def test_differences_are_those_of_the_readmes():
  # experiments/cifar10_causes/README.md, the first two tables.
  cifar = 'cifar10_causes'
  assert accuracy.find('ternary')[cifar] == (-2.73, 0.91, 3)
  assert accuracy.find('eden3')[cifar] == (-0.65, 0.88, 3)
  one = accuracy.find('error_feedback+powersgd:rank=2')[cifar]
  assert one == (-0.79, None, 1)
  # experiments/lenet_codecs/sweep.md.
  assert accuracy.find('ternary')['lenet_codecs'] == (-0.11, 0.23, 3)


def test_a_code_is_found_by_what_it_does_not_by_its_spelling():
  long = accuracy.find('error_feedback+topk:ratio=0.01')
  assert long == accuracy.find('error_feedback+topk') != {}
  assert accuracy.find('int8') == accuracy.find('minmax:bits=8,group_size=0')
  assert accuracy.find('error_feedback+topk:ratio=0.5') == {}


@pytest.mark.parametrize(
  ('text', 'loss'),
  [('identity', 0), ('fp16', None), ('ternary', 2.7), ('topk:ratio=0.5', None)],
)
def test_the_largest_loss_is_rounded_and_never_negative(text, loss):
  assert accuracy.largest_loss(text) == loss


def test_differences_say_how_sure_they_are():
  assert str(accuracy.Difference(-2.731, 0.912, 3)) == '-2.73 ± 0.91'
  assert str(accuracy.Difference(0.04, None, 1)) == '+0.04 (1 seed)'


def test_the_source_says_that_the_data_are_jpeg():
  (one,) = [s for s in accuracy.SWEEPS.values() if 'CIFAR' in s.setting]
  assert 'JPEG' in one.setting and 'JPEG' in one.heading
