"""What an exchange costs: steps to time, and the bytes that it sends."""

import pathlib
from typing import NamedTuple

import keras
import tensorflow as tf

from slim.nets import factory as nets
from terngrad import errors
from terngrad.codec import policy
from terngrad.codec.methods import registry
from terngrad.exchange import algorithms
from terngrad.exchange import collective
from terngrad.exchange import protocol
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

# The net of the race: see `single_column_alexnet`.
RACE = 'single_column_alexnet'
NETS = (RACE, *nets.NETS)


class Subject(NamedTuple):
  """What is trained.

  Attributes:
    shapes: of the variables.
    model: Keras model, or None for gradients that are only sent.
    image: shape of an image.
    classes: int.
  """

  shapes: list
  model: keras.Model | None
  image: tuple
  classes: int


def subject(net, real):
  """A net, or its list of variables alone.

  Args:
    net: of `NETS`.
    real: True for forward and backward passes; False for Gaussian gradients of
      the same shapes.

  Returns:
    A `Subject`.
  """
  if net == RACE:
    model, image, classes = single_column_alexnet(), (224, 224, 3), 1000
  else:
    known = nets.NETS[net]
    side = known.default_image_size
    image, classes = (side, side, known.default_channels), 10
    model = nets.build(
      net, num_classes=classes, image_size=side, channels=image[2]
    )
  shapes = [tuple(v.shape) for v in model.trainable_variables]
  return Subject(shapes, model if real else None, image, classes)


def single_column_alexnet():
  """AlexNet in one column, as torchvision has it: 61,100,840 parameters.

  Krizhevsky, One weird trick for parallelizing convolutional neural networks,
  https://arxiv.org/abs/1404.5997; without dropout.
  """
  layers = keras.layers

  def conv(filters, size, strides=1):
    return layers.Conv2D(
      filters, size, strides, padding='same', activation='relu'
    )

  def pool():
    return layers.MaxPooling2D(3, 2)

  return keras.Sequential(
    name=RACE,
    layers=[
      keras.Input((224, 224, 3)),
      # torchvision pads by 2, which makes 55 x 55 of 224 x 224.
      layers.ZeroPadding2D(2),
      layers.Conv2D(64, 11, 4, activation='relu'),
      *(pool(), conv(192, 5), pool()),
      *(conv(384, 3), conv(256, 3), conv(256, 3), pool()),
      layers.Flatten(),
      *(layers.Dense(4096, activation='relu') for _ in range(2)),
      layers.Dense(1000),
    ],
  )


class Case(NamedTuple):
  """One exchange with one code.

  Attributes:
    step: function without arguments: a step of all processes.
    payload: bytes that a process sends a step, probes and losses included, by
      formula.
    algorithms: the one of each message.
  """

  step: object
  payload: float
  algorithms: list


def case(
  what,
  group,
  codec_text,
  algorithm,
  batch,
  part_bytes=0,
  network=algorithms.GIGABIT,
):
  """Builds a case.

  Args:
    what: `Subject`.
    group: `exchange.group.Group`.
    codec_text: as `--codec` spells it.
    algorithm: 'auto' or one of `algorithms.NAMES`.
    batch: examples a process.
    part_bytes: see `reduce.parts.cut`.
    network: `algorithms.Network`, by which 'auto' chooses.

  Returns:
    A `Case`.
  """
  exchange = collective.Collective(
    group, ('/CPU:0',), group.size, algorithm, network
  )
  codec = parts.cut(codec_of(what, codec_text, group.size), part_bytes)
  copies = replicas_of(what, ('/CPU:0',), codec)
  train_step = step_of(what, exchange, copies, codec)
  values = *examples(what, batch, group.rank), *numbers()

  def step():
    train_step.take(*values).entropy.numpy()

  messages = [
    message
    for part in programs.parts(codec)
    for number in range(part.codec.num_rounds)
    for message in part.codec.messages(number)
  ]
  chosen = algorithms.choices(
    messages, group.size, group.size, algorithm, network
  )
  words = sum(
    algorithms.sent_words(message, group.size, group.size)[name]
    for message, name in zip(messages, chosen, strict=True)
  )
  statistics = sum(int(tf.size(v)) for v in copies[0].statistics)
  # A row of a worker: its probes, scores, wish to stop and statistics.
  numbers_of_row = codec.num_probes + passes.NUM_SCORES + 1 + statistics
  row = (group.size - 1) * numbers_of_row
  return Case(step, 4 * (words + row), chosen)


def step_of(
  what: Subject,
  exchange: protocol.Exchange,
  copies: tuple[replicas.Replica, ...],
  codec: gradients.GradientCodec,
) -> steps.TrainStep:
  """The traced step of the trainer.

  Args:
    what: is trained.
    exchange: between the workers.
    copies: from `replicas_of`.
    codec: from `codec_of`, in parts or not.
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


def codec_of(what, text, num_workers):
  """The `GradientCodec` of a codec as `--codec` spells it."""
  specs = [
    policy.VariableSpec(f'v{i}', shape) for i, shape in enumerate(what.shapes)
  ]
  code = registry.method(text, num_workers)
  codec = bucketing.gradient_codec(specs, [code] * len(specs))
  return bucketing.on_kernels(codec)


def examples(what, batch, worker):
  """A worker's images float32 [1, batch, ...] and labels int32 [1, batch]."""
  return (
    tf.random.stateless_normal([1, batch, *what.image], [1, worker]),
    tf.random.stateless_uniform(
      [1, batch], [2, worker], 0, what.classes, tf.int32
    ),
  )


def numbers():
  """A step's number, learning rate and averaging decay."""
  return tf.constant(0, tf.int64), tf.constant(1e-6), tf.constant(0.0)


def replicas_of(what, devices, codec):
  """The variables, without moving averages of them: the peers keep none.

  Args:
    what: `Subject`.
    devices: names.
    codec: from `codec_of`, in parts or not.

  Returns:
    Tuple of `replicas.Replica`, one a device.
  """
  shared = states.shared(codec)
  if what.model is not None:
    return replicas.create(
      model_variables.variables_of(what.model),
      optimizers.GradientDescent(),
      devices,
      shared=shared,
      averaged=False,
    )
  made = []
  for device in devices:
    with tf.device(device):
      trainable = tuple(tf.Variable(tf.zeros(s)) for s in what.shapes)
    slots = tuple({} for _ in trainable)
    known = states.of_replica(shared, device)
    made.append(
      replicas.Replica(device, trainable, (), slots, (), shared=known)
    )
  return tuple(made)


def pass_of(what: Subject) -> passes.Pass:
  """The pass of a subject."""
  if what.model is not None:
    return passes.ModelPass(
      what.model, model_variables.variables_of(what.model)
    )
  return drawn_gradients.DrawnGradients(what.shapes)


def interface_bytes(name, text=None):
  """Bytes that a network interface of this host has received and sent.

  Args:
    name: of the interface; '' for all together but the loopback.
    text: of /proc/net/dev; None reads it.

  Returns:
    (received, sent).

  Raises:
    errors.ConfigError: there is none of this name.
  """
  if text is None:
    text = pathlib.Path('/proc/net/dev').read_text(encoding='ascii')
  counts = {}
  for line in text.splitlines()[2:]:
    interface, _, numbers = line.partition(':')
    columns = numbers.split()
    counts[interface.strip()] = int(columns[0]), int(columns[8])
  if name and name not in counts:
    raise errors.ConfigError(
      f'interface: expected one of {", ".join(counts)}, received {name!r}. '
      'Name the one that the other hosts are behind.'
    )
  wanted = [name] if name else [n for n in counts if n != 'lo']
  return tuple(sum(counts[n][i] for n in wanted) for i in (0, 1))
