"""What the start of a run needs of the run and of its configuration."""

from collections.abc import Collection
from collections.abc import Sequence
from typing import Protocol

from terngrad.checkpoint import checkpoints
from terngrad.checkpoint import stored_states
from terngrad.step import replicas as replica_lib


class Run(Protocol):
  """`training.run.Run`, which has more."""

  @property
  def replicas(self) -> tuple[replica_lib.Replica, ...]:
    """One a device."""

  @property
  def names(self) -> list[str]:
    """Of a replica's variables."""

  @property
  def logits(self) -> Collection[str]:
    """Names of all variables of the classifiers, auxiliary ones too."""

  @property
  def order(self) -> Sequence[str]:
    """Names of the net's variables, layer by layer."""

  @property
  def layout(self) -> checkpoints.Layout:
    """Of its checkpoints."""

  @property
  def method_states(self) -> list[str]:
    """Names of the shared states of methods, the last of `names`."""

  @property
  def store(self) -> stored_states.Store:
    """The states of methods and passes."""


class Start(Protocol):
  """`config.run.Start`, where each option is described."""

  @property
  def pretrained_model_checkpoint_path(self) -> str:
    """The checkpoint, or the folder of checkpoints, to start from."""

  @property
  def pretrained_weights(self) -> str:
    """The file of Keras to start from."""

  @property
  def fine_tune(self) -> bool:
    """Whether logits are left out."""

  @property
  def restart_step(self) -> bool:
    """Whether the run starts at step 0."""

  @property
  def checkpoint_exclude_scopes(self) -> str:
    """What is not restored."""

  @property
  def ignore_missing_vars(self) -> bool:
    """Whether variables may be missing."""
