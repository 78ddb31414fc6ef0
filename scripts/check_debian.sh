#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/check_debian.sh [--cache DIR] [--only walk|test] bookworm|trixie
#
# Proves the README on a fresh Debian: debootstrap makes a minimal system in a folder, the last commit of this repository
# is cloned into it, and scripts/walk_readme.sh (all that the README tells to type, scripts/quickstart.sh first) and
# scripts/test.sh run there as root with a clean environment. Nothing of it stays. By hand, as root, not in continuous
# integration: an hour or so on two cores. The last line says PASSED or FAILED.
#
#   --cache DIR   keep Debian's packages and the compiler's results (ccache) in DIR, for the next run
#   --only NAME   only one of the two commands
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

suite="" cache="" commands=(walk test)
while [ $# -gt 0 ]; do
  case $1 in
    --cache) cache=$(realpath -m "${2:?"--cache needs a folder"}") && shift ;;
    --only) commands=("${2:?"--only needs walk or test"}") && shift ;;
    -h | --help) print_help && exit 0 ;;
    bookworm | trixie) suite=$1 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
[ -n "$suite" ] || usage_error "expected bookworm or trixie"
case ${commands[0]} in
  walk | test) ;;
  *) usage_error "--only is \"${commands[0]}\", expected walk or test" ;;
esac
[ "$(id -u)" = 0 ] || die "needs root: debootstrap and chroot do"
command -v debootstrap >/dev/null || die "debootstrap is not installed"

work=$(mktemp -d)
root=$work/root
part="making a fresh $suite"
report() {
  local status=$?
  # The mounts went with their namespace; whatever is still mounted here would be deleted with the folder.
  if grep -qF " $root" /proc/self/mounts; then
    say "check_debian: $root is still mounted and stays"
  else
    rm -rf "$work"
  fi
  if [ $status = 0 ]; then
    say "check_debian: PASSED, $suite, ${commands[*]}, ${SECONDS} s"
  else
    say "check_debian: FAILED while $part, $suite (exit code $status), ${SECONDS} s"
  fi
}
trap report EXIT

make_system() {
  local options=(--variant=minbase)
  if [ -n "$cache" ]; then
    mkdir -p "$cache/$suite/base" "$cache/$suite/packages/partial" "$cache/ccache"
    options+=(--cache-dir="$cache/$suite/base")
  fi
  debootstrap "${options[@]}" "$suite" "$root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$work/log" ||
    die "debootstrap failed: $(tail -n 3 "$work/log")"
  git clone --quiet --no-hardlinks "$repository" "$root/root/meshloom"
  say "check_debian: $suite at $(git -C "$root/root/meshloom" log -1 --format=%h)"
}

# Runs a command inside, in namespaces of its own: its processes and mounts end with it. Of the environment only what
# apt needs to reach its mirror goes along.
run_inside() {
  # What is in single quotes is the inner shell's.
  # shellcheck disable=SC2016
  unshare --mount --pid --fork --kill-child bash -euc '
    root=$1 cache=$2 && shift 2
    mount -t proc proc "$root/proc"
    mount --rbind /sys "$root/sys"
    mount --rbind /dev "$root/dev"
    mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
    if [ -n "$cache" ]; then
      mkdir -p "$root/root/.cache/ccache"
      mount --bind "$cache/ccache" "$root/root/.cache/ccache"
      mount --bind "$packages" "$root/var/cache/apt/archives"
    fi
    exec chroot "$root" /usr/bin/env -i HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin \
      LANG=C.UTF-8 TERM=dumb ${http_proxy:+"http_proxy=$http_proxy"} ${https_proxy:+"https_proxy=$https_proxy"} \
      bash -c "cd /root/meshloom && exec \"\$@\"" inside "$@"' \
    unshared "$root" "$cache" "$@" </dev/null
}

make_system
export packages=$cache/$suite/packages
for command in "${commands[@]}"; do
  part="running $command"
  case $command in
    walk) run_inside scripts/walk_readme.sh ;;
    test) run_inside scripts/test.sh ;;
  esac
done
