"""Trainings end at the bits that were recorded; see `cases`."""

import re

import pytest

from tests.bits import cases
from tests.bits import machine
from tests.bits import recorded
from tests.bits import runs

REST = [
  case
  for group in cases.groups(alone=True)
  for case in group.cases()
  if case not in cases.QUICK
]


def check(case, found):
  assert (
    recorded.digest(found) == recorded.of_this_machine('digests')[str(case)]
  ), str(case)


@pytest.mark.parametrize('case', cases.QUICK, ids=str)
@pytest.mark.gate_every(3)
def test_training_reproduces_the_recorded_bits(case):
  recorded.of_this_machine('digests')
  check(case, runs.bits(case))


@pytest.mark.slow
@pytest.mark.parametrize('case', REST, ids=str)
def test_training_in_one_process_reproduces_the_recorded_bits(case):
  recorded.of_this_machine('digests')
  check(case, runs.bits(case))


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('group', cases.groups(alone=False), ids=str)
def test_training_in_processes_reproduces_the_recorded_bits(group, tmp_path):
  recorded.of_this_machine('digests')
  found = runs.of_processes(group, tmp_path)
  for case, replicas in zip(group.cases(), found, strict=True):
    check(case, replicas)


def test_every_case_is_recorded():
  everything = [*cases.groups(alone=True), *cases.groups(alone=False)]
  names = {str(case) for group in everything for case in group.cases()}
  assert {str(case) for case in cases.QUICK} <= names
  for digests in recorded.read('digests').values():
    assert set(digests) == names


def test_a_machine_is_identified_by_its_processor():
  text = 'vendor_id\t: A\ncpu family\t: 6\nmodel\t: 85\nflags\t: fma avx2 x\n'
  kind = machine.kind(f'{text}\n\nvendor_id: B')
  assert kind.startswith('A 6/85 avx2 fma, tensorflow ')
  assert re.search(', oneDNN (on|off)$', kind)
