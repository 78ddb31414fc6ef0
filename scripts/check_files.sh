#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Usage: scripts/check_files.sh [--root DIR] [--sizes]
#
# Checks the form of every source file below DIR (default: the repository): the licence line, #pragma once in
# headers, no tab or trailing blank, and no mark of unfinished work. The README of a folder names each source file in
# the folder, in code marks, and its tables of files name no other. Prints FILE:LINE and the reason, and exits 1 if
# there was one. A file of more than 500 lines is told and no error: it may well be one thing.
#
#   --sizes   instead print the longest files and functions and the number of lines by folder
set -euo pipefail
# shellcheck source=scripts/common.sh
. "$(dirname "$0")/common.sh"

root=$repository
mode=check
while [ $# -gt 0 ]; do
  case $1 in
    --root) root=${2:?} && shift ;;
    --sizes) mode=sizes ;;
    -h | --help) print_help && exit 0 ;;
    *) usage_error "unknown argument $1" ;;
  esac
  shift
done
cd "$root"

# All source files, null-separated; build trees and golden data are not sources.
source_files() {
  local top=()
  local name
  for name in proto kernels planner daemon examples configs scripts tests CMakeLists.txt Dockerfile .ci; do
    [ -e "$name" ] && top+=("$name")
  done
  find "${top[@]}" -path tests/golden -prune -o -type f \
    \( -name '*.h' -o -name '*.cpp' -o -name '*.cu' -o -name '*.cuh' -o -name '*.proto' -o -name '*.cmake' \
    -o -name '*.sh' -o -name '*.py' -o -name '*.supp' -o -name '*.yaml' -o -name 'CMakeLists.txt' -o -name 'Dockerfile' \
    -o -path '.ci/run' -o -path scripts/layers.txt \) -print0 | sort -z
}

check() {
  local bad=0
  check_form || bad=1
  check_readmes || bad=1
  [ "$bad" = 0 ] || exit 1
}

check_form() {
  source_files | xargs -0 -r awk '
    function report(line, text) { printf "%s:%d: %s\n", FILENAME, line, text; bad = 1 }
    function finish(   limit) {
      if (name == "") return
      if (!licence) { printf "%s:1: no line \"SPDX-License-Identifier: Apache-2.0\" at the top\n", name; bad = 1 }
      if (name ~ /\.(h|cuh)$/ && !once) { printf "%s:1: no #pragma once\n", name; bad = 1 }
      if (lines > 500) printf "note: %s has %d lines, more than 500\n", name, lines
    }
    FNR == 1 { finish(); name = FILENAME; licence = once = lines = 0; ++files }
    { lines = FNR }
    FNR <= 2 && /SPDX-License-Identifier: Apache-2\.0/ { licence = 1 }
    # Headers that Highway compiles once a target guard themselves.
    /^#pragma once$/ || /HWY_TARGET_TOGGLE/ { once = 1 }
    /\t/ { report(FNR, "tab") }
    /[ \t\r]$/ { report(FNR, "blank at the end of the line") }
    # The marks are spelled with brackets so that this file does not find itself.
    /[T]ODO|[F]IXME|[f]or now|[p]laceholder|[n]ot implemented/ { report(FNR, "mark of unfinished work") }
    END {
      finish()
      if (!bad) printf "files: %d source files, all in form\n", files
      exit bad
    }'
}

# What each README below the folders of code says of the files beside it. A source counts by its stem: a header and
# the source of the same name are one. A name with a path is of another folder and is not looked at.
check_readmes() {
  local top=()
  local name
  for name in kernels planner daemon tests/support examples scripts/cmake; do
    [ -d "$name" ] && top+=("$name")
  done
  [ ${#top[@]} -gt 0 ] || return 0
  find "${top[@]}" -printf '%y %p\n' | sort | awk '
    function report(readme, line, text) { printf "%s:%d: %s\n", readme, line, text; bad = 1 }
    function stem(name) { sub(/\..*/, "", name); return name }
    function is_source(name) { return name ~ /^[A-Za-z0-9_-]+(\.(h|cpp|cu|cuh|proto|cmake|in))+$/ }
    function is_name(word) { return word ~ /^[A-Za-z0-9_-]+$/ || word ~ /^[A-Za-z0-9_-]+\.\*$/ || is_source(word) }

    # "NAME/" is a folder, "NAME" and "NAME.*" are sources by their stem, all else is one file.
    function is_there(folder, word) {
      if (word ~ /\/./ || (folder, word) in entry) return 1
      sub(/\.\*$/, "", word)
      return (folder, word) in source
    }

    function read_words(folder, readme, number, text, in_file_column,   words, count, i) {
      count = split(text, words, /[^A-Za-z0-9_.*\/-]+/)
      for (i = 1; i <= count; ++i) {
        if (words[i] == "") continue
        if (is_name(words[i])) named[folder, stem(words[i])] = 1
        if (in_file_column && !is_there(folder, words[i])) report(readme, number, "no " words[i] " in " folder)
      }
    }

    # Every second part between code marks is code.
    function read_marked(folder, readme, number, text, in_file_column,   parts, count, i) {
      count = split(text, parts, "`")
      for (i = 2; i <= count; i += 2) read_words(folder, readme, number, parts[i], in_file_column)
    }

    # The column of a table that lists files, by the header; 0 where the table is about something else.
    function file_column(header,   cells, count, i) {
      count = split(header, cells, "|")
      for (i = 2; i < count; ++i) if (cells[i] ~ /^ *[Ff]iles?( |$)/) return i
      return 0
    }

    function read_readme(folder,   readme, line, number, in_block, in_table, column, cells) {
      readme = folder "/README.md"
      while ((getline line < readme) > 0) {
        ++number
        if (line ~ /^ *```/) { in_block = !in_block; continue }
        if (in_block) { read_words(folder, readme, number, line, 0); continue }
        read_marked(folder, readme, number, line, 0)
        if (line !~ /^\|/) { in_table = 0; continue }
        if (!in_table) { in_table = 1; column = file_column(line) }
        split(line, cells, "|")
        if (column) read_marked(folder, readme, number, cells[column], 1)
      }
      close(readme)
    }

    {
      path = substr($0, 3)
      name = path
      sub(/.*\//, "", name)
      folder = substr(path, 1, length(path) - length(name) - 1)
      if ($1 == "d") { entry[folder, name "/"] = 1; next }
      entry[folder, name] = 1
      if (name == "README.md") readmes[++readme_count] = folder
      if (is_source(name) && !((folder, stem(name)) in source)) {
        source[folder, stem(name)] = name
        stems[folder] = stems[folder] " " stem(name)
        ++source_count
      }
    }
    END {
      for (i = 1; i <= readme_count; ++i) {
        folder = readmes[i]
        read_readme(folder)
        count = split(stems[folder], list, " ")
        for (j = 1; j <= count; ++j)
          if (!((folder, list[j]) in named))
            report(folder "/README.md", 1, "does not name " source[folder, list[j]])
      }
      if (!bad) printf "readmes: %d READMEs name the %d files of their folders\n", readme_count, source_count
      exit bad
    }'
}

# A function ends at a } in the first column and starts at the last line before it that begins there and is
# not a comment, brace or namespace.
sizes() {
  say "lines by folder:"
  source_files | xargs -0 -r awk '
    { folder = FILENAME; if (!sub(/\/[^\/]*$/, "", folder)) folder = "."; ++lines[folder]; ++total }
    FNR == 1 { ++files[folder]; ++all }
    END {
      for (folder in lines) printf "%7d %4d files  %s\n", lines[folder], files[folder], folder | "sort -k4"
      close("sort -k4")
      printf "%7d %4d files  in all\n", total, all
    }'
  say "longest files:"
  source_files | xargs -0 -r awk '{ ++lines[FILENAME] }
    END { for (name in lines) printf "%7d %s\n", lines[name], name }' | sort -rn | sed -n 1,12p
  say "longest functions:"
  source_files | grep -zE '\.(h|cpp|cu|cuh)$' | xargs -0 -r awk '
    FNR == 1 { start = 0 }
    /^[A-Za-z_~]/ && !/^namespace|^struct|^class|^enum|^using|^constexpr|^extern/ { if (!start) start = FNR }
    /;[ \t]*$/ && /^[A-Za-z_]/ { start = 0 }
    /^}/ { if (start) printf "%7d %s:%d\n", FNR - start + 1, FILENAME, start; start = 0 }' |
    sort -rn | sed -n 1,15p
}

"$mode"
