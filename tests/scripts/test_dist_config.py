"""What `terngrad launch`, and so scripts/run_dist.sh, refuses of a file."""

import os

import pytest

from terngrad.cli import main
from tests.scripts import launcher

HOSTS, LOCAL = launcher.HOSTS, launcher.LOCAL


@pytest.mark.parametrize(
  ('hosts', 'words', 'message'),
  [
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=()\n', {}, 'WORKER_HOSTS: one or more'),
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(b:1)\n', {}, 'WORKER_DEVICES: one per wor'),
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(a:1 b:1)\n', {}, 'received: a:1 and a:1'),
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(b:1 c:0)\n', {}, 'received: c:0'),
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(b:1 c:65536)\n', {}, 'received: c:65536'),
    ('PS_HOSTS=(a:1)\nWORKER_HOSTS=(b:1 c)\n', {}, 'received: c\n'),
    ("PS_HOSTS=('-oProxyCommand=x:1')\nWORKER_HOSTS=(b:1 c:1)\n", {}, '-oPr'),
    ("PS_HOSTS=('a b:1')\nWORKER_HOSTS=(b:1 c:1)\n", {}, 'received: a b:1'),
    ("PS_HOSTS=('a,b:1')\nWORKER_HOSTS=(b:1 c:1)\n", {}, 'received: a,b:1'),
    (
      "PS_HOSTS=('a:x[$(touch executed)]')\nWORKER_HOSTS=(b:1 c:1)\n",
      {},
      'a:x[',
    ),
    ('PS_HOSTS=(localhost:1)\nWORKER_HOSTS=(b:1 c:1)\n', {}, 'localhost only'),
    (
      'PS_HOSTS=(localhost:1)\nWORKER_HOSTS=(127.999.0.1:1 localhost:2)\n',
      {},
      'localhost only',
    ),
    ('PS_HOSTS=(a:1\n', {}, "line 2: WORKER_DEVICES=('' 0,1)"),
    (HOSTS, {'ALLOW_INSECURE_NETWORK': 'false'}, 'docs/security.md'),
    (HOSTS, {'ALLOW_INSECURE_NETWORK': 'yes'}, 'received: yes'),
    (LOCAL, {'WORKER_DEVICES': "(0 '$(touch executed)')"}, 'received: $(touch'),
    (LOCAL, {'WORKER_DEVICES': '(0 1 2)'}, 'received: 3'),
    (LOCAL, {'DATA_DIR': '(/a)'}, 'DATA_DIR: one per worker, 2'),
    (LOCAL, {'DATA_DIR': '(/a b)'}, "received: 'b'"),
    (LOCAL, {'DATA_DIR': '(/a $(touch executed))'}, 'received: line 4'),
    (LOCAL, {'WORKSPACE': '$(touch executed)'}, 'received: line 7'),
    (LOCAL, {'WORKSPACE': '"$HOME'}, 'received: line 7'),
    (LOCAL, {'WORKSPACE': '`touch executed`'}, 'received: line 7'),
    (LOCAL, {'WORKSPACE': '/a; touch executed'}, 'received: line 7'),
    (LOCAL, {'WORKSPACE': "/a'b'(c)"}, 'expected: a space after a word'),
    (LOCAL, {'WORKSPACE': '(/a)'}, 'expected: a list only for'),
    (LOCAL, {'WORKSPACE': ''}, 'received: line 7'),
    (LOCAL, {'WORKSPACE': "'/a\x1b[2J'"}, 'without control characters'),
    (LOCAL, {'WORKSPACE': "'~user/a'"}, 'a path that begins with /'),
    (LOCAL, {'WORKER_SCRIPT': '../x'}, "received: '../x'"),
    (LOCAL, {'WORKER_SCRIPT': "''"}, "received: ''"),
    (LOCAL, {'PATH': '/tmp'}, 'received: line 9: PATH=/tmp'),
    (LOCAL, {'touch executed\nA': 'b'}, 'received: line 9: touch executed'),
    (LOCAL + 'PS_HOSTS=(a:1)\n', {}, 'PS_HOSTS again'),
    ('PS_HOSTS=(a:1)\n', {}, 'expected: WORKER_HOSTS'),
  ],
)
def test_bad_configuration_is_refused_before_any_host_is_reached(
  cluster, tmp_path, monkeypatch, capsys, hosts, words, message
):
  cluster.write(hosts, **words)
  # In this process, which takes a hundredth of the time of the script.
  monkeypatch.chdir(tmp_path)
  monkeypatch.setenv('PATH', f'{cluster.ssh.parent}:{os.environ["PATH"]}')
  monkeypatch.setenv('HOME', str(cluster.home))
  scripts = cluster.project.root / 'scripts'
  status = main.run(
    ['launch', f'--scripts={scripts}', f'--config={cluster.config}']
  )
  out, err = capsys.readouterr()
  assert (status, out) == (2, '')
  assert message in err
  assert 'remedy:' in err
  assert cluster.ssh_calls() == cluster.project.calls() == []
  assert list(cluster.workspace.iterdir()) == []
  assert not list(tmp_path.rglob('executed'))


def test_the_script_refuses_a_bad_configuration_and_runs_no_word_of_it(
  cluster, tmp_path
):
  cluster.write(LOCAL, DATA_DIR='(/a $(touch executed))')
  status, out, err = cluster.run()
  assert (status, out) == (2, '')
  assert 'received: line 4' in err
  assert cluster.ssh_calls() == cluster.project.calls() == []
  assert not list(tmp_path.rglob('executed'))


def test_configuration_of_the_project_is_read(project):
  status, out, err = project.run('run_dist.sh', '--dry_run', '--experiment=e')
  assert (status, err) == (0, '')
  assert len(out.splitlines()) == 3
