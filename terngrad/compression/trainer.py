"""Training with compressed gradients in a loop of one's own."""

import tensorflow as tf

from terngrad.codec import bucketing
from terngrad.codec import coded
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.exchange import towers
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import states
from terngrad.step import step as steps
from terngrad.training import metrics
from terngrad.training import run_codecs


class Trainer:
  """A Keras classifier in training: replicas, methods' states and the step.

  Attributes:
    codec: `codec.gradients.GradientCodec`.
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
        or a `codec.method.Method` or `codec.stages.contract.Codec`.
      rules: other codes for some variables, as `--codec_rules` spells them.
      num_workers: N, virtual nodes; worker r computes on device r mod M.
      devices: names of M devices.
      optimizer: as `--optimizer` spells it.
      loss: `step.passes.Loss`.
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
    plan = replicas.variables_of(model)
    exchange = towers.Towers(tuple(devices), num_workers)
    specs = run_codecs.variable_specs(plan)
    methods = _methods(specs, codec, rules, in_float32, num_workers)
    self.codec = run_codecs.on_devices(
      bucketing.gradient_codec(specs, methods), devices
    )
    rule = optimizers.parse(optimizer, 0.9)
    self.replicas = replicas.create(
      plan, rule, exchange.devices, shared=states.shared(self.codec)
    )
    training = steps.Training(
      passes.model_pass(model, plan, loss),
      exchange,
      self.replicas,
      states.MethodStates(self.codec, exchange),
      rule,
      seed,
    )
    step = steps.make_train_step(training, self.codec)
    self._step = tf.function(step, reduce_retracing=True)
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
    """
    given = tuple(images.shape), tuple(labels.shape)
    if given[0][:2] != given[1] or given[1][:1] != (self._num_workers,):
      raise ValueError(
        f'step: expected images [{self._num_workers}, b, ...] and labels '
        f'[{self._num_workers}, b], the examples of every worker, received '
        f'{list(given[0])} and {list(given[1])}. Split the batch by workers.'
      )
    result = self._step(
      images,
      labels,
      tf.constant(self.steps, tf.int64),
      tf.constant(learning_rate, tf.float32),
      tf.constant(0.0),
    )
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


def _methods(specs, codec, rules, in_float32, num_workers):
  """The `codec.method.Method` of each variable; see `Trainer`."""
  decided = [
    (in_float32, 'identity'),
    *policy.parse(rules),
    (policy.always, codec),
  ]
  # Equal texts are one method, whose variables are coded together.
  made = {
    code: registry.method(code, num_workers)
    if isinstance(code, str)
    else coded.as_method(code)
    for _, code in decided
  }
  return [made[code] for code in policy.policy(decided, specs)]
