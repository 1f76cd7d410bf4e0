# shellcheck shell=bash disable=SC2034
# What scripts/run_dist_cifar10.sh starts, see config_dist.sh. It names the
# workspace, the data and the devices itself.
PS_HOSTS=(localhost:2222)
WORKER_HOSTS=(localhost:2224 localhost:2226)
WORKER_DEVICES=('' '')
DATA_DIR=('' '')
WORKER_SCRIPT=run_single_worker_cifarnet.sh
PS_SCRIPT=run_single_ps_cifar10.sh
WORKSPACE=~/dataset/results/cifar10
ALLOW_INSECURE_NETWORK=false
