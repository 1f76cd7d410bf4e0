"""Runs of one machine and of several, by their columns."""

import math

import pandas as pd
import pytest

from terngrad.report.statistics import machines

HERE = {'processor': 'AMD', 'instructions': 'avx2', 'switches': 'oneDNN on'}


def runs_on(*changes):
  return pd.DataFrame([HERE | {'machine': '2 cores'} | one for one in changes])


def test_runs_of_one_machine_have_comparable_seconds_and_no_note():
  runs = runs_on({}, {})
  assert machines.is_one(runs)
  assert machines.note(runs) == ''


@pytest.mark.parametrize('column', [*HERE])
@pytest.mark.parametrize('value', ['another', math.nan])
def test_a_column_that_differs_or_is_unknown_is_noted(column, value):
  note = machines.note(runs_on({}, {column: value}))
  assert note.startswith(f'Not all runs are known to have the same {column} (')


@pytest.mark.parametrize('column', ['machine', 'commit'])
def test_numbers_of_cores_and_commits_are_not_noted(column):
  assert machines.note(runs_on({}, {column: 'another'})) == ''


def test_tables_of_older_versions_have_no_note():
  assert machines.note(runs_on({}, {}).drop(columns=[*HERE])) == ''


def test_equal_runs_that_two_machines_made_are_not_of_one():
  """All rows name the same two machines."""
  here = HERE | {'machine': 'A'}
  both = machines.add_start(here, here | {'machine': 'B', 'processor': 'B'})
  assert both['machine'] == 'A; then B'
  assert both['switches'] == here['switches']
  runs = pd.DataFrame([both, both])
  assert not machines.is_one(runs)
  assert 'the same processor (' in machines.note(runs)


def test_a_machine_that_continues_twice_is_named_once():
  here, there = {'machine': 'A'}, {'machine': 'B'}
  both = machines.add_start(here, there)
  assert machines.add_start(both, there) == both
  again = machines.add_start(both, here)
  assert again == {'machine': 'A; then B; then A'}
