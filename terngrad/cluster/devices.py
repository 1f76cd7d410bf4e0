"""Configuration of the devices that replicas run on."""

from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Sequence
from typing import Any

import tensorflow as tf
from absl import logging
from tensorflow.python.eager import context

from terngrad import errors


def tower_devices(count: int) -> tuple[str, ...]:
  """Returns names of `count` GPUs, or of logical CPU devices without GPU.

  If there are fewer GPUs than requested, several towers share one. If it has to
  split the CPU, it must run before anything else uses TensorFlow.

  Args:
    count: >= 1.

  Raises:
    errors.ConfigError: TensorFlow already runs with fewer logical devices.
  """
  gpus = configure(count)
  if gpus:
    if len(gpus) < count:
      logging.warning(
        'Expected %d GPUs, found %d: several towers share a GPU.',
        count,
        len(gpus),
      )
    return tuple(f'/GPU:{i % len(gpus)}' for i in range(count))
  found = len(tf.config.list_logical_devices('CPU'))
  if found < count:
    raise errors.ConfigError(
      f'Devices: expected {count} logical CPU devices, received {found}, '
      'because TensorFlow was in use before. Start a new process, or configure '
      f'{count} logical CPU devices before the first operation.'
    )
  return tuple(f'/CPU:{i}' for i in range(count))


def device_names(devices: Sequence[int | str]) -> tuple[str, ...]:
  """Returns full device names; splits the CPU if needed.

  If it has to split the CPU, it must run before anything else uses TensorFlow.
  `check_exist` verifies that the devices exist.

  Args:
    devices: numbers of GPUs, or of logical CPU devices on a machine without
      GPU, also as text; or names such as 'gpu:0' or '/GPU:0'.

  Returns:
    Names such as '/GPU:0'.

  Raises:
    errors.ConfigError: the list is empty or an entry is not a device.
  """
  listed = () if isinstance(devices, str) else tuple(devices)
  parts = [part for part in map(_parse, listed) if part]
  if not parts or len(parts) < len(listed):
    raise errors.ConfigError(
      'devices: expected a list of numbers such as [0, 1] or of names such as '
      f"['/GPU:0', '/GPU:1'], received {devices!r}. List at least one."
    )
  counts = [index + 1 for kind, index in parts if kind != 'GPU']
  gpus = configure(max(counts, default=1))
  default = 'GPU' if gpus else 'CPU'
  return tuple(f'/{kind or default}:{index}' for kind, index in parts)


def _parse(device: int | str) -> tuple[str, int] | None:
  """Parses a device to (kind or '', number); None if it is not valid."""
  if isinstance(device, int | str) and f'{device}'.isdecimal():
    return '', int(device)
  try:
    spec = tf.DeviceSpec.from_string(device)
  except (AttributeError, TypeError, ValueError):
    return None
  if spec.device_type not in ('CPU', 'GPU') or spec.job:
    return None
  return spec.device_type, spec.device_index or 0


def types(names: Iterable[str]) -> set[str | None]:
  """Returns the types of devices, such as {'GPU'}."""
  return {tf.DeviceSpec.from_string(name).device_type for name in names}


def count_tasks(names: Iterable[str]) -> int:
  """Returns the number of processes to which the devices belong."""
  specs = map(tf.DeviceSpec.from_string, names)
  return len({(spec.job, spec.task) for spec in specs})


def check_exist(names: Iterable[str]) -> None:
  """Starts TensorFlow; raises `errors.ConfigError` for a missing device."""
  for name in names:
    try:
      spec = tf.DeviceSpec.from_string(name)
    except (TypeError, ValueError):
      spec = tf.DeviceSpec()
    if not spec.device_type or spec.device_index is None:
      raise errors.ConfigError(
        f'devices: expected names such as /CPU:0 or /GPU:0, received {name!r}. '
        'Write the kind and the number of each.'
      )
    found = len(tf.config.list_logical_devices(spec.device_type))
    if spec.device_index >= found:
      raise errors.ConfigError(
        f'devices: expected devices of this machine, received {name}, but '
        f'there are {found} of that kind. Use others, or configure logical CPU '
        'devices before TensorFlow is used.'
      )


def configure(count: int) -> list[tf.config.PhysicalDevice]:
  """Configures `count` devices without starting TensorFlow.

  Args:
    count: >= 1.

  Returns:
    The physical GPUs.
  """
  gpus = grow_memory()
  cpu = tf.config.list_physical_devices('CPU')[0]
  if not gpus and (
    len(tf.config.get_logical_device_configuration(cpu) or [0]) < count
  ):
    _quietly(
      tf.config.set_logical_device_configuration,
      cpu,
      [tf.config.LogicalDeviceConfiguration()] * count,
    )
  return gpus


def grow_memory() -> list[tf.config.PhysicalDevice]:
  """Makes GPUs allocate memory on demand, so that programs can share them.

  Must run before anything else uses TensorFlow.

  Returns:
    The physical GPUs.
  """
  gpus = tf.config.list_physical_devices('GPU')
  for gpu in gpus:
    _quietly(tf.config.experimental.set_memory_growth, gpu, True)
  return gpus


def gpu_name(device: str) -> str:
  """Returns the model of a GPU and its compute capability.

  Args:
    device: name of a device of this process.

  Returns:
    For example 'NVIDIA H200 (compute capability 9.0)'; 'GPU' if TensorFlow does
    not know more; '' for another device.
  """
  spec = tf.DeviceSpec.from_string(device)
  if spec.device_type != 'GPU':
    return ''
  visible = tf.config.get_visible_devices('GPU')[spec.device_index or 0 :]
  if not visible:
    return 'GPU'
  details = tf.config.experimental.get_device_details(visible[0])
  name = str(details.get('device_name', 'GPU'))
  capability = '.'.join(map(str, details.get('compute_capability', ())))
  return f'{name} (compute capability {capability})' if capability else name


def gpu_names() -> list[str]:
  """Returns the name of each GPU that TensorFlow may use; starts none."""
  count = len(tf.config.get_visible_devices('GPU'))
  return [gpu_name(f'/GPU:{index}') for index in range(count)]


def limit_threads(count: int) -> None:
  """Limits the cores that each operation of this process uses.

  Must run before anything else uses TensorFlow.

  Args:
    count: number of cores, >= 1; 0 sets no limit.

  Raises:
    errors.ConfigError: TensorFlow already runs with another number.
  """
  if count in (0, tf.config.threading.get_intra_op_parallelism_threads()):
    return
  try:
    tf.config.threading.set_intra_op_parallelism_threads(count)
  except RuntimeError as error:
    raise errors.ConfigError(
      f'threads: expected {count} before the first operation, received the '
      'number after it. Start a new process, or call '
      f'tf.config.threading.set_intra_op_parallelism_threads({count}) first.'
    ) from error


def keep_order_of_sums() -> None:
  """Makes TensorFlow add tensors in the order that the graph defines.

  If a graph needs more than 0.8 of a device's memory (for a CPU, 256 MiB is
  assumed), TensorFlow's memory optimizer replaces sums of three or more
  tensors, as in the backward pass of batch normalization, by a variable to
  which each tensor is added as it arrives. Which sums it replaces depends on
  the whole graph. So the same model would round differently in different modes.

  The setting applies to the next functions that this thread calls, and to other
  threads that have not called any. The rest of the configuration is unchanged.
  """
  process = context.context()
  # `tf.config.optimizer` cannot name this optimizer, and a context accepts a
  # whole configuration only when it is created.
  current = process._config
  config = tf.compat.v1.ConfigProto()
  if current is not None:
    config.CopyFrom(current)
  rewriting = config.graph_options.rewrite_options
  rewriting.memory_optimization = rewriting.NO_MEM_OPT
  # Finds the devices first: an earlier configuration would limit them.
  tf.config.list_physical_devices()
  process._config = config
  process.function_call_options = None


def choose_gpus(numbers: Sequence[int]) -> None:
  """Makes only these GPUs visible to TensorFlow, in this order.

  Must run before anything else uses TensorFlow. On a machine without GPU it
  does nothing, and CPUs are used instead.

  Args:
    numbers: numbers of GPUs, from 0.

  Raises:
    errors.ConfigError: there are GPUs, but not these.
  """
  gpus = tf.config.list_physical_devices('GPU')
  if gpus and max(numbers) >= len(gpus):
    raise errors.ConfigError(
      f'gpus: expected numbers from 0 to {len(gpus) - 1}, received '
      f'{",".join(map(str, numbers))}. Leave out GPUs that do not exist.'
    )
  if gpus:
    tf.config.set_visible_devices([gpus[n] for n in numbers], 'GPU')


def hide_gpus() -> None:
  """Hides all GPUs, so that this process computes on its CPUs.

  Must run before anything else uses TensorFlow.
  """
  _quietly(tf.config.set_visible_devices, [], 'GPU')


def evaluation_device(name: str) -> str:
  """Returns `name` if the device exists, otherwise the CPU.

  Args:
    name: '/gpu:0' or another device name.

  Raises:
    errors.ConfigError: the name cannot be parsed.
  """
  try:
    spec = tf.DeviceSpec.from_string(name)
  except ValueError as error:
    raise errors.ConfigError(
      f"device: expected a name like '/gpu:0' or '/cpu:0', received {name!r}."
    ) from error
  kind = (spec.device_type or 'CPU').upper()
  exists = len(tf.config.list_logical_devices(kind)) > (spec.device_index or 0)
  return name if exists else '/CPU:0'


def _quietly(configure: Callable[..., None], *arguments: Any) -> None:
  """Configures; changes nothing if TensorFlow already runs."""
  try:
    configure(*arguments)
  except RuntimeError as error:
    logging.debug('Devices are already configured: %s', error)
