"""A model on several devices, each with a replica and an input of its own."""

import operator
import os
from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras
import numpy as np
import tensorflow as tf

from terngrad.cluster import coordination
from terngrad.compression import building
from terngrad.compression import device_inputs
from terngrad.compression import scoring
from terngrad.exchange import protocol
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.training import metrics


class ParallelModel(building.BuiltModel):
  """A model on several devices; made by `parallel.parallelize`.

  In several processes all call the same methods in the same order, but for
  `predict`, `params` and `statistics`.

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
    model: the `keras.Model`, whose variables are those of the first device.
    devices: tuple of names, those of this process.
    num_devices: of all processes.
    codec: `reduce.gradients.GradientCodec`; None for a model that only scores.
    replicas: tuple of `step.replicas.Replica`, one a device of this process.
    steps: steps taken.
  """

  _workers_called = 'devices'

  def __init__(
    self,
    input_fn: device_inputs.InputFunction,
    model_fn: Callable[[], keras.Model],
    learning_rate: float | Callable[[int], float],
    exchange: protocol.Exchange,
    choices: building.Choices,
  ) -> None:
    """Makes the model, its replicas and what takes steps.

    Args:
      input_fn: see `parallel.parallelize`.
      model_fn: likewise.
      learning_rate: likewise.
      exchange: with a worker a device.
      choices: how the model is trained.

    Raises:
      ValueError: there is no model, or no input.
    """
    self._learning_rate = learning_rate
    minimized = scoring.loss_function(choices.loss)
    # Examples a device, of all devices in a step.
    self._mean_share = tf.Variable(1.0, trainable=False)
    with tf.device(exchange.devices[0]):
      self.model = _checked(model_fn())
    self._exchange = exchange
    self._images = _images(self.model)
    self._inputs = self._open(input_fn)
    super().__init__(
      self.model,
      exchange,
      choices._replace(
        loss=scoring.with_logits(minimized), mean_share=self._mean_share
      ),
    )
    self._synchronize_processes(choices)
    self.devices = exchange.devices
    self.num_devices = exchange.num_workers
    self._names = replicas.variable_names(self._plan, self.replicas[0])
    self._score = scoring.make_scorer(
      self.model, self._plan, self.replicas, minimized
    )
    self._forward = tf.function(self._outputs, reduce_retracing=True)

  def step(self) -> scoring.Result:
    """Takes a step with a batch of each device.

    Raises:
      ValueError: the model only scores, or the batches cannot be used.
      errors.TrainingError: a loss or a gradient is not finite; the batches are
        taken from the input, and nothing else has changed.
    """
    if self.codec is None:
      raise ValueError(
        'step: expected a model that is updated, received one of '
        'optimizer=None. Call test() or evaluate(), or give an optimizer such '
        "as 'nesterov:momentum=0.9'."
      )
    images, labels, num_examples = self._inputs.next()
    self._mean_share.assign(num_examples / self.num_devices)
    rate = self._learning_rate
    result = self._take(
      images, labels, rate(self.steps) if callable(rate) else rate
    )
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
    """Takes some steps.

    Args:
      num_steps: >= 1.
      report: called after each with (steps taken in all, its `scoring.Result`).

    Returns:
      The means of all, and the sum of their examples.

    Raises:
      ValueError, errors.TrainingError: see `step`.
    """
    if num_steps < 1:
      raise ValueError(
        f'num_steps: expected 1 or more, received {num_steps}. Give the '
        'batches of an epoch, for example.'
      )
    results = []
    for _ in range(num_steps):
      results.append(self.step())
      if report:
        report(self.steps, results[-1])
    return scoring.Result.of_all(results)

  def evaluate(self, input_fn: device_inputs.InputFunction) -> scoring.Score:
    """Scores the model on other examples, all devices at once.

    Args:
      input_fn: see `parallelize`. Every example counts once; the last batch of
        a device may be smaller or missing.

    Raises:
      ValueError: there are no examples, or some would be scored twice.
    """
    return self._score_all(self._open(input_fn))

  def test(self) -> scoring.Score:
    """`evaluate` on the examples of the model's own inputs, all of them."""
    return self._score_all(self._inputs)

  def predict(self, images: building.Array) -> Any:
    """The model's outputs, without dropout, on the first device.

    Args:
      images: [b, ...], as the model takes them.

    Returns:
      What the model returns, as NumPy arrays: logits float32 [b, classes].
    """
    outputs = self.forward(0, images)
    return tf.nest.map_structure(lambda t: t.numpy(), outputs)

  def forward(
    self, device_index: int, images: building.Array
  ) -> passes.Outputs:
    """The outputs of one device's replica, without dropout, on that device.

    Args:
      device_index: of this process.
      images: [b, ...], as the model takes them.

    Returns:
      What the model returns, tensors: logits float32 [b, classes].
    """
    images = tf.cast(images, self._images.dtype)
    # An int, not a tensor: each device has a function of its own.
    device_index = operator.index(device_index)
    with tf.device(self.devices[device_index]):
      return self._forward(device_index, images)

  def params(self, device_index: int) -> dict[str, np.ndarray]:
    """The parameters on a device of this process, by name."""
    return self._values(device_index, ('trainable', 'frozen'))

  def statistics(self, device_index: int) -> dict[str, np.ndarray]:
    """The moving statistics on a device, by name."""
    return self._values(device_index, ('statistics',))

  def check_equal(self) -> None:
    """Proves that all replicas are equal to the bit, but for own statistics.

    Raises:
      errors.TrainingError: two differ; names the variable and the devices.
    """
    replicas.check_equal(self.replicas, self._names)
    coordination.assert_equal(self._exchange, self.replicas[0], self._names)

  def save(self, path: str | os.PathLike[str]) -> None:
    """Writes the model once, as the first device has it, after `check_equal`.

    In several processes the first one writes. Keras reads the file anywhere,
    and a `model_fn` that does continues from it, with new slots.

    Args:
      path: '*.weights.h5' for the weights alone, '*.keras' for the model.

    Raises:
      errors.TrainingError: replicas differ; nothing is written.
      ValueError: another ending.
    """
    if not str(path).endswith(('.weights.h5', '.keras')):
      raise ValueError(
        f"path: expected a name that ends in '.weights.h5' or '.keras', "
        f'received {str(path)!r}. The first is of weights alone.'
      )
    self.check_equal()
    if self._exchange.first == 0:
      is_model = str(path).endswith('.keras')
      write = self.model.save if is_model else self.model.save_weights
      write(path)
    coordination.barrier(self._exchange, self.steps)

  def _synchronize_processes(self, choices: building.Choices) -> None:
    """Compares the choices of all processes; gives all the first's values.

    Raises:
      errors.ConfigError: processes would train by other choices.
    """
    if self.codec is not None:
      coordination.assert_same(
        self._exchange,
        {'optimizer': choices.optimizer, 'seed': choices.seed},
        own_statistics=choices.own_statistics,
        codecs=[bucket.method.name for bucket in self.codec.buckets],
        variables=len(self._plan.names),
        elements=self.codec.num_elements,
      )
    coordination.broadcast_start(self._exchange, self.replicas, (0,))

  def _open(
    self, input_fn: device_inputs.InputFunction
  ) -> device_inputs.DeviceInputs:
    return device_inputs.DeviceInputs(input_fn, self._exchange, self._images)

  def _score_all(self, inputs: device_inputs.DeviceInputs) -> scoring.Score:
    first, *others = self.replicas
    if self.codec is None:
      # What trains the model may have changed it since.
      for replica in others:
        replicas.copy(first, replica)
    sums = np.zeros([3])
    for batches in inputs.once():
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
  """`tf.TensorSpec` of what a model takes, as far as it is known."""
  inputs = getattr(model, 'inputs', None)
  if not inputs:
    return tf.TensorSpec(None)
  return tf.TensorSpec(inputs[0].shape, inputs[0].dtype)


def _checked(model: keras.Model) -> keras.Model:
  """The model, if its variables are there.

  Raises:
    ValueError: they are not, or it is no model.
  """
  if not isinstance(model, keras.Model) or not model.built:
    raise ValueError(
      'model_fn: expected a keras.Model whose variables are made, received '
      f'{type(model).__name__} without them. Return a model that begins with '
      'keras.Input, or build it.'
    )
  return model
