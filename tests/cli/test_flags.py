"""Command lines: what is read, what is refused, and what --help says."""

import dataclasses
import os
import re
import tempfile

import pytest

from terngrad.cli import flags
from terngrad.cli import launch
from terngrad.cli.measure import fit
from terngrad.codec.methods import registry
from terngrad.config import options
from terngrad.config import training as configs
from tests.cli import starters

TRAIN = configs.TrainConfig
EVAL = configs.EvalConfig
PROGRAMS = [
  f'{data_set}_{kind}'
  for data_set in (
    *('cifar10', 'fashion_mnist', 'flowers', 'image', 'imagenet', 'mnist'),
  )
  for kind in ('train', 'eval')
]


def command(program):
  return starters.command(f'terngrad.bin.{program}')


def parse_for(program, words):
  return starters.parse(f'terngrad.bin.{program}', words)


@dataclasses.dataclass(frozen=True)
class Small:
  """A configuration with one flag of each type, and two booleans."""

  b: bool = options.option(False, 'A boolean.', 'run')
  c: bool = options.option(True, 'Another.', 'run')
  count: int = options.option(3, 'A number.', 'data')
  ratio: float = options.option(0.5, 'A share.', 'optimizer')
  name: str = options.option('x', 'A word.', 'data')
  subset: str = options.option('train', 'A word that a boolean is not.', 'data')


def parse(*arguments):
  return flags.parse(Small, {}, arguments).values


def refusal(*arguments):
  with pytest.raises(flags.UsageError) as caught:
    parse(*arguments)
  return str(caught.value)


@pytest.mark.parametrize('dashes', ['-', '--'])
@pytest.mark.parametrize(
  'word', ['True', 'true', 'TRUE', 'tRuE', 't', 'T', '1']
)
def test_boolean_followed_by_a_true_word_is_true(dashes, word):
  assert parse(f'{dashes}b', word) == Small(b=True)


@pytest.mark.parametrize('dashes', ['-', '--'])
@pytest.mark.parametrize(
  'word', ['False', 'false', 'FALSE', 'faLse', 'f', 'F', '0']
)
def test_boolean_followed_by_a_false_word_is_false(dashes, word):
  assert parse(f'{dashes}c', word) == Small(c=False)


@pytest.mark.parametrize(
  ('arguments', 'expected'),
  [
    ([], Small()),
    (['--b'], Small(b=True)),
    (['--noc'], Small(c=False)),
    (['--nob'], Small()),
    (['--b=True', '--c=false'], Small(b=True, c=False)),
    (['--b', '--c', 'False'], Small(b=True, c=False)),
    (['--b', 'False', '--b'], Small(b=True)),
    (['--noc', '--b', 'True'], Small(b=True, c=False)),
    (['--noc', '--name', 'y'], Small(c=False, name='y')),
    (['--count', '7', '--b', 't'], Small(count=7, b=True)),
    (['--count', '-7', '--ratio', '-0.5'], Small(count=-7, ratio=-0.5)),
    (['--ratio', '2'], Small(ratio=2.0)),
    (['--ratio=1e-3'], Small(ratio=0.001)),
  ],
)
def test_flags_take_these_values(arguments, expected):
  assert parse(*arguments) == expected


@pytest.mark.parametrize('word', ['True', 'False', '1', 't', 'b', '--b', '-c'])
def test_true_after_a_flag_with_a_value_is_its_value(word):
  """`--subset True` names a subset; `--subset --b` one called '--b'."""
  assert parse('--subset', word, '--b', 'True') == Small(subset=word, b=True)


@pytest.mark.parametrize('value', [' x', 'x ', '-x', ' x, y', '"x"', "' x'"])
def test_a_value_is_not_changed(value):
  assert parse(f'--name={value}') == Small(name=value)
  assert parse('--name', value) == Small(name=value)


@dataclasses.dataclass(frozen=True)
class Lists:
  """A list with commas, and one by repeating the flag."""

  items: tuple = options.option(('z',), 'A list.', 'data')
  each: tuple = options.option((), 'Another.', 'data', repeated=True)


@pytest.mark.parametrize(
  ('value', 'items'),
  [
    ('', ()),
    ('a', ('a',)),
    ('a, b ,c', ('a', 'b', 'c')),
    ('a,', ('a', '')),
    ('" x"', (' x',)),
    (' x', ('x',)),
    ('a,"b, c ", d', ('a', 'b, c ', 'd')),
    ('"say ""a""", "", b', ('say "a"', '', 'b')),
    ('NAME=" x", b', ('NAME=" x"', 'b')),
    ('"a",', ('a', '')),
  ],
)
def test_items_of_a_list_keep_their_spaces_in_quotes(value, items):
  found = flags.parse(Lists, {}, [f'--items={value}', f'--each={value}']).values
  assert found == Lists(items=items, each=(value,))


@pytest.mark.parametrize('value', ['"a', 'a,"b', '"a"b', '"a" b,c'])
def test_a_quote_without_its_end_is_refused(value):
  with pytest.raises(flags.UsageError, match='a quote at the end of'):
    flags.parse(Lists, {}, [f'--items={value}'])


def test_a_chain_of_flag_files_without_end_is_refused(tmp_path):
  for number in range(1500):
    file = tmp_path / f'{number}.flags'
    file.write_text(f'--flagfile={tmp_path}/{number + 1}.flags\n')
  with pytest.raises(flags.UsageError, match='flagfile: expected a file'):
    parse(f'--flagfile={tmp_path}/0.flags')


def test_the_name_of_a_flagfile_may_begin_or_end_with_a_space(
  tmp_path, monkeypatch
):
  monkeypatch.chdir(tmp_path)
  for folder in (' a', 'b '):
    (tmp_path / folder).mkdir()
  (tmp_path / ' a' / 'x.flags').write_text('--count=7\n--flagfile=b /y \n')
  (tmp_path / 'b ' / 'y ').write_text('--name= of a file\n')
  expected = Small(count=7, name=' of a file')
  assert parse('--flagfile= a/x.flags') == expected
  assert parse('--flagfile', ' a/x.flags') == expected
  # Where there is no such file the space is not of its name.
  (tmp_path / 'z').write_text('--count=8')
  assert parse('--flagfile= z ') == Small(count=8)


def test_words_after_two_dashes_are_no_flags():
  words = ['--b', '--', '--c', 'False']
  assert flags.join_booleans(words, {'b', 'c'}) == words
  # And as this program takes no words, they are refused.
  assert "'--c'" in refusal(*words)


def test_two_dashes_at_the_end_have_no_effect():
  assert parse('--b', '--') == Small(b=True)


@pytest.mark.parametrize('word', ['yes', 'maybe', 'truth', '2', 'Tru', ''])
def test_other_words_after_a_boolean_are_stray(word):
  assert re.search(
    f'Expected flags only, received the word {word!r}', refusal('--b', word)
  )


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--coutn=3', r'^--coutn: expected a flag.*Did you mean --count\?$'),
    ('--rato=3', r'^--rato: .*Did you mean --ratio\?$'),
    ('--zzz', r'^--zzz: .*See --help\.$'),
    # Not taken for a negated flag 'rmal' or 'des'.
    ('--normal', r'^--normal: '),
    ('--nosubst', r'^--nosubst: .*Did you mean --subset\?$'),
  ],
)
def test_unknown_flag_is_refused_with_a_suggestion(argument, message):
  assert re.search(message, refusal(argument))


def test_unknown_flag_of_thousands_of_characters_is_refused_at_once():
  with pytest.raises(flags.UsageError, match='a name of 5002 characters'):
    flags.parse(Small, {}, [f'--{"x" * 5000}=1'])


def test_unknown_flag_is_refused_after_good_ones():
  assert '--nmae' in refusal('--b', '--count', '3', '--nmae', 'y')


@pytest.mark.parametrize(
  ('arguments', 'message'),
  [
    (['word'], "the word 'word'"),
    (['--b', 'True', 'name'], r"the word 'name'\. Did you mean --name\?"),
    (['--count', '1', '2'], "the word '2'"),
    (['count=3'], r"the word 'count=3'\. Did you mean --count\?"),
  ],
)
def test_stray_word_is_refused(arguments, message):
  assert re.search(
    f'Expected flags only, received {message}', refusal(*arguments)
  )


@pytest.mark.parametrize(
  ('arguments', 'expected'),
  [
    ([], Small()),
    (['y'], Small(name='y')),
    (['y', 'test'], Small(name='y', subset='test')),
    (['y', '--b', '--subset=test'], Small(name='y', subset='test', b=True)),
    (['--b'], Small(b=True)),
    # A flag's value is none of the words.
    (['--subset', 'test'], Small(subset='test')),
  ],
)
def test_first_words_set_the_positional_flags_of_a_command(arguments, expected):
  parsed = flags.parse(Small, {}, arguments, ('name', 'subset'))
  assert parsed.values == expected


def test_more_words_than_a_command_takes_are_stray():
  with pytest.raises(flags.UsageError, match="only, received the word 'z'"):
    flags.parse(Small, {}, ['x', 'y', 'z'], ('name', 'subset'))


@pytest.mark.parametrize(
  ('arguments', 'received'),
  [
    (['--count=three'], '--count=three'),
    (['--count', '1.5'], '--count=1.5'),
    (['--count='], '--count='),
    (['--ratio=half'], '--ratio=half'),
    (['--b=maybe'], '--b=maybe'),
    (['--name'], 'name'),
  ],
)
def test_value_of_a_wrong_type_is_refused(arguments, received):
  message = refusal(*arguments)
  assert 'expected' in message
  assert received in message
  assert '--help' in message


@pytest.mark.parametrize('value', [2**63, -(2**63) - 1, 10**20])
def test_number_beyond_int64_is_refused(value):
  message = refusal(f'--count={value}')
  assert message.startswith(
    'count: expected a number from -9223372036854775808'
  )


class TestFlagfile:
  @pytest.fixture
  def file(self, tmp_path):
    path = tmp_path / 'some.flags'
    path.write_text(
      '# a comment\n'
      '// another\n'
      '\n'
      '--count=11\n'
      '  --name=from the file  \n'
      '--b\n'
      '--c\n'
      'False\n'
    )
    return str(path)

  expected = Small(count=11, name='from the file', b=True, c=False)

  def test_is_read_after_an_equals_sign(self, file):
    assert parse(f'--flagfile={file}') == self.expected

  def test_is_read_from_the_next_word(self, file):
    assert parse('--flagfile', file) == self.expected

  def test_a_later_flag_wins(self, file):
    read = parse(f'--flagfile={file}', '--count=12')
    assert read == dataclasses.replace(self.expected, count=12)
    read = parse('--count', '12', f'--flagfile={file}')
    assert read == self.expected

  def test_several_are_read_in_order(self, file, tmp_path):
    second = tmp_path / 'second.flags'
    second.write_text('--count=13\n')
    read = parse('--b', 'False', f'--flagfile={file}', f'--flagfile={second}')
    assert read == dataclasses.replace(self.expected, count=13)

  def test_may_name_another(self, file, tmp_path):
    outer = tmp_path / 'outer.flags'
    outer.write_text(f'--ratio=0.25\n--flagfile={file}\n')
    read = parse(f'--flagfile={outer}')
    assert read == dataclasses.replace(self.expected, ratio=0.25)

  def test_a_file_that_is_not_utf_8_is_refused(self, tmp_path):
    file = tmp_path / 'latin1.flags'
    file.write_bytes(b'# caf\xe9\n--count=3\n')
    assert 'expected a file in UTF-8' in refusal(f'--flagfile={file}')

  @pytest.mark.parametrize('form', ['--flagfile={}', '--flagfile {}'])
  def test_a_missing_file_is_named(self, form, tmp_path):
    path = str(tmp_path / 'absent.flags')
    message = refusal(*form.format(path).split())
    assert re.search('^flagfile: expected a file .* received', message)
    assert path in message
    assert 'Check the path' in message

  def test_without_a_name_is_refused(self):
    assert 'flagfile' in refusal('--flagfile')

  def test_with_an_unknown_flag_is_refused(self, tmp_path):
    path = tmp_path / 'bad.flags'
    path.write_text('--coutn=3\n')
    assert 'Did you mean --count?' in refusal(f'--flagfile={path}')


def test_default_for_an_unknown_field_is_an_error_of_the_program():
  with pytest.raises(ValueError, match='Small has no field cuont'):
    flags.define(Small, {'cuont': 3})


def test_help_groups_flags_in_a_fixed_order():
  text = flags.help_text(Small, {'count': 9}, 'usage line')
  assert text.startswith('usage line\n')
  headings = re.findall(r'^(\S.*):$', text, re.MULTILINE)
  assert headings == ['Data', 'Run', 'Optimizer and learning rate']
  assert "  --name (str, 'x')\n      A word.\n" in text
  assert '  --b (bool, False)\n      A boolean.\n' in text
  assert '  --ratio (float, 0.5)\n      A share.\n' in text
  # What this program changes is said.
  assert '  --count (int, 9; general default 3)\n      A number.\n' in text
  assert '--flagfile' in text


def test_help_wraps_descriptions_at_column_80():
  long = ' '.join(['word'] * 40 + ['one-word-with-hyphens', 'w' * 90])
  options_class = dataclasses.make_dataclass(
    'Long', [('name', str, options.option('x', long))]
  )
  text = flags.help_text(options_class, {}, 'usage line')
  _, _, said = text.partition("  --name (str, 'x')\n")
  lines = said.partition('\n\n')[0].splitlines()
  assert all(line.startswith(' ' * 6 + line[6]) for line in lines)
  assert ' '.join(' '.join(lines).split()) == long
  # Filled, but a word stays whole: addresses and paths can be copied.
  assert [len(line) for line in lines[:2]] == [80, 80]
  assert lines[-1] == f'      {"w" * 90}'


@pytest.mark.parametrize('program', PROGRAMS)
def test_help_lists_every_flag_of_a_program(program):
  found = command(program)
  text = flags.help_text(found.options, found.defaults, found.usage)
  section = None
  seen = {}
  for line in text.splitlines():
    if re.fullmatch(r'\S.*:', line):
      section = line[:-1]
    elif match := re.fullmatch(r'  --(\w+) \((\w+), (.*)\)', line):
      assert match[1] not in seen, 'listed once'
      seen[match[1]] = (section, match[2], match[3])
  titles = {
    'data': 'Data',
    'model': 'Model',
    'run': 'Run',
    'start': 'Pretrained values',
    'devices': 'Devices and nodes',
    'cluster': 'Several processes',
    'optimizer': 'Optimizer and learning rate',
    'codes': 'Gradient codes',
  }
  expected = {}
  for field in options.fields(found.options):
    own = found.defaults.get(field.name, field.default)
    changed = own != field.default
    kind, shown = type(field.default).__name__, f'{own!r}'
    if isinstance(own, tuple):
      kind, shown = 'list', ','.join(own)
    expected[field.name] = (
      titles[field.group],
      kind,
      f'{shown}; general default {field.default!r}' if changed else shown,
    )
  assert seen == expected
  said = ' '.join(text.split())
  codecs = registry.describe_names()
  for field in options.fields(found.options):
    described = field.help.replace('{codecs}', codecs)
    assert ' '.join(described.split()) in said


TMP = tempfile.gettempdir()
# Sections 1.1 to 1.3 of the reference: name, type and default of each flag.
SHARED_2017 = {
  'max_steps': 370000,
  'net': 'alexnet',
  'size_to_binarize': 1,
  'batch_size': 32,
  'image_size': 224,
  'num_preprocess_threads': 4,
  'num_readers': 4,
  'input_queue_memory_factor': 16,
  'dataset_name': 'imagenet',
  'seed': 1,
  'weight_decay': 0.0005,
  'dropout_keep_prob': 0.5,
  'data_dir': os.path.join(TMP, 'mydata'),
}
TRAIN_2017 = SHARED_2017 | {
  # Not 2017's folder in the system's temporary one: must be given.
  'train_dir': '',
  'subset': 'train',
  'num_gpus': 1,
  'num_nodes': -1,
  'log_device_placement': False,
  'fine_tune': False,
  'pretrained_model_checkpoint_path': '',
  'optimizer': 'momentum',
  'initial_learning_rate': 0.01,
  'num_epochs_per_decay': 20.0,
  'learning_rate_decay_factor': 0.1,
  'momentum': 0.9,
  'learning_rate_decay_type': 'exponential',
  'grad_bits': 32,
  'clip_factor': 0.0,
  'floating_grad_epoch': 0,
  'save_tower': -1,
  'use_encoding': False,
  'quantize_logits': False,
  'save_iter': 5000,
  'benchmark_mode': False,
}
EVAL_2017 = SHARED_2017 | {
  'eval_dir': '',
  'checkpoint_dir': '',
  'eval_interval_secs': 3600,
  'run_once': False,
  'num_examples': 50000,
  'subset': 'validation',
  'device': '/gpu:0',
  'tower': -1,
  'restore_avg_var': True,
}
# What a program changes, because of its data set.
MNIST = {
  'dataset_name': 'mnist',
  'image_size': 28,
  'max_steps': 10000,
  'net': 'lenet',
}
FASHION_MNIST = MNIST | {'dataset_name': 'fashion_mnist'}
# As run_multi_gpus_cifar10.sh of 2017 passed them.
CIFAR10 = {
  'dataset_name': 'cifar10',
  'image_size': 24,
  'max_steps': 300000,
  'net': 'cifar10_alexnet',
  'weight_decay': 0.004,
}
FLOWERS = {
  'dataset_name': 'flowers',
  'image_size': 299,
  'net': 'inception_v3',
}
TEST_SPLIT = {'num_examples': 10000, 'subset': 'test'}
OVERRIDES = {
  'cifar10_train': CIFAR10
  | {'batch_size': 128, 'optimizer': 'adam', 'initial_learning_rate': 0.0002},
  'cifar10_eval': CIFAR10 | TEST_SPLIT | {'batch_size': 50},
  'fashion_mnist_train': FASHION_MNIST,
  'fashion_mnist_eval': FASHION_MNIST | TEST_SPLIT,
  'flowers_train': FLOWERS,
  # B12: the number of examples is the program's default, and a flag changes it.
  'flowers_eval': FLOWERS | {'num_examples': 500},
  'image_train': {'dataset_name': 'images'},
  'image_eval': {'dataset_name': 'images'},
  'imagenet_train': {},
  'imagenet_eval': {},
  'mnist_train': MNIST,
  'mnist_eval': MNIST | TEST_SPLIT,
}
FLAGS_2017 = {
  name: TRAIN_2017 if name.endswith('_train') else EVAL_2017
  for name in PROGRAMS
}


@pytest.mark.parametrize(
  ('config_class', 'name', 'default'),
  [(TRAIN, *item) for item in TRAIN_2017.items()]
  + [(EVAL, *item) for item in EVAL_2017.items()],
)
def test_flag_of_2017_has_the_same_type_and_default(
  config_class, name, default
):
  received = options.by_name(config_class())[name]
  assert (type(received), received) == (type(default), default)


@pytest.mark.parametrize('program', PROGRAMS)
def test_program_changes_only_the_defaults_of_its_data_set(program):
  said = options.by_name(parse_for(program, []))
  received = {name: said[name] for name in FLAGS_2017[program]}
  assert received == FLAGS_2017[program] | OVERRIDES[program]


@pytest.mark.parametrize('program', PROGRAMS)
def test_defaults_of_a_program_are_valid(program):
  parse_for(program, []).validate()


@pytest.mark.parametrize('program', PROGRAMS)
def test_every_flag_reaches_its_field(program):
  """Also guards against two flags that share a field."""
  other = {
    bool: lambda v: not v,
    str: lambda v: v + 'x',
    tuple: lambda v: (*v, 'x', 'y'),
  }
  expected = {
    field.name: other.get(type(field.default), lambda v: v + 1)(field.default)
    for field in options.fields(command(program).options)
    # It sets other flags.
    if field.name != 'recipe'
  }
  arguments = [
    f'--{name}={",".join(value) if isinstance(value, tuple) else value}'
    for name, value in expected.items()
  ]
  config = parse_for(program, arguments)
  found = options.by_name(config)
  assert found.pop('recipe', '') == ''
  assert found == expected


def test_words_of_options_give_the_options_back():
  """As processes get them that a command starts."""
  values = options.build(
    fit.MeasureFitFlags,
    codec=('ternary', 'topk:ratio=0.1,seed=2'),
    net='lenet',
    processes=2,
    output=' a "quoted" folder',
  )
  words = flags.to_words(values)
  assert '--codec=topk:ratio=0.1,seed=2' in words
  assert not [word for word in words if word.startswith('--rounds')]
  assert flags.parse(fit.MeasureFitFlags, {}, words).values == values


@pytest.mark.parametrize('items', [('a', 'b,c'), ('a "b"', ' c')])
def test_words_of_a_list_give_the_list_back(items):
  values = options.build(launch.LaunchFlags, hosts=items)
  words = flags.to_words(values)
  assert flags.parse(launch.LaunchFlags, {}, words).values.hosts == items
