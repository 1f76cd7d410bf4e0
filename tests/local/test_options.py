"""Options of local steps are checked before a helper starts."""

import json

import numpy as np
import pytest

import terngrad
from terngrad import errors
from terngrad.cluster import spec
from terngrad.local import options


@pytest.mark.parametrize(
  ('changed', 'message'),
  [
    ({'every': 0}, 'every: expected a whole number, .* received 0. Use'),
    ({'every': 2.5}, 'every: expected a whole number, .* received 2.5. Use'),
    ({'every': True}, 'every: expected a whole number, .* received True'),
    ({'overlap': 'late'}, "one of none, delayed, eager, received 'late'"),
    ({'on_lost_worker': 'go'}, "one of wait, continue, received 'go'"),
    ({'outer_learning_rate': 0}, 'outer_learning_rate: .* above 0, received 0'),
    ({'outer_learning_rate': True}, 'outer_learning_rate: .* received True'),
    ({'outer_learning_rate': 'x'}, "outer_learning_rate: .* received 'x'"),
    ({'outer_learning_rate': 1e39}, 'outer_learning_rate: .* received 1e'),
    ({'lost_after': float('nan')}, 'lost_after: .*, received nan'),
    ({'lost_after': '60'}, "lost_after: .*, received '60'"),
    ({'seed': 'a'}, "seed: expected a whole number, .* received 'a'"),
    ({'seed': 2**70}, 'seed: expected a whole number, .* received 11805'),
    ({'outer': 3}, "outer: expected a text, received 3. Use outer='gd'"),
    (
      {
        'codec': 'error_feedback+bidirectional:workers=3+stc',
        'on_lost_worker': 'continue',
      },
      "without the option workers beside on_lost_worker='continue'",
    ),
    ({'codec': 3}, "codec: expected a text, received 3. Use codec='identity'"),
  ],
)
def test_an_option_out_of_range_is_refused(changed, message):
  with pytest.raises(ValueError, match=message):
    terngrad.LocalSteps(**{'every': 10} | changed)


def test_numbers_of_numpy_are_options_too():
  given = terngrad.LocalSteps(
    np.int64(3), outer_learning_rate=np.float32(0.5), seed=np.uint8(7)
  ).options
  found, _ = options.decode(options.encode(given))
  assert found == given
  assert (found.every, found.outer_learning_rate, found.seed) == (3, 0.5, 7)


def test_options_arrive_in_the_helper_as_they_were_given():
  given = options.LocalOptions(30, {'bias': 'identity', '': 'ternary'}, seed=3)
  assert options.decode(options.encode(given, rank=1)) == (given, {'rank': 1})


def test_without_tf_config_there_is_one_process():
  assert len(options.find_cluster({}).jobs['worker']) == 1


@pytest.mark.parametrize('job', ['ps', 'worker'])
def test_parameter_servers_are_refused(job):
  jobs = {'ps': ['localhost:1'], 'worker': ['localhost:2']}
  config = {'cluster': jobs, 'task': {'type': job, 'index': 0}}
  with pytest.raises(spec.ClusterError, match='expected workers only'):
    options.find_cluster({'TF_CONFIG': json.dumps(config)})


def test_an_exchange_needs_a_start():
  steps = terngrad.LocalSteps(10)
  with pytest.raises(errors.TrainingError, match='a call of start before'):
    steps.exchange([np.zeros(3, np.float32)])


def test_a_start_without_parameters_is_refused():
  with pytest.raises(ValueError, match='one or more parameters, received none'):
    terngrad.LocalSteps(10).start([], [np.zeros(3, np.float32)])


def test_other_dtypes_are_refused():
  with pytest.raises(ValueError, match='expected float32, received float64'):
    terngrad.LocalSteps(10).start([np.zeros(3)])


@pytest.mark.parametrize('codec', ['ternary', {'a': 'ternary', '.*': 'fp16'}])
def test_processes_compare_shapes_and_the_names_that_choose_codes(codec):
  def fields(name='a', shape=(3,), statistics=((2,),), seed=0):
    made = options.LocalOptions(1, codec=codec, seed=seed)
    return options.shared_fields(made, [(name, shape)], statistics)

  assert fields() == fields()
  assert fields() != fields(shape=(4,))
  assert fields() != fields(statistics=((3,),))
  assert fields() != fields(seed=1)
  assert (fields() != fields(name='b')) == isinstance(codec, dict)
