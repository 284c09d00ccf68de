"""Requests made from `/openapi.json`, right and wrong ones: `python fuzz_http.py http://127.0.0.1:PORT MODEL SECONDS`.

No answer may be a 5xx. The requests come in the same order each time; how far they get depends on the machine.
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

BASE, MODEL, SECONDS = sys.argv[1:4]


def get(path):
    with urllib.request.urlopen(BASE + path) as reply:
        return reply.read()


def wait():
    """Until the model is loaded."""
    for _ in range(1200):
        try:
            return get("/health")
        except urllib.error.HTTPError:
            time.sleep(0.1)
    raise AssertionError("the server isn't ready after two minutes")


def describe():
    """The server's description, in which the model is the one that it serves: other names lead nowhere."""
    document = json.loads(get("/openapi.json"))
    for path in document["paths"].values():
        content = path.get("post", {}).get("requestBody", {}).get("content", {}).get("application/json")
        if content and "model" in content["schema"]["properties"]:
            content["schema"]["properties"]["model"] = {"const": MODEL}
            if "model" in content.get("example", {}):
                content["example"]["model"] = MODEL
    return document


wait()
with tempfile.TemporaryDirectory() as folder:
    with open(f"{folder}/openapi.json", "w") as file:
        json.dump(describe(), file)
    command = [sys.executable, "-m", "schemathesis.cli", "run", f"{folder}/openapi.json", "--url", BASE]
    command += ["--checks", "not_a_server_error", "--continue-on-failure", "--warnings", "off", "--no-color"]
    command += ["--seed", "1", "--max-time", SECONDS, "--request-timeout", "60"]
    code = subprocess.run(command, cwd=folder).returncode
get("/health")
sys.exit(code)
