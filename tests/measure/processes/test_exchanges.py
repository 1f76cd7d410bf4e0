import numpy as np
import pytest

from slim.nets import factory as nets
from terngrad.cluster import spec
from terngrad.exchange import group
from terngrad.measure.processes import exchanges

DEV = """\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes
    lo: 1000 7 0 0 0 0 0 0 2000 7 0 0 0 0 0 0
  eth0:    300 7 0 0 0 0 0 0 40 7 0 0 0 0 0 0
eth1:5 7 0 0 0 0 0 0 6 7 0 0 0 0 0 0
"""


def test_interface_bytes_are_received_and_sent_bytes():
  assert exchanges.interface_bytes('eth0', DEV) == (300, 40)
  assert exchanges.interface_bytes('lo', DEV) == (1000, 2000)


def test_without_a_name_all_interfaces_but_the_loopback_count():
  assert exchanges.interface_bytes('', DEV) == (305, 46)


def test_an_unknown_interface_is_refused():
  with pytest.raises(ValueError, match='expected one of lo, eth0, eth1'):
    exchanges.interface_bytes('wlan0', DEV)


def test_single_column_alexnet_has_61_100_840_parameters():
  shapes = exchanges.subject(exchanges.RACE, real=False).shapes
  sizes = []
  for shape in shapes:
    size = 1
    for length in shape:
      size *= length
    sizes.append(size)
  assert sum(sizes) == 61_100_840


@pytest.mark.parametrize('real', [False, True])
@pytest.mark.parametrize(
  'codec',
  [
    'ternary',
    'error_feedback+powersgd:rank=1',
    pytest.param('bidirectional+stc', marks=pytest.mark.slow),
    pytest.param('dgc', marks=pytest.mark.slow),
  ],
)
@pytest.mark.gate_every(3)
def test_a_step_runs_with_every_kind_of_method(codec, real):
  alone = group.Group(spec.make({'worker': ['127.0.0.1:1']}, 'worker', 0), 1)
  what = exchanges.subject('lenet', real)
  exchanges.case(what, alone, codec, 'auto', batch=2).step()


@pytest.fixture
def small_gpt(monkeypatch):
  """Instead of gpt_nano a net of one block, whose step takes less time."""
  net = nets.find_net('gpt_nano:blocks=1,width=16,heads=2')
  monkeypatch.setitem(nets.NETS, 'gpt_nano', net)


@pytest.mark.usefixtures('small_gpt')
@pytest.mark.parametrize('real', [False, True])
@pytest.mark.gate_every(2)
def test_a_step_of_a_language_model_takes_tokens(real):
  alone = group.Group(spec.make({'worker': ['127.0.0.1:1']}, 'worker', 0), 1)
  what = exchanges.subject('gpt_nano', real)
  exchanges.case(what, alone, 'ternary', 'auto', batch=1).step()


@pytest.mark.usefixtures('small_gpt')
def test_each_worker_has_tokens_and_those_that_follow_them():
  what = exchanges.subject('gpt_nano', real=False)
  tokens, following = exchanges.examples(what, batch=2, worker=0)
  others, _ = exchanges.examples(what, batch=2, worker=1)
  assert tokens.shape == following.shape == (1, 2, 256)
  np.testing.assert_array_equal(tokens[..., 1:], following[..., :-1])
  assert np.max(following) > 250 and np.any(tokens != others)
