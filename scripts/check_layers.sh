#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/check_layers.sh [--root DIR] [--table FILE]
#
# Checks every #include below DIR (default: the repository) against the table of who may include what (default:
# scripts/layers.txt). Prints FILE:LINE and the reason for each include that the table does not allow, and
# exits 1 if there was one.
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

root=$repository
table=$repository/scripts/layers.txt
while [ $# -gt 0 ]; do
  case $1 in
    --root) root=${2:?} && shift ;;
    --table) table=${2:?} && shift ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
[ -r "$table" ] || die "cannot read the table $table"
table=$(cd "$(dirname "$table")" && pwd)/$(basename "$table")
cd "$root"

folders=()
for folder in proto kernels planner daemon tests; do
  [ -d "$folder" ] && folders+=("$folder")
done
[ ${#folders[@]} -gt 0 ] || die "no source folder below $root"

find "${folders[@]}" -type f \
  \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' \) -print0 | sort -z |
  xargs -0 -r grep -HnE '^[[:space:]]*#[[:space:]]*include[[:space:]]*[<"]' |
  awk -v table="$table" '
    function wrong_table(text) {
      printf "%s:%d: %s\n", table, table_line, text; bad = 1
    }

    # "+FOLDER": the folder and what it may include, as far as the lines above say.
    function allow_all_of(name, folder,   i, count, words) {
      if (!(folder in known)) { wrong_table("no entry above for " folder); return }
      count = split(list[folder], words, " ")
      for (i = 1; i <= count; ++i) allow(name, words[i])
      allow(name, folder)
    }

    function allow(name, folder) {
      if (folder == name || (name, folder) in allowed) return
      allowed[name, folder] = 1
      list[name] = list[name] " " folder
      used[folder] = table_line
    }

    function read_table(   line, colon, name, i, count, words) {
      while ((getline line < table) > 0) {
        ++table_line
        sub(/#.*/, "", line)
        if (line ~ /^[ \t]*$/) continue
        colon = index(line, ":")
        if (!colon) { wrong_table("expected \"FOLDER: FOLDER...\""); continue }
        name = substr(line, 1, colon - 1)
        count = split(substr(line, colon + 1), words, /[ \t]+/)
        if (name ~ /^library /) {
          sub(/^library +/, "", name)
          for (i = 1; i <= count; ++i) if (words[i] != "") library[name] = library[name] " " words[i]
          continue
        }
        if (name in known) wrong_table("second entry for " name)
        known[name] = 1
        for (i = 1; i <= count; ++i) {
          if (words[i] == "*") anything[name] = 1
          else if (words[i] ~ /^\+/) allow_all_of(name, substr(words[i], 2))
          else if (words[i] != "") allow(name, words[i])
        }
      }
      for (name in used)
        if (!(name in known)) { table_line = used[name]; wrong_table("no entry for " name) }
    }

    # The longest entry that is the path or a folder above it; "" where there is none.
    function owner(path) {
      while (!(path in known)) {
        if (!match(path, /\/[^\/]*$/)) return ""
        path = substr(path, 1, RSTART - 1)
      }
      return path
    }

    function below(path, folder) { return path == folder || index(path, folder "/") == 1 }

    function report(text) { printf "%s:%d: %s\n", file, line_number, text; bad = 1 }

    function check_quoted(from, target,   to) {
      if (target ~ /(^|\/)\.\.?\//) { report("\"" target "\" is not a path from the repository root"); return }
      if (target ~ /^v[0-9]+\//) target = "proto/" target
      to = owner(target)
      if (to == "") report("\"" target "\" is in no folder of the layer table (paths start at the repository root)")
      else if (from != to && !anything[from] && !((from, to) in allowed))
        report(from " may not include " to " (\"" target "\")")
    }

    function check_library(target,   name, i, count, words, fine) {
      for (name in library) {
        if (index(target, name) != 1) continue
        count = split(library[name], words, " ")
        fine = 0
        for (i = 1; i <= count; ++i) if (below(file, words[i])) fine = 1
        if (!fine) report("<" target "> belongs in" library[name] " only")
      }
    }

    BEGIN { read_table() }
    {
      match($0, /:[0-9]+:/)
      file = substr($0, 1, RSTART - 1)
      line_number = substr($0, RSTART + 1, RLENGTH - 2) + 0
      text = substr($0, RSTART + RLENGTH)
      from = owner(file)
      if (from == "") { report("is in no folder of the layer table"); next }
      match(text, /[<"][^>"]*[>"]/)
      target = substr(text, RSTART + 1, RLENGTH - 2)
      ++checked
      if (substr(text, RSTART, 1) == "\"") check_quoted(from, target)
      else check_library(target)
    }
    END {
      if (!bad) printf "layers: %d includes, all allowed\n", checked
      exit bad
    }'
