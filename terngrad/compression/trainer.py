"""Training with compressed gradients in a loop of one's own."""

import tensorflow as tf

from terngrad.compression import building
from terngrad.exchange import towers
from terngrad.step import passes
from terngrad.training import metrics


class Trainer:
  """A Keras classifier in training: replicas, methods' states and the step.

  Attributes:
    codec: `reduce.gradients.GradientCodec`.
    replicas: tuple of `step.replicas.Replica`, one a device, equal to the bit.
    steps: steps taken.
  """

  def __init__(
    self,
    model,
    codec='ternary',
    *,
    rules='',
    num_workers=1,
    devices=('/CPU:0',),
    optimizer='momentum',
    loss=passes.PLAIN,
    in_float32=lambda spec: False,
    seed=1,
  ):
    """Makes replicas; the first holds the model's own variables.

    Args:
      model: maps images to logits [b, classes].
      codec: as `--codec` spells it, such as 'error_feedback+topk:ratio=0.01';
        or a `codec.method.Method`.
      rules: other codes for some variables, as `--codec_rules` spells them.
      num_workers: N, virtual nodes; worker r computes on device r mod M.
      devices: names of M devices.
      optimizer: as `--optimizer` spells it.
      loss: `step.passes.Loss`, or a function of (outputs, labels) to the mean
        over the examples, float32 [].
      in_float32: takes a `codec.policy.VariableSpec`; True leaves the gradient
        of that variable as it is.
      seed: of the random codes.

    Raises:
      ValueError: the text of a codec, a rule or the optimizer names none, or
        there are fewer workers than devices.
    """
    if isinstance(devices, str) or not 1 <= len(devices) <= num_workers:
      raise ValueError(
        'devices: expected a list of 1 or more names, and as many workers or '
        f'more, received {devices!r} and num_workers={num_workers}.'
      )
    self._num_workers = num_workers
    choices = building.Choices(
      codec=codec,
      rules=rules,
      in_float32=in_float32,
      optimizer=optimizer,
      loss=loss,
      seed=seed,
    )
    exchange = towers.Towers(tuple(devices), num_workers)
    built = building.build(model, exchange, choices)
    self.codec = built.codec
    self.replicas = built.replicas
    self._step = built.step
    self.steps = 0

  def step(self, images, labels, learning_rate):
    """Takes a step with the gradients of all workers.

    Args:
      images: float32 [workers, b, ...].
      labels: int32 [workers, b].
      learning_rate: float.

    Returns:
      A `step.StepResult`; its `entropy` is the mean loss of each worker.

    Raises:
      ValueError: there are not examples of every worker.
      errors.TrainingError: a loss or a gradient is not finite; nothing has
        changed.
    """
    given = tuple(images.shape), tuple(labels.shape)
    if given[0][:2] != given[1] or given[1][:1] != (self._num_workers,):
      raise ValueError(
        f'step: expected images [{self._num_workers}, b, ...] and labels '
        f'[{self._num_workers}, b], the examples of every worker, received '
        f'{list(given[0])} and {list(given[1])}. Split the batch by workers.'
      )
    result = self._step.take(
      images,
      labels,
      tf.constant(self.steps, tf.int64),
      tf.constant(learning_rate, tf.float32),
      tf.constant(0.0),
    )
    building.check_taken(result, self.steps + 1, 'workers')
    self.steps += 1
    return result

  def bits_per_element(self, result):
    """What a worker sent in a step, in bits an element of the gradient.

    Args:
      result: from `step`.

    Returns:
      float, mean over the workers, probes included.
    """
    return metrics.bits_per_element(result, self.codec.num_elements)
