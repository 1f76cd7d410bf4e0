"""A user's own Keras model on several devices, from a few functions.

    parallel = terngrad.parallelize(
      lambda index, count: dataset.shard(count, index).batch(32).repeat(),
      make_model,
      devices=[0, 1],
      codec='ternary',
    )
    parallel.run(num_steps=100)

Every device has a replica and reads examples of its own. In a step the devices
tell each other their gradients, as the codec writes them, and all update by the
same mean, so that replicas stay equal to the bit.

A loss is the mean over the examples of its device, without a scale of one by
the number of devices, which losses need whose gradients are added up: here the
gradients' mean is taken. Where batches of a step differ in size, each device's
loss is multiplied with its size by the mean size, so that it is the gradient of
the mean over all examples. In several processes a device's batches are all of
one size.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import Any

import keras

from terngrad import aliases
from terngrad.codec import method
from terngrad.compression import building
from terngrad.compression import device_inputs
from terngrad.compression import parallel_model
from terngrad.compression import placement
from terngrad.config import cluster
from terngrad.step import passes


@aliases.renamed_arguments(loss_fn='loss', update='optimizer')
def parallelize(
  input_fn: device_inputs.InputFunction,
  model_fn: Callable[[], keras.Model],
  loss: passes.LossFunction | None = None,
  optimizer: str | None = 'nesterov:momentum=0.9',
  learning_rate: float | Callable[[int], float] = 0.1,
  *,
  devices: Sequence[int | str] = ('/CPU:0',),
  codec: str | method.Method = 'identity',
  codec_rules: str = '',
  rendezvous: dict[str, Any] | cluster.Cluster | None = None,
  broadcast_computed_params: bool = True,
  optimize_gradient_memory: bool = False,
  seed: int = 1,
) -> parallel_model.ParallelModel:
  """Puts a Keras model on several devices, to train it or to score it.

  The keywords `loss_fn` and `update` of 0.2, now `loss` and `optimizer`, work
  until 0.4, with a DeprecationWarning.

  Args:
    input_fn: takes (device_index, num_devices), returns that device's examples:
      an iterable of (images [b, ...], integer labels [b]), or the iterator of
      one shared reader. Counts the devices of all processes.
    model_fn: returns a model to logits [b, classes], or to a list of them and
      others. The first device uses the model's own variables.
    loss: takes (outputs, labels int32 [b]), returns the mean over the examples,
      float32 []. None: cross entropy.
    optimizer: as `--optimizer` spells it. None: the model is only scored.
    learning_rate: a number, or a function of the steps taken before.
    devices: numbers of GPUs, or of logical CPU devices on a machine without
      any; or names. As many in every process.
    codec: a method, or as `--codec` spells it.
    codec_rules: as `--codec_rules` spells them.
    rendezvous: None for one process; else options of a cluster by their names,
      or a `config.cluster.Cluster`. Nothing may have used TensorFlow before.
    broadcast_computed_params: False leaves each device its own moving
      statistics; True averages them each step.
    optimize_gradient_memory: True computes activations again in the backward
      pass, to the same bits. The model is a graph of layers with one input.
    seed: of the random codes, and for `keras.utils.set_random_seed`.

  Raises:
    ValueError: what an argument names is not there.
  """
  choices = building.Choices(
    codec=codec,
    codec_rules=codec_rules,
    optimizer=optimizer,
    loss=loss,
    own_statistics=not broadcast_computed_params,
    recomputes=optimize_gradient_memory,
    seed=seed,
  )
  exchange = placement.join(devices, rendezvous)
  keras.utils.set_random_seed(seed % 2**31)
  return parallel_model.ParallelModel(
    input_fn, model_fn, learning_rate, exchange, choices
  )
