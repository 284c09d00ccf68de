// Chats and settings, kept by this browser: one entry for each chat, so that tabs don't overwrite one another's.

const CHAT = "smelt.chat.";
const SETTINGS = "smelt.settings";

/// A storage of the browser, or one that ends with the page where a browser keeps nothing.
export function storage(name) {
  try {
    return window[name] ?? Object.create(null);
  } catch {
    return Object.create(null);
  }
}

const kept = storage("localStorage");

/// A value of the storage; what is not readable counts as absent.
function read(name) {
  try {
    return JSON.parse(kept[name]);
  } catch {
    return null;
  }
}

function write(name, value) {
  try {
    kept[name] = JSON.stringify(value);
    return true;
  } catch {
    return false;
  }
}

export const settings = () => read(SETTINGS) ?? {};

const isWhole = (chat) => typeof chat?.title === "string" && Array.isArray(chat.messages) && chat.messages.every(
  (message) => typeof (message?.role === "user" ? message : message?.variants?.[message.chosen])?.content === "string");

export function change(values) {
  write(SETTINGS, { ...settings(), ...values });
}

/// All chats, the one that was used last first.
export function chats() {
  const ids = Object.keys(kept).filter((name) => name.startsWith(CHAT)).map((name) => name.slice(CHAT.length));
  const found = ids.map(chat).filter((chat) => chat);
  return found.sort((a, b) => b.used - a.used);
}

/// The chat of that id, if there is one and it can be shown.
export function chat(id) {
  const found = read(CHAT + id);
  return isWhole(found) && found.id === id ? found : null;
}

/// Keeps a chat; false if the browser has no room for it.
export const keep = (chat) => write(CHAT + chat.id, chat);

export const forget = (id) => delete kept[CHAT + id];

/// A chat without messages. `crypto.randomUUID` is not there on plain HTTP from another machine.
export function create() {
  const id = Array.from(crypto.getRandomValues(new Uint8Array(12)), (byte) => byte.toString(16).padStart(2, "0")).join("");
  return { id, title: "", used: Date.now(), messages: [] };
}

/// The shown variant of an answer.
export const shown = (message) => message.variants[message.chosen];

/// What the model is sent of `messages`. Answers that never began are left out, and since many templates insist on turns,
/// what a person said twice in a row becomes one message.
export function conversation(messages, system) {
  const sent = system ? [{ role: "system", content: system }] : [];
  for (const message of messages) {
    const content = message.role === "user" ? message.content : shown(message).content;
    const before = sent.at(-1);
    if (message.role === "user" && before?.role === "user") before.content += `\n\n${content}`;
    else if (content) sent.push({ role: message.role, content });
  }
  return sent;
}
