#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The layer check finds each kind of wrong include, by file and line, and lets right ones pass.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"
check=("$repository/scripts/check_layers.sh" --root "$work")

write kernels/base/shape.h '#include <vector>' '#include "kernels/base/dtype.h"'
write kernels/cpu/softmax.cpp '#include <hwy/highway.h>' '#include "kernels/backend.h"'
write planner/placement.cpp '#include "kernels/base/shape.h"'
write daemon/cli/client.cpp '#include "v1/job_service.grpc.pb.h"' '#include "daemon/base/config/parser.h"'
write tests/unit/softmax_test.cpp '#include "daemon/train/run/run.h"'
run "${check[@]}"
expect_status 0 "right includes"
expect_line "8 includes, all allowed" "right includes"

expect_refused() {
  run "${check[@]}"
  expect_status 1 "$1"
  expect_line "$2" "$1"
  rm "$work/${2%%:*}"
}

write kernels/base/up.h '// a comment' '#include "daemon/tensor/tensor.h"'
expect_refused "upward include" "kernels/base/up.h:2: kernels/base may not include daemon/tensor"
write kernels/cpu/high.cpp '#include "daemon/comm/work.h"'
expect_refused "kernels know no daemon" "kernels/cpu/high.cpp:1: kernels/cpu may not include daemon/comm"
write planner/compute.cpp '' '' '  #  include "kernels/backend.h"'
expect_refused "planner computes nothing" "planner/compute.cpp:3: planner may not include kernels"
write daemon/nn/linear.cpp '#include "daemon/comm/process_group.h"'
expect_refused "models know no ranks" "daemon/nn/linear.cpp:1: daemon/nn may not include daemon/comm"
write daemon/cli/run.cpp '#include "daemon/train/run/run.h"'
expect_refused "client knows no training" "daemon/cli/run.cpp:1: daemon/cli may not include daemon/train"
write daemon/tensor/wire.h '#include "v1/job.pb.h"'
expect_refused "tensors know no wire" "daemon/tensor/wire.h:1: daemon/tensor may not include proto"
write daemon/train/run/barrier.cpp '#include <mpi.h>'
expect_refused "MPI in one place" "daemon/train/run/barrier.cpp:1: <mpi.h> belongs in"
write daemon/train/run/near.cpp '#include "run.h"'
expect_refused "relative include" 'daemon/train/run/near.cpp:1: "run.h" is in no folder'
write daemon/train/run/dots.cpp '#include "daemon/train/../control/job.h"'
expect_refused "dots" 'daemon/train/run/dots.cpp:1: "daemon/train/../control/job.h" is not a path from'
write daemon/strange/new.h '#include <vector>'
expect_refused "unknown folder" "daemon/strange/new.h:1: is in no folder of the layer table"

write table.txt 'planner: kernels/nowhere'
run "${check[@]}" --table "$work/table.txt"
expect_status 1 "table with an unknown folder"
expect_line "table.txt:1: no entry for kernels/nowhere" "table with an unknown folder"
write table.txt 'planner: +kernels/base' 'kernels/base:'
run "${check[@]}" --table "$work/table.txt"
expect_status 1 "table with a folder before its entry"
expect_line "table.txt:1: no entry above for kernels/base" "table with a folder before its entry"
run "${check[@]}" --nonsense
expect_status 2 "unknown argument"
finish
