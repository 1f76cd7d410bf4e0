"""What compression costs and loses, among the logs of a fit."""

from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import TypeAlias

import keras
import tensorflow as tf

from terngrad.compression import passed_rows
from terngrad.compression import reduced
from terngrad.compression import remembered
from terngrad.keras import optimizer as optimizers

BITS, RATIO, ZEROS = 'bits_per_element', 'compression_ratio', 'zeros'
ERROR, RESIDUAL = 'compression_error', 'residual_norm'
_FLOAT_BITS = 32
_Logs: TypeAlias = dict[str, Any] | None


class CompressionMetrics(keras.callbacks.Callback):
  """Adds figures of the compressed gradients to the logs of `fit`.

  All are means over the steps of the epoch. The first two are of all gradients
  of all steps. The others are of those that are coded, since gradients of rows
  (`tf.IndexedSlices`) travel as they are, and leave steps out whose gradient is
  not finite on any worker.

  - `bits_per_element`: what a worker sends, for each element of its gradients;
    all its words, what the workers agree on first, and the values and indices
    of rows, whose elements are those of the rows that it sends.
  - `compression_ratio`: 32 over that.
  - `zeros`: share of zeros among the elements of the mean gradient.
  - `compression_error`: the norm of what the mean of the gradients has lost,
    over its own norm. Only where all workers are replicas of this process. With
    error feedback it is above 1 where more of earlier steps is sent than of the
    present gradient is lost; what counts there is `residual_norm`.
  - `residual_norm`: with error feedback the norm of a worker's residuals, of
    all variables; the root of the mean of its square over the workers here.

  Put it before the callbacks that read logs. While it is there, steps compute
  these figures too; the step is traced anew when it comes and after it went.
  """

  def __init__(self, every: int = 10) -> None:
    """Makes the callback.

    Args:
      every: steps after which the progress bar and other callbacks get figures
        within an epoch; to read them waits for the step.

    Raises:
      ValueError: `every` is no positive number.
    """
    super().__init__()
    if every < 1:
      raise ValueError(
        f'every: expected 1 or more, received {every}. Use 10 for figures '
        'after each ten steps.'
      )
    self.every = every
    self._means = remembered.apart(_Means)

  def set_model(self, model: keras.Model) -> None:
    """Lets the model's optimizer tell its figures.

    Args:
      model: compiled with `CompressedOptimizer`.

    Raises:
      ValueError: with another optimizer.
    """
    super().set_model(model)
    self._observe_by(self._observe)

  def on_train_end(self, logs: _Logs = None) -> None:
    """Lets the steps of a next fit do without figures."""
    del logs
    self._observe_by(None)

  def on_epoch_begin(self, epoch: int, logs: _Logs = None) -> None:
    """Begins new means."""
    del epoch, logs
    self._means.reset()

  def on_train_batch_end(self, batch: int, logs: _Logs = None) -> None:
    """Adds the means so far, after some of the steps."""
    if logs is not None and (batch + 1) % self.every == 0:
      logs.update(self._means.results())

  def on_epoch_end(self, epoch: int, logs: _Logs = None) -> None:
    """Adds the means of the epoch."""
    del epoch
    if logs is not None:
      logs.update(self._means.results())

  def _observe_by(self, observer: reduced.Observer | None) -> None:
    compressor = optimizers.compressed(self.model.optimizer).compressor
    compressor.observer = observer
    # Made again when the fit begins.
    self.model.train_function = None

  def _observe(
    self, observed: reduced.Observed | passed_rows.PassedRows
  ) -> None:
    with tf.device(observed.exchange.devices[0]):
      if isinstance(observed, passed_rows.PassedRows):
        self._means.add_bits(observed.bits, observed.num_elements)
      else:
        self._means.add_bits(*sent_bits(observed))
        finite = tf.reduce_all(observed.reduced.finite[0])
        self._means.add(figures(observed), finite)


class _Means:
  """Means of figures over steps, where the steps are computed."""

  def __init__(self) -> None:
    # Of float64: an epoch's bits are more than float32 can count.
    self._bits = keras.metrics.Mean(dtype='float64')
    names = ZEROS, ERROR, RESIDUAL
    self._figures = {name: keras.metrics.Mean() for name in names}

  def reset(self) -> None:
    """Forgets all steps."""
    for mean in (self._bits, *self._figures.values()):
      mean.reset_state()

  def add_bits(self, bits: tf.Tensor, elements: tf.Tensor) -> None:
    """Adds what was sent in a step, and of how many elements; float64 []."""
    self._bits.update_state(bits / elements, elements)

  def add(self, found: Mapping[str, tf.Tensor], counts: tf.Tensor) -> None:
    """Adds a step's figures, traced.

    Args:
      found: float32 [], by name.
      counts: bool [], False leaves the step out.
    """
    weight = tf.cast(counts, tf.float32)
    for name, value in found.items():
      # A weight of 0 would keep NaN.
      self._figures[name].update_state(tf.where(counts, value, 0.0), weight)

  def results(self) -> dict[str, float]:
    """Figures by name; {} before the first step."""
    bits = float(self._bits.result())
    if not bits:
      return {}
    return {BITS: bits, RATIO: _FLOAT_BITS / bits} | {
      name: float(mean.result())
      for name, mean in self._figures.items()
      if float(mean.count)
    }


def sent_bits(
  observed: reduced.Observed,
) -> tuple[tf.Tensor, tf.Tensor]:
  """Bits that a worker sends in a step, of how many elements; float64 []."""
  codec = observed.codec
  sent = tf.reduce_mean(tf.cast(observed.reduced.sent, tf.float64))
  words = sent + codec.num_probes
  return _FLOAT_BITS * words, tf.constant(codec.num_elements, tf.float64)


def figures(observed: reduced.Observed) -> dict[str, tf.Tensor]:
  """The figures of what is coded in a step.

  Returns:
    float32 [] by name; without what cannot be known.
  """
  means = observed.reduced.means[0]
  zeros = tf.add_n([tf.reduce_sum(tf.cast(m == 0, tf.float32)) for m in means])
  found = {ZEROS: zeros / observed.codec.num_elements}
  here = observed.gradients
  if here and len(here) == observed.exchange.num_workers:
    exact = [tf.add_n(values) / len(here) for values in zip(*here, strict=True)]
    lost = [e - m for e, m in zip(exact, means, strict=True)]
    found[ERROR] = tf.math.divide_no_nan(_norm(lost), _norm(exact))
  if observed.residuals:
    norms = [_norm(own) for own in observed.residuals]
    found[RESIDUAL] = _norm(norms) / len(norms) ** 0.5
  return found


def _norm(tensors: Sequence[tf.Tensor]) -> tf.Tensor:
  return tf.sqrt(tf.add_n([tf.reduce_sum(tf.square(t)) for t in tensors]))
