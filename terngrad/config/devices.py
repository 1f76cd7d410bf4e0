"""Options of the devices, of the nodes and of the parts of a batch."""

import dataclasses

from terngrad import errors
from terngrad.config import options

AUTO = 'auto'
STATISTICS = ('averaged', 'per_device', 'synchronized')


@dataclasses.dataclass(frozen=True, kw_only=True)
class Devices(options.Part):
  """Options of the devices, of the nodes and of the parts of a batch."""

  bn_statistics: str = options.option(
    'averaged',
    'Batch normalisation. averaged: a node sees its own examples, and moving '
    'statistics are averaged over all nodes each step. per_device: over the '
    'nodes of each device, which keeps its own. synchronized: every layer sees '
    'the examples of all nodes; one node a device.',
    on_resume=options.KEPT,
  )
  gradient_accumulation_steps: int = options.option(
    1,
    "Parts of a node's share that are computed one after the other and "
    'averaged before the gradient is coded: less memory.',
    on_resume=options.TOLD,
    least=1,
  )
  optimize_gradient_memory: bool = options.option(
    False,
    'Recompute activations in the backward pass, segment by segment, in place '
    'of keeping them: less memory, a third more time, the same bits.',
  )
  local_steps: int = options.option(
    1,
    'Steps of --inner_optimizer that a node takes by itself, at the learning '
    'rate, each on a part of its share; what they changed is then coded, '
    'averaged and given to --optimizer in place of a gradient.',
    on_resume=options.TOLD,
    least=1,
  )
  fragments: int = options.option(
    1,
    'Parts of a model with --local_steps, whole layers, that are exchanged in '
    'turns: a step is then a share of the local steps and the exchange of one. '
    'A node keeps parameters of its own, one more copy a node.',
    on_resume=options.KEPT,
    least=1,
  )
  overlap_steps: int = options.option(
    0,
    'Local steps that a node takes while an exchange is on its way, before it '
    'mixes in what that brought; fewer than --local_steps over --fragments.',
    on_resume=options.KEPT,
    least=0,
  )
  mixing_factor: float = options.option(
    0.5,
    "A node's own share in what --overlap_steps mixes, from 0 to 1.",
    on_resume=options.TOLD,
    least=0,
    most=1,
  )
  num_gpus: int = options.option(
    1,
    'Devices; logical CPU devices where there is no GPU.',
    shared=options.WORKERS,
    least=1,
  )
  devices: tuple[str, ...] = options.option(
    (),
    'Devices of this process by their names, with commas, in place of '
    '--num_gpus: gpu:0,cpu:0 has a tower on each of two kinds.',
    shared=options.WORKERS,
  )
  device_weights: tuple[str, ...] = options.option(
    (),
    'Parts of a batch that devices compute, as 1,0.25 where the second is four '
    'times slower, a number a device, process by process; auto measures them. '
    'The average is that of all examples. Empty: equal parts.',
    on_resume=options.TOLD,
  )
  threads: int = options.option(
    0,
    'Cores that one operation of this process uses; 0: all. With 1 two runs '
    'side by side take less time than one after the other. The last bits of a '
    'run depend on it.',
    shared=options.WORKERS,
    on_resume=options.TOLD,
    least=0,
  )
  num_nodes: int = options.option(
    -1, 'Virtual nodes, spread over the devices; -1 for one a device.'
  )
  save_tower: int = options.option(
    -1,
    "Store the parameters of this node's device only; -1 for every device's.",
    least=-1,
  )

  @property
  def count(self) -> int:
    """Number of devices of a process."""
    return len(self.devices) or self.num_gpus

  @property
  def steps_of_turn(self) -> int:
    """Local steps between two exchanges."""
    return self.local_steps // self.fragments

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
        'device_weights: expected auto or a number a device, with commas, '
        f'received {",".join(self.device_weights)[:200]!r}. Use 1,0.25 where '
        'the second of two devices is four times slower.'
      ) from error
    for weight in found:
      options.in_range('device_weights', weight, 0.001, 1000)
    return found

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    super().validate()
    options.choice('bn_statistics', self.bn_statistics, STATISTICS)
    self._check_shares()
    self._check_fragments()
    options.refuse(
      self.bn_statistics == 'per_device' and self.save_tower >= 0,
      'save_tower: expected -1 beside --bn_statistics=per_device, received '
      f"{self.save_tower}: the other devices' statistics would be lost. Leave "
      'one of the two out.',
    )

  def _check_shares(self) -> None:
    """Refuses contradicting options on how to divide a batch."""
    parts, is_divided = self.gradient_accumulation_steps, bool(self.weights)
    is_synchronized = self.bn_statistics == 'synchronized'
    for name in ('gradient_accumulation_steps', 'local_steps', 'bn_statistics'):
      given = getattr(self, name)
      options.refuse(
        is_divided and given not in (1, 'averaged', 'per_device'),
        f'device_weights: expected none beside --{name}={given}, which takes '
        f'equal shares, received {",".join(map(str, self.device_weights))}. '
        'Leave one of the two out.',
      )
    options.refuse(
      parts > 1 and self.local_steps > 1,
      'gradient_accumulation_steps: expected it to be left out beside '
      f'--local_steps={self.local_steps}, received {parts}: a local step is of '
      'a whole part. Leave one of the two out.',
    )
    options.refuse(
      is_synchronized and self.local_steps > 1,
      'bn_statistics: expected averaged or per_device beside '
      f'--local_steps={self.local_steps}, received synchronized: nodes have '
      'parameters of their own between exchanges. Leave one of the two out.',
    )
    options.refuse(
      is_synchronized and parts > 1,
      'gradient_accumulation_steps: expected 1 beside '
      f'--bn_statistics=synchronized, received {parts}: parts run one after '
      'the other. Use --bn_statistics=averaged.',
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
      self.overlap_steps > 0 and self.overlap_steps >= self.steps_of_turn,
      f'overlap_steps: expected fewer than the {self.steps_of_turn} local '
      f'steps between two exchanges, received {self.overlap_steps}. Use more '
      f'--local_steps, or --overlap_steps={self.steps_of_turn - 1}.',
    )
    options.refuse(
      not (self.overlap_steps or options.is_default(self, 'mixing_factor')),
      'mixing_factor: expected it to be left out without --overlap_steps, '
      f'received {self.mixing_factor}. Give --overlap_steps=1, or leave it '
      'out.',
    )
