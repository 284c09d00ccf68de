// The server, as the page knows it.

import { storage } from "./store.js";

const KEY = "smelt.key";
// A key goes with the tab.
const kept = storage("sessionStorage");

/// What went wrong, and what a person can do about it.
export class Problem extends Error {
  constructor(message, advice, needsKey = false) {
    super(message);
    this.advice = advice;
    this.needsKey = needsKey;
  }
}

export function setKey(key) {
  if (key) kept[KEY] = key;
  else delete kept[KEY];
}

export const hasKey = () => Boolean(kept[KEY]);

/// The names of the models.
export async function models() {
  const response = await request("/v1/models");
  return (await response.json()).data.map((model) => model.id);
}

/// Asks for an answer, and gives its pieces as they come: `{content}`, `{reasoning}`, `{usage}`, `{finish}`.
export async function* answer(body, signal) {
  const options = { ...body, stream: true, stream_options: { include_usage: true } };
  const response = await request("/v1/chat/completions", options, signal);
  for await (const data of events(response.body)) {
    if (data === "[DONE]") return;
    const chunk = JSON.parse(data);
    if (chunk.error) throw problem(chunk.error, null);
    if (chunk.usage) yield { usage: chunk.usage };
    for (const { delta, finish_reason: finish } of chunk.choices ?? []) {
      if (delta?.reasoning_content) yield { reasoning: delta.reasoning_content };
      if (delta?.content) yield { content: delta.content };
      if (finish) yield { finish };
    }
  }
  throw new Problem("The answer broke off.", "The server ended the connection. Regenerate the answer.");
}

/// The data of a stream's events.
async function* events(body) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { done, value } = await read(reader);
    if (done) return;
    const lines = (rest + value).split(/\r?\n/);
    rest = lines.pop();
    for (const line of lines) if (line.startsWith("data:")) yield line.slice(5).trimStart();
  }
}

async function read(reader) {
  try {
    return await reader.read();
  } catch (error) {
    throw unreachable(error);
  }
}

async function request(path, body, signal) {
  const headers = {};
  const key = kept[KEY];
  if (key) headers.authorization = `Bearer ${key}`;
  if (body) headers["content-type"] = "application/json";
  let response;
  try {
    response = await fetch(path, { method: body ? "POST" : "GET", headers, body: body && JSON.stringify(body), signal });
  } catch (error) {
    throw unreachable(error);
  }
  if (response.ok) return response;
  let error = {};
  try {
    error = (await response.json()).error ?? {};
  } catch { /* a proxy's page, not the server's answer */ }
  throw problem(error, response);
}

function unreachable(error) {
  if (error.name === "AbortError") return error;
  return new Problem("The server can't be reached.", "See that `smelt serve` is running, and try again.");
}

// What to do, by the error's code.
const ADVICE = {
  context_length_exceeded: "Begin a new chat, or edit an earlier message: what follows it goes.",
  model_not_found: "Choose another model above.",
  unsupported_parameter: "Leave that setting empty: this model or server doesn't have it.",
};

function problem(error, response) {
  const status = response?.status;
  const message = error.message ?? (status ? `The server answered ${status}.` : "The server failed.");
  if (status === 401) return new Problem(message, "Give the server's API key.", true);
  const seconds = response?.headers.get("retry-after");
  const wait = seconds ? `Try again in ${seconds} s.` : "Try again in a while.";
  const advice = ADVICE[error.code] ?? (status === 503 || status === 429 ? wait
    : status >= 400 && status < 500 ? "Change the message or the settings, and try again."
      : "Try again; the server's log tells more.");
  return new Problem(message, advice);
}
