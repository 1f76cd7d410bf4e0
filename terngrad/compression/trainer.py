"""Training with compressed gradients in a custom training loop."""

from collections.abc import Sequence

import keras

from terngrad import aliases
from terngrad.cluster import devices as cluster_devices
from terngrad.codec import method
from terngrad.codec import policy
from terngrad.compression import building
from terngrad.compression import local_arguments
from terngrad.exchange import towers
from terngrad.reduce import gradients
from terngrad.step import passes
from terngrad.step import step as steps
from terngrad.training import metrics


class Trainer(building.BuiltModel):
  """Trains a Keras classifier: holds replicas, codec states and the step.

  Attributes:
    codec: codec of the gradients.
    replicas: one per device, bit-identical.
    steps: steps taken.
  """

  codec: gradients.GradientCodec

  @aliases.renamed_arguments(rules='codec_rules')
  def __init__(
    self,
    model: keras.Model,
    codec: str | method.Method = 'ternary',
    *,
    codec_rules: str = '',
    num_workers: int = 1,
    devices: Sequence[str] = ('/CPU:0',),
    optimizer: str = 'momentum',
    loss: passes.LossFunction | None = None,
    in_float32: policy.Predicate = lambda spec: False,
    seed: int = 1,
    jit_compile: bool | str = 'auto',
  ) -> None:
    """Creates replicas; the first one uses the model's variables.

    The keyword `rules` of 0.2, now `codec_rules`, works until 0.4, with a
    DeprecationWarning.

    Args:
      model: maps images to logits [b, classes].
      codec: a method, or a text as for `--codec`, such as
        'error_feedback+topk:ratio=0.01'.
      codec_rules: codecs for some variables, as for `--codec_rules`.
      num_workers: N, number of virtual nodes; worker r computes on device r mod
        M.
      devices: names of M devices.
      optimizer: a text as for `--optimizer`.
      loss: a function from (outputs, labels int32 [b]) to the mean over the
        examples, float32 []; or a `step.passes.Loss`. None: cross entropy.
      in_float32: returns True for a variable whose gradient is not compressed.
      seed: seed of the random codes.
      jit_compile: whether XLA compiles the forward and backward pass; 'auto' is
        Keras's rule: on a single GPU, without op determinism.

    Raises:
      ValueError: a codec, a rule or the optimizer is unknown or missing, a
        device does not exist, or there are fewer workers than devices.
    """
    if isinstance(devices, str) or not 1 <= len(devices) <= num_workers:
      raise ValueError(
        'devices: expected a list of 1 or more names, and as many workers or '
        f'more, received {devices!r} and num_workers={num_workers}.'
      )
    if not optimizer:
      raise ValueError(
        f'optimizer: expected a text such as momentum, received {optimizer!r}.'
      )
    cluster_devices.check_exist(devices)
    choices = building.Choices(
      codec,
      codec_rules,
      in_float32,
      optimizer,
      loss,
      seed=seed,
      jit_compile=jit_compile,
    )
    super().__init__(model, towers.Towers(tuple(devices), num_workers), choices)

  def step(
    self, images: building.Array, labels: building.Array, learning_rate: float
  ) -> steps.StepResult:
    """Takes a step with the gradients of all workers.

    Args:
      images: float32 [workers, b, ...].
      labels: int32 [workers, b].
      learning_rate: learning rate of this step.

    Returns:
      A `StepResult`; its `entropy` is the mean loss of each worker.

    Raises:
      ValueError: the shapes do not have one entry per worker, or the learning
        rate is not valid.
      errors.TrainingError: a loss or a gradient is not finite; nothing has
        changed.
    """
    workers = self._exchange.num_workers
    shapes = tuple(images.shape), tuple(labels.shape)
    if shapes[0][:2] != shapes[1] or shapes[1][:1] != (workers,):
      raise ValueError(
        f'step: expected images [{workers}, b, ...] and labels [{workers}, b], '
        f'the examples of every worker, received {list(shapes[0])} and '
        f'{list(shapes[1])}. Split the batch by workers.'
      )
    rate = local_arguments.checked_rate(learning_rate)
    return self._take(images, labels, rate)

  def bits_per_element(self, result: steps.StepResult) -> float:
    """Computes the bits that a worker sent in a step per gradient element.

    Returns:
      The mean over the workers, with the probes that they exchange first.
    """
    return metrics.bits_per_element(result, self.codec.num_elements)
