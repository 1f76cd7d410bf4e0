"""scripts/test.sh and quickstart.sh, with stand-ins for what they run."""

import os
import platform
import select
import shlex
import signal
import sys

import pytest


@pytest.fixture
def tools(project):
  """Returns a function that puts stand-ins in place of setup.sh and .venv."""

  def make(python='true', ruff='true'):
    project.program(project.root / 'scripts' / 'setup.sh', 'record setup')
    folder = project.root / '.venv' / 'bin'
    project.program(folder / 'python', f'record "$@"; {python}')
    project.program(folder / 'ruff', f'record ruff "$@"; {ruff}')

  return make


def modules(project):
  """Returns the modules that were run with -m, in order."""
  return [call[1] for call in project.calls() if call[0] == '-m']


def calls_of_tests(project):
  """Returns the calls of pytest for folders of tests, in order."""
  return [call for call in project.calls() if 'loadfile' in call]


def test_gate_runs_every_section_and_all_tests_last(project, tools):
  tools()
  status, out, _ = project.run('test.sh')
  assert status == 0
  assert out.endswith('everything passed\n')
  calls = [call[:2] for call in project.calls()]
  pytest_call = ['-m', 'pytest']
  assert calls[0] == ['setup']
  assert calls_of_tests(project)[-1][-1] == f'{project.root}/tests'
  # Two of these run at a time. The pytests: imports, bits, doctests, tests.
  assert sorted(calls[1:]) == [
    ['-m', 'mkdocs'],
    ['-m', 'mypy'],
    *([pytest_call] * 4),
    ['ruff', 'check'],
    ['ruff', 'format'],
  ]


@pytest.mark.parametrize('script', ['test.sh', 'quickstart.sh'])
def test_compiled_modules_are_kept_in_the_environment(project, tools, script):
  tools(
    python='record "${PYTHONDONTWRITEBYTECODE-none}" "$PYTHONPYCACHEPREFIX"'
  )
  project.run(script, PYTHONDONTWRITEBYTECODE='1')
  assert ['none', f'{project.root}/.venv/bytecode'] in project.calls()
  assert ['1', ''] not in project.calls()


def test_gate_exits_with_first_failure_and_runs_the_rest(project, tools):
  tools(python='exit 4', ruff='exit 3')
  status, out, _ = project.run('test.sh')
  assert status == 4
  failed = out.splitlines()[-1].partition('FAILED: ')[2]
  marks = '(not slow and not cluster and not gpu)'
  assert failed == (
    f'imports,tests/bits {marks},tests {marks},'
    'ruff check,ruff format,mypy,doctests,site'
  )
  assert len(project.calls()) == 9


def test_gate_checks_types_in_the_project_s_folder(project, tools):
  tools(python='record at "$PWD" "$2"')
  project.run('test.sh')
  calls = project.calls()
  assert ['at', str(project.root), 'mypy'] in calls
  assert ['at', str(project.root), 'pytest'] not in calls


def test_gate_that_is_stopped_ends_its_checks(project, tools):
  tools(
    python='case "$*" in *--doctest-modules*) '
    'echo "$$" >"$fifo"; exec tail -f /dev/null ;; esac'
  )
  process = project.start('test.sh')
  check = os.pidfd_open(int(project.heard()))
  process.terminate()
  process.communicate(timeout=project.TIMEOUT)
  assert process.returncode == -signal.SIGTERM
  ended, _, _ = select.select([check], [], [], project.TIMEOUT)
  os.close(check)
  assert ended


def test_gate_without_doctests_passes(project, tools):
  tools(python='case "$*" in *--doctest-modules*) exit 5 ;; esac')
  assert project.run('test.sh')[0] == 0


@pytest.mark.parametrize(
  ('arguments', 'sections'), [([], 2), (['--all'], 14)], ids=['gate', 'all']
)
def test_gate_runs_every_folder_of_tests_once(
  project, tools, arguments, sections
):
  tools()
  project.run('test.sh', *arguments)
  calls = calls_of_tests(project)
  root = f'{project.root}/tests'
  *parts, everything = [
    word for call in calls for word in call if word.startswith(root)
  ]
  assert everything == root
  ignored = {w for w in calls[-1] if w.startswith('--ignore=')}
  assert {f'--ignore={part}' for part in parts} < ignored
  assert len(set(parts)) == len(parts) == sections - 1


def test_gate_passes_if_some_part_has_no_selected_test(project, tools):
  tools(python='case "$*" in *"/tests/bits") exit 5 ;; esac')
  assert project.run('test.sh', '-k', 'a')[0] == 0


def test_gate_fails_if_no_test_is_selected(project, tools):
  tools(python='case "$*" in *loadfile*) exit 5 ;; esac')
  status, out, err = project.run('test.sh', '-k', 'misspelt')
  assert status == 5
  assert 'FAILED: tests' in out
  assert 'received -k misspelt' in err


def test_gate_leaves_out_marked_tests_without_all(project, tools):
  tools()
  project.run('test.sh')
  call = calls_of_tests(project)[-1]
  marks = 'not slow and not cluster and not gpu'
  assert call[call.index('-m', 1) + 1] == marks
  project.run('test.sh', '--all')
  assert marks not in calls_of_tests(project)[-1]
  assert '--all' not in calls_of_tests(project)[-1]


@pytest.mark.parametrize('preset', ['', '0'])
def test_gate_computes_as_programs_do_and_recorded_bits_without_onednn(
  preset, project, tools
):
  tools(python='record onednn "${TF_ENABLE_ONEDNN_OPTS:-}" "$*"')
  environment = {'TF_ENABLE_ONEDNN_OPTS': preset} if preset else {}
  project.run('test.sh', **environment)
  switches = {
    words.split()[-1].rpartition('/')[2]: switch
    for name, switch, words in (
      call for call in project.calls() if call[:1] == ['onednn']
    )
  }
  assert switches['bits'] == '0'
  on = '1' if platform.machine() == 'x86_64' else ''
  assert switches['tests'] == (preset or on)


def test_gate_passes_arguments_to_pytest_with_absolute_paths(
  project, tools, tmp_path
):
  tools()
  (tmp_path / 'test_a.py').touch()
  project.run('test.sh', '-k', 'a or b', 'test_a.py::test_b')
  call = calls_of_tests(project)[-1]
  assert call[-3:] == ['-k', 'a or b', f'{tmp_path}/test_a.py::test_b']
  assert f'{project.root}/tests' not in call


def test_gate_ends_and_names_the_test_whose_process_is_killed(
  project, tools, tmp_path
):
  real = f'{shlex.quote(sys.executable)} "$@"'
  tools(python=f'case "$*" in *loadfile*) {real} ;; esac')
  (project.root / 'pyproject.toml').touch()
  (tmp_path / 'test_a.py').write_text(
    'import os, signal\n'
    'def test_before(): pass\n'
    'def test_killed(): os.kill(os.getpid(), signal.SIGKILL)\n'
    'def test_after(): pass\n'
  )
  status, out, _ = project.run('test.sh', 'test_a.py')
  assert status != 0
  assert "crashed while running '::test_killed'" in out
  assert out.endswith('FAILED: tests (not slow and not cluster and not gpu)\n')


def test_quickstart_trains_and_evaluates_both_then_compares(
  project, tools, tmp_path
):
  tools()
  status, _, err = project.run('quickstart.sh', QUICKSTART_DIR='a "b"', STEPS=7)
  assert (status, err) == (0, '')
  assert modules(project) == [
    'slim.download_and_convert_data',
    'terngrad.bin.mnist_train',
    'terngrad.bin.mnist_eval',
    'terngrad.bin.mnist_train',
    'terngrad.bin.mnist_eval',
    'terngrad.bin.compare_runs',
    'terngrad.cli.main',
  ]
  folder = tmp_path / 'a "b"'
  _, convert, float32, _, ternary, _, compare, hosts = project.calls()
  assert f'--dataset_dir={folder}/mnist' in convert
  assert not any(word.startswith('--source_dir') for word in convert)
  assert f'--train_dir={folder}/float32/train' in float32
  assert '--max_steps=7' in float32
  lenet = project.root / 'experiments' / 'lenet'
  assert set(ternary) - set(float32) == {
    f'--flagfile={lenet}/terngrad.flags',
    f'--train_dir={folder}/ternary/train',
  }
  quoted = str(folder).replace('"', '""')
  runs = f'--runs="float32={quoted}/float32","ternary={quoted}/ternary"'
  assert runs in compare and runs in hosts
  # What base.flags says, which the prediction needs.
  base = (lenet / 'base.flags').read_text(encoding='utf-8').split()
  assert {'--net=lenet', '--num_nodes=4'} <= {*base} & {*hosts}


def test_quickstart_takes_data_from_a_folder(project, tools):
  tools()
  project.run('quickstart.sh', MNIST_SOURCE_DIR='/my data')
  assert '--source_dir=/my data' in project.calls()[1]


def test_quickstart_stops_at_first_failure(project, tools):
  tools(python='case $2 in *_train) exit 6 ;; esac')
  assert project.run('quickstart.sh')[0] == 6
  assert modules(project)[-1] == 'terngrad.bin.mnist_train'


def test_quickstart_passes_on_the_output_of_programs(project, tools):
  tools(python='echo "error: x" >&2')
  _, _, err = project.run('quickstart.sh')
  assert err == 'error: x\n' * 7


@pytest.mark.parametrize('steps', ['0', '-1', '1.5', 'many', '$(touch x)'])
def test_quickstart_refuses_bad_steps(project, tools, steps):
  tools()
  status, _, err = project.run('quickstart.sh', STEPS=steps)
  assert status == 2
  assert f'received: STEPS={steps}' in err
  assert project.calls() == []
