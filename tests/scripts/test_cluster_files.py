"""scripts/cluster/: what schedulers read."""

import copy
import json
import subprocess

import pytest
import yaml

from terngrad import signal_guard
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
  ((option, _, _, module, *words),) = project.calls()
  # Its flag files are named from where it starts.
  monkeypatch.chdir(conftest.ROOT)
  assert option == '--kill-on-bad-exit=1'
  assert module == 'terngrad.bin.cifar10_train'
  config = starters.parse(module, words)
  assert (config.cluster.exchange, config.cluster.cluster) == (
    'collective',
    'slurm',
  )
  assert (config.data.data_dir, config.model.seed) == ('/my data', 7)


def documents(name):
  return list(yaml.safe_load_all((FOLDER / name).read_text()))


def test_a_job_of_kubeflow_starts_tasks_of_its_tf_config(monkeypatch):
  policy, job = documents('kubeflow-tfjob.yaml')
  assert (policy['kind'], job['kind']) == ('NetworkPolicy', 'TFJob')
  specs = {n.lower(): s for n, s in job['spec']['tfReplicaSpecs'].items()}
  cluster = {
    name: [
      f'terngrad-{name}-{i}.default.svc:2222' for i in range(s['replicas'])
    ]
    for name, s in specs.items()
  }
  assert set(cluster) == {'ps', 'worker'}
  for name, addresses in cluster.items():
    index = len(addresses) - 1
    task = {'cluster': cluster, 'task': {'type': name, 'index': index}}
    monkeypatch.setenv('TF_CONFIG', json.dumps(task))
    (container,) = specs[name]['template']['spec']['containers']
    # What the operator looks for.
    assert container['name'] == 'tensorflow'
    _, _, module, *words = container['command']
    config = starters.parse(module, words)
    config.validate()
    assert config.cluster.tasks.address == addresses[index]


def kubernetes_documents():
  """Documents of all manifests that Kubernetes itself has schemas of."""
  found = [
    document
    for path in sorted(FOLDER.glob('*.yaml'))
    for document in documents(path.name)
  ]
  (job,) = (d for d in found if d['kind'] == 'TFJob')
  found.remove(job)
  # The operator knows what is around the templates of the pods.
  return found + [
    {'apiVersion': 'v1', 'kind': 'PodTemplate', 'template': each['template']}
    for each in job['spec']['tfReplicaSpecs'].values()
  ]


def pods():
  """The specifications of all pods of the manifests."""
  templates = [
    found.get('template') or found['spec'].get('template')
    for found in kubernetes_documents()
  ]
  return [template['spec'] for template in templates if template]


def test_pods_are_killed_later_than_a_trainer_ends_itself():
  found = pods()
  assert len(found) == 4
  for pod in found:
    (container,) = pod['containers']
    variables = {v['name']: v.get('value') for v in container['env']}
    own_end = int(variables[signal_guard.VARIABLE])
    assert pod['terminationGracePeriodSeconds'] == signal_guard.STOP_SECONDS
    assert own_end == (
      signal_guard.STOP_SECONDS - signal_guard.BEFORE_KILL_SECONDS
    )


def test_manifests_match_the_schemas_of_kubernetes():
  schemas = pytest.importorskip('kubernetes_validate')
  found = kubernetes_documents()
  assert len(found) == 7
  for version in ('1.25', schemas.latest_version()):
    for document in found:
      schemas.validate(document, version, strict=True)
    document = copy.deepcopy(found[-1])
    document['template']['spec']['containers'][0]['comand'] = []
    with pytest.raises(schemas.ValidationError, match='comand'):
      schemas.validate(document, version, strict=True)


def test_jobs_of_plain_kubernetes_name_all_their_tasks():
  policy, service, *jobs = documents('kubernetes.yaml')
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
