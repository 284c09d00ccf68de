"""Published routers, each in front of two servers: `python routers.py http://A http://B [ROUTER…]`.

Which server answers is read from its own metrics. Answers are greedy, so both servers must give the same ones.
"""

import concurrent.futures
import contextlib
import json
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

WORKERS = sys.argv[1:3]
# The router's own connections must not go through a proxy of this machine's environment.
ROUTERS = {
    "vllm-router": ["-m", "vllm_router.launch_router"],
    "sglang-router": ["-m", "sglang_router", "launch"],
    "smg": ["-m", "smg", "launch"],
}
PATIENCE = 120
# Long enough to fill pages of the cache, and different from the first word on.
TOPICS = ["rivers", "metals", "stars", "bread", "ships", "trees", "clocks", "birds"]


def free_port():
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


def ask(base, path, body=None):
    """Status and text of a response."""
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(base + path, data, {"content-type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE) as response:
            return response.status, response.read().decode()
    except urllib.error.HTTPError as error:
        return error.code, error.read().decode()


def until(is_so, what):
    end = time.monotonic() + PATIENCE
    while not is_so():
        assert time.monotonic() < end, f"{what} did not come about in {PATIENCE} s"
        time.sleep(0.1)


def is_up(base, path="/health"):
    try:
        return ask(base, path)[0] == 200
    except OSError:
        return False


def metric(worker, name):
    """The sum of a metric's series."""
    lines = ask(worker, "/metrics")[1].splitlines()
    return sum(float(line.split()[-1]) for line in lines if line.startswith((name + " ", name + "{")))


def counts():
    return [metric(worker, "vllm:request_success_total") for worker in WORKERS]


def since(before, answers):
    """How many of so many more answers each server has given. Its numbers come a moment after the answer."""
    until(lambda: sum(counts()) >= sum(before) + answers, "the count of answers")
    return [now - then for now, then in zip(counts(), before)]


def chat(topic, end, **more):
    story = f"{topic.capitalize()} are what this is about. " + f"Old books tell much of {topic}, and so do people. " * 12
    messages = [{"role": "system", "content": story}, {"role": "user", "content": end}]
    return {"model": "model", "messages": messages, "temperature": 0, "max_tokens": 12, **more}


def events(base, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(base + "/v1/chat/completions", data, {"content-type": "application/json"})
    with urllib.request.urlopen(request, timeout=PATIENCE) as response:
        assert response.headers["content-type"].startswith("text/event-stream"), response.headers
        for line in response:
            if line.startswith(b"data: "):
                yield line[6:].decode().strip()


def wave(base, topics):
    """Asks about all topics at once, as a router has no reason to spread requests that come one by one."""
    with concurrent.futures.ThreadPoolExecutor(len(topics)) as pool:
        bodies = [chat(topic, "What is the main point?") for topic in topics]
        replies = list(pool.map(lambda body: ask(base, "/v1/chat/completions", body), bodies))
    assert all(status == 200 for status, _ in replies), replies


def answers_and_spreads(base):
    """Both servers are used, and what begins alike goes to one of them."""
    start, waves = counts(), 0
    # Routers weigh load against caches in their own ways: a wave may go to one server, but not every wave.
    while waves < 8 and (not waves or not all(since(start, waves * len(TOPICS)))):
        wave(base, [f"{topic} {waves}" for topic in TOPICS])
        waves += 1
    used = since(start, waves * len(TOPICS))
    assert all(used), f"one server was left out: {used}"
    home = {}
    for end in ["Say it in other words.", "Who tells this?"]:
        for topic in TOPICS:
            before = counts()
            status, text = ask(base, "/v1/chat/completions", chat(f"{topic} 0", end))
            assert status == 200, text
            worker = since(before, 1).index(1)
            assert home.setdefault(topic, worker) == worker, f"{topic} went to both servers"
            cached = json.loads(text)["usage"]["prompt_tokens_details"]["cached_tokens"]
            assert cached > 64, f"{topic}: {cached} tokens were cached"
    return used


def streams(base):
    body = chat("rivers", "Go on.", stream=True, stream_options={"include_usage": True})
    *chunks, last = events(base, body)
    assert last == "[DONE]", last
    chunks = [json.loads(chunk) for chunk in chunks]
    text = "".join(c["delta"].get("content") or "" for chunk in chunks for c in chunk["choices"])
    assert chunks[-1]["choices"] == [] and chunks[-1]["usage"]["completion_tokens"] == 12, chunks[-1]
    whole = json.loads(ask(base, "/v1/chat/completions", chat("rivers", "Go on."))[1])
    assert text == whole["choices"][0]["message"]["content"], (text, whole)


def completes(base):
    body = {"model": "model", "prompt": "The capital of France is", "temperature": 0, "max_tokens": 5}
    status, text = ask(base, "/v1/completions", body)
    assert status == 200 and json.loads(text)["choices"][0]["text"], text


def hands_errors_on(base):
    status, text = ask(base, "/v1/chat/completions", chat("rivers", "Go on.", temperature=9))
    assert status == 400 and "temperature" in text, (status, text)


def hands_cancels_on(base):
    stream = events(base, chat("ships", "Tell all of it.", stream=True, max_tokens=1500))
    for _ in range(3):
        next(stream)
    stream.close()
    until(lambda: not any(metric(worker, "vllm:num_requests_running") for worker in WORKERS), "a cancel")


@contextlib.contextmanager
def running(name, policy):
    """A router that ends with the block; what it said is shown if that fails."""
    port = free_port()
    command = [sys.executable, *ROUTERS[name], "--host", "127.0.0.1", "--port", str(port), "--policy", policy, "--log-level", "error",
               "--balance-abs-threshold", "1", "--balance-rel-threshold", "1.1", "--prometheus-host", "127.0.0.1", "--prometheus-port", str(free_port()), "--worker-urls", *WORKERS]
    with tempfile.TemporaryFile("w+") as log:
        router = subprocess.Popen(command, stdout=log, stderr=log)
        base = f"http://127.0.0.1:{port}"
        try:
            until(lambda: router.poll() is not None or is_up(base), f"{name}'s readiness")
            assert router.poll() is None, f"{name} ended"
            # Healthy is one that has met its servers; some say so before.
            until(lambda: is_up(base, "/v1/models"), f"{name}'s list of models")
            yield base
        except BaseException:
            log.seek(0)
            print("".join(log.readlines()[-60:]))
            raise
        finally:
            router.terminate()
            router.wait(PATIENCE)


def main():
    until(lambda: all(is_up(worker) for worker in WORKERS), "the servers")
    for name in sys.argv[3:] or ROUTERS:
        with running(name, "cache_aware") as base:
            used = answers_and_spreads(base)
            for case in [streams, completes, hands_errors_on, hands_cancels_on]:
                case(base)
            print(f"{name} passed: {used[0]:.0f} and {used[1]:.0f} requests to the two servers", flush=True)


main()
