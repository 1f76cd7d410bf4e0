"""Flags of Caffe2's trainer for its libraries, and what they mean here."""

import dataclasses
import os
from typing import Any

from terngrad.cli import flags
from terngrad.config import options

# TensorFlow reads it when it first chooses an algorithm of cuDNN.
WORKSPACE_VARIABLE = 'TF_CUDNN_WORKSPACE_LIMIT_IN_MB'
_TRANSPORTS = ('tcp', 'ibverbs')
_KERAS = ('.keras', '.h5')
_FLOAT = 'float'

option = options.option


@dataclasses.dataclass(frozen=True, kw_only=True)
class Caffe2Flags:
  """Flags that select devices, types and files in Caffe2."""

  use_cpu: bool = option(
    False, 'Use --num_gpus logical CPU devices and no GPU.', 'devices'
  )
  cudnn_workspace_limit_mb: int = option(
    0, "Memory of a cuDNN convolution, in MB; 0: TensorFlow's limit.", 'devices'
  )
  dtype: str = option(
    _FLOAT,
    'Type in which layers compute: float (float32), bfloat16 or float16. '
    'Parameters, logits and gradients are float32. float16 uses loss scaling, '
    'which skips a step whose gradients are not finite.',
    'model',
  )
  float16_compute: bool = option(
    False, 'The same as --dtype=float16: mixed precision.', 'model'
  )
  enable_tensor_core: bool = option(
    False, 'Accepted without effect: TensorFlow uses tensor cores.', 'model'
  )
  load_model_path: str = option(
    '',
    'Checkpoint to continue from, or a file saved by Keras whose weights to '
    'start from.',
    'start',
  )
  save_model_name: str = option(
    '',
    'At the end, also write the net to this name with .keras in --train_dir, '
    'as terngrad export does.',
    'run',
  )
  distributed_transport: str = option(
    'tcp',
    'tcp. ibverbs is accepted without effect: collectives use gRPC over TCP.',
    'cluster',
  )
  distributed_interfaces: str = option(
    '',
    'Network interface, such as eth0, at whose address other machines reach '
    'this one; of several, separated by commas, the first.',
    'cluster',
  )


def options_of(values: Any) -> dict[str, Any]:
  """Returns the options of the training configuration that the flags set.

  Args:
    values: `Caffe2Flags` with the flags of the initial values.

  Raises:
    flags.UsageError: flags contradict each other.
    terngrad.errors.ConfigError: a flag has an invalid value.
  """
  options.choice(
    'distributed_transport', values.distributed_transport, _TRANSPORTS
  )
  limit = values.cudnn_workspace_limit_mb
  options.at_least('cudnn_workspace_limit_mb', limit, 0)
  name = values.save_model_name
  if os.path.basename(name) != name:
    raise flags.UsageError(
      '--save_model_name: expected a name without a folder, received '
      f'{name[:200]!r}. The net is written to --train_dir.'
    )
  dtype = 'float32' if values.dtype == _FLOAT else values.dtype
  if values.float16_compute:
    if dtype == 'bfloat16':
      raise flags.UsageError(
        '--float16_compute: expected --dtype=float or float16 beside it, '
        'received bfloat16. Leave one of the two out.'
      )
    dtype = 'float16'
  found = {'dtype': dtype}
  if values.load_model_path:
    for name in ('model_checkpoint_path', 'weights'):
      if path := getattr(values, f'pretrained_{name}'):
        raise flags.UsageError(
          f'--load_model_path: expected no --pretrained_{name} beside it, '
          f'received {path}. Choose one file to start from.'
        )
    is_keras = values.load_model_path.endswith(_KERAS)
    name = 'weights' if is_keras else 'model_checkpoint_path'
    found[f'pretrained_{name}'] = values.load_model_path
  return found


def set_environment(values: Caffe2Flags) -> None:
  """Passes the limit of cuDNN's memory to TensorFlow."""
  if values.cudnn_workspace_limit_mb:
    os.environ[WORKSPACE_VARIABLE] = str(values.cudnn_workspace_limit_mb)


def remarks(values: Any) -> list[str]:
  """Returns a line for each given flag that has no effect, with the reason.

  Args:
    values: `Caffe2Flags` with the flags of the rendezvous.
  """
  found = {}
  if values.enable_tensor_core:
    found['enable_tensor_core'] = (
      'TensorFlow uses tensor cores on every GPU that has them. '
      '--dtype=float16 makes more use of them.'
    )
  if values.distributed_transport != _TRANSPORTS[0]:
    found['distributed_transport'] = (
      "TensorFlow's collectives use gRPC over TCP. For InfiniBand give the "
      'interface of IP over InfiniBand, --distributed_interfaces=ib0.'
    )
  if values.num_shards == 1:
    for name in ('file_store_path', 'redis_host', 'distributed_interfaces'):
      if getattr(values, name):
        found[name] = 'with --num_shards=1 there is no other machine to find.'
  return [f'--{name} has no effect: {why}' for name, why in found.items()]
