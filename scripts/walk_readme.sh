#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/walk_readme.sh [--build-dir DIR] [--work-dir DIR]
#
# Does what a newcomer does with README.md: copies its blocks of shell commands and runs them one after the other in one
# shell, which ends at the first command that fails, and says how long each took. The first block installs, builds and
# trains; where --build-dir names what was built, the fast quickstart takes its place. The daemons that the blocks leave
# are ended. Blocks marked bash instead of sh need a GPU and are left out.
#
#   --build-dir DIR   use the programs in DIR/bin: install and build nothing
#   --work-dir DIR    a new folder, which stands for that of the clone and stays (default: the clone itself, or with
#                     --build-dir a temporary one)
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

build_dir="" work=""
while [ $# -gt 0 ]; do
  case $1 in
    --build-dir) build_dir=$(cd "${2:?"--build-dir needs a folder"}" && pwd) && shift ;;
    --work-dir) work=$(realpath -m "${2:?"--work-dir needs a folder"}") && shift ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done

script=$(mktemp)
temporary=""
clean_up() {
  local status=$? folder
  trap '' INT TERM HUP
  for folder in "$work"/meshloom-state "$work"/build/quickstart/state; do
    [ ! -e "$folder/launch.json" ] || "$work/build/release/bin/meshloom" --state-dir "$folder" down --force || true
  done
  rm -f "$script"
  [ -z "$temporary" ] || rm -rf "$temporary"
  if [ $status = 0 ]; then
    say "walk_readme: PASSED, ${SECONDS} s"
  else
    say "walk_readme: FAILED (exit code $status), ${SECONDS} s"
  fi
}
trap clean_up EXIT
trap 'exit 130' INT
trap 'exit 143' TERM
trap 'exit 129' HUP

if [ -z "$work" ]; then
  work=$repository
  [ -z "$build_dir" ] || work=$(mktemp -d) temporary=$work
fi
if [ "$work" != "$repository" ]; then
  mkdir -p "$work/build"
  ln -s "$repository/configs" "$repository/scripts" "$work"
  ln -s "${build_dir:-$repository/build/release}" "$work/build/release"
fi

# Each block, its heading before it and its time behind it.
awk -v first="${build_dir:+scripts/quickstart.sh --fast --build-dir build/release --work-dir build/quickstart}" '
  /^## / && !inside { heading = substr($0, 4) }
  /^```sh$/ { inside = 1; ++blocks; printf "begin_block %d \"%s\"\n", blocks, heading
              skipped = blocks == 1 && first != ""; if (skipped) print first; next }
  /^```$/ && inside { inside = 0; print "end_block"; next }
  inside && !skipped
  END { if (blocks == 0) exit 1 }' "$repository/README.md" >"$script"

# What a login shell of a newcomer does not have is not there either.
cd "$work"
unset MESHLOOM_ADDRESS MESHLOOM_STATE_DIR
export XDG_STATE_HOME=${temporary:-$work/build}/walk-state
bash -c '
  set -euo pipefail
  begin_block() { block="$1, $2" begun=$SECONDS; echo "walk_readme: block $block"; }
  end_block() { echo "walk_readme: block $block took $((SECONDS - begun)) s"; }
  trap "echo \"walk_readme: in block \$block, line \$LINENO of the blocks\"" ERR
  . "$1"' walk "$script" </dev/null
