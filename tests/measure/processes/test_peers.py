"""Steps of PyTorch as measured beside ours, if PyTorch is installed."""

import importlib
import importlib.util
import math
import re
import sys

import pytest

from terngrad import errors
from terngrad.measure.processes import exchanges
from terngrad.measure.processes import peers
from tests.bin import programs


@pytest.mark.parametrize('text', ['ddp', 'ddp:hook=fp16'])
def test_peers_are_recognized_by_name(text):
  assert peers.is_peer(text)
  assert not peers.is_peer(f'no_{text}')


@pytest.mark.parametrize(
  ('text', 'match'),
  [
    ('ddp:hook=fp15', "hook: expected one of .*Did you mean 'fp16'"),
    ('ddp:rank=0', 'rank: expected a number from 1'),
    ('ddp:bits=3', 'an option of hook, rank'),
    ('ddp', 'expected PyTorch for ddp'),
  ],
)
def test_invalid_peers_are_refused(text, match, monkeypatch):
  monkeypatch.setitem(sys.modules, 'torch', None)
  with pytest.raises(errors.ConfigError, match=match):
    peers.case(None, None, '', text, 1, '')


@pytest.mark.parametrize(
  ('shape', 'rank', 'elements'),
  [
    ((9216, 4096), 0, 9216 * 4096),
    ((9216, 4096), 4, 4 * (9216 + 4096)),
    ((5, 5, 64, 192), 1, 5 * 5 * 64 + 192),
    # As large as half of it, or of one axis: as it is.
    ((4, 4), 1, 16),
    ((4096,), 1, 4096),
  ],
)
def test_powersgd_sends_two_factors_of_a_matrix(shape, rank, elements):
  assert peers.elements_sent([shape], rank) == elements


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec('torch') is None, reason='no PyTorch'
)
def test_measured_bytes_of_peers_match_the_formula():
  finished = programs.run(
    'measure_exchange',
    *('--processes=2', '--rounds=3', '--net=alexnet', '--case=ddp'),
    *('--case=ddp:hook=fp16', '--case=ddp:hook=powersgd,rank=2'),
    '--case=ternary',
  )
  assert finished.code == 0, finished.err
  rows = re.findall(r'^ *(ddp\S*) +all_reduce +2 (.+)$', finished.out, re.M)
  assert [name for name, _ in rows] == [
    'ddp',
    'ddp:hook=fp16',
    'ddp:hook=powersgd,rank=2',
  ]
  # The share by which the interface sent more: headers, and what our own group
  # says meanwhile, which beside factors is much.
  plain, half, factors = [float(row.split()[-2]) for _, row in rows]
  assert 0 <= plain < 0.1, finished.out
  assert 0 <= half < 0.1, finished.out
  assert 0 <= factors, finished.out


@pytest.mark.slow
@pytest.mark.skipif(
  importlib.util.find_spec('torch') is None, reason='no PyTorch'
)
@pytest.mark.parametrize('net', [exchanges.RACE, 'resnet_v1_50'])
def test_peer_nets_have_the_parameters_of_our_nets(net):
  torch = importlib.import_module('torch')
  what = exchanges.subject(net, real=True)
  model, loss = peers._model(torch, what, 2, 0)
  sizes = sorted(p.numel() for p in model.parameters())
  assert sizes == sorted(math.prod(shape) for shape in what.shapes)
  assert math.isfinite(loss(model).item())
