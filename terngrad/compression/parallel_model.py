"""A model on several devices, each with a replica and an input."""

import operator
import os
import pathlib
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from slim.datasets.records import disk
from terngrad import errors
from terngrad.cluster import coordination
from terngrad.codec.stages import tracing
from terngrad.compression import building
from terngrad.compression import device_inputs
from terngrad.compression import local_arguments
from terngrad.compression import scoring
from terngrad.exchange import device_groups
from terngrad.exchange import protocol
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.training import metrics


class ParallelModel(building.BuiltModel):
  """A model on several devices; created by `parallel.parallelize`.

  With several processes, all must call the same methods in the same order,
  except for `predict`, `params` and `statistics`.

  Examples:
    >>> import keras, numpy as np, terngrad
    >>> images = np.random.default_rng(0).normal(size=[2, 8, 4])
    >>> labels = (images[..., 0] > 0).astype('int32')
    >>> parallel = terngrad.parallelize(
    ...   lambda index, count: [(images[index], labels[index])],
    ...   lambda: keras.Sequential(
    ...     [keras.Input([4]), keras.layers.Dense(2, name='logits')]
    ...   ),
    ...   devices=['/CPU:0', '/CPU:0'],
    ...   codec='ternary',
    ... )
    >>> parallel.run(20).num_examples
    320
    >>> np.array_equal(*(parallel.params(i)['logits/bias'] for i in (0, 1)))
    True

  Attributes:
    model: the `keras.Model`; the first device uses its variables.
    devices: tuple of the names of this process's devices.
    num_devices: number of devices in all processes.
    codec: `reduce.gradients.GradientCodec`; None for a model that is only
      evaluated.
    replicas: tuple of `step.replicas.Replica`, one per device of this process.
    steps: steps taken.
  """

  _workers_label = 'devices'

  def __init__(
    self,
    input_fn: device_inputs.InputFunction,
    model_fn: Callable[[], keras.Model],
    learning_rate: float | Callable[[int], float],
    exchange: protocol.Exchange,
    choices: building.Choices,
  ) -> None:
    """Creates the model, its replicas and its step.

    The exchange has one worker per device or per group of devices. The other
    arguments are those of `parallel.parallelize`.

    Raises:
      ValueError: `model_fn` returns no built model, or an input is not valid.
    """
    self._learning_rate = learning_rate
    minimized = scoring.loss_function(choices.loss)
    # Examples per device in a step, averaged over all devices.
    self._mean_share = tf.Variable(1.0, trainable=False)
    keras.utils.set_random_seed(choices.seed % 2**31)
    with tf.device(exchange.devices[0]):
      self.model = _check_model(model_fn())
    self._exchange = exchange
    size = device_groups.devices_per_worker(exchange)
    if size > 1 and choices.local_statistics:
      raise ValueError(
        'broadcast_computed_params: expected True with devices_per_worker='
        f'{size}, received False: a worker has one set of moving statistics. '
        'Leave one of the two out.'
      )
    self._images = _images(self.model)
    self._count = choices.local.steps
    self._inputs = self._open(input_fn, self._count)
    super().__init__(
      self.model,
      exchange,
      choices._replace(
        loss=scoring.require_logits(minimized),
        # Local steps have batches of one size.
        mean_share=self._mean_share if self._count == 1 else None,
      ),
    )
    self._synchronize_processes(choices)
    self.devices = exchange.devices
    self.num_devices = exchange.num_workers * size
    if size > 1:
      self._workers_label = 'workers'
    self._names = replicas.variable_names(self._plan, self.replicas[0])
    self._score = scoring.make_scorer(
      self.model, self._plan, self.replicas, minimized
    )
    self._forward = tracing.function(self._outputs, reduce_retracing=True)

  def step(self) -> scoring.Result:
    """Takes a step with one batch per device and local step.

    Raises:
      ValueError: the model has no optimizer, or the batches or the learning
        rate are not valid.
      errors.TrainingError: a loss or a gradient is not finite. The batches are
        consumed, and nothing else has changed.
    """
    if self.codec is None:
      raise ValueError(
        'step: expected a model with an optimizer, received one with '
        'optimizer=None. Call test() or evaluate(), or pass an optimizer such '
        "as 'nesterov:momentum=0.9'."
      )
    rate = self._learning_rate
    if callable(rate):
      rate = local_arguments.checked_rate(rate(self.steps))
    images, labels, num_examples = self._inputs.next()
    self._mean_share.assign(num_examples / self.num_devices)
    result = self._take(images, labels, rate)
    return scoring.Result(
      float(np.mean(result.entropy.numpy())),
      float(np.mean(result.accuracy.numpy())),
      num_examples,
      metrics.bits_per_element(result, self.codec.num_elements),
    )

  def run(
    self,
    num_steps: int,
    report: Callable[[int, scoring.Result], object] | None = None,
  ) -> scoring.Result:
    """Takes several steps.

    Args:
      num_steps: number of steps, at least 1.
      report: called after each step with (steps taken in total, its
        `scoring.Result`).

    Returns:
      The means over the steps, and the sum of their examples.

    Raises:
      ValueError: `num_steps` is less than 1, or a `step` raised it.
      errors.TrainingError: a loss or a gradient is not finite.
    """
    if num_steps < 1:
      raise ValueError(
        f'num_steps: expected 1 or more, received {num_steps}. Pass the number '
        'of batches of an epoch, for example.'
      )
    results = []
    for _ in range(num_steps):
      results.append(self.step())
      if report:
        report(self.steps, results[-1])
    return scoring.Result.average(results)

  def evaluate(self, input_fn: device_inputs.InputFunction) -> scoring.Score:
    """Evaluates the model on other examples, on all devices at once.

    Args:
      input_fn: as for `parallelize`. Every example counts once. The last batch
        of a device may be smaller or missing.

    Raises:
      ValueError: there are no examples, or two devices received the same ones.
    """
    return self._score_all(self._open(input_fn))

  def test(self) -> scoring.Score:
    """Evaluates the model on all examples of the inputs given at creation.

    Training then continues with its next batch.

    Raises:
      ValueError: an input is infinite; or it is an iterator, and training needs
        its batches.
    """
    if self.codec is not None:
      self._inputs.refuse_iterators()
    return self._score_all(self._inputs)

  def predict(self, images: building.Array) -> Any:
    """Computes the model's outputs, without dropout, on the first device.

    Args:
      images: [b, ...], as the model takes them.

    Returns:
      The model's outputs as NumPy arrays: logits float32 [b, classes].
    """
    outputs = self.forward(0, images)
    return tf.nest.map_structure(lambda t: t.numpy(), outputs)

  def forward(
    self, device_index: int, images: building.Array
  ) -> passes.Outputs:
    """Computes the outputs of one device's replica, without dropout.

    Args:
      device_index: index of a device of this process.
      images: [b, ...], as the model takes them.

    Returns:
      The model's outputs as tensors on that device: logits float32 [b,
      classes].
    """
    images = tf.cast(images, self._images.dtype)
    # An int, not a tensor, so that each device traces a separate function.
    device_index = operator.index(device_index)
    with tf.device(self.devices[device_index]):
      return self._forward(device_index, images)

  def params(self, device_index: int) -> dict[str, np.ndarray]:
    """Returns the parameters on a device of this process, by name."""
    return self._values(device_index, ('trainable', 'frozen'))

  def statistics(self, device_index: int) -> dict[str, np.ndarray]:
    """Returns the moving statistics on a device of this process, by name."""
    return self._values(device_index, ('statistics',))

  def check_equal(self) -> None:
    """Verifies that all replicas are bit-identical, except local statistics.

    Raises:
      errors.TrainingError: two replicas differ. The message names the variable
        and the devices.
    """
    replicas.check_equal(self.replicas, self._names)
    coordination.assert_equal(self._exchange, self.replicas[0], self._names)

  def save(self, path: str | os.PathLike[str]) -> None:
    """Writes the first device's model after `check_equal`.

    With several processes only the first one writes. Keras can load the file
    anywhere. A `model_fn` that loads it continues training with new slots.

    Args:
      path: '*.weights.h5' for the weights only, '*.keras' for the model.

    Raises:
      errors.TrainingError: replicas differ, or the file cannot be written; an
        existing one is unchanged.
      ValueError: the path has another ending.
    """
    if not str(path).endswith(('.weights.h5', '.keras')):
      raise ValueError(
        f"path: expected a name that ends in '.weights.h5' or '.keras', "
        f'received {str(path)!r}. The first stores only the weights.'
      )
    self.check_equal()
    if self._exchange.first == 0:
      is_model = str(path).endswith('.keras')
      write = self.model.save if is_model else self.model.save_weights
      _replace(path, write, '.keras' if is_model else '.weights.h5')
    coordination.barrier(self._exchange, self.steps)

  def _synchronize_processes(self, choices: building.Choices) -> None:
    """Compares the processes' options; broadcasts the first one's variables.

    Raises:
      errors.ConfigError: the options of two processes differ.
    """
    if self.codec is not None:
      coordination.assert_same(
        self._exchange,
        {
          'optimizer': choices.optimizer,
          'seed': choices.seed,
          'local_steps': list(choices.local),
        },
        local_statistics=choices.local_statistics,
        codecs=[bucket.method.name for bucket in self.codec.buckets],
        variables=len(self._plan.names),
        elements=self.codec.num_elements,
      )
    coordination.broadcast_start(self._exchange, self.replicas, (0,))

  def _open(
    self, input_fn: device_inputs.InputFunction, count: int = 1
  ) -> device_inputs.DeviceInputs:
    return device_inputs.DeviceInputs(
      input_fn, self._exchange, self._images, count
    )

  def _score_all(self, inputs: device_inputs.DeviceInputs) -> scoring.Score:
    first, *others = self.replicas
    if self.codec is None:
      # The model's variables may have been changed outside since the last call.
      for replica in others:
        replicas.copy(first, replica)
    sums = np.zeros([3])
    for batches in inputs.iterate_once():
      sums += self._score(batches).numpy()
    return scoring.mean_score(sums, self._exchange.group)

  def _outputs(self, device_index: int, images: tf.Tensor) -> passes.Outputs:
    replica = self.replicas[device_index]
    return scoring.outputs_of(self.model, self._plan, replica, images)

  def _values(
    self, device_index: int, kinds: Sequence[str]
  ) -> dict[str, np.ndarray]:
    replica = self.replicas[device_index]
    named = zip(
      self._plan.names,
      (*replica.trainable, *replica.statistics, *replica.frozen),
      strict=True,
    )
    wanted = {id(v) for kind in kinds for v in getattr(replica, kind)}
    return {name: v.numpy() for name, v in named if id(v) in wanted}


def _images(model: keras.Model) -> tf.TensorSpec:
  """Returns the shape and dtype of a model's input, as far as known."""
  inputs = getattr(model, 'inputs', None)
  if not inputs:
    return tf.TensorSpec(None)
  return tf.TensorSpec(inputs[0].shape, inputs[0].dtype)


def _check_model(model: keras.Model) -> keras.Model:
  """Returns the model if its variables exist.

  Raises:
    ValueError: it is not a Keras model, or is not built.
  """
  if not isinstance(model, keras.Model) or not model.built:
    raise ValueError(
      'model_fn: expected a built keras.Model, received '
      f'{type(model).__name__} without variables. Return a model that begins '
      'with keras.Input, or call its build method.'
    )
  return model


def _replace(
  path: str | os.PathLike[str],
  write: Callable[[pathlib.Path], None],
  ending: str,
) -> None:
  """Writes a file whose format Keras chooses by its ending, atomically.

  Raises:
    errors.TrainingError: it cannot be written.
  """
  with (
    errors.explain_write_errors(str(path)),
    disk.replace_file(path) as hidden,
  ):
    named = hidden.with_name(hidden.name + ending)
    try:
      write(named)
      named.replace(hidden)
    finally:
      named.unlink(missing_ok=True)
