#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/gpu_bundle.sh [--build-dir DIR] [--out FILE]
#
# Packs what scripts/gpu_check.sh runs on a machine with a GPU that has none of the Debian packages: the conformance
# runner and the benchmarks, stripped, the CUDA backend, the tests of kernels where they were built, and the libraries
# that ldd names for them but the C and C++ libraries; NVIDIA's come from beside PyTorch there. Fails, naming the file
# and what is large in it, above 34 MB: that machine takes no more beside the tree.
#
#   --build-dir DIR   what was built (default: build/cuda, which the preset cuda makes)
#   --out FILE        the archive (default: build/gpu-bundle.tar.xz)
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

build=$repository/build/cuda out=$repository/build/gpu-bundle.tar.xz
limit=34000000
while [ $# -gt 0 ]; do
  case $1 in
    --build-dir) build=$(realpath -m "${2:?"--build-dir needs a folder"}") && shift ;;
    --out) out=$(realpath -m "${2:?"--out needs a file"}") && shift ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done

programs=()
for name in meshloom-conformance meshloom-bench; do
  [ -x "$build/bin/$name" ] || die "$build/bin/$name is missing: build it first"
  programs+=("$build/bin/$name")
done
[ ! -x "$build/bin/unit_kernels_shared" ] || programs+=("$build/bin/unit_kernels_shared")
plugin=$(find "$build" -name libmeshloom_cuda.so -print -quit)
[ -n "$plugin" ] || die "there is no libmeshloom_cuda.so in $build: scripts/setup.sh --cuda, then build it with -DMESHLOOM_CUDA=ON"

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
folder=$work/gpu-bundle
place=$(realpath --relative-to="$build" "$(dirname "$plugin")")
mkdir -p "$folder/bin" "$folder/libraries" "$folder/$place"
for program in "${programs[@]}"; do
  strip -o "$folder/bin/$(basename "$program")" "$program"
done
strip --strip-unneeded -o "$folder/$place/libmeshloom_cuda.so" "$plugin"

# What glibc and gcc bring is there, and what NVIDIA's wheels bring too.
ldd "${programs[@]}" "$plugin" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' | sort -u | while IFS= read -r library; do
  case $(basename "$library") in
    libc.so.* | libm.so.* | libdl.so.* | librt.so.* | libpthread.so.* | ld-linux* | libstdc++.so.* | libgcc_s.so.*) ;;
    libcudart.so.* | libcublas*.so.* | libcudnn*.so.* | libnccl.so.* | libnvrtc*.so.*) ;;
    *) cp -L "$library" "$folder/libraries" ;;
  esac
done

mkdir -p "$(dirname "$out")"
tar -C "$work" --owner=0 --group=0 --sort=name -cf - gpu-bundle | xz -9 -T1 >"$work/bundle"
size=$(stat -c %s "$work/bundle")
if [ "$size" -gt "$limit" ]; then
  say "gpu_bundle: the largest files, unpacked:"
  find "$folder" -type f -printf '%10s %P\n' | sort -rn | sed -n 1,8p
  die "$out would have $size bytes, at most $limit are taken"
fi
mv "$work/bundle" "$out"
say "gpu_bundle: $out, $((size / 1000000)) MB, $(find "$folder/libraries" -type f | wc -l) libraries"
