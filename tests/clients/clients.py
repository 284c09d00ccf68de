"""The published Python clients against a running server: `python clients.py http://127.0.0.1:PORT MODEL`.

Each function is a case. What is compared are the clients' own types: a response that a client can't read fails here.
"""

import datetime
import json
import sys
import time
import typing

import anthropic
import httpx
import ollama
import openai
import pydantic

BASE, MODEL = sys.argv[1:3]
ASK = [{"role": "user", "content": "Why is the sky blue?"}]
FIXED = {"model": MODEL, "messages": ASK, "temperature": 0, "max_tokens": 16}

class Closed(pydantic.BaseModel):
    """A schema that allows more properties lets a small model add them until `max_tokens` end it."""

    model_config = pydantic.ConfigDict(extra="forbid")


class City(Closed):
    name: str = pydantic.Field(max_length=20)
    population: typing.Annotated[int, pydantic.Field(ge=0, le=99_999_999)]
    founded: typing.Optional[datetime.date] = None


class Country(Closed):
    name: str = pydantic.Field(max_length=20)
    size: typing.Literal["small", "large"]
    cities: typing.Annotated[list[City], pydantic.Field(min_length=1, max_length=2)]


class Verdict(Closed):
    is_right: bool
    certainty: typing.Literal["low", "high"]


gpt = openai.OpenAI(base_url=f"{BASE}/v1", api_key="none", max_retries=0)
# Checks what comes against the client's types, which otherwise takes anything.
strict_gpt = openai.OpenAI(
    base_url=f"{BASE}/v1", api_key="none", max_retries=0, _strict_response_validation=True
)
claude = anthropic.Anthropic(base_url=BASE, api_key="none", max_retries=0)
llama = ollama.Client(host=BASE)


def raises(kind, call, *words):
    """The error that `call` ends with."""
    try:
        call()
    except kind as error:
        assert all(word in str(error) for word in words), error
        return error
    raise AssertionError(f"no {kind.__name__}")


def openai_models():
    (model,) = gpt.models.list().data
    assert model.id == MODEL and model.owned_by == "smelt" and model.max_model_len > 0
    assert gpt.models.retrieve(MODEL).id == MODEL


def openai_chat():
    whole = gpt.chat.completions.create(**FIXED, logprobs=True, top_logprobs=3)
    (choice,) = whole.choices
    assert choice.finish_reason == "length" and choice.message.role == "assistant"
    assert whole.usage.completion_tokens == 16
    assert whole.usage.total_tokens == whole.usage.prompt_tokens + 16
    tokens = choice.logprobs.content
    assert len(tokens) == 16 and all(len(token.top_logprobs) == 3 for token in tokens)
    text = b"".join(bytes(token.bytes) for token in tokens).decode(errors="replace")
    assert text == choice.message.content, (text, choice.message.content)

    parts, usage = [], None
    for chunk in gpt.chat.completions.create(**FIXED, stream=True, stream_options={"include_usage": True}):
        if chunk.choices:
            parts.append(chunk.choices[0].delta.content or "")
            assert chunk.usage is None
        else:
            usage = chunk.usage
    assert "".join(parts) == choice.message.content
    assert usage.completion_tokens == 16 and usage.prompt_tokens_details.cached_tokens > 0


def openai_chat_stream_helper():
    # The helper takes an answer that `max_tokens` ends for an error.
    plain = gpt.chat.completions.create(**FIXED).choices[0].message.content
    stop = plain[len(plain) // 2 :][:3]
    with gpt.chat.completions.stream(**FIXED, stop=stop) as stream:
        text = "".join(event.delta for event in stream if event.type == "content.delta")
        final = stream.get_final_completion()
    assert final.choices[0].message.content == text == plain[: plain.index(stop)]
    assert final.choices[0].finish_reason == "stop"


def openai_chat_parameters():
    seeded = dict(FIXED, temperature=1, seed=3, n=2)
    first, second = (gpt.chat.completions.create(**seeded) for _ in range(2))
    texts = [choice.message.content for choice in first.choices]
    assert texts == [choice.message.content for choice in second.choices] and len(texts) == 2
    plain = gpt.chat.completions.create(**FIXED).choices[0].message.content
    stop = plain[len(plain) // 2 :][:2]
    stopped = gpt.chat.completions.create(**FIXED, stop=[stop]).choices[0]
    assert stopped.message.content == plain[: plain.index(stop)] and stopped.finish_reason == "stop"
    messages = [
        {"role": "developer", "content": "Be terse."},
        {"role": "user", "content": [{"type": "text", "text": "Hello"}]},
        {"role": "assistant", "content": None},
        {"role": "user", "content": "Go on."},
    ]
    biased = dict(FIXED, messages=messages, max_completion_tokens=3, logit_bias={"65": -100})
    assert gpt.chat.completions.create(**biased).usage.completion_tokens <= 3


def openai_errors():
    error = raises(openai.BadRequestError, lambda: gpt.chat.completions.create(**FIXED, store=True), "store")
    assert error.code == "unsupported_parameter" and error.param == "store"
    error = raises(openai.NotFoundError, lambda: gpt.chat.completions.create(**dict(FIXED, model="gpt-4")))
    assert error.code == "model_not_found"
    long = [{"role": "user", "content": "word " * 100_000}]
    error = raises(openai.BadRequestError, lambda: gpt.chat.completions.create(**dict(FIXED, messages=long)))
    assert error.code == "context_length_exceeded" and error.body["n_prompt_tokens"] > error.body["n_ctx"]
    error = raises(openai.BadRequestError, lambda: gpt.chat.completions.create(**dict(FIXED, temperature=9)))
    assert error.param == "temperature" and error.request_id


def openai_structure():
    """Schemas as Pydantic writes them: parsed answers have the types of the model."""
    fixed = dict(FIXED, max_tokens=200, response_format=Country)
    parsed = gpt.chat.completions.parse(**fixed)
    country = parsed.choices[0].message.parsed
    assert isinstance(country, Country) and 1 <= len(country.cities) <= 2, country
    assert parsed.choices[0].finish_reason == "stop"
    with gpt.chat.completions.stream(**fixed) as stream:
        assert stream.get_final_completion().choices[0].message.parsed == country
    plain = gpt.chat.completions.create(**dict(fixed, response_format={"type": "json_object"}, max_tokens=40))
    assert plain.choices[0].message.content.startswith("{")
    words = {"structured_outputs": {"choice": ["yes", "no"]}}
    assert gpt.chat.completions.create(**FIXED, extra_body=words).choices[0].message.content in ("yes", "no")
    schema = {"name": "n", "schema": {"type": "array", "uniqueItems": True}}
    refused = dict(FIXED, response_format={"type": "json_schema", "json_schema": schema})
    error = raises(openai.BadRequestError, lambda: gpt.chat.completions.create(**refused), "uniqueItems")
    assert error.param == "response_format.json_schema.schema"


RESPONSE = {"model": MODEL, "input": ASK, "temperature": 0, "max_output_tokens": 16}


def openai_responses():
    chat = gpt.chat.completions.create(**FIXED)
    whole = strict_gpt.responses.create(**RESPONSE, include=["message.output_text.logprobs"], top_logprobs=2)
    assert whole.output_text == chat.choices[0].message.content and whole.status == "incomplete"
    assert whole.incomplete_details.reason == "max_output_tokens"
    assert whole.usage.input_tokens == chat.usage.prompt_tokens and whole.usage.output_tokens == 16
    logprobs = whole.output[0].content[0].logprobs
    assert len(logprobs) == 16 and all(len(token.top_logprobs) == 2 for token in logprobs)
    events = list(strict_gpt.responses.create(**RESPONSE, stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert events[-1].type == "response.incomplete" and events[-1].response.output_text == whole.output_text
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == whole.output_text
    # The helper waits for an answer that completes.
    with strict_gpt.responses.stream(**RESPONSE, extra_body={"stop": text[len(text) // 2 :][:3]}) as stream:
        final = [event for event in stream][-1].response
        assert stream.get_final_response().output_text == final.output_text
    assert final.status == "completed" and text.startswith(final.output_text)


def openai_responses_kept():
    first = strict_gpt.responses.create(**RESPONSE, instructions="Be terse.", metadata={"a": "b"})
    assert strict_gpt.responses.retrieve(first.id) == first and first.metadata == {"a": "b"}
    second = strict_gpt.responses.create(**dict(RESPONSE, input="Go on."), previous_response_id=first.id)
    turn = {"role": "assistant", "content": first.output_text}
    whole = dict(RESPONSE, input=[*ASK, turn, {"role": "user", "content": "Go on."}])
    again = strict_gpt.responses.create(**whole, store=False)
    assert again.output_text == second.output_text and again.usage.input_tokens == second.usage.input_tokens
    items = list(strict_gpt.responses.input_items.list(second.id, limit=2, order="asc"))
    assert [item.role for item in items] == ["user", "assistant", "user"]
    strict_gpt.responses.delete(first.id)
    for missing in (first.id, again.id):
        error = raises(openai.NotFoundError, lambda: gpt.responses.retrieve(missing), "kept in memory")
        assert error.code == "not_found"
    raises(openai.NotFoundError, lambda: gpt.responses.create(**RESPONSE, previous_response_id=first.id), first.id)
    error = raises(openai.BadRequestError, lambda: gpt.responses.create(**RESPONSE, background=True))
    assert error.code == "unsupported_parameter" and error.param == "background"
    long = dict(RESPONSE, input="word " * 100_000)
    assert raises(openai.BadRequestError, lambda: gpt.responses.create(**long)).code == "context_length_exceeded"


def openai_responses_structure():
    fixed = dict(RESPONSE, max_output_tokens=200, text_format=Country)
    country = strict_gpt.responses.parse(**fixed).output_parsed
    assert isinstance(country, Country) and 1 <= len(country.cities) <= 2, country
    with strict_gpt.responses.stream(**fixed) as stream:
        stream.until_done()
        assert stream.get_final_response().output_parsed == country


def openai_responses_tools():
    tools = [{"type": "function", **tool["function"]} for tool in (WEATHER, TIME)]
    named = {"type": "function", "name": "get_weather"}
    fixed = dict(RESPONSE, max_output_tokens=96, tools=tools, tool_choice=named)
    whole = strict_gpt.responses.create(**fixed)
    (call,) = whole.output
    check_arguments(json.loads(call.arguments))
    assert call.type == "function_call" and call.name == "get_weather" and whole.status == "completed"
    with strict_gpt.responses.stream(**fixed) as stream:
        deltas = [event.delta for event in stream if event.type == "response.function_call_arguments.delta"]
        assert "".join(deltas) == stream.get_final_response().output[0].arguments == call.arguments
    # The loop of agents: what came back goes in again, with the result.
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "sunny"}
    history = dict(RESPONSE, tools=tools, tool_choice="none", input=[*ASK, *whole.output, result])
    answer = strict_gpt.responses.create(**history)
    assert answer.output_text and all(item.type == "message" for item in answer.output)
    behind = dict(history, input=[result], previous_response_id=whole.id)
    assert strict_gpt.responses.create(**behind).output_text == answer.output_text


def openai_completions():
    fixed = {"model": MODEL, "prompt": "The sky is", "temperature": 0, "max_tokens": 8}
    plain = gpt.completions.create(**fixed).choices[0]
    assert plain.finish_reason in ("length", "stop")
    echoed = gpt.completions.create(**fixed, echo=True, logprobs=2).choices[0]
    assert echoed.text == "The sky is" + plain.text
    assert echoed.logprobs.token_logprobs[0] is None and echoed.logprobs.text_offset[0] == 0
    assert len(echoed.logprobs.tokens) == len(echoed.logprobs.top_logprobs)
    streamed = "".join(chunk.choices[0].text for chunk in gpt.completions.create(**fixed, stream=True))
    assert streamed == plain.text
    two = gpt.completions.create(**dict(fixed, prompt=["The sky is", "Once"]), n=2)
    assert [choice.index for choice in two.choices] == [0, 1, 2, 3] and two.choices[0].text == plain.text


def openai_cancel():
    endless = dict(FIXED, max_tokens=100_000)
    stream = gpt.chat.completions.create(**endless, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    for _ in range(500):
        if f'smelt_requests_running{{model_name="{MODEL}"}} 0\n' in httpx.get(f"{BASE}/metrics").text:
            return
        time.sleep(0.02)
    raise AssertionError("the cancelled answer goes on")


def anthropic_messages():
    fixed = {"model": MODEL, "max_tokens": 16, "system": "Be terse.", "messages": ASK, "extra_body": {"temperature": 0}}
    whole = claude.messages.create(**fixed)
    assert whole.role == "assistant" and whole.content[0].type == "text"
    assert whole.stop_reason in ("max_tokens", "end_turn")
    counted = claude.messages.count_tokens(model=MODEL, system="Be terse.", messages=ASK)
    assert counted.input_tokens == whole.usage.input_tokens + whole.usage.cache_read_input_tokens
    with claude.messages.stream(**fixed) as stream:
        text = "".join(stream.text_stream)
        final = stream.get_final_message()
    assert text == whole.content[0].text == final.content[0].text
    assert final.stop_reason == whole.stop_reason
    assert final.usage.output_tokens == whole.usage.output_tokens
    prefilled = [*ASK, {"role": "assistant", "content": "Because"}]
    assert claude.messages.create(**dict(fixed, messages=prefilled)).content[0].type == "text"


def anthropic_errors():
    fixed = {"model": MODEL, "max_tokens": 4, "messages": ASK}
    search = {"type": "web_search_20250305", "name": "web_search"}
    error = raises(anthropic.BadRequestError, lambda: claude.messages.create(**fixed, tools=[search]), "tools[0].type")
    assert error.body["error"]["type"] == "invalid_request_error"
    assert error.request_id == error.body["request_id"]
    raises(anthropic.NotFoundError, lambda: claude.messages.create(**dict(fixed, model="claude")))
    long = [{"role": "user", "content": "word " * 100_000}]
    raises(anthropic.BadRequestError, lambda: claude.messages.create(**dict(fixed, messages=long)), "prompt is too long")


def anthropic_structure():
    # The client drops bounds of lengths from schemas, so this one has none.
    parsed = claude.messages.parse(model=MODEL, max_tokens=200, messages=ASK, output_format=Verdict)
    assert isinstance(parsed.parsed_output, Verdict) and parsed.stop_reason == "end_turn"


def ollama_structure():
    options = {"temperature": 0, "num_predict": 200}
    fixed = {"model": MODEL, "options": options, "format": Country.model_json_schema()}
    whole = llama.chat(messages=ASK, **fixed)
    country = Country.model_validate_json(whole.message.content)
    assert whole.done_reason == "stop"
    pieces = llama.chat(messages=ASK, stream=True, **fixed)
    assert Country.model_validate_json("".join(piece.message.content for piece in pieces)) == country
    assert Country.model_validate_json(llama.generate(prompt=ASK[0]["content"], **fixed).response)


def ollama_routes():
    options = {"temperature": 0, "num_predict": 12}
    whole = llama.chat(model=MODEL, messages=ASK, options=options)
    assert whole.done and whole.message.role == "assistant" and whole.eval_count <= 12
    pieces = list(llama.chat(model=MODEL, messages=ASK, options=options, stream=True))
    assert "".join(piece.message.content for piece in pieces) == whole.message.content
    assert pieces[-1].done and pieces[-1].done_reason == whole.done_reason
    generated = llama.generate(model=MODEL, prompt=ASK[0]["content"], options=options)
    assert generated.response == whole.message.content
    assert llama.generate(model=MODEL, prompt="The sky is", raw=True, options=options).done
    (listed,) = llama.list().models
    assert listed.model == MODEL and listed.details.format == "gguf" and listed.size > 0
    (running,) = llama.ps().models
    assert running.model == MODEL
    assert llama.pull(MODEL).status == "success"
    assert [step.status for step in llama.pull(MODEL, stream=True)][-1] == "success"
    assert raises(ollama.ResponseError, lambda: llama.pull("nothing")).status_code == 403
    shown = llama.show(MODEL)
    assert shown.modelinfo["general.architecture"] == shown.details.family
    refused = {"not": {"type": "string"}}
    error = raises(ollama.ResponseError, lambda: llama.chat(model=MODEL, messages=ASK, format=refused), "`not` at #")
    assert error.status_code == 400
    assert raises(ollama.ResponseError, lambda: llama.chat(model="nothing", messages=ASK)).status_code == 404


TEXTS = ["The cat sits on the mat.", "A feline rests on a rug.", "Stock markets fell sharply today."]


def likeness(a, b):
    return sum(x * y for x, y in zip(a, b))


def embeddings():
    many = gpt.embeddings.create(model=MODEL, input=TEXTS)
    assert many.model == MODEL and many.usage.prompt_tokens == many.usage.total_tokens > 0
    vectors = [item.embedding for item in many.data]
    assert all(abs(likeness(vector, vector) - 1) < 1e-3 for vector in vectors)
    # The client asks for base64 unless told otherwise.
    (single,) = gpt.embeddings.create(model=MODEL, input=TEXTS[1], encoding_format="float").data
    assert max(abs(a - b) for a, b in zip(single.embedding, vectors[1])) < 1e-6
    short = gpt.embeddings.create(model=MODEL, input=TEXTS[0], dimensions=64).data[0].embedding
    assert len(short) == 64 and abs(likeness(short, short) - 1) < 1e-3
    raises(openai.BadRequestError, lambda: gpt.embeddings.create(model=MODEL, input="a", dimensions=99_999), "99999")
    embed = llama.embed(model=MODEL, input=TEXTS)
    assert max(abs(a - b) for a, b in zip(embed.embeddings[0], vectors[0])) < 1e-6
    assert embed.prompt_eval_count == many.usage.prompt_tokens and embed.total_duration > 0
    assert len(llama.embed(model=MODEL, input="a", dimensions=64).embeddings[0]) == 64
    assert list(llama.embeddings(model=MODEL, prompt=TEXTS[0]).embedding) == list(embed.embeddings[0])


def embedder():
    # What a model that is made for it has to tell.
    near, other, far = (item.embedding for item in gpt.embeddings.create(model=MODEL, input=TEXTS).data)
    assert likeness(near, other) > likeness(near, far) + 0.3
    long = "the cat sits on the mat " * 400
    error = raises(openai.BadRequestError, lambda: gpt.embeddings.create(model=MODEL, input=long), "512")
    assert error.code == "context_length_exceeded"
    assert llama.embed(model=MODEL, input=long).prompt_eval_count == 512
    raises(ollama.ResponseError, lambda: llama.embed(model=MODEL, input=long, truncate=False), "512")
    raises(openai.BadRequestError, lambda: gpt.chat.completions.create(**FIXED), "can't generate text")
    raises(ollama.ResponseError, lambda: llama.chat(model=MODEL, messages=ASK), "can't generate text")
    assert llama.show(MODEL).capabilities == ["embedding"]


SCHEMA = {
    "type": "object",
    "properties": {"city": {"type": "string", "enum": ["Rome", "Oslo"]}, "days": {"type": "integer", "minimum": 1, "maximum": 9}},
    "required": ["city", "days"],
    "additionalProperties": False,
}
# The client's stream helper takes strict functions only.
WEATHER = {
    "type": "function",
    "function": {"name": "get_weather", "description": "Weather of a city", "parameters": SCHEMA, "strict": True},
}
NOTHING = {"type": "object", "properties": {}, "additionalProperties": False}
TIME = {"type": "function", "function": {"name": "get_time", "parameters": NOTHING, "strict": True}}


def check_arguments(arguments):
    assert arguments["city"] in ("Rome", "Oslo") and 1 <= arguments["days"] <= 9, arguments


def openai_tools():
    named = {"type": "function", "function": {"name": "get_weather"}}
    fixed = dict(FIXED, max_tokens=96, tools=[WEATHER, TIME], tool_choice=named)
    (choice,) = gpt.chat.completions.create(**fixed).choices
    (call,) = choice.message.tool_calls
    assert choice.finish_reason == "tool_calls" and call.function.name == "get_weather" and call.id.startswith("call_")
    check_arguments(json.loads(call.function.arguments))
    # The client puts the streamed pieces together itself.
    with gpt.chat.completions.stream(**fixed) as stream:
        events = [event for event in stream if event.type == "tool_calls.function.arguments.delta"]
        final = stream.get_final_completion()
    (streamed,) = final.choices[0].message.tool_calls
    assert streamed.function.arguments == call.function.arguments and len(events) > 1
    assert final.choices[0].finish_reason == "tool_calls"
    required = dict(fixed, tool_choice="required", parallel_tool_calls=False)
    (call,) = gpt.chat.completions.create(**required).choices[0].message.tool_calls
    assert call.function.name in ("get_weather", "get_time")
    # The conversation goes on with the result.
    turn = {"role": "assistant", "content": None, "tool_calls": [call.model_dump()]}
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages = [*ASK, turn, result]
    answer = gpt.chat.completions.create(**dict(FIXED, messages=messages, tools=[WEATHER, TIME], tool_choice="none"))
    assert answer.choices[0].message.tool_calls is None and answer.choices[0].message.content is not None
    raises(openai.BadRequestError, lambda: gpt.chat.completions.create(**dict(fixed, tools=[TIME])), "get_weather")
    # Where the model may call, it does so by the schema, or its content has the form that was asked for.
    size = {"type": "json_schema", "json_schema": {"name": "size", "schema": {"enum": ["small", "large"]}}}
    free = dict(fixed, tool_choice="auto", parallel_tool_calls=False, response_format=size)
    (choice,) = gpt.chat.completions.create(**free).choices
    if choice.finish_reason == "tool_calls":
        (call,) = choice.message.tool_calls
        assert call.function.name == "get_time" or check_arguments(json.loads(call.function.arguments)) is None
    elif choice.finish_reason == "stop":
        assert json.loads(choice.message.content) in ("small", "large"), choice


def openai_reasoning():
    # The models here have none.
    assert gpt.chat.completions.create(**FIXED, reasoning_effort="none").choices[0].message.content
    error = raises(openai.BadRequestError, lambda: gpt.chat.completions.create(**FIXED, reasoning_effort="high"))
    assert error.code == "unsupported_parameter" and error.param == "reasoning_effort"


def anthropic_tools():
    tools = [{"name": "get_weather", "description": "Weather of a city", "input_schema": SCHEMA}]
    forced = {"type": "tool", "name": "get_weather"}
    fixed = {"model": MODEL, "max_tokens": 96, "messages": ASK, "tools": tools, "tool_choice": forced}
    fixed["extra_body"] = {"temperature": 0}
    whole = claude.messages.create(**fixed)
    (use,) = whole.content
    assert whole.stop_reason == "tool_use" and use.type == "tool_use" and use.id.startswith("toolu_")
    check_arguments(use.input)
    with claude.messages.stream(**fixed) as stream:
        kinds = {event.type for event in stream}
        final = stream.get_final_message()
    assert "input_json" in kinds and final.content[0].input == use.input and final.stop_reason == "tool_use"
    result = {"type": "tool_result", "tool_use_id": use.id, "content": "sunny"}
    messages = [*ASK, {"role": "assistant", "content": whole.content}, {"role": "user", "content": [result]}]
    answer = claude.messages.create(**dict(fixed, messages=messages, tool_choice={"type": "none"}))
    assert answer.content[0].type == "text"


def ollama_tools():
    assert "tools" in llama.show(MODEL).capabilities
    # Ollama's interface can't force a call; the answer is whatever this model makes of the tools.
    options = {"temperature": 0, "num_predict": 12}
    turn = {"role": "assistant", "content": "", "tool_calls": [{"function": {"name": "get_time", "arguments": {}}}]}
    messages = [*ASK, turn, {"role": "tool", "tool_name": "get_time", "content": "noon"}]
    assert llama.chat(model=MODEL, messages=messages, tools=[WEATHER, TIME], options=options).done
    error = raises(ollama.ResponseError, lambda: llama.chat(model=MODEL, messages=ASK, think=True), "think")
    assert error.status_code == 400


CASES = [
    openai_models,
    openai_chat,
    openai_chat_stream_helper,
    openai_chat_parameters,
    openai_errors,
    openai_structure,
    openai_tools,
    openai_reasoning,
    openai_responses,
    openai_responses_kept,
    openai_responses_structure,
    openai_responses_tools,
    openai_completions,
    openai_cancel,
    anthropic_messages,
    anthropic_tools,
    anthropic_errors,
    anthropic_structure,
    ollama_routes,
    ollama_structure,
    ollama_tools,
    embeddings,
]
# For a model that writes nothing.
EMBEDDER_CASES = [openai_models, embeddings, embedder]


def wait():
    """Until the model is loaded."""
    for _ in range(1200):
        if httpx.get(f"{BASE}/health").status_code == 200:
            return
        time.sleep(0.1)
    raise AssertionError("the server isn't ready after two minutes")


def main():
    wait()
    versions = f"openai {openai.__version__}, anthropic {anthropic.__version__}"
    writes = "completion" in llama.show(MODEL).capabilities
    for case in CASES if writes else EMBEDDER_CASES:
        case()
        print(f"{case.__name__} passed ({versions})", flush=True)


main()
