"""Builds codecs from `--codec NAME[:option=value,...]`."""

import functools
import traceback
from collections.abc import Callable
from collections.abc import Iterable
from collections.abc import Mapping
from importlib import metadata
from typing import TYPE_CHECKING
from typing import Any

from slim import errors as data_errors
from slim import spelling
from terngrad import errors
from terngrad import lazy
from terngrad.codec.stages import deprecated

if TYPE_CHECKING:
  from terngrad.codec import coded as coded_lib
  from terngrad.codec import method as methods
  from terngrad.codec.stages import contract

# Lazy, because --help needs only the names and must not import TensorFlow.
bitmap = lazy.module('terngrad.codec.stages.bitmap')
chain = lazy.module('terngrad.codec.chain')
clipping = lazy.module('terngrad.codec.stages.clipping')
coded = lazy.module('terngrad.codec.coded')
float_words = lazy.module('terngrad.codec.stages.float_words')
huffman = lazy.module('terngrad.codec.stages.huffman')
packings = lazy.module('terngrad.codec.stages.packing')
ternaries = lazy.module('terngrad.codec.stages.ternary')
zero_runs = lazy.module('terngrad.codec.stages.zero_runs')

if not TYPE_CHECKING:
  # Names of 0.2.
  __getattr__ = deprecated.moved(__name__, every_kind=f'{__name__}:list_kinds')


def identity() -> 'coded_lib.Code':
  """Sends gradients as float32, 32 bits per element."""
  return chain.chain(float_words.float32_words())


def fp16() -> 'coded_lib.Code':
  """Sends gradients in half precision, 16 bits per element."""
  return chain.chain(float_words.float16_words())


def bf16() -> 'coded_lib.Code':
  """Sends gradients as bfloat16, 16 bits per element."""
  return chain.chain(float_words.bfloat16_words())


def ternary(
  clip_factor: float = 2.5,
  scaler_rule: str = 'max_clipped',
  packing: str = 'base3',
  dither: str = 'private',
  workers: int = 0,
  word_bits: int = 32,
  group_size: int = 0,
  sharing: str = 'probe',
) -> 'coded_lib.Code':
  """TernGrad: random ternary codes and a scaler that all workers share.

  Args:
    clip_factor: clipping limit in standard deviations of each gradient; 0 turns
      clipping off.
    scaler_rule: 'max_clipped' or 'stddev', see `ternary.ternarize`.
    packing: 'base3' (1.6 bits per element), 'two_bit' (2 bits), 'radix' (for
      integer all-reduce; 4.6 bits with 8 workers), or of variable length
      'bitmap_sign', 'huffman243' and 'zero_runs' (1.32, 1.23 and 1.56 bits for
      Gaussian gradients clipped at 2.5).
    dither: 'private' or 'stratified', see `ternary.ternarize`.
    workers: number of workers; required by 'radix' and by stratified dither.
    word_bits: for 'radix' only: 32, or 64 for 4.3 bits with 8 workers.
    group_size: elements that share a scaler; 0 for one scaler per variable. A
      scaler costs 32 bits.
    sharing: 'probe': workers agree on the shared scaler, then encode.
      'requantize' (formerly 'thin'): workers encode at once with the local
      scaler, and drop codes at random when the shared scaler is known. The
      codes' distribution is the same; the payloads of N virtual nodes wait in
      memory instead of N gradients.

  Raises:
    ValueError: an option is out of its range.
  """
  if sharing not in ('probe', 'requantize', 'thin'):
    raise ValueError(
      f'sharing: expected one of probe, requantize, received {sharing!r}.'
    )
  clip = clipping.clip_by_stddev(clip_factor)
  pack = _packing(packing, clip_factor, workers, word_bits)
  by_stddev = scaler_rule == 'stddev'
  quantizer = ternaries.ternarize(
    scaler_rule, clip_factor if by_stddev else 0.0, dither, workers
  )
  stages = [quantizer, pack]
  if clip_factor and not by_stddev:
    stages = [clip, *stages]
  codec = chain.chain(*stages, group_size=group_size)
  if sharing != 'probe':
    codec.carries = True
    # Checkpoints store this name.
    codec.name += ', thinned'
  return codec


def _packing(
  name: str, clip_factor: float, workers: int, word_bits: int
) -> 'contract.Stage':
  density = ternaries.gaussian_density(clip_factor)
  makers = {
    'base3': packings.base3,
    'bitmap_sign': lambda: bitmap.bitmap_sign(density),
    'huffman243': lambda: huffman.huffman243(density),
    'radix': lambda: packings.radix(workers, word_bits),
    'two_bit': packings.two_bit,
    'zero_runs': lambda: zero_runs.zero_runs(density),
  }
  if name not in makers:
    raise ValueError(
      f'packing: expected one of {", ".join(makers)}, received {name!r}.'
    )
  if name != 'radix' and word_bits != 32:
    raise ValueError(
      'word_bits: expected only with packing=radix, received '
      f'word_bits={word_bits} with packing={name}. Remove word_bits.'
    )
  return makers[name]()


_PACKAGE = 'terngrad.codec.methods.'
# Functions and classes, or their import paths as `module:name`.
CODECS: dict[str, Callable[..., Any] | str] = {
  'asymmetric': f'{_PACKAGE}scalar.asymmetric:Asymmetric',
  'bf16': bf16,
  'drive': f'{_PACKAGE}transforms.eden:drive',
  'e3m0': f'{_PACKAGE}scalar.e3m0:E3m0',
  'eden': f'{_PACKAGE}transforms.eden:eden',
  'eden3': f'{_PACKAGE}transforms.eden:eden3',
  'fp16': fp16,
  'fp8': f'{_PACKAGE}scalar.fp8:Fp8',
  'identity': identity,
  'minmax': f'{_PACKAGE}scalar.minmax:Minmax',
  'natural': f'{_PACKAGE}scalar.natural:Natural',
  'one_bit': f'{_PACKAGE}scalar.one_bit:OneBit',
  'qsgd': f'{_PACKAGE}scalar.qsgd:Qsgd',
  'sign': f'{_PACKAGE}scalar.sign:sign',
  'sparseloco': f'{_PACKAGE}sparse.sparseloco:SparseLoCo',
  'statistical': f'{_PACKAGE}scalar.statistical:Statistical',
  'stc': f'{_PACKAGE}sparse.stc:Stc',
  'ternary': ternary,
  'three_lc': f'{_PACKAGE}scalar.three_lc:three_lc',
  'threshold': f'{_PACKAGE}sparse.threshold:Threshold',
  'topk': f'{_PACKAGE}sparse.topk:TopK',
}

# Methods that are not a `coded.Code`: they have several rounds, keep state, or
# draw random numbers in `decode`.
METHODS = {
  'demo': f'{_PACKAGE}transforms.demo:Demo',
  'powersgd': f'{_PACKAGE}transforms.powersgd:PowerSGD',
  'randomk': f'{_PACKAGE}sparse.randomk:RandomK',
  'thc': f'{_PACKAGE}transforms.thc:Thc',
}

# Wrappers, written with a plus sign in front of a codec.
WRAPPERS = {
  'bidirectional': f'{_PACKAGE}wrappers.bidirectional:bidirectional',
  'diana': f'{_PACKAGE}wrappers.diana:Diana',
  'ef21': f'{_PACKAGE}wrappers.ef21:Ef21',
  'ef21_sgdm': f'{_PACKAGE}wrappers.ef21:Ef21Momentum',
  'error_feedback': f'{_PACKAGE}wrappers.error_feedback:ErrorFeedback',
  'momentum': f'{_PACKAGE}wrappers.momentum:momentum_correction',
  'one_bit_adam': f'{_PACKAGE}wrappers.one_bit_adam:one_bit_adam',
}

# The entry-point group in which other packages register codecs: a name, and the
# `module:function` that returns a `method.Method`.
ENTRY_POINTS = 'terngrad.codecs'

# Names from the literature. Options after an alias apply to its last codec.
ALIASES = {
  'dgc': 'momentum+topk:ratio=0.001',
  'ef_signsgd': 'error_feedback+sign',
  'int8': 'minmax:bits=8,group_size=0',
  'signsgd': 'sign:decide=majority',
}

# One spelling of each kind of code, for benchmarks that measure all of them.
KINDS = (
  'identity',
  'fp16',
  'ternary',
  'ternary:scaler_rule=stddev',
  'ternary:clip_factor=0',
  'ternary:dither=stratified,workers=8',
  'ternary:clip_factor=0,group_size=64',
  'ternary:group_size=512',
  'ternary:sharing=requantize',
  'ternary:packing=two_bit',
  'ternary:packing=radix,workers=8',
  'ternary:packing=radix,workers=8,word_bits=64',
  'ternary:packing=bitmap_sign',
  'ternary:packing=huffman243',
  'eden3',
  'drive',
  'eden:bits=2',
  'eden:bits=4',
  'sign',
  'one_bit',
  'asymmetric',
  'qsgd',
  'qsgd:levels=127,norm=l2',
  'minmax:bits=2',
  'minmax:bits=8',
  'natural',
  'bf16',
  'fp8',
  'fp8:kind=e5m2',
  'e3m0',
  'three_lc',
  'topk',
  'threshold',
  'stc',
  'sparseloco',
  'statistical',
)


def list_kinds() -> tuple[str, ...]:
  """Lists `KINDS`, without their `workers` options, and then `METHODS`."""
  return (*(text.replace(',workers=8', '') for text in KINDS), *METHODS)


def parse(text: str, workers: int = 0) -> 'coded_lib.Code':
  """Builds the codec that a command line names.

  Examples:
    >>> parse('ternary:clip_factor=2.5,packing=two_bit').name
    'clip_by_stddev(2.5) > ternarize > two_bit'

  Args:
    text: 'NAME' or 'NAME:option=value,option=value'.
    workers: number of workers, unless the text sets it.

  Raises:
    ValueError: a name, option or value is invalid (the message lists the valid
      ones), or the text names wrappers or a method that is not a `coded.Code`.
  """
  wrappers, plus, text = _expand_alias(text).rpartition('+')
  name, _ = spelling.split(text)
  makers = CODECS | METHODS | _external_codecs(name)
  spelling.check_name('codec', name, makers)
  made = _make(text, makers, workers)
  if wrappers or not isinstance(made, coded.Code):
    raise ValueError(
      'codec: expected a coded.Code without a wrapper, received '
      f'{wrappers + plus + text!r}. Choose another codec here; training '
      'accepts this one.'
    )
  return made


def method(
  text: str, workers: int = 0, extra: Mapping[str, str] | None = None
) -> 'methods.Method':
  """Builds the method that a command line names, and its wrappers.

  Examples:
    >>> method('error_feedback+ternary:clip_factor=0').name
    'error feedback > ternarize > base3'

  Args:
    text: as for `parse`; the name may also be in `METHODS` or `ALIASES`. Any
      number of `WRAPPERS` may precede it, each with its options and a plus
      sign.
    workers: N, number of workers, for codes and wrappers that depend on it; 0
      if it is unknown. A text that sets `workers` for its code is not changed.
    extra: codes that no package registers, by name: `module:function`.

  Raises:
    ValueError: a name, option or value is invalid (the message lists the valid
      ones), a wrapper does not support the method, or there are more workers
      than the text says.
  """
  check_names(text, extra)
  *wrappers, text = _expand_alias(text).split('+')
  name, _ = spelling.split(text)
  makers = CODECS | METHODS | _external_codecs(name) | dict(extra or {})
  made = coded.as_method(_make(text, makers, workers))
  if made.strata and made.strata < workers:
    raise ValueError(
      f'codec: expected workers={workers} or more, received {text}: further '
      'workers would have the draws of others. Correct the option, or leave it '
      'out.'
    )
  for wrapper in reversed(wrappers):
    made = _wrap(wrapper, made, workers)
  return made


def check_names(text: str, extra: Mapping[str, str] | None = None) -> None:
  """Refuses an unknown codec or wrapper, without importing TensorFlow.

  Args:
    text: as for `method`.
    extra: as for `method`.

  Raises:
    ValueError: a name is unknown or is in `extra` though terngrad has it, or a
      wrapper occurs twice. The message lists the known names, with aliases and
      those of other packages.
  """
  *wrappers, last = (
    spelling.split(part)[0] for part in _expand_alias(text).split('+')
  )
  ours = CODECS | METHODS | ALIASES
  if shadowed := {*ours, *WRAPPERS} & {*(extra or {})}:
    raise ValueError(
      f'codec: expected a name that terngrad does not have, received '
      f'{", ".join(shadowed)!r}. Choose another name for the code.'
    )
  known = ours | _external_codecs(last) | dict(extra or {})
  spelling.check_name('codec', last, known)
  for name in wrappers:
    if name not in WRAPPERS:
      raise ValueError(
        f'codec: expected one of {", ".join(WRAPPERS)} before +, received '
        f'{name!r}.{data_errors.did_you_mean(name, WRAPPERS)}'
      )
    if wrappers.count(name) > 1:
      raise ValueError(
        f'codec: expected {name} once, received it twice in {text!r}. Leave '
        'one out.'
      )


def _make(
  text: str, makers: Mapping[str, Callable[..., Any] | str], workers: int
) -> Any:
  """Builds the code of a text, which may be another package's.

  Raises:
    ValueError: as for `method`, or the location of another package's code
      cannot be imported, or calling it fails.
  """
  name, _ = spelling.split(text)
  if name in CODECS | METHODS:
    return spelling.make('codec', text, makers, workers=workers)
  maker = _import(name, makers[name])
  try:
    return spelling.make('codec', text, {name: maker}, workers=workers)
  except ValueError:
    raise
  except Exception as error:
    raise ValueError(
      f'codec {name}: expected {makers[name]!r} to make a code, received '
      f'{_describe(error)}. Correct it.'
    ) from error


def _import(
  name: str, location: Callable[..., Any] | str
) -> Callable[..., Any]:
  """Imports the maker of another package's code; any error is a ValueError."""
  try:
    maker = spelling.resolve(location)
  except Exception as error:
    raise ValueError(
      f'codec {name}: expected MODULE:NAME of a function or class that can be '
      f'imported, received {location!r} ({_describe(error)}). Correct it, or '
      'install the package that defines it.'
    ) from error
  if not callable(maker):
    raise ValueError(
      f'codec {name}: expected MODULE:NAME of a function or class, received '
      f'{location!r}, of type {type(maker).__name__}. Name one, such as '
      'predicted:Predicted.'
    )
  return maker


def _describe(error: Exception) -> str:
  """Returns an error's class and message, and the last line of the user's."""
  frame = errors.author_frame(traceback.extract_tb(error.__traceback__))
  where = (
    f', in {frame.filename}, line {frame.lineno}: {frame.line}' if frame else ''
  )
  return f'{type(error).__name__}: {error}{where}'


def _wrap(text: str, made: 'methods.Method', workers: int) -> 'methods.Method':
  name, _ = spelling.split(text)
  wrap = functools.partial(spelling.resolve(WRAPPERS[name]), made)
  return spelling.make('codec', text, {name: wrap}, workers=workers)


def _expand_alias(text: str) -> str:
  """Expands an alias in the last part of the text."""
  before, plus, last = text.rpartition('+')
  name, items = spelling.split(last)
  if name not in ALIASES:
    return text
  wrappers, between, code = ALIASES[name].rpartition('+')
  code, options = spelling.split(code)
  named = {item.partition('=')[0] for item in items}
  options = [o for o in options if o.partition('=')[0] not in named]
  code = ':'.join(filter(None, [code, ','.join([*options, *items])]))
  return f'{before}{plus}{wrappers}{between}{code}'


def _external_codecs(name: str) -> dict[str, str]:
  """Finds codecs of other packages; reads metadata only for unknown names."""
  return {} if name in CODECS | METHODS else external_codecs()


def external_codecs() -> dict[str, str]:
  """Finds the codecs that other packages register: `module:name` by name.

  Names that terngrad has are left out.
  """
  found = metadata.entry_points(group=ENTRY_POINTS)
  ours = CODECS | METHODS | ALIASES
  return {e.name: e.value for e in found if e.name not in ours}


def describe_names() -> str:
  """Returns sentences for --help: codes, aliases, other packages', wrappers."""
  external = external_codecs()
  packages = f', or of other packages, {_list(external)}' if external else ''
  wrappers = '+NAME:..., '.join(sorted(WRAPPERS))
  return (
    f'NAME is one of {_list(CODECS)}, or of the methods that parse_codec does '
    f'not take, {_list(METHODS)}, or an alias, {_list(ALIASES)}{packages}. '
    f'{wrappers}+NAME:... wrap the code NAME (docs/codecs.md).'
  )


def _list(names: Iterable[str]) -> str:
  return ', '.join(sorted(names))
