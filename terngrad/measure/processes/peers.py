"""The same steps in PyTorch's DistributedDataParallel, if it is installed.

DistributedDataParallel is the common alternative. gloo all-reduces gradients
during the backward pass, as float32 or with a communication hook. PyTorch is in
a separate process, `peer_process`, and may be in a separate environment, since
the libraries of PyTorch and TensorFlow may clash in one process.

References:
  Li et al., PyTorch Distributed, https://arxiv.org/abs/2006.15704.
  Vogels et al., PowerSGD, https://arxiv.org/abs/1905.13727.
"""

import math
from collections.abc import Sequence

import numpy as np
import tensorflow as tf

from slim import spelling
from terngrad import errors
from terngrad.exchange import group as groups
from terngrad.measure.processes import exchanges
from terngrad.measure.processes import peer_client

NAME = 'ddp'
_PLAIN, _POWERSGD = 'none', 'powersgd'
# Bytes per element, for hooks that send every element.
_WIDTHS = {_PLAIN: 4, 'fp16': 2, 'bf16': 2}
_HOOKS = (*_WIDTHS, _POWERSGD)
# MB. With several buckets gloo mixes up PowerSGD's collectives.
_DEFAULT_BUCKET, _ONE_BUCKET = 25, 2**11
# Functions of `peer_nets`, by the names of the nets.
NETS = {
  exchanges.RACE: 'alexnet',
  **{name: name for name in ('resnet_v1_50', 'gpt_nano', 'gpt_small')},
}


def is_peer(text: str) -> bool:
  """Returns whether a case is PyTorch's, such as 'ddp' or 'ddp:hook=fp16'."""
  return spelling.split(text)[0] == NAME


def parse(text: str) -> tuple[str, int]:
  """Returns the (hook, rank) of a case.

  Args:
    text: 'ddp', with options: `hook` (none, fp16, bf16 or powersgd) and `rank`
      (of powersgd).

  Raises:
    errors.ConfigError: an option is unknown or invalid.
  """
  with errors.as_config_error():
    return spelling.make('case', text, {NAME: _validate})


def check(python: str, net: str, real: bool) -> None:
  """Checks that cases of PyTorch can run, before any process starts.

  Args:
    python: the interpreter with PyTorch; '' for this one.
    net: a name in `exchanges.NETS`.
    real: whether the net's passes run.

  Raises:
    errors.ConfigError: the interpreter cannot be started or lacks PyTorch, or
      the net is not written for PyTorch.
  """
  if real and net not in NETS:
    raise errors.ConfigError(
      f'case: expected --net={" or ".join(NETS)} for {NAME} with --real, the '
      f'nets that are written for PyTorch too, received {net}. Choose one of '
      'them, or remove --real.'
    )
  with peer_client.PeerProcess(python) as process:
    process.describe()


def join(
  process: peer_client.PeerProcess,
  group: groups.Group,
  host: str,
  interface: str,
) -> None:
  """Lets the processes with PyTorch find each other.

  Args:
    process: the process beside this one.
    group: the process group, used to exchange the address of PyTorch's store.
    host: name or address of the first process's machine.
    interface: network interface that gloo uses; '' lets gloo choose.
  """
  size, port = group.size, 0
  if group.rank == 0:
    port = process.ask('listen', host=host, size=size)['port']
  ports = group.all_gather_now(np.array([[port]], np.int32))
  process.ask(
    'join',
    host=host,
    port=int(ports[0, 0]),
    rank=group.rank,
    size=size,
    interface=interface,
    threads=tf.config.threading.get_intra_op_parallelism_threads(),
  )


def case(
  what: exchanges.Subject,
  group: groups.Group,
  process: peer_client.PeerProcess,
  text: str,
  batch: int,
) -> exchanges.MeasuredStep:
  """Builds a case.

  Args:
    what: the model or the gradients.
    group: the process group.
    process: the process with PyTorch beside this one, after `join`.
    text: the case, as for `parse`.
    batch: examples per process.

  Returns:
    A case that counts the bytes of a ring all-reduce. PowerSGD's first two
    steps, which send float32, have been run already.

  Raises:
    errors.ConfigError: PyTorch lacks the hook.
  """
  hook, rank = parse(text)
  answer = process.ask(
    'build',
    model={
      'net': NETS[what.model.name] if what.model else '',
      'shapes': what.shapes,
      'example': what.example,
      'classes': what.classes,
      'batch': batch,
      'seed': group.rank,
    },
    hook=hook,
    hook_rank=rank,
    bucket_mb=_bucket_size(hook),
  )
  if 'refused' in answer:
    raise errors.ConfigError(
      f'case: expected a hook of PyTorch {answer["torch"]}, received {text}: '
      f'{answer["refused"]}. Use another hook.'
    )

  def step() -> None:
    process.ask('step', step=answer['step'])

  elements = elements_sent(what.shapes, rank if hook == _POWERSGD else 0)
  share = 2 * (group.size - 1) / group.size
  return exchanges.MeasuredStep(
    step, share * _WIDTHS.get(hook, 4) * elements, ['all_reduce']
  )


def describe(text: str) -> str:
  """Describes how PyTorch runs a case, for its row; '' for other cases."""
  if not is_peer(text):
    return ''
  hook, _ = parse(text)
  size = _bucket_size(hook)
  buckets = '1 bucket' if size == _ONE_BUCKET else f'buckets of {size} MB'
  return f'separate process; {buckets}; zero_grad()'


def _bucket_size(hook: str) -> int:
  return _ONE_BUCKET if hook == _POWERSGD else _DEFAULT_BUCKET


def _validate(hook: str = _PLAIN, rank: int = 1) -> tuple[str, int]:
  """Returns the validated (hook, rank)."""
  spelling.check_name('hook', hook, _HOOKS)
  if not 1 <= rank <= 1024:
    raise ValueError(
      f'rank: expected a number from 1 to 1024, received {rank}. Use rank=1.'
    )
  return hook, rank


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
