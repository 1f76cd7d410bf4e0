"""A process with PyTorch, which takes the steps that `peers` asks for.

`peers` starts this file by its path, with an interpreter that needs PyTorch and
nothing else: neither this package nor TensorFlow. The file keeps to the syntax
of Python 3.9.

A request is a line of JSON on the standard input, an answer a line on the
standard output. At the end of its input the process ends, whatever it does.
"""

import json
import os
import pathlib
import queue
import runpy
import signal
import sys
import threading
from collections.abc import Callable

# PyTorch is imported on use, and its types are unknown.
from typing import Any

_LEARNING_RATE = 1e-6
# PowerSGD's first steps send float32.
_FLOAT_STEPS = 2
_HOOKS = 'torch.distributed.algorithms.ddp_comm_hooks'
_Request = dict[str, Any]


def describe() -> _Request:
  """Returns the versions of Python and PyTorch, or {'missing': what}."""
  found = {'python': '.'.join(map(str, sys.version_info[:3]))}
  try:
    import torch
    import torch.distributed
  except ImportError as error:
    return {**found, 'missing': f'PyTorch ({error})'}
  found['torch'] = torch.__version__
  distributed = torch.distributed
  if not (distributed.is_available() and hasattr(distributed, 'TCPStore')):
    return {
      **found,
      'missing': 'torch.distributed, which this build leaves out',
    }
  return found


class Steps:
  """The steps of this process, by their numbers."""

  def __init__(self) -> None:
    """Joins nothing yet."""
    self._steps: list[Callable[[], None]] = []
    self._store: Any = None

  def listen(self, request: _Request) -> _Request:
    """Opens the store where the processes meet; returns its port."""
    import torch

    self._store = torch.distributed.TCPStore(
      request['host'], 0, request['size'], True, wait_for_workers=False
    )
    return {'port': self._store.port}

  def join(self, request: _Request) -> _Request:
    """Joins the process group."""
    import torch

    if request['interface']:
      os.environ['GLOO_SOCKET_IFNAME'] = request['interface']
    if request['threads']:
      torch.set_num_threads(request['threads'])
    rank, size = request['rank'], request['size']
    store = self._store or torch.distributed.TCPStore(
      request['host'], request['port'], size, False
    )
    torch.distributed.init_process_group(
      'gloo', store=store, rank=rank, world_size=size
    )
    return {}

  def build(self, request: _Request) -> _Request:
    """Builds a model and its step; returns the number of the step."""
    import torch

    torch.manual_seed(1)
    hook = request['hook']
    nets = _load('peer_nets')
    model, loss = _load('peer_models')['make'](nets, **request['model'])
    parallel = torch.nn.parallel.DistributedDataParallel(
      model, bucket_cap_mb=request['bucket_mb']
    )
    try:
      _register(parallel, hook, request['hook_rank'])
    except (AttributeError, ImportError, TypeError) as error:
      return {'refused': str(error), 'torch': torch.__version__}
    optimizer = torch.optim.SGD(parallel.parameters(), _LEARNING_RATE)

    def step() -> None:
      optimizer.zero_grad()
      loss(parallel).backward()
      optimizer.step()

    for _ in range(_FLOAT_STEPS if hook == 'powersgd' else 0):
      step()
    self._steps.append(step)
    return {'step': len(self._steps) - 1}

  def step(self, request: _Request) -> _Request:
    """Takes a step."""
    self._steps[request['step']]()
    return {}


def _register(parallel: Any, hook: str, rank: int) -> None:
  """Registers the communication hook of a model."""
  import importlib

  import torch

  if hook == 'powersgd':
    module = importlib.import_module(f'{_HOOKS}.powerSGD_hook')
    state = module.PowerSGDState(
      None, matrix_approximation_rank=rank, start_powerSGD_iter=_FLOAT_STEPS
    )
    parallel.register_comm_hook(state, module.powerSGD_hook)
  elif hook != 'none':
    module = importlib.import_module(f'{_HOOKS}.default_hooks')
    function = getattr(module, f'{hook}_compress_hook')
    parallel.register_comm_hook(torch.distributed.group.WORLD, function)


def _load(name: str) -> dict[str, Any]:
  """Loads a file beside this one; this process may lack the package."""
  return runpy.run_path(str(pathlib.Path(__file__).with_name(f'{name}.py')))


def _read(requests: 'queue.SimpleQueue[_Request]') -> None:
  """Reads requests; ends the process at the end of the input."""
  for line in sys.stdin:
    requests.put(json.loads(line))
  os._exit(0)


def main() -> None:
  """Answers requests until the end of the input."""
  # A terminal sends it to all processes. The one that asks ends this one.
  signal.signal(signal.SIGINT, signal.SIG_IGN)
  # What libraries print must not come between the answers.
  answers = os.fdopen(os.dup(1), 'w')
  os.dup2(2, 1)
  requests: queue.SimpleQueue[_Request] = queue.SimpleQueue()
  threading.Thread(target=_read, args=(requests,), daemon=True).start()
  steps = Steps()
  acts = {
    'describe': lambda request: describe(),
    'listen': steps.listen,
    'join': steps.join,
    'build': steps.build,
    'step': steps.step,
  }
  while True:
    request = requests.get()
    try:
      answer = acts[request['do']](request)
    except Exception as error:
      first, *_ = str(error).splitlines() or ['']
      answer = {'error': f'{type(error).__name__}: {first}'}
    answers.write(json.dumps(answer) + '\n')
    answers.flush()


if __name__ == '__main__':
  # Its folder is no place for PyTorch to find modules in.
  sys.path.pop(0)
  main()
