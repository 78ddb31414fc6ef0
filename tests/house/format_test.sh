#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The C++ files are in the form of clang-format 14. Skipped (exit code 77) if that version is not installed: another
# one formats differently, and a plain build needs none.
set -euo pipefail
repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
for tool in clang-format-14 clang-format; do
  if "$tool" --version 2>/dev/null | grep -q 'version 14\.'; then
    exec "$repository/scripts/lint.sh" format
  fi
done
echo "skipped: clang-format 14 is not installed (scripts/setup.sh --lint)"
exit 77
