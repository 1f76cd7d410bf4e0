"""scripts/run_multi_gpus_lenet.sh, with a stand-in for the programs."""

import os
import signal
import subprocess

import pytest

SCRIPT = 'run_multi_gpus_lenet.sh'
DATE = 'Thu Nov 21 03:33:07 UTC 2024'
NAME_32 = (
  'mnist_lenet_28_momentum_32_0.01_0.0_0_0.0005_0.9_1_64_4'
  '_Thu_Nov_21_03-33-07_UTC_2024'
)
NAME_1 = NAME_32.replace('_32_0.01_0.0_', '_1_0.01_2.5_')


@pytest.fixture
def lenet(project, tmp_path):
  """Returns a function that runs the script; results go to `work space`."""
  (tmp_path / 'work space').mkdir()

  def run(
    *arguments, trainer='true', evaluator='true', start=False, **variables
  ):
    python = project.program(
      tmp_path / 'fake python',
      'record "$@"\n'
      f'case $2 in *_train) {trainer} ;; *_eval) {evaluator} ;; esac',
    )
    variables = {
      'PYTHON': python,
      'ROOT_WORKSPACE': tmp_path / 'work space',
      'RUN_DATE': DATE,
    } | variables
    method = project.start if start else project.run
    return method(SCRIPT, *arguments, **variables)

  return run


def call_of(project, kind):
  (call,) = [c for c in project.calls() if c[1] == f'terngrad.bin.mnist_{kind}']
  return call


def last(call, flag):
  """Returns the value of the last --flag=value, which is the one that holds."""
  values = [a.partition('=')[2] for a in call if a.startswith(f'--{flag}=')]
  return values[-1] if values else None


def test_defaults_come_from_flag_files(project, lenet):
  status, _, err = lenet()
  assert (status, err) == (0, '')
  trainer = call_of(project, 'train')
  assert last(trainer, 'flagfile').endswith('/experiments/lenet/base.flags')
  assert {a.partition('=')[0] for a in trainer[2:]} == {
    '--flagfile',
    '--data_dir',
    '--train_dir',
  }
  evaluator = call_of(project, 'eval')
  assert last(evaluator, 'flagfile').endswith('/experiments/lenet/eval.flags')
  assert last(evaluator, 'max_steps') == '10000'
  assert last(evaluator, 'checkpoint_dir') == last(trainer, 'train_dir')


def test_folders_are_named_by_2017_scheme(project, lenet, tmp_path):
  lenet()
  workspace = tmp_path / 'work space'
  train_dir = workspace / 'mnist_training_data' / NAME_32
  assert last(call_of(project, 'train'), 'train_dir') == str(train_dir)
  eval_dir = workspace / 'mnist_eval_data' / NAME_32
  assert last(call_of(project, 'eval'), 'eval_dir') == str(eval_dir)
  assert train_dir.is_dir()
  assert eval_dir.is_dir()
  assert sorted(p.name for p in (workspace / 'mnist_info').iterdir()) == [
    f'eval_{NAME_32}_info.txt',
    f'training_{NAME_32}_info.txt',
  ]


def test_environment_overrides_flags_and_names(project, lenet):
  lenet(GRAD_BITS=1, CLIP_FACTOR=2.5, MAX_STEPS=7, VAL_BATCH_SIZE=50)
  trainer = call_of(project, 'train')
  assert last(trainer, 'grad_bits') == '1'
  assert last(trainer, 'train_dir').endswith(NAME_1)
  evaluator = call_of(project, 'eval')
  assert last(evaluator, 'batch_size') == '50'
  assert last(evaluator, 'max_steps') == '7'
  assert last(evaluator, 'grad_bits') is None


def test_flag_file_overrides_flags_and_names(project, lenet):
  file = project.root / 'experiments' / 'lenet' / 'terngrad.flags'
  lenet(TRAIN_FLAGFILE=file)
  trainer = call_of(project, 'train')
  assert last(trainer, 'flagfile') == str(file)
  assert last(trainer, 'train_dir').endswith(NAME_1)


# Each stands for one way in which a shell may take a value for code.
NASTY = [
  'a b  c',
  'a"b',
  "a'b",
  '$(touch executed)',
  '`touch executed`',
  '; touch executed',
  '*',
  '-n',
  'a\\nb',
  '',
]


@pytest.mark.parametrize('value', NASTY)
def test_values_arrive_as_they_are(project, lenet, tmp_path, value):
  lenet(EVAL_DEVICE=value, OPTIMIZER=value)
  assert last(call_of(project, 'eval'), 'device') == value
  assert last(call_of(project, 'train'), 'optimizer') == value
  assert not (tmp_path / 'executed').exists()


def test_folders_with_special_characters_work(project, lenet, tmp_path):
  folder = tmp_path / 'it\'s $(touch executed) "here"'
  folder.mkdir()
  status, _, err = lenet(ROOT_WORKSPACE=folder, DATA_DIR=folder)
  assert (status, err) == (0, '')
  assert last(call_of(project, 'train'), 'data_dir') == str(folder)
  assert (folder / 'mnist_training_data' / NAME_32).is_dir()
  assert not (tmp_path / 'executed').exists()


def test_slash_in_a_name_is_refused(project, lenet):
  status, _, err = lenet(OPTIMIZER='../../elsewhere')
  assert status == 2
  assert "expected: flags without '/'" in err
  assert project.calls() == []


def test_dry_run_prints_commands_and_makes_nothing(project, lenet, tmp_path):
  status, out, err = lenet('--dry_run', DATA_DIR='/a "b" $(touch executed)')
  assert (status, err) == (0, '')
  assert list((tmp_path / 'work space').iterdir()) == []
  # A shell that is given the lines does what the script would have done.
  subprocess.run(['bash', '-c', out], check=True, timeout=60, cwd=tmp_path)
  trainer = call_of(project, 'train')
  assert last(trainer, 'data_dir') == '/a "b" $(touch executed)'
  assert not (tmp_path / 'executed').exists()


def test_missing_workspace_is_refused(project, lenet, tmp_path):
  status, out, err = lenet(ROOT_WORKSPACE=tmp_path / 'nowhere')
  assert (status, out) == (2, '')
  assert 'expected: ROOT_WORKSPACE: a folder that exists' in err
  assert f'received: {tmp_path}/nowhere' in err
  assert 'remedy:' in err
  assert project.calls() == []


def test_missing_interpreter_is_refused(lenet):
  status, _, err = lenet(PYTHON='/nowhere/python')
  assert status == 2
  assert 'run scripts/setup.sh' in err


def test_missing_flag_file_is_refused(lenet):
  status, _, err = lenet(TRAIN_FLAGFILE='nowhere.flags')
  assert status == 2
  assert 'received: nowhere.flags' in err


def test_unknown_argument_is_refused(project, lenet):
  status, _, err = lenet('--dry-run')
  assert status == 2
  assert 'unknown argument: --dry-run' in err
  assert project.calls() == []


def test_status_is_the_trainers_and_evaluator_is_stopped(lenet):
  # The evaluator would read for ever: nobody writes to the pipe.
  status, _, err = lenet(trainer='exit 5', evaluator='read -r <>"$fifo"')
  assert status == 5
  assert 'the trainer failed with status 5' in err


def test_status_is_the_evaluators_when_the_trainer_succeeds(lenet):
  status, _, err = lenet(evaluator='exit 6')
  assert status == 6
  assert 'the evaluator failed with status 6' in err


def test_trainer_outlives_failed_evaluator(project, lenet, tmp_path):
  # The trainer goes on only when the evaluator is at its end.
  status, _, _ = lenet(
    trainer='read -r _ <"$fifo"; touch trained; exit 0',
    evaluator='echo end >"$fifo"; exit 6',
  )
  assert status == 6
  assert (tmp_path / 'trained').exists()


def test_output_goes_to_info_files(lenet, tmp_path):
  lenet(trainer='echo out; echo err >&2')
  file = tmp_path / 'work space' / 'mnist_info' / f'training_{NAME_32}_info.txt'
  assert file.read_text() == 'out\nerr\n'


@pytest.mark.parametrize(
  ('number', 'expected'),
  [(signal.SIGTERM, 143), (signal.SIGINT, 130), (signal.SIGHUP, 129)],
)
def test_signal_stops_both_children_and_no_other(
  project, lenet, tmp_path, number, expected
):
  wait = 'echo $$ >"$fifo"; read -r <>"$fifo.never"'
  os.mkfifo(f'{project.fifo}.never')
  stranger = subprocess.Popen(['cat'], stdin=subprocess.PIPE)
  process = lenet(trainer=wait, evaluator=wait, start=True)
  pids = [int(project.heard()) for _ in range(2)]
  process.send_signal(number)
  _, err = process.communicate(timeout=60)
  assert process.returncode == expected
  assert 'stopping trainer and evaluator' in err
  for pid in pids:
    with pytest.raises(ProcessLookupError):
      os.kill(pid, 0)
  assert stranger.poll() is None
  stranger.communicate(timeout=60)


def test_script_waits_for_children_that_save_on_termination(
  project, lenet, tmp_path
):
  saves = (
    'trap "touch saved; exit 0" TERM; echo $$ >"$fifo"; read -r <>"$fifo.never"'
  )
  os.mkfifo(f'{project.fifo}.never')
  process = lenet(trainer=saves, start=True)
  assert project.heard()
  process.terminate()
  process.communicate(timeout=60)
  assert process.returncode == 143
  assert (tmp_path / 'saved').exists()
