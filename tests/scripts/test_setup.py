"""scripts/setup.sh, with a stand-in for Python that installs nothing."""

import os
import shutil
import signal

import pytest

# What setup.sh asks of an interpreter: its version, whether it can make virtual
# environments, to make one, and in there to run pip.
PYTHON = """
case "$*" in
  *version_info*) echo {version} ;;
  *'import ensurepip'*) {venv} ;;
  '-m venv'*)
    folder=${{*: -1}}
    rm -rf "$folder" && mkdir -p "$folder/bin" && cp "$0" "$folder/bin/python"
    record venv "$0" "$folder"
    ;;
  '-m pip'*) record "${{@:3}}" && {pip} ;;
  *) exit 99 ;;
esac
"""


@pytest.fixture
def python(project, tmp_path):
  """Returns a function that makes a stand-in and returns its path."""

  def make(version='3.11.4', venv='true', pip='true', name='fake python'):
    body = PYTHON.format(version=version, venv=venv, pip=pip)
    return project.program(tmp_path / 'bin' / name, body)

  return make


def path_without_python(tmp_path):
  """Returns a folder with the programs setup.sh needs, and no Python."""
  folder = tmp_path / 'bin'
  folder.mkdir(exist_ok=True)
  for name in (
    'bash cat cp cut dirname env flock mkdir mv rm sed seq sha256sum'.split()
  ):
    if shutil.which(name):
      (folder / name).symlink_to(shutil.which(name))
  return folder


def installs(project):
  return [call for call in project.calls() if '--editable' in call]


def test_first_run_installs_with_test_tools(project, python):
  status, out, err = project.run('setup.sh', PYTHON=python())
  assert (status, out) == (0, ''), err
  assert project.calls()[0] == ['venv', str(python()), f'{project.root}/.venv']
  (install,) = installs(project)
  assert install[-1] == '.[dev]'


def test_second_run_is_silent_and_does_nothing(project, python):
  project.run('setup.sh', PYTHON=python())
  before = project.calls()
  assert project.run('setup.sh') == (0, '', '')
  assert project.run('setup.sh', PYTHON=python()) == (0, '', '')
  assert project.calls() == before


@pytest.mark.parametrize(
  'name', ['setup.py', 'pyproject.toml', 'terngrad/version.py']
)
def test_changed_dependencies_install_into_same_environment(
  project, python, name
):
  project.run('setup.sh', PYTHON=python())
  with open(project.root / name, 'a') as file:
    file.write('# changed\n')
  assert project.run('setup.sh')[0] == 0
  assert len(installs(project)) == 2
  assert [call[0] for call in project.calls()].count('venv') == 1


def test_other_python_makes_environment_again(project, python):
  project.run('setup.sh', PYTHON=python())
  project.run('setup.sh', PYTHON=python('3.12.1', name='other'))
  assert [call[0] for call in project.calls()].count('venv') == 2


def test_moved_project_makes_environment_again(project, python, tmp_path):
  project.run('setup.sh', PYTHON=python())
  project.root = project.root.rename(tmp_path / 'moved')
  project.run('setup.sh', PYTHON=python())
  assert project.calls()[-3][-1] == str(tmp_path / 'moved' / '.venv')
  assert len(installs(project)) == 2


def test_gpu_extra_stays_installed(project, python):
  project.run('setup.sh', '--gpu', PYTHON=python())
  assert installs(project)[-1][-1] == '.[dev,gpu]'
  assert project.run('setup.sh') == (0, '', '')


def test_failed_installation_is_done_again(project, python):
  broken = python(pip='exit 7')
  assert project.run('setup.sh', PYTHON=broken)[0] == 7
  # The environment is made for this version, but its pip is still broken.
  shutil.copy(python(), project.root / '.venv' / 'bin' / 'python')
  assert project.run('setup.sh')[0] == 0
  assert len(installs(project)) == 1
  assert project.run('setup.sh') == (0, '', '')


def test_killed_installation_is_done_again(project, python):
  project.run('setup.sh', PYTHON=python())
  interpreter = project.root / '.venv' / 'bin' / 'python'
  file = project.root / 'setup.py'
  before = file.read_text()
  # A changed setup.py; pip kills its parent, setup.sh, half way.
  file.write_text(before + '# changed')
  shutil.copy(python(pip='kill -KILL $PPID'), interpreter)
  assert project.run('setup.sh')[0] == -signal.SIGKILL
  # Changed back, it looks like what was installed at first.
  file.write_text(before)
  shutil.copy(python(), interpreter)
  assert project.run('setup.sh')[0] == 0
  assert len(installs(project)) == 2
  assert project.run('setup.sh') == (0, '', '')


@pytest.mark.skipif(not shutil.which('flock'), reason='flock is not installed')
def test_two_at_once_install_once(project, python, tmp_path):
  os.mkfifo(tmp_path / 'go')
  go = os.open(tmp_path / 'go', os.O_RDWR)
  hold = python(pip='{ echo here >"$fifo"; read -r _ <"${fifo%/*}/go"; }')
  first = project.start('setup.sh', PYTHON=hold)
  assert project.heard() == 'here'
  second = project.start('setup.sh', PYTHON=hold)
  # Enough for two installations, should the second one make its own.
  os.write(go, 4 * b'go\n')
  for process in (first, second):
    process.communicate(timeout=60)
    assert process.returncode == 0
  os.close(go)
  assert len(installs(project)) == 1


def test_newest_python_that_runs_is_chosen(project, python, tmp_path):
  # A launcher may be on the PATH for a version that is not installed.
  project.program(tmp_path / 'bin' / 'python3.13', 'exit 127')
  chosen = python('3.12.9', name='python3.12')
  python('3.11.9', name='python3.11')
  status, _, err = project.run('setup.sh', PATH=path_without_python(tmp_path))
  assert status == 0, err
  assert project.calls()[0][1] == str(chosen)


@pytest.mark.parametrize('version', ['2.7.18', '3.9.18', '3.14.0'])
def test_python_out_of_bounds_is_refused(project, python, version):
  status, out, err = project.run('setup.sh', PYTHON=python(version))
  assert (status, out) == (2, '')
  assert 'expected: Python 3.10 to 3.13' in err
  assert f'which is Python {version}' in err
  assert 'remedy:' in err
  assert project.calls() == []


def test_no_python_at_all_is_explained(project, tmp_path):
  status, _, err = project.run('setup.sh', PATH=path_without_python(tmp_path))
  assert status == 2
  assert 'received: none' in err


def test_only_old_python_is_named(project, python, tmp_path):
  python('3.9.2', name='python3')
  status, _, err = project.run('setup.sh', PATH=path_without_python(tmp_path))
  assert status == 2
  assert 'received: python3 is 3.9.2' in err


def test_python_that_does_not_run_is_refused(project):
  status, _, err = project.run('setup.sh', PYTHON='/nowhere/python')
  assert status == 2
  assert 'received: PYTHON=/nowhere/python' in err


def test_missing_venv_module_is_explained(project, python):
  status, _, err = project.run('setup.sh', PYTHON=python(venv='exit 1'))
  assert status == 2
  assert 'apt-get install python3-venv' in err


@pytest.mark.parametrize('script', ['setup.sh', 'quickstart.sh'])
def test_unknown_argument_is_refused_with_usage(project, script):
  status, out, err = project.run(script, '--nonsense')
  assert (status, out) == (2, '')
  assert 'unknown argument: --nonsense' in err
  assert 'usage: ' in err


@pytest.mark.parametrize(
  'script',
  ['setup.sh', 'test.sh', 'quickstart.sh', 'run_multi_gpus_lenet.sh'],
)
def test_help_goes_to_standard_output(project, script):
  status, out, err = project.run(script, '--help')
  assert (status, err) == (0, '')
  assert 'usage: ' in out
