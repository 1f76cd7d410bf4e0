"""The plan of a network, from flags, from a file and from measured steps."""

import dataclasses

import pandas as pd
import pytest

from terngrad import errors
from terngrad.cli import flags as cli_flags
from terngrad.cli import plan
from terngrad.measure.planning import coding
from terngrad.measure.planning import computing
from terngrad.measure.planning import model
from terngrad.measure.planning import parameters as parameters_lib
from terngrad.measure.planning import saved_model
from terngrad.recipes import catalog

SIZE = 1024 * 1000
KNOWN = parameters_lib.Parameters(
  'a test',
  computing=0.1,
  overlap=0.0,
  efficiency=1.0,
  latency=0.0,
  coding=1.0,
  codes={
    'identity': model.Coding(0.0, 0.0, 0.0),
    'ternary': model.Coding(1e-9, 1e-9, 1e-9),
    'fp16': model.Coding(1e-9, 1e-9, 1e-9),
  },
)
CODES = ('ternary', 'fp16')


def flags(tmp_path, **others):
  path = tmp_path / 'known.json'
  parameters_lib.write(path, KNOWN)
  return plan.PlanFlags(
    elements=SIZE, parameters=str(path), codecs=CODES, **others
  )


def table_of(tmp_path, name, rate, factor=1.0):
  """A table of steps that take what the plan says, times a factor."""
  steps = [
    KNOWN.plan(text, [(1024, 1000)], rate, 2).step for text in KNOWN.codes
  ]
  pd.DataFrame(
    {
      'case': list(KNOWN.codes),
      'processes': 2,
      'elements': SIZE,
      'milliseconds': [1e3 * factor * seconds for seconds in steps],
    }
  ).to_csv(tmp_path / name, index=False)
  return f'{tmp_path / name}@{rate:g}'


def test_parameters_replace_timing_and_are_written_again(tmp_path, capsys):
  plan.act(flags(tmp_path, bandwidth=1e7, output=str(tmp_path / 'out')))
  out = capsys.readouterr().out
  assert out.splitlines()[-1].startswith('recommended: ternary, ')
  table = pd.read_csv(tmp_path / 'out' / 'plan.csv').set_index('codec')
  assert table['over float32']['identity'] == 1
  assert table['over fp16']['fp16'] == 1
  assert (tmp_path / 'out' / 'plan.png').stat().st_size
  again = parameters_lib.read(tmp_path / 'out' / 'parameters.json')
  assert again == KNOWN


def test_errors_of_fitted_and_compared_steps_are_printed(tmp_path, capsys):
  fitted = table_of(tmp_path, 'a.csv', 1e8), table_of(tmp_path, 'b.csv', 1e7)
  beside = (table_of(tmp_path, 'c.csv', 1e6, factor=1.25),)
  plan.act(flags(tmp_path, fitted_to=fitted, beside=beside))
  out = capsys.readouterr().out
  first, second = [
    line for line in out.splitlines() if line.startswith('median error')
  ]
  assert float(first.split()[2].rstrip('%;')) < 0.5
  # Planned are 1 / 1.25 of what was measured.
  assert -21 < float(second.split()[5].rstrip('%,')) < -19
  assert 'fitted: 0.1' in out


@pytest.mark.parametrize('elements', [1, 100, 1024, 3000])
def test_as_many_elements_are_planned_as_were_asked_for(tmp_path, elements):
  seconds = []
  for count in (elements, SIZE):
    output = str(tmp_path / str(count))
    given = flags(tmp_path, output=output)
    plan.act(dataclasses.replace(given, elements=count))
    table = pd.read_csv(f'{output}/plan.csv').set_index('codec')
    seconds.append(table['coding s']['fp16'])
  assert seconds[0] / elements == pytest.approx(seconds[1] / SIZE)


def test_seconds_or_a_replacement_are_required():
  with pytest.raises(errors.ConfigError, match='seconds: expected'):
    plan.act(plan.PlanFlags(elements=SIZE))


def test_a_bandwidth_may_have_a_unit(tmp_path, capsys):
  plan.act(flags(tmp_path, bandwidth='10Mbit'))
  with_unit = capsys.readouterr().out
  plan.act(flags(tmp_path, bandwidth='1e7'))
  assert capsys.readouterr().out == with_unit
  assert '10 Mbit/s, 2 workers, 0.1 s of computing in a step:' in with_unit
  with pytest.raises(errors.ConfigError, match='bandwidth: expected'):
    plan.act(flags(tmp_path, bandwidth='fast'))


def test_the_table_has_units_sources_and_no_inf_or_nan(tmp_path, capsys):
  plan.act(flags(tmp_path, bandwidth='10Mbit', output=str(tmp_path / 'out')))
  out = capsys.readouterr().out
  csv = (tmp_path / 'out' / 'plan.csv').read_text()
  heading = csv.splitlines()[0].split(',')
  for column in ('step s', '± s', 'coding s', 'wire s', 'pays below Mbit/s'):
    assert column in heading and column in out
  for text in (out, csv):
    assert 'inf' not in text.lower().replace('information', '')
    assert 'nan' not in text.lower()
  assert 'experiments/lenet_codecs' in out and 'stored as JPEG' in out


def test_the_answer_is_printed_even_if_no_file_can_be_written(tmp_path, capsys):
  (tmp_path / 'file').touch()
  with pytest.raises(errors.TrainingError, match='file/out: expected to write'):
    plan.act(flags(tmp_path, bandwidth=1e7, output=str(tmp_path / 'file/out')))
  last = capsys.readouterr().out.splitlines()[-1]
  assert last.startswith('recommended: ternary, ')


def test_equal_codes_are_marked_and_named_in_the_last_line(tmp_path, capsys):
  # With so much computing all codes are as fast within 15 %.
  slow = KNOWN._replace(computing=100.0)
  path = tmp_path / 'slow.json'
  parameters_lib.write(path, slow)
  values = {'elements': SIZE, 'parameters': str(path), 'codecs': CODES}
  plan.act(plan.PlanFlags(**values))
  lines = capsys.readouterr().out.splitlines()
  assert sum(' = ' in line for line in lines) == 3
  # If nothing is gained, nothing is compressed.
  assert lines[-1].startswith('recommended: identity')
  assert 'A tie within 15% with ' in lines[-1]


def test_costs_are_timed_once_and_then_read_from_the_cache(
  tmp_path, capsys, monkeypatch
):
  calls = []

  def measure_all(texts, rounds, most_seconds):
    calls.append((texts, rounds, most_seconds))
    return {text: model.Coding(1e-9, 1e-9, 1e-9, 0.01) for text in texts}

  monkeypatch.setenv('XDG_CACHE_HOME', str(tmp_path))
  monkeypatch.setattr(coding, 'measure_all', measure_all)
  asked = plan.PlanFlags(
    elements=SIZE, seconds=0.1, codecs=CODES, rounds=4, max_seconds=7
  )
  answers = []
  for changes in ({}, {}, {'refresh': True}, {'no_cache': True}):
    plan.act(dataclasses.replace(asked, **changes))
    answers.append(capsys.readouterr().out.splitlines()[-1])
  assert len({*answers}) == 1
  # The second plan timed nothing.
  assert calls == [(['identity', *CODES], 4, 7)] * 3


def test_a_keras_file_is_planned_with_its_variables_and_its_time(
  tmp_path, capsys, monkeypatch
):
  monkeypatch.setattr(
    saved_model,
    'measure',
    lambda path, *timing: computing.MeasuredModel(
      [(1024, 1000)], 0.25, 0.01, row_bytes=10**6, sparse=('words',)
    ),
  )
  asked = plan.PlanFlags(
    model='net.keras',
    codecs=CODES,
    output=str(tmp_path),
    bandwidth='8Mbit',
    no_cache=True,
  )
  costs = dict.fromkeys(KNOWN.codes, model.Coding(0.0, 0.0, 0.0))
  monkeypatch.setattr(coding, 'measure_all', lambda *arguments: costs)
  plan.act(asked)
  assert '0.25 s of computing' in capsys.readouterr().out
  rows = pd.read_csv(tmp_path / 'plan.csv').set_index('codec')
  # The megabyte of rows takes a second, 4.1 MB of float32 take 4.1 s.
  assert rows['wire s']['identity'] == pytest.approx(5.1, rel=0.01)
  plan.act(dataclasses.replace(asked, seconds=0.5))
  assert '0.5 s of computing' in capsys.readouterr().out


@pytest.mark.parametrize(
  'given', [{}, {'net': 'lenet', 'elements': 5.0}, {'model': 'a', 'net': 'b'}]
)
def test_exactly_one_model_is_expected(given):
  with pytest.raises(errors.ConfigError, match='--model=net.keras') as caught:
    plan.act(plan.PlanFlags(seconds=1.0, **given))
  assert all(f'--{name}' in str(caught.value) for name in given)


def test_local_steps_have_a_share_of_the_exchange_and_no_accuracies(
  tmp_path, capsys
):
  plan.act(
    flags(tmp_path, bandwidth='10Mbit', local_steps=10, output=str(tmp_path))
  )
  out = capsys.readouterr().out
  table = pd.read_csv(tmp_path / 'plan.csv').set_index('codec')
  # 32 bits for each element, in ten steps of 0.1 s.
  wire = 32 * SIZE / 1e7 / 10
  assert table['step s']['identity'] == pytest.approx(0.1 + wire, rel=1e-3)
  assert table['waiting']['identity'] == pytest.approx(
    wire / (0.1 + wire), rel=1e-3
  )
  assert 'seconds of one of 10 local steps' in out
  assert 'MNIST' not in out


def test_without_local_steps_the_plan_says_how_many_would_help(
  tmp_path, capsys
):
  plan.act(flags(tmp_path, bandwidth='10Mbit'))
  *_, waits, last = capsys.readouterr().out.splitlines()
  assert last.startswith('recommended: ternary, ')
  # 0.164 s on the wire and 2 ms of coding, for steps of 0.1 s.
  assert waits.startswith('ternary: coding and transfer take 62% of the time')
  assert '--local_steps=15 or more' in waits
  plan.act(flags(tmp_path, bandwidth='1000Gbit'))
  assert '--local_steps' not in capsys.readouterr().out


def test_hours_are_steps_of_all_workers_to_so_many_examples(tmp_path):
  plan.act(
    flags(
      tmp_path,
      bandwidth='1Gbit',
      examples=3.6e6,
      workers=4,
      batch_size=25,
      output=str(tmp_path),
    )
  )
  table = pd.read_csv(tmp_path / 'plan.csv')
  # 36,000 steps.
  hours = table['hours to 3.6e+06 examples']
  assert list(hours) == pytest.approx(list(10 * table['step s']))


def recipe_flags(tmp_path, *words):
  """Parses --recipe, with known times for the codes of two recipes."""
  path = tmp_path / 'known.json'
  coded = model.Coding(1e-9, 1e-9, 1e-9)
  texts = (catalog.find(name).codec for name in ('sparseloco', 'muloco'))
  codes = KNOWN.codes | dict.fromkeys(texts, coded)
  parameters_lib.write(path, KNOWN._replace(codes=codes))
  words = [f'--elements={SIZE}', f'--parameters={path}', *words]
  return cli_flags.parse(plan.PlanFlags, {}, words).values


def test_a_recipe_gives_its_code_and_its_local_steps(tmp_path, capsys):
  values = recipe_flags(
    tmp_path, '--recipe=sparseloco', '--bandwidth=1Mbit', f'--output={tmp_path}'
  )
  plan.act(values)
  found = catalog.find('sparseloco')
  table = pd.read_csv(tmp_path / 'plan.csv').set_index('codec')
  assert {*table.index} == {'identity', found.codec}
  # About 0.153 bits per element, once in 30 steps.
  step = table['step s'][found.codec]
  assert step == pytest.approx(0.1 + 0.153 * SIZE / 1e6 / 30, rel=0.01)
  first, *_, waits, last = capsys.readouterr().out.splitlines()
  assert first.startswith('recipe sparseloco (Sarfi et al., 2025, https://')
  remark = ' (not from the paper)'
  assert first.endswith(f'every=30{remark}, codec={found.codec}{remark}')
  assert waits.startswith(f'{found.codec}: coding and transfer take 5% of')
  assert last.startswith(f'recommended: {found.codec}, ')


def test_flags_override_a_recipe_and_add_codes_to_its_code(tmp_path, capsys):
  values = recipe_flags(
    *(tmp_path, '--recipe=muloco', '--local_steps=7', '--codecs=fp16')
  )
  assert values.local_steps == 7
  assert values.codecs == (catalog.find('muloco').codec, 'fp16')
  plan.act(values)
  out = capsys.readouterr().out
  assert 'every=7 (changed; the recipe has 30)' in out


def test_recipes_that_are_unknown_or_for_fewer_workers_are_refused(tmp_path):
  with pytest.raises(cli_flags.UsageError, match="Did you mean 'muloco'"):
    recipe_flags(tmp_path, '--recipe=mulocco')
  with pytest.raises(errors.ConfigError, match='at most 1 worker for snoo'):
    plan.act(recipe_flags(tmp_path, '--recipe=snoo'))
  with pytest.raises(errors.ConfigError, match='recipe.*received .mulocco'):
    plan.act(flags(tmp_path, recipe='mulocco'))
