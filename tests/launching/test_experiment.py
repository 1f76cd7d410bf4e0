"""What an experiment leaves on the machine that started it."""

import os
import pathlib

import pytest

from terngrad import errors
from terngrad.launching import configuration
from terngrad.launching import experiment as experiments


@pytest.fixture
def config(tmp_path):
  return configuration.Configuration(
    source='',
    ps_hosts=(),
    worker_hosts=('localhost:2222',),
    worker_devices=('',),
    data_dirs=('',),
    worker_script='/x',
    ps_script='/x',
    workspace=str(tmp_path),
    allow_insecure_network='false',
  )


def test_a_folder_that_cannot_be_made_is_refused(config, tmp_path):
  (tmp_path / 'run').touch()
  experiment = experiments.Experiment(config, 'run', [], hosts=None)
  with pytest.raises(errors.ConfigError, match='give a WORKSPACE that is wri'):
    experiment.record()


def test_a_latest_experiment_that_is_no_utf8_is_refused(config, tmp_path):
  (tmp_path / 'latest_experiment').write_bytes(b'a\xff\n')
  with pytest.raises(errors.ConfigError, match='invalid name of an exp'):
    experiments.latest(config)


def test_home_is_found_without_the_variable(monkeypatch):
  monkeypatch.setenv('HOME', '/a')
  assert configuration.expand_home('~/b') == '/a/b'
  assert configuration.expand_home('~root/b') == '~root/b'
  monkeypatch.delenv('HOME')
  assert configuration.expand_home('~/b') == f'{pathlib.Path.home()}/b'
  assert os.path.isabs(configuration.expand_home('~/b'))
