"""Options of the devices, of the nodes and of the parts of a batch."""

import dataclasses

from terngrad import aliases
from terngrad import errors
from terngrad.config import options

AUTO = 'auto'
STATISTICS = ('averaged', 'per_device', 'synchronized')
JIT_COMPILE = (AUTO, 'true', 'false')
# Why workers of several devices do not allow other options.
_WHY_NOT = {
  'num_nodes': 'the number of devices sets the number of nodes',
  'device_weights': 'the devices of a node get equal parts',
  'bn_statistics': 'moving statistics are averaged over all devices',
}

__getattr__ = aliases.renamed_names(__name__, Devices='DeviceOptions')


@dataclasses.dataclass(frozen=True, kw_only=True)
class DeviceOptions(options.ConfigPart):
  """Options of the devices, of the nodes and of the parts of a batch."""

  bn_statistics: str = options.option(
    'averaged',
    'Batch normalization. averaged: each node normalizes over its local '
    'examples, and moving statistics are averaged over all nodes in each step. '
    'per_device: they are averaged over the nodes of each device only, and '
    'differ between devices. synchronized: every layer normalizes over the '
    'examples of all nodes; needs one node per device.',
    on_resume=options.REFUSED,
  )
  gradient_accumulation_steps: int = options.option(
    1,
    "Number of parts of a node's share of the batch. They are computed one "
    'after the other, and their gradients are averaged before the exchange: '
    'less memory.',
    on_resume=options.LOGGED,
    least=1,
  )
  optimize_gradient_memory: bool = options.option(
    False,
    'Recompute activations in the backward pass, segment by segment, instead '
    'of storing them: less memory, a third more time, bit-identical results.',
  )
  jit_compile: str = options.option(
    AUTO,
    'Whether XLA compiles the forward and backward pass. auto decides as Keras '
    'does: only on a single GPU, without op determinism, and if every layer of '
    'the net supports it. true: on every device. The last bits of the result '
    'depend on it.',
    on_resume=options.LOGGED,
  )
  deterministic: bool = options.option(
    True,
    'On a machine with a GPU, use only operations that give the same bits in '
    'every run. false: steps are faster, and two equal runs end with different '
    'bits. On CPUs runs repeat in both cases.',
    shared=options.WORKERS,
    on_resume=options.LOGGED,
  )
  local_steps: int = options.option(
    1,
    'Steps of --inner_optimizer that a node takes without an exchange, at the '
    'learning rate, each on a part of its share of the batch. The change of '
    'its parameters is then compressed, averaged and passed to --optimizer '
    'instead of a gradient.',
    on_resume=options.LOGGED,
    least=1,
  )
  fragments: int = options.option(
    1,
    'With --local_steps: number of parts of the model, each of whole layers, '
    'that are exchanged in turn. A step is then --local_steps / --fragments '
    'local steps and the exchange of one part. Nodes keep separate parameters, '
    'which takes one more copy per node.',
    on_resume=options.REFUSED,
    least=1,
  )
  overlap_steps: int = options.option(
    0,
    'Local steps that a node takes during an exchange, before it mixes in the '
    'result; fewer than --local_steps / --fragments.',
    on_resume=options.REFUSED,
    least=0,
  )
  mixing_factor: float = options.option(
    0.5,
    'With --overlap_steps: weight of the local parameters when a node mixes in '
    'the result of an exchange, from 0 to 1.',
    on_resume=options.LOGGED,
    least=0,
    most=1,
  )
  num_gpus: int = options.option(
    1,
    'Number of devices: GPUs, or logical CPU devices if there is no GPU.',
    shared=options.WORKERS,
    least=1,
  )
  devices: tuple[str, ...] = options.option(
    (),
    'Names of the devices of this process, separated by commas, instead of '
    '--num_gpus: gpu:0,cpu:0 has a replica on each of the two.',
    shared=options.WORKERS,
  )
  device_weights: tuple[str, ...] = options.option(
    (),
    'Relative shares of the batch, one number per device, process by process: '
    '1,0.25 if the second device is four times slower. auto measures them. '
    'Gradients are averaged over all examples. Empty: equal shares.',
    on_resume=options.LOGGED,
  )
  threads: int = options.option(
    0,
    'CPU cores that one operation of this process uses; 0: all. With 1, two '
    'runs at the same time take less time than one after the other. The last '
    'bits of the result depend on it.',
    shared=options.WORKERS,
    on_resume=options.LOGGED,
    least=0,
  )
  devices_per_worker: int = options.option(
    1,
    'Devices of a node: each consecutive K devices of a process are one node. '
    'They compute equal parts of its share of the batch, average their '
    'gradients in float32, and send one encoded message. Must divide the '
    'number of devices.',
    shared=options.WORKERS,
    on_resume=options.LOGGED,
    least=1,
  )
  num_nodes: int = options.option(
    -1,
    'Nodes (virtual workers) of all processes, or with parameter servers of '
    'each worker process, spread over the devices; -1: one per '
    '--devices_per_worker devices.',
  )
  save_tower: int = options.option(
    -1,
    "Store only the parameters of this node's device; -1: of every device.",
    least=-1,
  )

  @property
  def count(self) -> int:
    """Number of devices of a process."""
    return len(self.devices) or self.num_gpus

  @property
  def num_leading(self) -> int:
    """Number of devices of a process that have nodes, at most."""
    return self.count // self.devices_per_worker

  @property
  def steps_per_exchange(self) -> int:
    """Local steps between two exchanges."""
    return self.local_steps // self.fragments

  steps_of_turn = aliases.renamed_attribute(
    'steps_of_turn', 'steps_per_exchange'
  )

  @property
  def weights(self) -> str | list[float]:
    """Parsed --device_weights: numbers from 0.001 to 1000, or `AUTO`.

    Empty if the flag is empty: all devices get equal parts.

    Raises:
      errors.ConfigError: the flag holds neither, or a number out of range.
    """
    if self.device_weights == (AUTO,):
      return AUTO
    try:
      found = [float(text) for text in self.device_weights]
    except ValueError as error:
      raise errors.ConfigError(
        'device_weights: expected auto or one number per device, separated by '
        f'commas, received {",".join(self.device_weights)[:200]!r}. Use 1,0.25 '
        'if the second of two devices is four times slower.'
      ) from error
    for weight in found:
      options.in_range('device_weights', weight, 0.001, 1000)
    return found

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    options.choice('bn_statistics', self.bn_statistics, STATISTICS)
    options.choice('jit_compile', self.jit_compile, JIT_COMPILE)
    options.refuse(
      self.num_nodes < 1 and not options.is_default(self, 'num_nodes'),
      f'num_nodes: expected a number >= 1, or -1, received {self.num_nodes}. '
      'Leave it out for one node per --devices_per_worker devices.',
    )
    self._check_compiled()
    self._check_shares()
    self._check_fragments()
    self._check_groups()
    options.refuse(
      self.bn_statistics == 'per_device' and self.save_tower >= 0,
      'save_tower: expected -1 beside --bn_statistics=per_device, received '
      f"{self.save_tower}: the other devices' statistics would be lost. Leave "
      'one of the two out.',
    )

  @property
  def is_synchronized(self) -> bool:
    """Whether batch normalization normalizes over the examples of all nodes."""
    return self.bn_statistics == 'synchronized'

  @property
  def compiles_passes(self) -> bool:
    """Whether XLA can compile the passes with the other options."""
    return not (self.optimize_gradient_memory or self.is_synchronized)

  def _check_compiled(self) -> None:
    """Refuses options that XLA would undo or cannot compile."""
    options.refuse(
      self.jit_compile == 'true' and not self.compiles_passes,
      'jit_compile: expected auto or false beside --optimize_gradient_memory, '
      'because XLA merges equal computations, and beside '
      '--bn_statistics=synchronized, which communicates within the pass; '
      'received true. Leave one of the two out.',
    )

  def _check_shares(self) -> None:
    """Refuses contradicting options on how to divide a batch."""
    parts, is_divided = self.gradient_accumulation_steps, bool(self.weights)
    for name in ('gradient_accumulation_steps', 'local_steps', 'bn_statistics'):
      value = getattr(self, name)
      options.refuse(
        is_divided and value not in (1, 'averaged', 'per_device'),
        f'device_weights: expected none beside --{name}={value}, which needs '
        f'equal shares, received {",".join(map(str, self.device_weights))}. '
        'Leave one of the two out.',
      )
    options.refuse(
      parts > 1 and self.local_steps > 1,
      'gradient_accumulation_steps: expected it to be left out beside '
      f'--local_steps={self.local_steps}, received {parts}: a local step does '
      'not split its examples. Leave one of the two out.',
    )
    options.refuse(
      self.is_synchronized and self.local_steps > 1,
      'bn_statistics: expected averaged or per_device beside '
      f'--local_steps={self.local_steps}, received synchronized: the '
      'parameters of nodes differ between exchanges. Leave one of the two out.',
    )
    options.refuse(
      self.is_synchronized and parts > 1,
      'gradient_accumulation_steps: expected 1 beside '
      f'--bn_statistics=synchronized, received {parts}: parts run one after '
      'the other, so no layer sees all examples. Use --bn_statistics=averaged.',
    )

  def _check_groups(self) -> None:
    """Refuses groups of devices that other options do not allow."""
    size, count = self.devices_per_worker, self.count
    options.refuse(
      count % size != 0,
      f'devices_per_worker: expected a divisor of the {count} devices of a '
      f'process, received {size}. Use --num_gpus={-(-count // size) * size}, '
      'or leave it out.',
    )
    for name in ('num_nodes', 'device_weights', 'bn_statistics'):
      value = getattr(self, name)
      text = ','.join(map(str, value)) if isinstance(value, tuple) else value
      options.refuse(
        size > 1 and not options.is_default(self, name),
        f'{name}: expected it to be left out beside '
        f'--devices_per_worker={size}, received {text}: {_WHY_NOT[name]}. '
        'Leave one of the two out.',
      )

  def _check_fragments(self) -> None:
    more = self.local_steps + self.fragments
    options.refuse(
      self.local_steps % self.fragments != 0,
      f'local_steps: expected a multiple of the {self.fragments} fragments, '
      f'received {self.local_steps}. Use '
      f'--local_steps={more - more % self.fragments}, or other --fragments.',
    )
    options.refuse(
      self.overlap_steps > 0 and self.overlap_steps >= self.steps_per_exchange,
      f'overlap_steps: expected fewer than the {self.steps_per_exchange} local '
      f'steps between two exchanges, received {self.overlap_steps}. Use more '
      f'--local_steps, or --overlap_steps={self.steps_per_exchange - 1}.',
    )
    options.refuse(
      not (self.overlap_steps or options.is_default(self, 'mixing_factor')),
      'mixing_factor: expected it to be left out without --overlap_steps, '
      f'received {self.mixing_factor}. Give --overlap_steps=1, or leave it '
      'out.',
    )
