#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The hooks of scripts/hooks: a mail for what matters, a signed POST, and a failure where the answer is one.
set -euo pipefail
# shellcheck source=tests/house/assert.sh
. "$(dirname "$0")/assert.sh"
hooks=$repository/scripts/hooks
output=
cd "$work"
if ! command -v curl >/dev/null || ! command -v python3 >/dev/null; then
  echo "SKIP: curl or python3 is missing"
  exit 77
fi

event='{"job":"a","event":"state","state":"failed","reason":"it \"is\" so"}'
export MESHLOOM_JOB=a MESHLOOM_STATE=failed MESHLOOM_REASON='it "is" so'

printf '#!/bin/sh\ncat > "%s/mail"\n' "$work" >sendmail && chmod +x sendmail
export MESHLOOM_SENDMAIL=$work/sendmail
echo "$event" | "$hooks/mail.sh" me@example.org
for line in 'To: me@example.org' 'Subject: meshloom: a failed' "$event"; do
  grep -qxF "$line" mail || fail "no line $line in the mail"
done
rm mail
echo "$event" | MESHLOOM_STATE=running "$hooks/mail.sh" me@example.org
[ ! -e mail ] || fail "a mail for a job that runs"

# Answers the first POST with 200 and the second with 500, and keeps what came.
cat >server.py <<'PYTHON'
import http.server, json

class Handler(http.server.BaseHTTPRequestHandler):
    answers = [200, 500]

    def do_POST(self):
        body = self.rfile.read(int(self.headers["Content-Length"]))
        with open("posted", "w", encoding="utf-8") as file:
            json.dump({"body": body.decode(), "signature": self.headers["X-Meshloom-Signature"]}, file)
        self.send_response(self.answers.pop(0))
        self.end_headers()

    def log_message(self, *arguments):
        pass

server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
with open("port.new", "w", encoding="utf-8") as file:
    file.write(str(server.server_port))
import os
os.rename("port.new", "port")
server.handle_request()
server.handle_request()
PYTHON
python3 server.py &
for _ in $(seq 200); do [ -e port ] && break || sleep 0.05; done
url=http://127.0.0.1:$(cat port)/hook
printf 'a key\n' >key
echo "$event" | "$hooks/post.sh" "$url" key || fail "the POST has failed"
python3 - <<'PYTHON' || fail "the POST is $(cat posted)"
import hashlib, hmac, json
posted = json.load(open("posted", encoding="utf-8"))
expected = hmac.new(b"a key", posted["body"].encode(), hashlib.sha256).hexdigest()
assert posted["signature"] == "sha256=" + expected
event = json.loads(posted["body"])
assert (event["job"], event["state"], event["text"]) == ("a", "failed", 'meshloom: a failed: it "is" so'), event
PYTHON
! echo "$event" | "$hooks/post.sh" "$url" 2>/dev/null || fail "an answer of 500 is no failure"
grep -q '"signature": null' posted || fail "a signature without a key"
wait
! echo "$event" | "$hooks/post.sh" "$url" 2>/dev/null || fail "no server is no failure"
finish
