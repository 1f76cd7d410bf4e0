"""Data-parallel training of a Keras model on several devices.

    parallel = terngrad.parallelize(
      lambda index, count: dataset.shard(count, index).batch(32).repeat(),
      make_model,
      devices=[0, 1],
      codec='ternary',
    )
    parallel.run(num_steps=100)

Each device has a replica and reads different examples. In each step the devices
exchange compressed gradients, and all apply the same mean. So the replicas stay
bit-identical. With `devices_per_worker=K` each K devices are one worker: they
average their gradients in float32, and one of them sends the mean.

The loss is the mean over the examples of one device. Do not divide it by the
number of devices, as for frameworks that sum gradients: here gradients are
averaged. If the batches of a step differ in size, each device's loss is
multiplied by its batch size and divided by the mean batch size. The result is
the gradient of the mean over all examples. In several processes, all batches of
one device need the same size.
"""

from collections.abc import Callable
from collections.abc import Sequence
from typing import TYPE_CHECKING
from typing import Any

import keras

from terngrad import aliases
from terngrad.codec import method
from terngrad.compression import building
from terngrad.compression import device_inputs
from terngrad.compression import local_arguments
from terngrad.compression import parallel_model
from terngrad.compression import placement
from terngrad.config import cluster
from terngrad.step import passes

if TYPE_CHECKING:
  from typing_extensions import Unpack


@aliases.renamed_arguments(loss_fn='loss', update='optimizer')
def parallelize(
  input_fn: device_inputs.InputFunction,
  model_fn: Callable[[], keras.Model],
  loss: passes.LossFunction | None = None,
  optimizer: str | None = 'nesterov:momentum=0.9',
  learning_rate: float | Callable[[int], float] = 0.1,
  *,
  devices: Sequence[int | str] = ('/CPU:0',),
  devices_per_worker: int = 1,
  codec: str | method.Method = 'identity',
  codec_rules: str = '',
  rendezvous: dict[str, Any] | cluster.ClusterOptions | None = None,
  broadcast_computed_params: bool = True,
  optimize_gradient_memory: bool = False,
  seed: int = 1,
  jit_compile: bool | str = 'auto',
  **local: 'Unpack[local_arguments.LocalArguments]',
) -> parallel_model.ParallelModel:
  """Replicates a Keras model on several devices, to train or evaluate it.

  Args:
    input_fn: a function from (device_index, num_devices), of all processes, to
      (images [b, ...], integer labels [b]): an iterable, or a shared iterator.
    model_fn: returns a model whose output is logits [b, classes], or a list
      that begins with them. The first device uses the model's variables.
    loss: a function of (outputs, labels int32 [b]). None: cross entropy.
    optimizer: a text as for `--optimizer`. None: the model is only evaluated.
    learning_rate: a number, or a function of the steps taken before.
    devices: device names, or numbers: of GPUs, or of logical CPU devices on a
      machine without GPU. Every process needs the same count.
    devices_per_worker: K, which divides the devices: each K are one worker.
    codec: a method, or a text as for `--codec`.
    codec_rules: codecs for some variables, as for `--codec_rules`.
    rendezvous: None for one process; else a dict of cluster options by name, or
      a `config.cluster.ClusterOptions`. Call before TensorFlow is in use.
    broadcast_computed_params: whether devices average moving statistics.
    optimize_gradient_memory: as the flag; for graphs of layers with one input.
    seed: seed of the random codes, and for `keras.utils.set_random_seed`.
    jit_compile: of the forward and backward pass, as `keras.Model.compile` has.
    **local: `local_steps` and more, see `local_arguments.LocalArguments`.

  Raises:
    ValueError: an argument names something unknown, or two contradict.
  """
  exchange = placement.join(devices, rendezvous, devices_per_worker)
  chosen = local_arguments.choose(
    codec, optimizer, learning_rate, exchange.num_workers, **local
  )
  choices = building.Choices(
    **chosen.choices,
    codec_rules=codec_rules,
    loss=loss,
    local_statistics=not broadcast_computed_params,
    recomputes=optimize_gradient_memory,
    seed=seed,
    jit_compile=jit_compile,
  )
  return parallel_model.ParallelModel(
    input_fn, model_fn, chosen.learning_rate, exchange, choices
  )
