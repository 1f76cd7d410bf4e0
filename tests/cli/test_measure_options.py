"""What the measuring commands read from their command lines."""

import pytest

from terngrad import errors
from terngrad.cli import command
from terngrad.cli import flags
from terngrad.cli.measure import codec
from terngrad.cli.measure import evaluation
from terngrad.cli.measure import exchange
from terngrad.cli.measure import gpu
from terngrad.cli.measure import step
from terngrad.cli.measure import variance
from terngrad.measure import variance as variances
from terngrad.measure.processes import exchanges


@pytest.mark.parametrize(
  'module', [codec, evaluation, exchange, gpu, step, variance]
)
def test_omitted_flags_have_their_defaults(module):
  options = module.COMMAND.options
  assert flags.parse(options, {}, []).values == options()


def test_codecs_are_given_by_repeating_the_flag_and_sizes_by_commas():
  values = flags.parse(
    codec.MeasureCodecFlags,
    {},
    ['--codecs=a:b=1,c=2', '--sizes=1e3,5', '--codecs=d', '--nocompare'],
  ).values
  assert values.codecs == ('a:b=1,c=2', 'd')
  assert values.sizes == ('1e3', '5')


def test_defaults_include_the_raced_net_and_the_baseline_codec():
  assert exchange.MeasureExchangeFlags().net == exchanges.RACE
  assert variances.BASE in variance.MeasureVarianceFlags().codecs


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--case=ternary@all', 'case: expected CODEC, CODEC@ALGORITHM or'),
    ('--net=lenat', "Did you mean 'lenet'?"),
    ('--worker_hosts=10.0.0.1:7000', 'allow_insecure_network: expected'),
    ('--job_name=chief', "received the job 'chief'"),
  ],
)
def test_invalid_flags_of_an_exchange_are_refused(argument, message):
  arguments = ['--worker_hosts=localhost:7000', argument]
  values = flags.parse(exchange.MeasureExchangeFlags, {}, arguments).values
  with pytest.raises(errors.ConfigError, match=message):
    exchange.act(values)


@pytest.mark.parametrize('text', ['1e3', '0', '-2', '2.0', ''])
@pytest.mark.parametrize('name', ['workers', 'nodes'])
def test_numbers_of_workers_are_whole_and_errors_name_the_flag(name, text):
  with pytest.raises(
    flags.UsageError, match=f'--{name}: expected whole numbers .*{text!r}'
  ):
    command.counts(name, ['2', text])
  assert command.counts(name, ['2', '4']) == [2, 4]


def test_two_files_of_gradients_of_one_name_are_refused():
  values = variance.MeasureVarianceFlags(gradients=('a=1.npz', 'a=2.npz'))
  with pytest.raises(flags.UsageError, match='received a twice'):
    variance.act(values)


@pytest.mark.parametrize(
  ('module', 'word'),
  [
    # Children that start children would have no end.
    (exchange, '--processes=0'),
    (exchange, '--servers=-1'),
    (exchange, '--rounds=0'),
    (exchange, '--steps=0'),
    (exchange, '--batch=0'),
    (step, '--rounds=0'),
    (step, '--steps=0'),
  ],
)
def test_counts_that_measure_nothing_are_refused(module, word):
  command = module.COMMAND
  values = flags.parse(command.options, command.defaults, [word]).values
  name = word.partition('=')[0].strip('-')
  with pytest.raises(errors.ConfigError, match=f'{name}: expected'):
    command.act(values)
