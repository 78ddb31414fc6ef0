#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: install_test.sh BUILD_DIR
#
# What cmake --install puts below a prefix, here /usr of a staging folder, lies in the folders that belong there and
# works: the programs, manual pages, completions, the demo with its configs, the Python package where it was built, and
# a daemon that the installed client starts and ends. What developers get is for examples_test.sh.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"
build=${1:?"a build folder is needed"}
prefix=$work/staging/usr
export XDG_STATE_HOME=$work/home
unset MESHLOOM_ADDRESS MESHLOOM_STATE_DIR

run env DESTDIR="$work/staging" cmake --install "$build" --prefix /usr --component Runtime
expect_status 0 "install"
run bash -c 'cd "$1" && ls -d ../* * share/meshloom/*' _ "$prefix"
for path in $output; do
  case $path in
    ../usr | bin | lib | share | share/meshloom/configs | share/meshloom/scripts) ;;
    *) fail "$path does not belong into /usr" ;;
  esac
done
run ls "$prefix/bin"
[ "$output" = $'meshloom\nmeshloomd' ] || fail "other programs than meshloom and meshloomd are installed"
! grep -qF "fenced device" "$prefix/bin/meshloomd" || fail "meshloomd holds a device of the tests"
for program in meshloom meshloomd; do
  run "$prefix/bin/$program" --version
  expect_status 0 "$program --version"
  grep -q '^\.TH ' "$prefix/share/man/man1/$program.1" || fail "no manual page of $program"
  bash -n "$prefix/share/bash-completion/completions/$program" || fail "bash completions of $program"
  grep -q "#compdef $program" "$prefix/share/zsh/site-functions/_$program" || fail "zsh completions of $program"
  grep -q "complete -c $program" "$prefix/share/fish/vendor_completions.d/$program.fish" ||
    fail "fish completions of $program"
done
grep -q 'meshloom up' "$prefix/share/man/man1/meshloom.1" || fail "the manual page lacks meshloom up"

scripts=$prefix/share/meshloom/scripts
[ -f "$scripts/../configs/jobs/quickstart.yaml" ] || fail "the job of the quickstart is not beside it"
run "$scripts/quickstart.sh" --help
expect_status 0 "quickstart.sh --help"
run env PATH="$prefix/bin:$PATH" "$scripts/image/entrypoint.sh" quickstart --no-such-argument
expect_status 2 "the image's quickstart"
expect_line "unknown argument --no-such-argument" "the image's quickstart"

if [ -d "$build/python/meshloom" ]; then
  package=$(echo "$prefix"/lib/python3.*/dist-packages)
  [ -f "$package/meshloom/__init__.py" ] || fail "the Python package is not in $package"
  # What it needs besides is checked by the tests of the package.
  if PYTHONPATH=$build/python /usr/bin/python3 -B -c 'import meshloom' 2>/dev/null; then
    run env PYTHONPATH="$package" /usr/bin/python3 -B -c 'import meshloom; print(meshloom.__file__)'
    expect_status 0 "import meshloom"
    expect_line "$package/meshloom/__init__.py" "import meshloom"
  fi
fi

if command -v mpirun >/dev/null; then
  run "$prefix/bin/meshloom" up --listen 127.0.0.1:0 --state-dir "$work/a state" --data-dir "$work"
  expect_status 0 "meshloom up"
  run "$prefix/bin/meshloom" down
  expect_status 0 "meshloom down"
fi
finish
