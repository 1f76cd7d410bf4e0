"""The small trainings whose bits are recorded, and their names.

A name says what is trained, not how its code is spelled: spellings may change,
recorded names do not.
"""

from typing import NamedTuple

STEPS = 20
# Three parts of `small.conv_net`: the logits, the normalisation, the
# convolution.
PART_BYTES = 40


class Code(NamedTuple):
  """A codec with a permanent name.

  Attributes:
    text: the codec's text, with `{workers}` for their number.
    plain: variables that are sent uncompressed.
    kernels: whether some of its functions have kernels.
    cuts: whether the model can be sent in parts.
    servers: whether parameter servers accept it.
  """

  text: str
  plain: tuple = ()
  kernels: bool = True
  cuts: bool = True
  servers: bool = True


CODES = {
  'ternary': Code('ternary'),
  'stratified': Code('ternary:dither=stratified,workers={workers}'),
  'thin': Code('ternary:sharing=thin', servers=False),
  'huffman243': Code('ternary:packing=huffman243'),
  'radix': Code('ternary:packing=radix,workers={workers}'),
  'groups': Code('ternary:group_size=64', kernels=False),
  'eden3': Code('eden3', cuts=False),
  'fp16': Code('fp16', kernels=False),
  'identity': Code('identity', kernels=False),
  # Every part and every piece holds variables of both codes or of one.
  'mixed': Code('ternary', plain=('conv/bias', 'logits/bias')),
}


class Layout(NamedTuple):
  """The processes and devices of a training.

  Attributes:
    workers: of all processes.
    processes: with workers.
    devices: of each of them.
    servers: parameter servers; 0 for collectives.
    algorithm: of collectives, one of `algorithms.NAMES` or 'auto'.
    codes: names of `CODES`; () for all.
  """

  workers: int
  processes: int = 1
  devices: int = 1
  servers: int = 0
  algorithm: str = 'auto'
  codes: tuple = ()


LAYOUTS = {
  'one device': Layout(4),
  'two devices': Layout(4, devices=2),
  'two processes': Layout(4, processes=2),
  'three processes': Layout(3, processes=3),
  'servers': Layout(4, processes=2, servers=1),
  'two processes of two devices': Layout(
    4, processes=2, devices=2, codes=('ternary', 'radix')
  ),
  'two shots': Layout(
    4, processes=2, algorithm='two_shot', codes=('ternary', 'radix', 'mixed')
  ),
}


class Case(NamedTuple):
  """One training.

  Attributes:
    code: name of `CODES`.
    layout: name of `LAYOUTS`.
    parts: True to send parts of `PART_BYTES`, False to send all at once.
    kernels: True for the native kernels, False for XLA only.
  """

  code: str
  layout: str
  parts: bool
  kernels: bool

  def __str__(self):
    """Its name among what was recorded."""
    pieces = 'parts' if self.parts else 'one piece'
    return '; '.join(
      [self.layout, self.code, pieces, 'kernels' if self.kernels else 'XLA']
    )


class Group(NamedTuple):
  """Cases that the same processes run one after the other."""

  layout: str
  parts: bool
  kernels: bool

  def __str__(self):
    """For the name of a test."""
    return f'{self.layout} {self.parts:d}{self.kernels:d}'.replace(' ', '-')

  def cases(self):
    """List of `Case`."""
    layout = LAYOUTS[self.layout]
    servers = layout.servers
    # Processes that share a machine compile for long: parts and three processes
    # are taken with kernels where there are some; XLA's parts by one process.
    long = self.parts or layout.processes > 2
    few = layout.processes > 1 and long and not self.kernels
    return [
      Case(name, *self)
      for name in layout.codes or CODES
      if (CODES[name].kernels or not self.kernels)
      and (CODES[name].cuts or not self.parts)
      and (CODES[name].servers or not servers)
      and (not few or name == 'ternary' or not CODES[name].kernels)
    ]


def groups(alone):
  """Those of one process, or those of several.

  Args:
    alone: True for those of one process.

  Returns:
    List of `Group`.
  """
  return [
    Group(name, parts, kernels)
    for name, layout in LAYOUTS.items()
    if (layout.processes == 1) == alone
    # A server adds whole payloads.
    for parts in ((False,) if layout.servers else (False, True))
    for kernels in (True, False)
  ]


# In the gate: the cheapest that together take every stage of a step.
QUICK = (
  Case('ternary', 'one device', False, True),
  Case('ternary', 'one device', False, False),
  Case('mixed', 'two devices', True, True),
  Case('thin', 'one device', True, True),
  Case('radix', 'one device', False, True),
  Case('eden3', 'one device', False, False),
  Case('fp16', 'two devices', False, False),
)
