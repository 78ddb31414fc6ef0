#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Usage: meshloomd --on-event 'mail.sh ADDRESS'
#
# Mails what became of a job: by sendmail, or what MESHLOOM_SENDMAIL names. States on the way to the end are passed
# over, but for holds and recoveries.
set -eu
address=${1:?the address that gets the mail}
case ${MESHLOOM_STATE:?} in
  succeeded | failed | cancelled | held | recovering | watch) ;;
  *) exit 0 ;;
esac
{
  printf 'To: %s\nSubject: meshloom: %s %s\nContent-Type: application/json\n\n' "$address" "${MESHLOOM_JOB:?}" "$MESHLOOM_STATE"
  cat
} | "${MESHLOOM_SENDMAIL:-/usr/sbin/sendmail}" -t
