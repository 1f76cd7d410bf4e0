"""What a row says about the machine, and what a page says about all rows."""

import os
from concurrent import futures

import tensorflow as tf

from terngrad.machine import onednn
from terngrad.machine import processor
from terngrad.report import sweep_page
from terngrad.sweep import results


def test_a_row_names_the_gpus(monkeypatch):
  details = {'device_name': 'NVIDIA H100', 'compute_capability': (9, 0)}
  monkeypatch.setattr(
    tf.config, 'get_visible_devices', lambda kind: [kind] if kind else []
  )
  monkeypatch.setattr(
    tf.config.experimental, 'get_device_details', lambda device: details
  )
  found = results.provenance()['machine']
  assert found.endswith(' cores, NVIDIA H100 (compute capability 9.0)')


def test_a_row_names_what_results_depend_on(monkeypatch):
  monkeypatch.setenv('ONEDNN_MAX_CPU_ISA', 'AVX2')
  monkeypatch.delenv('XLA_FLAGS', raising=False)
  row = results.provenance()
  assert tuple(row) == sweep_page.PROVENANCE
  assert row['processor'] == processor.model()
  assert row['instructions'] == processor.instructions()
  state = 'on' if onednn.is_on() else 'off'
  assert row['switches'].startswith(f'oneDNN {state} ONEDNN_MAX_CPU_ISA=AVX2')
  assert row['machine'] == f'{processor.name()}, {os.cpu_count()} cores'
  assert row['tensorflow_build'].endswith((', CPU', ', GPU'))


def test_one_sweep_at_a_time_holds_the_lock(tmp_path):
  table = tmp_path / 'results.csv'
  table.write_text('0')

  def count():
    for _ in range(50):
      with results.lock(table):
        table.write_text(str(int(table.read_text()) + 1))

  with futures.ThreadPoolExecutor() as pool:
    for done in [pool.submit(count) for _ in range(4)]:
      done.result()
  assert table.read_text() == '200'
  assert os.listdir(tmp_path) == ['results.csv']


def test_without_git_the_commit_is_unknown(monkeypatch, tmp_path):
  monkeypatch.setenv('PATH', str(tmp_path))
  assert results.provenance()['commit'] == 'unknown'
