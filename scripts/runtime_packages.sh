#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/runtime_packages.sh PROGRAM...
#
# Prints the Debian packages that hold the shared libraries which the programs load, one a line: what a machine
# or image needs that only runs them. Package names differ between Debian versions, so they are looked up.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

case ${1:-} in
  -h | --help) print_help && exit 0 ;;
  "" | -*) usage_error "expected programs, got \"${1:-}\"" ;;
esac

libraries=$(ldd "$@" | awk '/not found/ { print "missing: " $1 > "/dev/stderr"; bad = 1 }
  $2 == "=>" && $3 ~ /^\// { print $3 }
  END { exit bad }' | sort -u)
# A library may be recorded by its path through a link (/lib) or behind it (/usr/lib).
while IFS= read -r library; do
  real=$(realpath "$library")
  dpkg-query -S "$real" 2>/dev/null || dpkg-query -S "$library" 2>/dev/null ||
    dpkg-query -S "${real#/usr}" 2>/dev/null || die "no package holds $library"
done <<<"$libraries" | sed 's/:.*//' | sort -u
