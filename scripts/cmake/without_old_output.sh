#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: without_old_output.sh COMMAND...
#
# Removes the file that stands behind -o in a compiler's command line, then runs the command.
previous=
for argument in "$@"; do
  [ "$previous" = -o ] && rm -f "$argument"
  previous=$argument
done
exec "$@"
