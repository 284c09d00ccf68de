// The published JavaScript client of OpenAI against a running server: `node clients.mjs http://127.0.0.1:PORT MODEL`.
//
// Each function is a case. `clients.py` compares what comes in every detail; here is what only this client does its own way:
// reading streams, putting pieces together, running tools.

import assert from "node:assert/strict";
import OpenAI from "openai";

const [base, model] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${base}/v1`, apiKey: "none", maxRetries: 0 });
const ask = [{ role: "user", content: "Why is the sky blue?" }];
const fixed = { model, messages: ask, temperature: 0, max_tokens: 16 };
const parameters = {
  type: "object",
  properties: { city: { type: "string", enum: ["Rome", "Oslo"] } },
  required: ["city"],
  additionalProperties: false,
};
const weather = { name: "get_weather", description: "Weather of a city", parameters, strict: true };

async function collect(stream) {
  const events = [];
  for await (const event of stream) events.push(event);
  return events;
}

async function models() {
  const found = await collect(client.models.list());
  assert.deepEqual(found.map((one) => one.id), [model]);
  assert.equal((await client.models.retrieve(model)).id, model);
}

async function chat() {
  const whole = await client.chat.completions.create({ ...fixed, logprobs: true, top_logprobs: 2 });
  const [choice] = whole.choices;
  assert.equal(choice.finish_reason, "length");
  assert.equal(choice.logprobs.content.length, 16);
  const chunks = await collect(
    await client.chat.completions.create({ ...fixed, stream: true, stream_options: { include_usage: true } }),
  );
  const text = chunks.map((chunk) => chunk.choices[0]?.delta.content ?? "").join("");
  assert.equal(text, choice.message.content);
  assert.equal(chunks.at(-1).usage.completion_tokens, 16);
  const helper = client.chat.completions.stream(fixed);
  let told = "";
  helper.on("content", (delta) => (told += delta));
  const final = await helper.finalChatCompletion();
  assert.equal(told, text);
  assert.equal(final.choices[0].message.content, text);
}

async function completions() {
  const prompt = { model, prompt: "The sky is", temperature: 0, max_tokens: 8 };
  const whole = await client.completions.create(prompt);
  const chunks = await collect(await client.completions.create({ ...prompt, stream: true }));
  assert.equal(chunks.map((chunk) => chunk.choices[0].text).join(""), whole.choices[0].text);
}

async function tools() {
  const asked = [];
  // The client calls the function itself, with the arguments that its own parser takes.
  const tool = { ...weather, parse: JSON.parse, function: (input) => asked.push(input) && "sunny" };
  const runner = client.chat.completions.runTools({
    ...fixed,
    max_tokens: 96,
    stream: true,
    tools: [{ type: "function", function: tool }],
    tool_choice: { type: "function", function: { name: "get_weather" } },
  });
  await runner.done();
  assert.equal(asked.length, 1);
  assert.ok(["Rome", "Oslo"].includes(asked[0].city), JSON.stringify(asked));
}

async function responses() {
  const request = { model, input: ask, temperature: 0, max_output_tokens: 16 };
  const whole = await client.responses.create(request);
  assert.equal(whole.status, "incomplete");
  const events = await collect(await client.responses.create({ ...request, stream: true }));
  const text = events.filter((event) => event.type === "response.output_text.delta").map((event) => event.delta);
  assert.equal(text.join(""), whole.output_text);
  assert.equal(events.at(-1).type, "response.incomplete");
  const stream = client.responses.stream(request);
  assert.equal((await stream.finalResponse()).output_text, whole.output_text);
  assert.equal((await client.responses.retrieve(whole.id)).id, whole.id);
  const items = await collect(client.responses.inputItems.list(whole.id));
  assert.equal(items[0].content[0].text, ask[0].content);
  const behind = await client.responses.create({ ...request, input: "Go on.", previous_response_id: whole.id });
  assert.ok(behind.usage.input_tokens > whole.usage.input_tokens + whole.usage.output_tokens);
  const forced = {
    ...request,
    max_output_tokens: 96,
    tools: [{ type: "function", ...weather }],
    tool_choice: { type: "function", name: "get_weather" },
  };
  const [call] = (await client.responses.create(forced)).output;
  assert.ok(["Rome", "Oslo"].includes(JSON.parse(call.arguments).city), call.arguments);
  await client.responses.delete(whole.id);
  await assert.rejects(client.responses.retrieve(whole.id), OpenAI.NotFoundError);
}

async function embeddings() {
  // The client asks for base64 and gives numbers.
  const texts = ["A cat sleeps.", "Stocks fell."];
  const { data, usage } = await client.embeddings.create({ model, input: texts });
  assert.deepEqual(data.map((item) => item.index), [0, 1]);
  const plain = await client.embeddings.create({ model, input: texts, encoding_format: "float" });
  data.forEach((item, at) => {
    const length = Math.hypot(...item.embedding);
    assert.ok(Math.abs(length - 1) < 1e-3, `${length}`);
    item.embedding.forEach((value, i) => assert.ok(Math.abs(value - plain.data[at].embedding[i]) < 1e-6));
  });
  assert.ok(usage.prompt_tokens > 4);
}

async function errors() {
  await assert.rejects(client.chat.completions.create({ ...fixed, model: "gpt-4" }), OpenAI.NotFoundError);
  await assert.rejects(client.chat.completions.create({ ...fixed, temperature: 9 }), (error) => {
    assert.ok(error instanceof OpenAI.BadRequestError);
    assert.equal(error.param, "temperature");
    return true;
  });
}

// A model that writes nothing has its embeddings only.
const shown = await fetch(`${base}/api/show`, { method: "POST", body: JSON.stringify({ model }) });
const writes = (await shown.json()).capabilities.includes("completion");
const cases = [models, chat, completions, tools, responses, embeddings, errors];
for (const run of writes ? cases : [models, embeddings]) {
  await run();
  console.log(`${run.name} passed (npm openai, node ${process.version})`);
}
