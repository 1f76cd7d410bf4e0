"""What the measuring commands read from their command lines."""

import pytest

from terngrad import errors
from terngrad.cli import flags
from terngrad.cli.measure import codec
from terngrad.cli.measure import evaluation
from terngrad.cli.measure import exchange
from terngrad.cli.measure import step
from terngrad.cli.measure import variance
from terngrad.measure import variance as variances
from terngrad.measure.processes import exchanges


@pytest.mark.parametrize(
  'module', [codec, evaluation, exchange, step, variance]
)
def test_what_is_left_out_has_its_default(module):
  options = module.COMMAND.options
  assert flags.parse(options, {}, []).values == options()


def test_codecs_are_repeated_since_they_have_commas_and_sizes_are_listed():
  values = flags.parse(
    codec.Flags,
    {},
    ['--codecs=a:b=1,c=2', '--sizes=1e3,5', '--codecs=d', '--nocompare'],
  ).values
  assert values.codecs == ('a:b=1,c=2', 'd')
  assert values.sizes == ('1e3', '5')


def test_defaults_name_what_is_there():
  assert exchange.Flags().net == exchanges.RACE
  assert variances.BASE in variance.Flags().codecs


@pytest.mark.parametrize(
  ('argument', 'message'),
  [
    ('--case=ternary@all', 'case: expected CODEC, CODEC@ALGORITHM or'),
    ('--net=lenat', "Did you mean 'lenet'?"),
    ('--worker_hosts=10.0.0.1:7000', 'allow_insecure_network: expected'),
    ('--job_name=chief', "received the job 'chief'"),
  ],
)
def test_an_exchange_that_cannot_be_is_refused(argument, message):
  arguments = ['--worker_hosts=localhost:7000', argument]
  values = flags.parse(exchange.Flags, {}, arguments).values
  with pytest.raises(errors.ConfigError, match=message):
    exchange.act(values)
