"""Training steps that measure an exchange: time and bytes."""

import itertools
import pathlib
from collections.abc import Callable
from collections.abc import Sequence
from typing import NamedTuple

import keras
import numpy as np
import tensorflow as tf

from slim.datasets.text import byte_pairs
from slim.nets import factory as nets
from terngrad import errors
from terngrad.codec import method as methods
from terngrad.exchange import algorithms
from terngrad.exchange import collective
from terngrad.exchange import group as groups
from terngrad.exchange import protocol
from terngrad.measure import gradient_codecs
from terngrad.measure.processes import drawn_gradients
from terngrad.reduce import bucketing
from terngrad.reduce import gradients
from terngrad.reduce import parts
from terngrad.reduce import programs
from terngrad.reduce import states
from terngrad.step import model_variables
from terngrad.step import optimizers
from terngrad.step import passes
from terngrad.step import replicas
from terngrad.step import step as steps

# The net that is compared with other frameworks; see `single_column_alexnet`.
RACE = 'single_column_alexnet'
NETS = (RACE, *nets.NETS)


class Subject(NamedTuple):
  """The model, or the gradients, of a measured step.

  Attributes:
    shapes: shapes of the variables.
    model: Keras model, or None for random gradients without a model.
    example: shape of an example: an image's height, width and channels, or the
      number of tokens of a text.
    classes: number of classes, or of different tokens.
    statistics: number of moving statistics of the net.
  """

  shapes: list[tuple[int, ...]]
  model: keras.Model | None
  example: tuple[int, ...]
  classes: int
  statistics: int = 0

  @property
  def takes_tokens(self) -> bool:
    """Whether the model is one of texts."""
    return len(self.example) == 1


def subject(net: str, real: bool) -> Subject:
  """Builds a net, or only the list of its variables' shapes.

  Args:
    net: a name in `NETS`.
    real: True for forward and backward passes; False for Gaussian gradients of
      the same shapes.
  """
  example: tuple[int, ...]
  if net == RACE:
    model, example, classes = single_column_alexnet(), (224, 224, 3), 1000
  else:
    known = nets.NETS[net]
    side = known.default_image_size
    example, classes = (side, side, known.default_channels), 10
    if known.takes_tokens:
      example, classes = (side,), byte_pairs.FEWEST_TOKENS
    model = nets.build(net, num_classes=classes)
  found = model_variables.variables_of(model)
  shapes = [tuple(v.shape) for v in found.trainable]
  count = sum(int(np.prod(v.shape)) for v in found.statistics)
  return Subject(shapes, model if real else None, example, classes, count)


def single_column_alexnet() -> keras.Model:
  """AlexNet in one column, as in torchvision: 61,100,840 parameters.

  Krizhevsky, One weird trick for parallelizing convolutional neural networks,
  https://arxiv.org/abs/1404.5997; without dropout.
  """
  layers = keras.layers

  def conv(filters: int, size: int) -> keras.Layer:
    return layers.Conv2D(filters, size, padding='same', activation='relu')

  def pool() -> keras.Layer:
    return layers.MaxPooling2D(3, 2)

  return keras.Sequential(
    name=RACE,
    layers=[
      keras.Input((224, 224, 3)),
      # torchvision pads by 2, so 224 x 224 becomes 55 x 55.
      layers.ZeroPadding2D(2),
      layers.Conv2D(64, 11, 4, activation='relu'),
      *(pool(), conv(192, 5), pool()),
      *(conv(384, 3), conv(256, 3), conv(256, 3), pool()),
      layers.Flatten(),
      *(layers.Dense(4096, activation='relu') for _ in range(2)),
      layers.Dense(1000),
    ],
  )


class MeasuredStep(NamedTuple):
  """One exchange with one codec.

  Attributes:
    step: runs a step of all processes.
    payload: bytes that a process sends per step, including probes and losses,
      by formula.
    algorithms: the algorithm of each message.
  """

  step: Callable[[], None]
  payload: float
  algorithms: list[str]


def case(
  what: Subject,
  group: groups.Group,
  codec_text: str,
  algorithm: str,
  batch: int,
  part_bytes: int = 0,
  network: algorithms.Link = algorithms.GIGABIT,
) -> MeasuredStep:
  """Builds the step of a case.

  Args:
    what: the model or the gradients.
    group: the process group.
    codec_text: codec in the syntax of `--codec`.
    algorithm: 'auto' or a name in `algorithms.NAMES`.
    batch: examples per process.
    part_bytes: bytes per part, as for `reduce.parts.cut`.
    network: the network for which 'auto' chooses algorithms.
  """
  device = '/CPU:0'
  exchange = collective.Collective(
    group, (device,), group.size, algorithm, network
  )
  codec = parts.cut(codec_of(what, codec_text, group.size), part_bytes)
  copies = replicas_of(what, (device,), codec)
  train_step = step_of(what, exchange, copies, codec)
  values = *examples(what, batch, group.rank), *schedule_values()
  messages = list(itertools.chain(*messages_of(codec)))
  chosen = algorithms.choices(
    messages, group.size, group.size, algorithm, network
  )
  words = sum(
    algorithms.sent_words(message, group.size, group.size)[name]
    for message, name in zip(messages, chosen, strict=True)
  )
  # A worker's metadata row: probes, statistics, stop request and scores.
  row = row_size(codec, copies) + passes.NUM_SCORES
  return MeasuredStep(
    lambda: train_step.take(*values).entropy.numpy(),
    4 * (words + (group.size - 1) * row),
    chosen,
  )


def messages_of(
  codec: gradients.GradientCodec,
) -> list[list[methods.Message]]:
  """Returns the messages of each round of each part of a codec."""
  return [
    part.codec.messages(number)
    for part in programs.parts(codec)
    for number in range(part.codec.num_rounds)
  ]


def row_size(
  codec: gradients.GradientCodec, copies: Sequence[replicas.Replica]
) -> int:
  """Counts probes, statistics and the stop request in a worker's row."""
  statistics = sum(int(tf.size(v)) for v in copies[0].statistics)
  return codec.num_probes + statistics + 1


def step_of(
  what: Subject,
  exchange: protocol.Exchange,
  copies: tuple[replicas.Replica, ...],
  codec: gradients.GradientCodec,
) -> steps.TrainStep:
  """Builds the trainer's traced step.

  Args:
    what: the model or the gradients.
    exchange: the exchange between the workers.
    copies: replicas from `replicas_of`.
    codec: codec from `codec_of`, cut into parts or not.
  """
  training = steps.Training(
    node_pass=pass_of(what),
    exchange=exchange,
    replicas=copies,
    states=states.MethodStates(codec, exchange),
    optimizer=optimizers.GradientDescent(),
    seed=1,
  )
  return steps.TrainStep(training, codec)


def codec_of(
  what: Subject, text: str, num_workers: int
) -> gradients.GradientCodec:
  """Builds a codec from a text in the syntax of `--codec`."""
  codec = gradient_codecs.build(text, what.shapes, num_workers)
  return bucketing.on_kernels(codec)


def examples(
  what: Subject, batch: int, worker: int
) -> tuple[tf.Tensor, tf.Tensor]:
  """Draws inputs and labels of a worker.

  Args:
    what: the model or the gradients.
    batch: number of examples.
    worker: index of the worker, which has examples of its own.

  Returns:
    Images float32 [1, batch, height, width, channels] and labels int32 [1,
    batch]; or T tokens of each text and those that follow them, both int32
    [1, batch, T].
  """

  def draw(*shape: int) -> tf.Tensor:
    return tf.random.stateless_uniform(
      shape, [2, worker], 0, what.classes, tf.int32
    )

  if what.takes_tokens:
    tokens = draw(1, batch, what.example[0] + 1)
    return tokens[..., :-1], tokens[..., 1:]
  images = tf.random.stateless_normal([1, batch, *what.example], [1, worker])
  return images, draw(1, batch)


def schedule_values() -> tuple[tf.Tensor, tf.Tensor, tf.Tensor]:
  """Returns the step number, learning rate and averaging decay of a step."""
  return tf.constant(0, tf.int64), tf.constant(1e-6), tf.constant(0.0)


def replicas_of(
  what: Subject, devices: Sequence[str], codec: gradients.GradientCodec
) -> tuple[replicas.Replica, ...]:
  """Creates replicas without moving averages: PyTorch's steps keep none.

  Args:
    what: the model or the gradients.
    devices: device names.
    codec: codec from `codec_of`, cut into parts or not.

  Returns:
    One replica per device.
  """
  if what.model is not None:
    plan = model_variables.variables_of(what.model)
  else:
    with tf.device(devices[0]):
      zeros = tuple(keras.Variable(tf.zeros(s)) for s in what.shapes)
    plan = model_variables.ModelVariables((), zeros, (), (), (), ())
  return replicas.create(
    plan,
    optimizers.GradientDescent(),
    devices,
    shared=states.shared(codec),
    averaged=False,
  )


def pass_of(what: Subject) -> passes.Pass:
  """Returns the forward and backward pass of a subject."""
  if what.model is not None:
    return passes.ModelPass(
      what.model, model_variables.variables_of(what.model)
    )
  return drawn_gradients.DrawnGradients(what.shapes)


def interface_bytes(name: str, text: str | None = None) -> tuple[int, int]:
  """Returns the bytes that an interface of this host has received and sent.

  Args:
    name: network interface; '' for the sum over all except the loopback.
    text: contents of /proc/net/dev; None reads the file.

  Raises:
    errors.ConfigError: there is no interface of this name.
  """
  if text is None:
    text = pathlib.Path('/proc/net/dev').read_text(encoding='ascii')
  counts = {}
  for line in text.splitlines()[2:]:
    interface, _, columns = line.partition(':')
    numbers = columns.split()
    counts[interface.strip()] = int(numbers[0]), int(numbers[8])
  if name and name not in counts:
    raise errors.ConfigError(
      f'interface: expected one of {", ".join(counts)}, received {name!r}. '
      'Use the one that connects this host to the others.'
    )
  wanted = [name] if name else [n for n in counts if n != 'lo']
  totals = [sum(counts[n][i] for n in wanted) for i in (0, 1)]
  return totals[0], totals[1]
