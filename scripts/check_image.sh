#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/check_image.sh [--suite bookworm|trixie] [--base IMAGE] [--cuda] [--keep]
#
# Builds the container image from the Dockerfile and runs `quickstart --fast` inside it as the image's own user.
# Uses Docker where its engine answers, else buildah (as root, without a container runtime). Where the base image
# cannot be pulled, debootstrap makes one. By hand, not in continuous integration: it takes 15 minutes or so.
#
#   --suite NAME   Debian version of the base: bookworm (12, default) or trixie (13)
#   --base IMAGE   another base image
#   --cuda         the image with the CUDA backend; the demo runs on this machine without a GPU, where `device: auto` is
#                  the CPU
#   --keep         keep the image (meshloom:check) afterwards
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

suite=bookworm base="" cuda=OFF keep=false
while [ $# -gt 0 ]; do
  case $1 in
    --suite) suite=${2:?"--suite needs a name"} && shift ;;
    --base) base=${2:?"--base needs an image"} && shift ;;
    --cuda) cuda=ON ;;
    --keep) keep=true ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
case $suite in
  bookworm) version=12 ;;
  trixie) version=13 ;;
  *) usage_error "unknown suite $suite" ;;
esac

image=meshloom:check
work=$(mktemp -d)
container=""
clean_up() {
  [ -z "$container" ] || buildah rm "$container" >/dev/null || true
  $keep || case ${engine:-} in
    docker) docker image rm -f "$image" >/dev/null 2>&1 || true ;;
    buildah) buildah rmi -f "localhost/$image" >/dev/null 2>&1 || true ;;
  esac
  rm -rf "$work"
}
trap clean_up EXIT

# A minimal Debian as an image, from packages alone.
make_base() {
  command -v debootstrap >/dev/null || die "cannot pull $base, and debootstrap is not installed"
  say "image: no registry answers; debootstrap makes a base from $suite"
  base=localhost/debian-base:$suite
  debootstrap --variant=minbase "$suite" "$work/root" ${DEBIAN_MIRROR:+"$DEBIAN_MIRROR"} >"$work/log" ||
    die "debootstrap failed: $(tail -n 3 "$work/log")"
  container=$(buildah from scratch)
  tar -C "$work/root" -cf "$work/root.tar" .
  buildah add "$container" "$work/root.tar" / >/dev/null
  buildah commit "$container" "$base" >/dev/null
  buildah rm "$container" >/dev/null
  container=""
  rm -rf "$work/root" "$work/root.tar"
}

check_with_docker() {
  docker build --tag "$image" --build-arg "BASE=${base:-debian:$version}" --build-arg "CUDA=$cuda" "$repository"
  docker image ls "$image"
  docker run --rm "$image" quickstart --fast | tee "$work/output"
}

# A job's `device: auto` is said where it is submitted.
check_device() {
  grep -qE '^ *device +cpu' "$work/output" || die "the demo does not say that its device is the CPU"
  say "image: without a GPU auto is cpu"
}

check_with_buildah() {
  # Neither user namespaces nor overlay mounts are needed this way.
  export BUILDAH_ISOLATION=chroot STORAGE_DRIVER=vfs
  [ -n "$base" ] || base=docker.io/library/debian:$version
  buildah inspect --type image "$base" >/dev/null 2>&1 || timeout 120 buildah pull "$base" >/dev/null 2>&1 ||
    { buildah inspect --type image "localhost/debian-base:$suite" >/dev/null 2>&1 && base=localhost/debian-base:$suite; } ||
    make_base
  buildah bud --tag "$image" --build-arg "BASE=$base" --build-arg "CUDA=$cuda" "$repository"
  container=$(buildah from "localhost/$image")
  say "image: $(du -shx "$(buildah mount "$container")" | cut -f 1) unpacked"
  # The entry point by name: buildah run does not use the image's.
  buildah run --user meshloom "$container" -- tini -- /opt/meshloom/share/meshloom/scripts/image/entrypoint.sh quickstart --fast |
    tee "$work/output"
}

if docker info >/dev/null 2>&1; then
  engine=docker
elif command -v buildah >/dev/null; then
  engine=buildah
else
  die "neither a Docker engine nor buildah is here"
fi
"check_with_$engine"
check_device
say "image: PASSED with $engine"
