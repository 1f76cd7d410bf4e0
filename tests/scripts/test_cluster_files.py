"""scripts/cluster/: what schedulers read."""

import subprocess

import yaml

from tests.cli import starters
from tests.scripts import conftest

FOLDER = conftest.ROOT / 'scripts' / 'cluster'


def test_slurm_script_starts_equal_processes(project, tmp_path, monkeypatch):
  fake = project.program(tmp_path / 'bin' / 'srun', 'record "$@"')
  subprocess.run(
    [FOLDER / 'slurm.sh', '--seed=7'],
    check=True,
    cwd=conftest.ROOT,
    env={
      'PATH': f'{fake.parent}:/usr/bin:/bin',
      'DATA_DIR': '/my data',
      'TRAIN_DIR': '/t',
    },
    timeout=60,
  )
  ((_, _, module, *words),) = project.calls()
  # Its flag files are named from where it starts.
  monkeypatch.chdir(conftest.ROOT)
  assert module == 'terngrad.bin.cifar10_train'
  config = starters.parse(module, words)
  assert (config.cluster.exchange, config.cluster.cluster) == (
    'collective',
    'slurm',
  )
  assert (config.data.data_dir, config.model.seed) == ('/my data', 7)


def test_manifest_is_yaml_of_a_policy_and_a_job():
  text = (FOLDER / 'kubeflow-tfjob.yaml').read_text()
  policy, job = yaml.safe_load_all(text)
  assert (policy['kind'], job['kind']) == ('NetworkPolicy', 'TFJob')
  assert set(job['spec']['tfReplicaSpecs']) == {'PS', 'Worker'}


def test_jobs_of_plain_kubernetes_name_all_their_tasks():
  text = (FOLDER / 'kubernetes.yaml').read_text()
  policy, service, *jobs = yaml.safe_load_all(text)
  assert (policy['kind'], service['kind']) == ('NetworkPolicy', 'Service')
  names = []
  for job in jobs:
    pod = job['spec']['template']
    assert pod['metadata']['labels'] == service['spec']['selector']
    assert pod['spec']['subdomain'] == service['metadata']['name']
    count = job['spec']['completions']
    assert (job['kind'], job['spec']['completionMode']) == ('Job', 'Indexed')
    assert job['spec']['parallelism'] == count
    (container,) = pod['spec']['containers']
    names.append([f'{job["metadata"]["name"]}-{i}' for i in range(count)])
    for index in range(count):
      words = [
        w.replace('$(TASK_ID)', str(index)) for w in container['command']
      ]
      module = 'terngrad.bin.cifar10_distributed_train'
      assert words[:3] == ['python', '-m', module]
      config = starters.parse(module, words[3:])
      config.validate()
      found = config.cluster
      assert (found.tasks.job, found.tasks.index) == (found.job_name, index)
  hosts = [
    [address.split('.')[0] for address in found.tasks.jobs[job]]
    for job in ('ps', 'worker')
  ]
  assert hosts == names
