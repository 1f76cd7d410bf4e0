#!/usr/bin/env bash
# `terngrad launch --split_dataset` by its older name: CIFAR-10 on this machine. From the
# environment: WORKSPACE, DATA_DIR, WORKER_DEVICES (--worker_devices), PYTHON.
set -euo pipefail
# shellcheck source=scripts/lib.sh
source "$(dirname -- "${BASH_SOURCE[0]}")/lib.sh"

check_known '--experiment= --check --dry_run --' "$@"
launch "--config=$root/scripts/config_dist_cifar10.sh" \
  "--workspace=${WORKSPACE:-$HOME/dataset/results/cifar10}" \
  "--split_dataset=${DATA_DIR:-$HOME/dataset/cifar10-data}" \
  "--worker_devices=${WORKER_DEVICES:-}" "$@"
