"""Steps of PyTorch as measured beside ours, in a process with PyTorch.

TERNGRAD_PEER_PYTHON names an interpreter with PyTorch for the tests that need
one; without it, this one is used if it has PyTorch. The other tests use
programs that answer as `peer_process` does.
"""

import importlib.util
import math
import os
import re
import signal
import stat
import sys

import numpy as np
import pytest

from terngrad import errors
from terngrad.measure.processes import exchanges
from terngrad.measure.processes import peer_client
from terngrad.measure.processes import peer_models
from terngrad.measure.processes import peer_nets
from terngrad.measure.processes import peers
from tests.bin import programs

PYTHON = os.environ.get('TERNGRAD_PEER_PYTHON', '')
HAS_TORCH = importlib.util.find_spec('torch') is not None
needs_torch = pytest.mark.skipif(not (PYTHON or HAS_TORCH), reason='no PyTorch')
# Answers the requests of `peer_client`; STEP is what it does in a step.
STAND_IN = """\
#!{python}
import json, os, signal, sys
rank = taken = 0
for line in sys.stdin:
  request = json.loads(line)
  answer = dict(
    describe=dict(python='3.9', torch='0'),
    listen=dict(port=1),
    build=dict(step=0),
  ).get(request['do'], dict())
  rank = request.get('rank', rank)
  if request['do'] == 'step':
    taken += 1
    {step}
  print(json.dumps(answer), flush=True)
"""


@pytest.fixture
def stand_in(tmp_path):
  """Writes a program that answers as a process with PyTorch."""

  def write(step='pass', text=STAND_IN):
    path = tmp_path / 'python'
    path.write_text(text.format(python=sys.executable, step=step))
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return str(path)

  return write


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
  ],
)
def test_invalid_peers_are_refused(text, match):
  with pytest.raises(errors.ConfigError, match=match):
    peers.parse(text)


def refused(python, net='lenet', real=False):
  with pytest.raises(errors.ConfigError) as caught:
    peers.check(python, net, real)
  return str(caught.value)


def test_an_interpreter_without_pytorch_is_refused_with_what_is_missing(
  tmp_path,
):
  # A folder without PyTorch before all others.
  (tmp_path / 'torch.py').write_text('raise ImportError("no torch here")')
  python = tmp_path / 'python'
  python.write_text(
    f'#!/bin/bash\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n'
  )
  python.chmod(0o755)
  message = refused(str(python))
  version = '.'.join(map(str, sys.version_info[:3]))
  assert f'Python {version} without PyTorch (no torch here)' in message
  assert 'python -m venv ENV; ENV/bin/pip install torch' in message
  assert '--peer_python=ENV/bin/python' in message


def test_a_pytorch_without_its_distributed_part_is_refused(tmp_path):
  (tmp_path / 'torch').mkdir()
  (tmp_path / 'torch/__init__.py').write_text('__version__ = "9"')
  (tmp_path / 'torch/distributed.py').write_text('is_available = lambda: False')
  python = tmp_path / 'python'
  python.write_text(
    f'#!/bin/bash\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n'
  )
  python.chmod(0o755)
  assert 'without torch.distributed, which this build' in refused(str(python))


@pytest.mark.parametrize(
  ('text', 'received'),
  [
    (None, 'No such file or directory'),
    ('#!/bin/bash\n', 'a program that ended without an answer'),
    ('#!/bin/bash\ncat\n', 'another program'),
    ('#!/bin/bash\nread -r; echo hello\n', 'another program'),
    ('no program\n', 'Exec format error'),
  ],
)
def test_other_programs_are_refused(tmp_path, stand_in, text, received):
  path = str(tmp_path / 'none') if text is None else stand_in(text=text)
  message = refused(path)
  assert f'expected a Python interpreter with PyTorch, received {path}' in (
    message
  )
  assert received in message


def test_a_pytorch_that_crashes_is_named_with_the_signal(tmp_path):
  (tmp_path / 'torch.py').write_text('import ctypes; ctypes.string_at(0)')
  python = tmp_path / 'python'
  python.write_text(
    f'#!/bin/bash\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n'
  )
  python.chmod(0o755)
  message = refused(str(python))
  assert 'received the end by signal 11 (SIGSEGV) after these lines' in message
  assert 'Fatal Python error: Segmentation fault' in message
  assert 'torch.py' in message and 'A library crashed.' in message


def test_the_environment_of_this_package_is_not_passed_on(
  stand_in, monkeypatch
):
  monkeypatch.setenv('PYTHONPATH', '/ours')
  text = STAND_IN.replace(
    'answer = dict(', 'answer = dict(seen=os.environ) and dict('
  )
  text = text.replace("torch='0'", "torch=os.environ.get('PYTHONPATH', 'none')")
  with peer_client.PeerProcess(stand_in(text=text)) as process:
    assert process.describe()['torch'] == 'none'


def test_a_net_without_a_twin_in_pytorch_is_refused():
  assert 'expected --net=single_column_alexnet or' in refused('', real=True)


def test_the_process_ends_with_the_block(stand_in):
  with peer_client.PeerProcess(stand_in()) as process:
    process.ask('step')
    number = process._process.pid
  with pytest.raises(ProcessLookupError):
    os.kill(number, 0)


def test_an_error_in_a_step_is_one_of_all_processes(stand_in):
  path = stand_in("answer = dict(error='RuntimeError: connection closed')")
  with peer_client.PeerProcess(path) as process:
    with pytest.raises(peer_client.PeerLostError, match='connection closed'):
      process.ask('step')


def test_a_process_that_is_killed_in_a_step_is_named(stand_in):
  path = stand_in('os.kill(os.getpid(), signal.SIGKILL)')
  with peer_client.PeerProcess(path) as process:
    with pytest.raises(errors.TrainingError) as caught:
      process.ask('step')
  assert f'PyTorch in {path}: expected exit code 0, received the end by ' in (
    str(caught.value)
  )
  assert 'signal 9 (SIGKILL)' in str(caught.value)


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


def measure(python, *more):
  return programs.run(
    'measure_exchange',
    *('--processes=2', '--rounds=1', '--net=lenet', '--case=ddp'),
    *('--case=ternary', f'--peer_python={python}', *more),
  )


@pytest.mark.cluster
@pytest.mark.slow
def test_cases_of_another_environment_are_measured_beside_ours(stand_in):
  done = measure(stand_in())
  assert done.code == 0, done.err
  assert re.search(r'^ *ddp +all_reduce +2 ', done.out, re.M)
  assert re.search(r'^ *ternary +', done.out, re.M)


@pytest.mark.cluster
@pytest.mark.slow
@pytest.mark.parametrize('rank', [0, 1])
def test_a_crash_of_pytorch_in_one_process_is_named_and_ends_all(
  stand_in, rank
):
  """As gloo does, the other process reports an error."""
  dies = f'os.kill(os.getpid(), signal.SIGSEGV) if rank == {rank} else '
  dies += "answer.update(error='RuntimeError: connection closed')"
  done = measure(stand_in(f'taken > 1 and ({dies})'))
  assert done.code == 1, done.err
  assert f'the end by signal {signal.SIGSEGV} (SIGSEGV)' in done.err
  assert '--peer_python=ENV/bin/python' in done.err


@pytest.mark.cluster
@pytest.mark.slow
@needs_torch
def test_measured_bytes_of_peers_match_the_formula():
  finished = programs.run(
    'measure_exchange',
    *('--processes=2', '--rounds=3', '--net=alexnet', '--case=ddp'),
    *('--case=ddp:hook=fp16', '--case=ternary', f'--peer_python={PYTHON}'),
  )
  assert finished.code == 0, finished.err
  rows = re.findall(r'^ *(ddp\S*) +all_reduce +2 (.+)$', finished.out, re.M)
  assert [name for name, _ in rows] == ['ddp', 'ddp:hook=fp16']
  # The share by which the interface sent more: headers, and what our own group
  # says meanwhile.
  plain, half = [float(row.split()[-2]) for _, row in rows]
  assert 0 <= plain < 0.1, finished.out
  assert 0 <= half < 0.1, finished.out


@pytest.mark.cluster
@pytest.mark.slow
@needs_torch
def test_powersgd_is_measured_or_its_crash_is_named():
  """gloo of some versions mixes up the collectives of this hook, and aborts."""
  done = programs.run(
    'measure_exchange',
    *('--processes=2', '--rounds=1', '--net=alexnet'),
    *('--case=ddp:hook=powersgd,rank=2', f'--peer_python={PYTHON}'),
  )
  if done.code:
    assert 'PyTorch in ' in done.err and '(SIGABRT)' in done.err, done.err
  else:
    assert re.search(r'^ *ddp:hook=powersgd,rank=2 +all_reduce', done.out, re.M)


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TORCH, reason='no PyTorch here')
@pytest.mark.parametrize('net', peers.NETS)
def test_peer_nets_have_the_parameters_of_our_nets(net):
  what = exchanges.subject(net, real=True)
  model, loss = peer_models.make(
    vars(peer_nets),
    peers.NETS[net],
    what.shapes,
    what.example,
    what.classes,
    2,
    0,
  )
  sizes = sorted(p.numel() for p in model.parameters())
  assert sizes == sorted(math.prod(shape) for shape in what.shapes)
  assert math.isfinite(loss(model).item())


@pytest.mark.slow
@pytest.mark.skipif(not HAS_TORCH, reason='no PyTorch here')
def test_a_transformer_of_pytorch_computes_the_logits_of_ours():
  import torch

  what = exchanges.subject('gpt_nano', real=True)
  twin = peer_nets.gpt_nano(what.classes)
  with torch.no_grad():
    for ours, theirs in zip(
      what.model.trainable_variables, twin.parameters(), strict=True
    ):
      # PyTorch has the output axis of a layer first, of an embedding last.
      swaps = ours.name == 'kernel'
      value = ours.numpy().T if swaps else ours.numpy()
      theirs.copy_(torch.from_numpy(np.array(value)))
  tokens, _ = exchanges.examples(what, 2, 0)
  found = twin(torch.from_numpy(tokens[0].numpy()).long()).detach().numpy()
  np.testing.assert_allclose(found, what.model(tokens[0]), rtol=0, atol=1e-5)


def test_a_row_says_how_pytorch_runs():
  assert peers.describe('ternary') == ''
  assert 'process; buckets of 25 MB; zero' in peers.describe('ddp:hook=fp16')
  assert 'process; 1 bucket; ' in peers.describe('ddp:hook=powersgd,rank=2')
