"""What people, schedulers and earlier runs wrote: texts."""

import json
import re
import zlib

from terngrad import errors
from terngrad.checkpoint import listing
from terngrad.cli import flags as command_lines
from terngrad.cluster import resolvers
from terngrad.cluster import spec
from terngrad.config import options
from terngrad.config import training
from terngrad.report import curves
from terngrad.sweep import definition
from terngrad.training import records
from tests.fuzzing.target import Target

# --- what runs leave


def _line(record):
  text = json.dumps(record)
  return f'{text[:-1]}, "crc32": "{zlib.crc32(text.encode()):08x}"}}\n'.encode()


def _with_crcs(random, content):
  """The lines with the checksums that they should have."""
  del random

  def mended(match):
    line = match[1] + b'}'
    return match[1] + b', "crc32": "%08x"}' % zlib.crc32(line)

  return re.sub(rb'(.*), "crc32": "[^"\n]*"}', mended, content)


def metrics():
  """metrics.jsonl, read for a report and to go on with."""

  def parse(content, folder):
    path = folder / records.FILE_NAME
    path.write_bytes(content)
    found = records.read(folder)
    plots = curves.plots(found, found)
    # One of 128, since these take a thousand times as long as reading.
    if zlib.crc32(content) % 128:
      return
    for plot in plots:
      curves.svg(plot)
    recorder = records.Recorder(folder, step=20)
    recorder.scalars(21, {'total_loss': 1.0})
    recorder.close()
    for event in folder.glob('events*'):
      event.unlink()

  lines = [
    _line({'step': step, 'total_loss': 2.5 / step, 'learning_rate': 0.1})
    for step in (1, 10, 20, 30)
  ]
  scored = _line(
    {'step': 20, 'accuracy': 0.5, 'examples': 100, 'sparsity': 0.3}
  )
  return Target(
    parse,
    [b''.join(lines), lines[0] + scored, b'{"step": 3, "total_loss": null}\n'],
    (),
    ['terngrad.training.records', 'terngrad.report.curves'],
    (
      *(b'"step": ', b'"total_loss": ', b'"accuracy": ', b'NaN', b'Infinity'),
      *(b'null', b'true', b'1e400', b'"crc32": "', lines[1], b'[]', b'{}'),
    ),
    _with_crcs,
  )


_LIST = b"""model_checkpoint_path: "model.ckpt-20"
all_model_checkpoint_paths: "model.ckpt-10"
all_model_checkpoint_paths: "model.ckpt-20"
all_model_checkpoint_timestamps: 1700000000.5
all_model_checkpoint_timestamps: 1700000009.25
last_preserved_timestamp: 1699999999.0
"""


def checkpoint_list():
  """TensorFlow's list of the checkpoints of a folder."""

  def parse(content, folder):
    for step in (10, 20):
      (folder / f'model.ckpt-{step}.index').touch()
    path = folder / 'checkpoint'
    path.write_bytes(content)
    listing.prefixes(folder)
    listing.repair(folder)
    if path.exists() and not listing.read(folder):
      raise AssertionError('a list that cannot be read was left')

  return Target(
    parse,
    [_LIST, _LIST.replace(b'model.ckpt', b'/somewhere/model.ckpt')],
    (),
    ['terngrad.checkpoint.listing'],
    (
      *(b'model_checkpoint_path', b': "', b'"\n', b'\\377', b'\\000', b'../'),
      *(b'all_model_checkpoint_paths: ""\n', b'other: 1\n', b'other { a: 1 }'),
    ),
  )


# --- clusters


def hosts():
  """A hosts file."""

  def parse(content, folder):
    del folder
    text = content.decode('utf-8', 'replace')
    spec.check_network(resolvers.from_hosts_text(text, 'worker', 0), True)

  return Target(
    parse,
    [
      b'ps a:2222\nworker b.example:2222  # chief\n[2001:db8::1]:65535\n',
      b'localhost:1\n127.0.0.1:2\n',
    ],
    (spec.ClusterError,),
    ['terngrad.cluster.spec', 'terngrad.cluster.resolvers'],
    (b'ps ', b'worker ', b'[::1]:1', b':2222', b'#', b'[fe80::1%eth0]:1'),
  )


def hosts_flags():
  """Hosts as flags."""

  def parse(content, folder):
    del folder
    ps, _, workers = content.decode('utf-8', 'replace').partition(';')
    found = spec.from_flags(ps, workers, 'worker', 0)
    spec.check_network(found, True)
    for address in found.jobs['worker']:
      spec.is_loopback(address)

  return hosts()._replace(
    parse=parse, seeds=[b'a:1,b:2;c:3,[::1]:4', b';localhost:1,b:2']
  )


def tf_config():
  """TF_CONFIG."""

  def parse(content, folder):
    del folder
    resolvers.from_tf_config(content.decode('utf-8', 'surrogateescape'))

  jobs = {'chief': ['a:1'], 'worker': ['b:2', 'c:3'], 'ps': ['d:4']}
  return Target(
    parse,
    [
      json.dumps(
        {'cluster': jobs, 'task': {'type': 'worker', 'index': 1}}
      ).encode(),
      json.dumps(
        {
          'cluster': {'worker': ['b:2']},
          'task': {'type': 'worker', 'index': '0'},
        }
      ).encode(),
    ],
    (spec.ClusterError,),
    ['terngrad.cluster.spec', 'terngrad.cluster.resolvers'],
    (
      *(b'"cluster": ', b'"task": ', b'"type": ', b'"index": ', b'"evaluator"'),
      *(
        b'"master"',
        b'"worker"',
        b'null',
        b'[]',
        b'{}',
        b'true',
        b'"\\ud800:1"',
      ),
    ),
  )


# --- flags and sweeps


def flags():
  """A flag file of a trainer, whose values are checked as it checks them."""

  def parse(content, folder):
    path = folder / 'base.flags'
    path.write_bytes(content)
    parsed = command_lines.parse(
      training.TrainConfig, {}, [f'--flagfile={path}']
    )
    parsed.values.validate()

  return Target(
    parse,
    [
      b'# LeNet\n--net=lenet\n--max_steps=100\n--num_nodes=2\n',
      b'--codec=topk:ratio=0.01\n--initial_learning_rate=0.1\n--momentum=0.9\n',
    ],
    (command_lines.UsageError, errors.ConfigError),
    ['terngrad.cli.flags', 'terngrad.config.options'],
    (
      *(b'--' + f.name.encode() for f in options.fields(training.TrainConfig)),
      *(
        b'=',
        b'\n',
        b'--flagfile=',
        b'--no',
        b'True',
        b'--undefok=',
        b'\n--\n',
      ),
    ),
  )


def sweep():
  """The definition of a sweep."""

  def parse(content, folder):
    path = folder / 'sweep.ini'
    path.write_bytes(content)
    (folder / 'x').write_text('--batch_size=4\n', encoding='utf-8')
    definition.read(path)

  return Target(
    parse,
    [
      b'[sweep]\nprogram = mnist\nseeds = 1 2\nbaseline = a_2\n[flags]\n'
      b'--max_steps = 20\n--quiet\n[codec]\na = --codec=identity\n'
      b'b = --codec=ternary --flagfile=x\n[workers]\n2 = --num_nodes=2\n'
      b'4 = --num_nodes=4\n[seeds]\nb_* = 3\n[baselines]\n*_4 = a_4\n'
      b'[eval]\n--split = test\n',
      b'# small\n[codec]\na =\nb = "--x=1 2"\n',
    ],
    (errors.ConfigError,),
    ['terngrad.sweep.definition'],
    (
      *(b'[sweep]\n', b'[flags]\n', b'[seeds]\n', b'[codec]\n', b'seeds = '),
      b'[baselines]\n',
      *(b'program', b'baseline = ', b' = ', b'\n  ', b'a_2', b'%(x)s', b'*'),
    ),
  )
