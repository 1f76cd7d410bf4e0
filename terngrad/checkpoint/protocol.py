"""The parts of a run and its configuration that restoring needs."""

from collections.abc import Collection
from collections.abc import Sequence
from typing import Protocol

from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import stored_states
from terngrad.step import replicas as replica_lib


class RestorableRun(Protocol):
  """The part of `training.run.Run` that restoring uses."""

  @property
  def replicas(self) -> tuple[replica_lib.Replica, ...]:
    """One replica per device."""

  @property
  def names(self) -> list[str]:
    """Names of a replica's variables."""

  @property
  def logits(self) -> Collection[str]:
    """Names of all variables of the classifiers, including auxiliary ones."""

  @property
  def order(self) -> Sequence[str]:
    """Names of the net's variables, layer by layer."""

  @property
  def layout(self) -> checkpoints.Layout:
    """Layout of the run's checkpoints."""

  @property
  def method_states(self) -> list[str]:
    """Names of the methods' shared states: the last of `names`."""

  @property
  def float_steps(self) -> int:
    """Number of first steps that compute `method_states`; 0 for none."""

  @property
  def store(self) -> stored_states.Store:
    """The states of gradient methods and gradient passes."""


class Start(Protocol):
  """The part of `config.run.StartOptions`, which describes each option."""

  @property
  def pretrained_model_checkpoint_path(self) -> str:
    """The checkpoint, or the directory of checkpoints, to start from."""

  @property
  def pretrained_weights(self) -> str:
    """The Keras weights file to start from."""

  @property
  def fine_tune(self) -> bool:
    """Whether the logits are not restored."""

  @property
  def restart_step(self) -> bool:
    """Whether the run starts at step 0."""

  @property
  def checkpoint_exclude_scopes(self) -> str:
    """Scopes that are not restored."""

  @property
  def ignore_missing_vars(self) -> bool:
    """Whether variables may be missing."""
