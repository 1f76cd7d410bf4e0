"""Facts and options of a run, from its checkpoint and its records."""

from terngrad.checkpoint import checkpoints
from terngrad.report import run_facts

LAYOUT = checkpoints.Layout(
  net='lenet',
  num_classes=10,
  optimizer='momentum',
  num_devices=2,
  num_workers=4,
  places=[0],
  max_steps=10,
  must_keep={'seed': 1},
  may_change={'codec': 'clip_by_stddev(2.5) > ternarize > base3'},
)
RECORDS = [{'step': 3, 'total_loss': 0.5, 'seconds': 2.0}]


def test_facts_and_options_have_the_codec_s_name_instead_of_its_chain():
  run = run_facts.report(RECORDS, [], LAYOUT, {})
  assert run.facts['codec'] == run.options['codec'] == 'ternary'
  assert run.options['seed'] == '1'


def test_codecs_of_older_checkpoints_are_named_too():
  older = LAYOUT._replace(may_change=None, must_keep=None)
  named = older._replace(codec='float32_words')
  assert run_facts.facts_of_run(named)['codec'] == 'identity'
  assert run_facts.facts_of_run(older)['codec'] == 'unknown'
  assert run_facts.options_of_run(older) == {}


def test_more_nodes_than_devices_are_virtual_and_have_no_seconds():
  run = run_facts.report(RECORDS, [], LAYOUT, {})
  assert run.virtual and 'seconds of training' not in run.facts
  assert run.facts['nodes'] == '4 virtual nodes on 2 devices'
  real = run_facts.report(RECORDS, [], LAYOUT._replace(num_workers=2), {})
  assert not real.virtual and real.facts['seconds of training'] == '2'
  assert real.facts['nodes'] == '2 nodes on 2 devices'


def test_given_facts_come_first_and_replace_others():
  run = run_facts.report(RECORDS, [], LAYOUT, {'folder': 'f', 'net': 'other'})
  assert [*run.facts][:2] == ['folder', 'net']
  assert run.facts['net'] == 'other'


def test_a_score_that_is_not_finite_is_left_out():
  scored = {'step': 3, 'epoch': 1, 'validation_loss': 0.25, 'test_loss': None}
  facts = run_facts.report([*RECORDS, scored], [], LAYOUT, {}).facts
  (found,) = (value for name, value in facts.items() if 'validation' in name)
  assert found.startswith('0.25')
  assert not [name for name in facts if name.endswith(', test')]
