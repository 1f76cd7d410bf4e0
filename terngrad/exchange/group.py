"""The collectives of TensorFlow's runtime, between the processes of a cluster.

Every process calls the same verbs in the same order, as the same program does
by itself; a collective's key is its place in that order. Tensors travel
from host memory: words and probes are small, and the CPU's collectives add
int32, which those of GPUs do not. With NCCL what is gathered stays on GPUs.
"""

import functools
import itertools
import uuid
from collections.abc import Mapping
from collections.abc import Sequence
from typing import Any
from typing import Protocol

import numpy as np
import tensorflow as tf
from tensorflow.python.eager import context

from terngrad import signals
from terngrad.codec.stages import wire

NCCL = 'nccl'
COMMUNICATIONS = ('auto', 'ring', NCCL)
_HOST, _GPU = '/CPU:0', '/GPU:0'
# MultiWorkerMirroredStrategy counts its own groups from 1.
_GROUP_KEY = 7001
_GPU_GROUP_KEY = 7002
# Elements of a piece of a large tensor, and the most pieces of one.
_PIECE = 2**18
_MOST_PIECES = 16


class Tasks(Protocol):
  """The tasks of a run: `cluster.spec.Cluster`."""

  @property
  def jobs(self) -> Mapping[str, Sequence[str]]:
    """For each job the addresses of its tasks, 'host:port'."""

  @property
  def index(self) -> int:
    """The index of this process in its job."""


class Group:
  """This process's place among the worker processes.

  Attributes:
    size: P, how many there are.
    rank: this one's number.
    piece: elements of a piece of a tensor that travels in pieces.
  """

  def __init__(
    self,
    cluster: Tasks,
    timeout: float,
    communication: str = 'auto',
    piece: int = _PIECE,
  ) -> None:
    """Joins; blocks until all have. Nothing may have used TensorFlow before.

    Args:
      cluster: with workers only.
      timeout: seconds without a sign of life after which a task is lost.
      communication: of `COMMUNICATIONS`; `NCCL` needs a GPU in each process.
      piece: elements of a piece of a large tensor.
    """
    size = len(cluster.jobs['worker'])
    self._settle(size, cluster.index, communication, piece)
    self._strategy = _join(cluster, timeout) if size > 1 else None

  @classmethod
  def joined(cls, size: int, rank: int) -> 'Group':
    """The group of processes that a strategy of TensorFlow's has joined.

    A process has one at most: collectives are known by their number in it.

    Args:
      size: P.
      rank: of this process.
    """
    group = cls.__new__(cls)
    group._settle(size, rank, 'auto', _PIECE)
    return group

  def _settle(
    self, size: int, rank: int, communication: str, piece: int
  ) -> None:
    self.size, self.rank, self.piece = size, rank, piece
    self._keys = itertools.count(1)
    self._hint, self._on_gpus = communication, communication == NCCL

  def all_gather(self, tensor: tf.Tensor) -> tf.Tensor:
    """All-gather: the tensors of all processes, one below the other.

    Args:
      tensor: int32 or float32 [k, ...], the same shape in every process.

    Returns:
      [size * k, ...], in the order of the processes.
    """
    return wire.concat(self.all_gather_pieces(tensor), axis=1)

  def all_gather_pieces(
    self, tensor: tf.Tensor, most: int = _MOST_PIECES
  ) -> list[tf.Tensor]:
    """`gather`, some columns at a time.

    The runtime copies a tensor a few times on its way. In pieces, one is copied
    while another is on the wire.

    Args:
      tensor: see `gather`.
      most: pieces, >= 1.

    Returns:
      List of [size * k, columns of a piece], or of one tensor of any rank.
    """
    if self.size == 1:
      return [tensor]
    count = min(most, tensor.shape.num_elements() // self.piece)
    if tensor.shape.rank != 2 or count < 2:
      return [self._gather(tensor)]
    size = -(-tensor.shape[1] // count)
    sizes = [size] * (count - 1) + [tensor.shape[1] - size * (count - 1)]
    return [self._gather(piece) for piece in columns(tensor, sizes)]

  def all_gather_first(
    self,
    matrix: tf.Tensor,
    length: tf.Tensor,
    lengths: Sequence[int],
    most: int = _MOST_PIECES,
  ) -> list[tf.Tensor]:
    """All-gather of the first columns of a matrix, in pieces.

    The runtime wants tensors of one shape under one key, so that there is a key
    for each length that may come.

    Args:
      matrix: int32 [k, n], the same shape in every process.
      length: int32 [], place in `lengths`; the same in every process.
      lengths: list of int, <= n: how many columns it may be.
      most: pieces, >= 1.

    Returns:
      List of int32 [size * k, columns of a piece], one after the other; how
      many columns is known when they are there.
    """
    columns_sent = tf.gather(lengths, length)
    if self.size == 1:
      return [matrix[:, :columns_sent]]
    count = max(1, min(most, matrix.shape.num_elements() // self.piece))
    pieces = []
    for number in range(count):
      first = columns_sent * number // count
      stop = columns_sent * (number + 1) // count
      first_key, *_ = (next(self._keys) for _ in lengths)
      pieces.append(self._gather(matrix[:, first:stop], first_key + length))
    return pieces

  def _gather(
    self, tensor: tf.Tensor, key: tf.Tensor | None = None
  ) -> tf.Tensor:
    shape = [self.size * tensor.shape[0], *tensor.shape[1:]]
    with tf.device(_GPU if self._on_gpus else _HOST):
      result = tf.raw_ops.CollectiveGatherV2(
        input=tf.identity(tensor), **self._where(self._on_gpus, key)
      )
    return tf.ensure_shape(result, shape)

  def all_reduce(self, tensor: tf.Tensor) -> tf.Tensor:
    """The sum over the processes, of the same shape; it wraps around.

    Args:
      tensor: int32 or int64, the same shape in every process.
    """
    if self.size == 1:
      return tensor
    with tf.device(_HOST):
      result = tf.raw_ops.CollectiveReduceV2(
        input=tf.identity(tensor),
        merge_op='Add',
        final_op='Id',
        **self._where(),
      )
    return tf.ensure_shape(result, tensor.shape)

  def all_to_all(self, tensor: tf.Tensor) -> tf.Tensor:
    """Gives row p to process p.

    Args:
      tensor: int32 [size, ...].

    Returns:
      The same shape: row p is what process p had for this one.
    """
    if self.size == 1:
      return tensor
    with tf.device(_HOST):
      result = tf.raw_ops.CollectiveAllToAllV2(
        input=tf.identity(tensor), is_stateless=False, **self._where()
      )
    return tf.ensure_shape(result, tensor.shape)

  def all_gather_now(self, array: np.ndarray | tf.Tensor) -> np.ndarray:
    """`gather` outside of traced code."""
    return self.all_gather(tf.convert_to_tensor(array)).numpy()

  def broadcast(self, value: tf.Tensor) -> tf.Tensor:
    """The chief's value, to the bit, outside of traced code.

    Args:
      value: float32 or int32, the same shape in every process.

    Returns:
      That of process 0.
    """
    bits = tf.bitcast(value, tf.int32)
    # Sums of bits and zeros as integers: no float is rounded or normalised.
    bits = bits if self.rank == 0 else tf.zeros_like(bits)
    return tf.bitcast(self.all_reduce(bits), value.dtype)

  @functools.cached_property
  def _gpu_token(self) -> tf.Tensor:
    """NCCL hangs where two processes begin collectives in another order."""
    return _token(_GPU)

  def _where(
    self, on_gpus: bool = False, key: tf.Tensor | None = None
  ) -> dict[str, Any]:
    """What a collective needs beside its tensor.

    No time-out of its own: the runtime would give it a thread that sleeps until
    then, hundreds a second.
    """
    return {
      'ordering_token': [self._gpu_token if on_gpus else _token(_HOST)],
      'group_size': self.size,
      'group_key': _GPU_GROUP_KEY if on_gpus else _GROUP_KEY,
      'instance_key': next(self._keys) if key is None else key,
      'communication_hint': self._hint if on_gpus == self._on_gpus else 'auto',
    }


def _token(device: str) -> tf.Tensor:
  """What orders collectives in a traced function: those of one token in turn.

  Those without any are in turn too, so that one would wait for others whose
  tensors come later. A token is a name and nothing else.
  """
  with tf.init_scope(), tf.device(device):
    return tf.raw_ops.VarHandleOp(
      dtype=tf.float32, shape=[], shared_name=f'token_{uuid.uuid4().hex}'
    )


def _join(
  cluster: Tasks, timeout: float
) -> tf.distribute.MultiWorkerMirroredStrategy:
  """Starts the server of this process and waits for those of the others."""
  resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
    tf.train.ClusterSpec({'worker': list(cluster.jobs['worker'])}),
    task_type='worker',
    task_id=cluster.index,
    rpc_layer='grpc',
  )
  _wait_for_heartbeats(timeout)
  # The strategy is TensorFlow's public way to the runtime of its collectives;
  # nothing else of it is used.
  with signals.joining():
    return tf.distribute.MultiWorkerMirroredStrategy(resolver)


def _wait_for_heartbeats(seconds: float) -> None:
  """Lets a task be silent for so long before the runtime gives it up.

  The runtime would after 10 seconds, and on a slow link a heartbeat stands
  behind the data of collectives: 152 MB take 12 seconds at 100 Mbit/s. A task
  that ends is noticed at once, by its sockets. There is no public way to say
  so; the strategy configures the service.
  """
  now = context.context()
  now.configure_coordination_service = functools.partial(
    now.configure_coordination_service,
    heartbeat_timeout_in_ms=int(1000 * seconds),
  )


def columns(tensor: tf.Tensor, sizes: Sequence[int]) -> list[tf.Tensor]:
  """Ranges of columns of a matrix; those of one row are not copied."""
  if len(sizes) == 1:
    return [tensor]
  if tensor.shape[0] > 1:
    return tf.split(tensor, sizes, axis=1)
  return [part[tf.newaxis] for part in tf.split(tf.squeeze(tensor, 0), sizes)]
