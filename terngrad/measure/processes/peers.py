"""The same steps by PyTorch's DistributedDataParallel, where it is installed.

It is what many would take otherwise: gradients are all-reduced by gloo while
others are computed, as float32 or by one of its communication hooks.

References:
  Li et al., PyTorch Distributed, https://arxiv.org/abs/2006.15704.
  Vogels et al., PowerSGD, https://arxiv.org/abs/1905.13727.
"""

import importlib
import math
import os
import types
from collections.abc import Callable
from collections.abc import Sequence

# PyTorch may be absent, and so its types are; it is imported when needed.
from typing import Any

import numpy as np
import tensorflow as tf

from slim import spelling
from terngrad import errors
from terngrad.exchange import group as groups
from terngrad.measure.processes import exchanges
from terngrad.measure.processes import peer_nets

NAME = 'ddp'
_RATE = 1e-6
_FLOAT_STEPS = 2
_PLAIN, _POWERSGD = 'none', 'powersgd'
# Bytes of an element, where all are sent.
_WIDTHS = {_PLAIN: 4, 'fp16': 2, 'bf16': 2}
_HOOKS_OF = 'torch.distributed.algorithms.ddp_comm_hooks'
_HOOKS = (*_WIDTHS, _POWERSGD)
_NETS = {
  exchanges.RACE: peer_nets.alexnet,
  'resnet_v1_50': peer_nets.resnet_v1_50,
}


def is_peer(text: str) -> bool:
  """Whether a case is one of this module's: 'ddp', 'ddp:hook=fp16'."""
  return spelling.split(text)[0] == NAME


def case(
  what: exchanges.Subject,
  group: groups.Group,
  host: str,
  text: str,
  batch: int,
  interface: str,
) -> exchanges.Case:
  """Builds a case.

  Args:
    what: is trained.
    group: by which the processes tell each other where they meet.
    host: name or address of the first process's machine.
    text: 'ddp', with options: hook of none, fp16, bf16 and powersgd; rank, of
      powersgd.
    batch: examples a process.
    interface: network interface that gloo uses; '' for its own choice.

  Returns:
    Its bytes are those of a ring all-reduce. PowerSGD's first two steps, which
    send float32, are behind it.

  Raises:
    errors.ConfigError: PyTorch is not there, or has no such hook.
  """
  with errors.as_config_error():
    hook, rank = spelling.make('case', text, {NAME: _choice})
  torch = _torch()
  _join(torch, group, host, interface)
  torch.set_num_threads(tf.config.threading.get_intra_op_parallelism_threads())
  torch.manual_seed(1)
  model, loss = _model(torch, what, batch, group.rank)
  parallel = torch.nn.parallel.DistributedDataParallel(
    model,
    # With several buckets gloo mixes up PowerSGD's collectives.
    bucket_cap_mb=2**11 if hook == _POWERSGD else 25,
  )
  try:
    _register(torch, parallel, hook, rank)
  except TypeError as error:
    raise errors.ConfigError(
      f'case: expected a hook that PyTorch has here, received {text}: {error}. '
      'Use another.'
    ) from error
  optimizer = torch.optim.SGD(parallel.parameters(), _RATE)

  def step() -> None:
    optimizer.zero_grad(set_to_none=False)
    loss(parallel).backward()
    optimizer.step()

  if hook == _POWERSGD:
    for _ in range(_FLOAT_STEPS):
      step()
  elements = elements_sent(what.shapes, rank if hook == _POWERSGD else 0)
  share = 2 * (group.size - 1) / group.size
  return exchanges.Case(
    step, share * _WIDTHS.get(hook, 4) * elements, ['all_reduce']
  )


def _choice(hook: str = _PLAIN, rank: int = 1) -> tuple[str, int]:
  """(hook, rank) of a text."""
  spelling.check_name('hook', hook, _HOOKS)
  if not 1 <= rank <= 1024:
    raise ValueError(
      f'rank: expected one from 1 to 1024, received {rank}. Use rank=1.'
    )
  return hook, rank


def _torch() -> types.ModuleType:
  """PyTorch, imported when it is needed."""
  try:
    return importlib.import_module('torch')
  except ImportError as error:
    raise errors.ConfigError(
      f'case: expected PyTorch for {NAME}, received "{error}". Install it: '
      'pip install torch, or leave the case out.'
    ) from error


def _join(
  torch: types.ModuleType, group: groups.Group, host: str, interface: str
) -> None:
  """Makes the group of all processes, once."""
  distributed = torch.distributed
  if distributed.is_initialized():
    return
  if interface:
    os.environ['GLOO_SOCKET_IFNAME'] = interface
  store = None
  if group.rank == 0:
    store = distributed.TCPStore(
      host, 0, group.size, is_master=True, wait_for_workers=False
    )
  port = np.array([[store.port if store else 0]], np.int32)
  ports = group.all_gather_now(port)
  if store is None:
    store = distributed.TCPStore(host, int(ports[0, 0]), group.size)
  distributed.init_process_group(
    'gloo', store=store, rank=group.rank, world_size=group.size
  )


def _register(
  torch: types.ModuleType, parallel: Any, hook: str, rank: int
) -> None:
  """Gives a model its communication hook."""
  if hook == _POWERSGD:
    module = importlib.import_module(f'{_HOOKS_OF}.powerSGD_hook')
    state = module.PowerSGDState(
      None, matrix_approximation_rank=rank, start_powerSGD_iter=_FLOAT_STEPS
    )
    parallel.register_comm_hook(state, module.powerSGD_hook)
  elif hook != _PLAIN:
    module = importlib.import_module(f'{_HOOKS_OF}.default_hooks')
    function = getattr(module, f'{hook}_compress_hook')
    parallel.register_comm_hook(torch.distributed.group.WORLD, function)


def _model(
  torch: types.ModuleType, what: exchanges.Subject, batch: int, worker: int
) -> tuple[Any, Callable[[Any], Any]]:
  """(a module, a function of it that returns the loss)."""
  if what.model is None:
    return _given_gradients(what.shapes), lambda model: model()
  if what.model.name not in _NETS:
    raise errors.ConfigError(
      f'case: expected --net of {", ".join(_NETS)} for {NAME} with --real, '
      f'those that are written for both, received {what.model.name}. Choose '
      'one of them, or leave --real out.'
    )
  generator = torch.Generator().manual_seed(worker)
  images = torch.randn(
    batch, what.image[2], *what.image[:2], generator=generator
  )
  labels = torch.randint(0, what.classes, (batch,), generator=generator)
  entropy = torch.nn.functional.cross_entropy
  model = _NETS[what.model.name](what.classes)
  return model, lambda model: entropy(model(images), labels)


def _given_gradients(shapes: Sequence[Sequence[int]]) -> Any:
  """A module without passes: its gradients are Gaussian numbers."""
  import torch

  class Given(torch.autograd.Function):
    """Zero, of gradients that are drawn once."""

    @staticmethod
    def forward(ctx: Any, drawn: list[Any], *parameters: Any) -> Any:
      ctx.drawn = drawn
      return parameters[0].new_zeros([])

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> tuple[Any, ...]:
      return None, *ctx.drawn

  class Module(torch.nn.Module):
    """Parameters of some shapes."""

    def __init__(self) -> None:
      super().__init__()
      self.variables = torch.nn.ParameterList(torch.zeros(s) for s in shapes)
      self.drawn = [torch.randn(s) for s in shapes]

    def forward(self) -> Any:
      return Given.apply(self.drawn, *self.variables)

  return Module()


def elements_sent(shapes: Sequence[Sequence[int]], rank: int) -> int:
  """Elements that are all-reduced in a step.

  Args:
    shapes: of the variables, outputs last.
    rank: of PowerSGD, of which a matrix n x m sends rank (n + m) elements where
      that is less than half of it, as the hook's `min_compression_rate` of 2
      has it; 0 for none, which sends all.
  """
  total = 0
  for shape in shapes:
    elements = math.prod(shape)
    # PyTorch has the axis of the outputs first.
    outputs = shape[-1] if len(shape) > 1 else elements
    inputs = elements // outputs
    factors = min(rank, outputs, inputs) * (outputs + inputs)
    total += factors if 0 < 2 * factors < elements else elements
  return total
