"""The configuration of a training run.

A configuration is a frozen dataclass of parts. Every field of a part is also a
command-line flag: `cli.flags` reads the name, type, default and help text from
the field. Options that the 2017 code had keep its names and defaults.
`evaluation` holds the configuration of an evaluation, `servers` that of a run
with parameter servers.
"""

import dataclasses
import os

from terngrad import errors
from terngrad.config import cluster as cluster_lib
from terngrad.config import codes as codes_lib
from terngrad.config import devices as devices_lib
from terngrad.config import evaluation
from terngrad.config import model as model_lib
from terngrad.config import optimizer as optimizer_lib
from terngrad.config import options
from terngrad.config import run as run_lib
from terngrad.recipes import catalog

# Callers import every configuration from this module.
EvalConfig = evaluation.EvalConfig


@dataclasses.dataclass(frozen=True, kw_only=True)
class TrainConfig:
  """Configuration of a training run on one machine or on a cluster."""

  data: model_lib.DataOptions = options.part(model_lib.DataOptions)
  model: model_lib.TrainModelOptions = options.part(model_lib.TrainModelOptions)
  run: run_lib.RunOptions = options.part(run_lib.RunOptions)
  start: run_lib.StartOptions = options.part(run_lib.StartOptions)
  devices: devices_lib.DeviceOptions = options.part(devices_lib.DeviceOptions)
  optimizer: optimizer_lib.OptimizerOptions = options.part(
    optimizer_lib.OptimizerOptions
  )
  codes: codes_lib.CodeOptions = options.part(codes_lib.CodeOptions)
  # Last, because `validate` may have to wait for hosts.
  cluster: cluster_lib.ClusterOptions = options.part(cluster_lib.ClusterOptions)

  @property
  def num_workers(self) -> int:
    """Workers of all processes: `num_nodes`, or `num_leading` of each."""
    if self.devices.num_nodes > 0:
      return self.devices.num_nodes
    return self.devices.num_leading * self.cluster.num_processes

  @property
  def worker_examples(self) -> float:
    """Examples that a worker computes in a step, or in a local step."""
    steps = self.devices.steps_per_exchange
    return self.data.batch_size / (self.num_workers * steps)

  def validate(self) -> None:
    """Raises `errors.ConfigError` for the first invalid option."""
    options.validate_parts(self)
    model_lib.check_inputs(self.data, self.model)
    self.check_recipe(self.num_workers)
    self._check_local_steps()
    self._check_start()
    self._check_nodes()
    if self.devices.weights:
      self._check_weights()
    else:
      self._check_batch()
    self.codes.methods(self.num_workers)
    self._check_synchronized()

  def check_recipe(self, num_workers: int) -> None:
    """Refuses a recipe with too many workers."""
    if self.optimizer.recipe:
      with errors.as_config_error():
        catalog.find(self.optimizer.recipe).check_workers(num_workers)

  def _check_local_steps(self) -> None:
    steps, optimizer = self.devices.local_steps, self.optimizer
    options.refuse(
      steps > 1 and optimizer.decoupled_weight_decay,
      'decoupled_weight_decay: expected it to be left out beside '
      f'--local_steps={steps}, received True: local steps apply the L2 terms. '
      'Leave one of the two out.',
    )
    optimizer.check_local_steps(steps)
    inner, devices = optimizer.inner_rule(), self.devices
    has_state = bool(inner.stays and inner.slots)
    options.refuse(
      (devices.fragments > 1 or devices.overlap_steps > 0 or has_state)
      and self.model.dtype == 'float16',
      'dtype: expected float32 or bfloat16 if nodes keep a state between '
      'exchanges, received float16: a step that loss scaling skips would not '
      'restore the state. Use --dtype=bfloat16.',
    )

  def _check_start(self) -> None:
    path = os.path.realpath(self.start.path)
    folder = os.path.realpath(self.run.train_dir)
    is_inside = path == folder or path.startswith(folder + os.sep)
    options.refuse(
      self.run.overwrite and bool(self.start.path) and is_inside,
      'overwrite: expected --pretrained_model_checkpoint_path outside of '
      f'--train_dir, received {self.start.path}, which would be deleted. '
      'Choose another --train_dir.',
    )

  def _check_nodes(self) -> None:
    save_tower, processes = self.devices.save_tower, self.cluster.num_processes
    options.refuse(
      save_tower >= self.num_workers,
      f'save_tower: expected -1 or a node from 0 to {self.num_workers - 1}, '
      f'received {save_tower}. Use a smaller number, or more --num_nodes.',
    )
    options.refuse(
      self.num_workers % processes != 0,
      f'num_nodes: expected a multiple of the {processes} processes of '
      f'--worker_hosts, received {self.num_workers}. Leave it out, or give '
      'all processes the same number of nodes.',
    )

  def _check_synchronized(self) -> None:
    # Nodes that share a device run one after the other, so no layer could see
    # the examples of all of them.
    unit, most = 'device', self.devices.count
    if self.cluster.tasks:
      unit, most = 'process', self.cluster.num_processes
    options.refuse(
      self.devices.bn_statistics == 'synchronized' and self.num_workers > most,
      f'num_nodes: expected at most {most} beside '
      f'--bn_statistics=synchronized, one per {unit}, received '
      f'{self.num_workers}: nodes that share a {unit} run one after the other. '
      f'Give each node a {unit}, or use --bn_statistics=averaged.',
    )

  def _check_weights(self) -> None:
    """Refuses a wrong number of weights and batches below one per worker."""
    weights, processes = self.devices.weights, self.cluster.num_processes
    options.refuse(
      weights == devices_lib.AUTO and self.data.dataset_name == 'text',
      'device_weights: expected numbers for text, received auto, which '
      'measures with images. Give a number for each device.',
    )
    used = min(self.devices.count, self.num_workers // processes) * processes
    options.refuse(
      weights != devices_lib.AUTO and len(weights) != used,
      f'device_weights: expected a number for each of the {used} devices of '
      f'all processes, received {len(weights)}. Give {used} numbers, or '
      '--device_weights=auto.',
    )
    options.at_least('batch_size', self.data.batch_size, self.num_workers)

  def _check_batch(self) -> None:
    devices, batch_size = self.devices, self.data.batch_size
    each = ''
    if devices.devices_per_worker > 1:
      each = f' times {devices.devices_per_worker} devices per worker'
    if devices.gradient_accumulation_steps > 1:
      each += f' times {devices.gradient_accumulation_steps} accumulation steps'
    if devices.local_steps > 1:
      each += f' times {devices.steps_per_exchange} local steps'
    parts = devices.gradient_accumulation_steps * devices.steps_per_exchange
    parts *= self.num_workers * devices.devices_per_worker
    more = -(-batch_size // parts) * parts
    options.refuse(
      batch_size != more,
      f'batch_size: expected a multiple of the {self.num_workers} nodes{each}, '
      f'received {batch_size}. Use --batch_size={more}, or another '
      '--num_nodes.',
    )
