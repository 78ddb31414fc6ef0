#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/python/make_test_environments.sh [--dir DIR]
#
# Makes virtual environments with the oldest and the newest protobuf that the Python package works with, and with grpcio
# and numpy, from where pip takes packages. Prints what the package's tests know them by:
#
#   export "$(scripts/python/make_test_environments.sh)"
#   ctest --test-dir build/release -R e2e_python
#
# Environments that are there already are brought up to date.
#
#   --dir DIR   the folder that they lie in (default: build/test-environments)
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/../common.sh"

folder=$repository/build/test-environments
while [ $# -gt 0 ]; do
  case $1 in
    --dir) folder=$(realpath -m "${2:?"--dir needs a folder"}") && shift ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done

pythons=""
for versions in "4.21.*" "7.*"; do
  environment=$folder/protobuf-${versions%%.*}
  mkdir -p "$folder"
  /usr/bin/python3 -m venv "$environment" >&2
  "$environment/bin/python" -m pip install --quiet --disable-pip-version-check --only-binary=:all: --upgrade \
    "protobuf==$versions" grpcio numpy >&2
  "$environment/bin/python" -c "import google.protobuf, grpc
print('$environment: protobuf', google.protobuf.__version__, 'grpcio', grpc.__version__)" >&2
  pythons+=${pythons:+:}$environment/bin/python
done
say "MESHLOOM_TEST_PYTHONS=$pythons"
