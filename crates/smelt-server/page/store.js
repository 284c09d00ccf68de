// Chats and settings, kept by this browser: one entry for each chat, so that tabs don't overwrite one another's.

const CHAT = "smelt.chat.";
const SETTINGS = "smelt.settings";

/// A value of the storage; what is not readable counts as absent.
function read(name) {
  try {
    return JSON.parse(localStorage.getItem(name));
  } catch {
    return null;
  }
}

function write(name, value) {
  try {
    localStorage.setItem(name, JSON.stringify(value));
    return true;
  } catch {
    return false;
  }
}

export const settings = () => read(SETTINGS) ?? {};

export function change(values) {
  write(SETTINGS, { ...settings(), ...values });
}

/// All chats, the one that was used last first.
export function chats() {
  const names = Object.keys(localStorage).filter((name) => name.startsWith(CHAT));
  const found = names.map(read).filter((chat) => chat?.id && Array.isArray(chat.messages));
  return found.sort((a, b) => b.used - a.used);
}

export const chat = (id) => read(CHAT + id);

/// Keeps a chat; false if the browser has no room for it.
export const keep = (chat) => write(CHAT + chat.id, chat);

export const forget = (id) => localStorage.removeItem(CHAT + id);

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
