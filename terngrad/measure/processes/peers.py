"""The same steps in PyTorch's DistributedDataParallel, if it is installed.

DistributedDataParallel is the common alternative. gloo all-reduces gradients
during the backward pass, as float32 or with a communication hook.

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

# PyTorch is optional: it is imported on use, and its types are unknown.
from typing import Any

import numpy as np
import tensorflow as tf

from slim import spelling
from terngrad import errors
from terngrad.exchange import group as groups
from terngrad.measure.processes import exchanges
from terngrad.measure.processes import peer_nets

NAME = 'ddp'
_LEARNING_RATE = 1e-6
_FLOAT_STEPS = 2
_PLAIN, _POWERSGD = 'none', 'powersgd'
# Bytes per element, for hooks that send every element.
_WIDTHS = {_PLAIN: 4, 'fp16': 2, 'bf16': 2}
_HOOKS_OF = 'torch.distributed.algorithms.ddp_comm_hooks'
_HOOKS = (*_WIDTHS, _POWERSGD)
_NETS = {
  exchanges.RACE: peer_nets.alexnet,
  'resnet_v1_50': peer_nets.resnet_v1_50,
}


def is_peer(text: str) -> bool:
  """Returns whether a case is PyTorch's, such as 'ddp' or 'ddp:hook=fp16'."""
  return spelling.split(text)[0] == NAME


def case(
  what: exchanges.Subject,
  group: groups.Group,
  host: str,
  text: str,
  batch: int,
  interface: str,
) -> exchanges.MeasuredStep:
  """Builds a case.

  Args:
    what: the model or the gradients.
    group: the process group, used to exchange the address of PyTorch's store.
    host: name or address of the first process's machine.
    text: 'ddp', with options: `hook` (none, fp16, bf16 or powersgd) and `rank`
      (of powersgd).
    batch: examples per process.
    interface: network interface that gloo uses; '' lets gloo choose.

  Returns:
    A case that counts the bytes of a ring all-reduce. PowerSGD's first two
    steps, which send float32, have been run already.

  Raises:
    errors.ConfigError: PyTorch is not installed or lacks the hook.
  """
  with errors.as_config_error():
    hook, rank = spelling.make('case', text, {NAME: _validate})
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
      'case: expected a hook that this PyTorch supports, received '
      f'{text}: {error}. Use another hook.'
    ) from error
  optimizer = torch.optim.SGD(parallel.parameters(), _LEARNING_RATE)

  def step() -> None:
    optimizer.zero_grad(set_to_none=False)
    loss(parallel).backward()
    optimizer.step()

  if hook == _POWERSGD:
    for _ in range(_FLOAT_STEPS):
      step()
  elements = elements_sent(what.shapes, rank if hook == _POWERSGD else 0)
  share = 2 * (group.size - 1) / group.size
  return exchanges.MeasuredStep(
    step, share * _WIDTHS.get(hook, 4) * elements, ['all_reduce']
  )


def _validate(hook: str = _PLAIN, rank: int = 1) -> tuple[str, int]:
  """Returns the validated (hook, rank)."""
  spelling.check_name('hook', hook, _HOOKS)
  if not 1 <= rank <= 1024:
    raise ValueError(
      f'rank: expected a number from 1 to 1024, received {rank}. Use rank=1.'
    )
  return hook, rank


def _torch() -> types.ModuleType:
  """Imports PyTorch."""
  try:
    return importlib.import_module('torch')
  except ImportError as error:
    raise errors.ConfigError(
      f'case: expected PyTorch for {NAME}, received "{error}". Install it with '
      '`pip install torch`, or remove the case.'
    ) from error


def _join(
  torch: types.ModuleType, group: groups.Group, host: str, interface: str
) -> None:
  """Initializes PyTorch's process group, once."""
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
  """Registers the communication hook of a model."""
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
  """Returns (a module, a function that maps the module to its loss)."""
  if what.model is None:
    return _fixed_gradients(what.shapes), lambda model: model()
  if what.model.name not in _NETS:
    raise errors.ConfigError(
      f'case: expected --net={" or ".join(_NETS)} for {NAME} with --real, '
      'the nets that are written for PyTorch too, received '
      f'{what.model.name}. Choose one of them, or remove --real.'
    )
  generator = torch.Generator().manual_seed(worker)
  images = torch.randn(
    batch, what.image[2], *what.image[:2], generator=generator
  )
  labels = torch.randint(0, what.classes, (batch,), generator=generator)
  entropy = torch.nn.functional.cross_entropy
  model = _NETS[what.model.name](what.classes)
  return model, lambda model: entropy(model(images), labels)


def _fixed_gradients(shapes: Sequence[Sequence[int]]) -> Any:
  """Returns a module whose backward pass gives fixed Gaussian gradients."""
  import torch

  class FixedGradients(torch.autograd.Function):
    """Computes zero, with fixed gradients."""

    @staticmethod
    def forward(ctx: Any, drawn: list[Any], *parameters: Any) -> Any:
      ctx.drawn = drawn
      return parameters[0].new_zeros([])

    @staticmethod
    def backward(ctx: Any, upstream: Any) -> tuple[Any, ...]:
      return None, *ctx.drawn

  class Module(torch.nn.Module):
    """A module with parameters of the given shapes."""

    def __init__(self) -> None:
      super().__init__()
      self.variables = torch.nn.ParameterList(torch.zeros(s) for s in shapes)
      self.drawn = [torch.randn(s) for s in shapes]

    def forward(self) -> Any:
      return FixedGradients.apply(self.drawn, *self.variables)

  return Module()


def elements_sent(shapes: Sequence[Sequence[int]], rank: int) -> int:
  """Counts the elements that are all-reduced in a step.

  Args:
    shapes: shapes of the variables, with the output axis last.
    rank: rank of PowerSGD; 0 for no PowerSGD, which sends all elements. An n x
      m matrix sends rank (n + m) elements if that is less than half of its
      elements, since the hook's `min_compression_rate` is 2.
  """
  total = 0
  for shape in shapes:
    elements = math.prod(shape)
    # PyTorch has the output axis first.
    outputs = shape[-1] if len(shape) > 1 else elements
    inputs = elements // outputs
    factors = min(rank, outputs, inputs) * (outputs + inputs)
    total += factors if 0 < 2 * factors < elements else elements
  return total
