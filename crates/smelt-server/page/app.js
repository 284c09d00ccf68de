// The page: what is shown, what a person does, and the answers under way.

import * as api from "./api.js";
import { copy, element, icon } from "./dom.js";
import { startSettings, chosenSettings } from "./settings.js";
import * as store from "./store.js";
import { editMessage, historyView, messageView, paintAnswer } from "./view.js";

const part = (id) => document.getElementById(id);
const [scroll, list, input, model] = ["scroll", "messages", "input", "model"].map(part);
// An answer that is cut off by a closed tab is kept up to here.
const KEEP_EVERY = 1000;

let chat = store.create();
// Answers under way: a chat's id, and how it is ended.
const running = new Map();
// Whether the view follows the answer as it grows.
let follows = true;

// ---- Answers

/// Asks for an answer as message `index` of a chat, in place of what is there.
async function answer(index) {
  const here = chat;
  const body = { model: model.value, messages: store.conversation(here.messages.slice(0, index), chosenSettings().system), ...chosenSettings().sampling };
  const message = here.messages[index] ?? { role: "assistant", variants: [] };
  const variant = { content: "", reasoning: "", model: model.value, tokens: 0 };
  message.chosen = message.variants.push(variant) - 1;
  here.messages = [...here.messages.slice(0, index), message];
  here.used = Date.now();
  const controller = new AbortController();
  running.set(here.id, { controller, chat: here });
  follows = true;
  keep(here);
  show();
  const start = performance.now();
  try {
    let kept = start;
    for await (const piece of api.answer(body, controller.signal)) {
      take(variant, piece, start);
      schedulePaint();
      if (performance.now() - kept > KEEP_EVERY) { store.keep(here); kept = performance.now(); }
    }
  } catch (error) {
    if (error.name === "AbortError") variant.ending = "stopped";
    else variant.error = { message: error.message, advice: error.advice, needsKey: error.needsKey };
  }
  running.delete(here.id);
  keep(here);
  if (here === chat) {
    const view = list.children[index];
    if (view) view.replaceWith(messageView(message, index, actions));
    showRunning();
    followEnd();
    // A reader hears the answer once, when it is whole.
    announce(variant.error ? "" : variant.ending === "stopped" ? "Stopped." : variant.content);
    if (variant.error?.needsKey) actions.giveKey(index);
  }
}

/// Takes a piece of an answer.
function take(variant, piece, start) {
  const seconds = (performance.now() - start) / 1000;
  if (piece.content || piece.reasoning) {
    variant.first ??= seconds;
    variant.tokens++;
    if (piece.reasoning) { variant.reasoning += piece.reasoning; variant.thought = seconds; }
    variant.content += piece.content ?? "";
    variant.seconds = seconds - variant.first;
  }
  // The server knows how many tokens the pieces were.
  if (piece.usage) variant.tokens = piece.usage.completion_tokens;
  if (piece.finish === "length") variant.ending = "cut off at its limit";
}

let isPaintScheduled = false;

function schedulePaint() {
  if (isPaintScheduled) return;
  isPaintScheduled = true;
  requestAnimationFrame(() => {
    isPaintScheduled = false;
    const index = chat.messages.length - 1;
    if (!running.has(chat.id) || !list.children[index]?.parts) return;
    paintAnswer(list.children[index], chat.messages[index], index, actions, true);
    followEnd();
  });
}

function keep(chat) {
  if (!store.keep(chat)) toast("The browser has no room for this chat: delete some older ones.");
  showHistory();
}

const actions = {
  regenerate: (index) => running.has(chat.id) || answer(index),
  choose(index, variant) {
    chat.messages[index].chosen = variant;
    keep(chat);
    show();
  },
  edit(index) {
    if (running.has(chat.id)) return;
    const message = chat.messages[index];
    editMessage(list.children[index], message.content, (text) => {
      chat.messages = [...chat.messages.slice(0, index), { role: "user", content: text }];
      answer(index + 1);
      input.focus();
    }, () => { show(); input.focus(); });
  },
  async giveKey(index) {
    if (await askKey()) { await loadModels(); actions.regenerate(index); }
  },
  open(id) {
    chat = running.get(id)?.chat ?? store.chat(id) ?? chat;
    if (chat.model && [...model.options].some((option) => option.value === chat.model)) model.value = chat.model;
    follows = true;
    closeMenu();
    show();
  },
  rename(id, title) {
    const renamed = id === chat.id ? chat : running.get(id)?.chat ?? store.chat(id);
    if (renamed) { renamed.title = title; keep(renamed); }
  },
  remove(id) {
    running.get(id)?.controller.abort();
    const removed = store.chat(id);
    store.forget(id);
    if (id === chat.id) startChat();
    else showHistory();
    toast(`Deleted “${removed.title}”.`, "Undo", () => { keep(removed); actions.open(id); });
  },
};

function send() {
  const text = input.value.trim();
  if (!text || running.has(chat.id)) return;
  input.value = "";
  fitInput();
  chat.title ||= text.split("\n")[0].slice(0, 80);
  chat.model = model.value;
  chat.messages.push({ role: "user", content: text });
  answer(chat.messages.length);
}

function stop() {
  running.get(chat.id)?.controller.abort();
}

function startChat() {
  chat = store.create();
  closeMenu();
  show();
  input.focus();
}

// ---- What is shown

function show() {
  const busy = running.has(chat.id) ? chat.messages.length - 1 : -1;
  list.replaceChildren(...chat.messages.map((message, index) => messageView(message, index, actions)));
  if (busy >= 0) paintAnswer(list.children[busy], chat.messages[busy], busy, actions, true);
  part("welcome").hidden = chat.messages.length > 0;
  document.title = chat.title ? `${chat.title} – Smelt` : "Smelt";
  showRunning();
  showHistory();
  followEnd();
}

function showRunning() {
  const isRunning = running.has(chat.id);
  const hadFocus = [part("send"), part("stop")].includes(document.activeElement);
  part("send").hidden = isRunning;
  part("stop").hidden = !isRunning;
  part("send").disabled = !input.value.trim();
  // A button that goes must not take the focus along.
  if (hadFocus) input.focus();
}

function showHistory() {
  const wanted = part("search").value.trim().toLowerCase();
  const has = (chat) => chat.title.toLowerCase().includes(wanted)
    || chat.messages.some((m) => (m.content ?? store.shown(m).content).toLowerCase().includes(wanted));
  const chats = store.chats();
  const found = wanted ? chats.filter(has) : chats;
  part("history").replaceChildren(...historyView(found, chat.id, actions));
  part("history-empty").hidden = chats.length > 0;
}

function followEnd() {
  if (follows) scroll.scrollTop = scroll.scrollHeight;
  part("to-end").hidden = follows || isAtEnd();
}

const isAtEnd = () => scroll.scrollHeight - scroll.scrollTop - scroll.clientHeight < 48;

function fitInput() {
  input.style.height = "auto";
  input.style.height = `${input.scrollHeight}px`;
  part("send").disabled = !input.value.trim();
}

function announce(text) {
  part("status").textContent = text;
}

let toastTimer;

function toast(text, label, act) {
  const button = element("button", { type: "button" }, [label ?? "Close"]);
  const close = () => { part("toast").hidden = true; };
  button.addEventListener("click", () => { close(); act?.(); });
  part("toast").replaceChildren(text, button);
  part("toast").hidden = false;
  clearTimeout(toastTimer);
  toastTimer = setTimeout(close, 8000);
}

function closeMenu() {
  document.body.classList.remove("menu-open");
  part("menu").setAttribute("aria-expanded", "false");
  part("shade").hidden = true;
}

// ---- The server's models and key

async function loadModels() {
  try {
    const names = await api.models();
    const wanted = chat.model ?? store.settings().model;
    model.replaceChildren(...names.map((name) => element("option", { value: name }, [name])));
    if (names.includes(wanted)) model.value = wanted;
    model.disabled = false;
  } catch (error) {
    model.disabled = true;
    model.replaceChildren(element("option", { value: "" }, [error.needsKey ? "An API key is needed" : "No server"]));
    if (error.needsKey && await askKey()) return loadModels();
    if (error.needsKey) return;
    announce(`${error.message} ${error.advice}`);
    setTimeout(loadModels, 3000);
  }
}

/// Asks for the key; whether one was given.
function askKey() {
  const dialog = part("key-dialog");
  if (dialog.open) return false;
  part("key").value = "";
  part("key-why").hidden = api.hasKey();
  part("key-title").textContent = api.hasKey() ? "The server refused this key" : "This server asks for a key";
  dialog.returnValue = "";
  dialog.showModal();
  return new Promise((resolve) => {
    dialog.addEventListener("close", () => {
      const key = part("key").value.trim();
      if (dialog.returnValue === "use") api.setKey(key);
      resolve(dialog.returnValue === "use" && Boolean(key));
    }, { once: true });
  });
}

// ---- What a person does

part("composer").addEventListener("submit", (event) => { event.preventDefault(); send(); });
input.addEventListener("input", fitInput);
input.addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) { event.preventDefault(); send(); }
  if (event.key === "ArrowUp" && !input.value) {
    const last = chat.messages.findLastIndex((message) => message.role === "user");
    if (last >= 0) { event.preventDefault(); actions.edit(last); }
  }
});
document.addEventListener("keydown", (event) => {
  const isCommand = event.ctrlKey || event.metaKey;
  if (document.querySelector("dialog[open]")) return;
  if (event.key === "Escape" && document.body.classList.contains("menu-open")) { closeMenu(); part("menu").focus(); }
  else if (event.key === "Escape") stop();
  if (isCommand && event.shiftKey && event.key.toLowerCase() === "o") { event.preventDefault(); startChat(); }
  if (isCommand && event.key === "/") { event.preventDefault(); input.focus(); }
});
part("stop").addEventListener("click", stop);
part("no-key").addEventListener("click", () => part("key-dialog").close(""));
part("new-chat").addEventListener("click", startChat);
part("search").addEventListener("input", showHistory);
model.addEventListener("change", () => { store.change({ model: model.value }); chat.model = model.value; });
part("menu").addEventListener("click", () => {
  document.body.classList.add("menu-open");
  part("menu").setAttribute("aria-expanded", "true");
  part("shade").hidden = false;
  part("new-chat").focus();
});
part("shade").addEventListener("click", closeMenu);
part("to-end").addEventListener("click", () => { follows = true; followEnd(); input.focus(); });
scroll.addEventListener("scroll", () => {
  follows = isAtEnd();
  part("to-end").hidden = follows;
});
list.addEventListener("click", async ({ target }) => {
  if (target.dataset?.copy !== "code") return;
  await copy(target.closest(".code").querySelector("pre").textContent);
  target.textContent = "Copied";
  setTimeout(() => { target.textContent = "Copy"; }, 1500);
});
// Another tab's chats.
addEventListener("storage", () => {
  if (!running.has(chat.id) && store.chat(chat.id)) { chat = store.chat(chat.id); show(); }
  else showHistory();
});
addEventListener("pagehide", () => running.forEach(({ chat }) => store.keep(chat)));

const THEMES = { auto: "as the system", light: "light", dark: "dark" };

function setTheme(theme) {
  store.change({ theme });
  if (theme === "auto") delete document.documentElement.dataset.theme;
  else document.documentElement.dataset.theme = theme;
  part("theme").replaceChildren(icon(theme));
  part("theme").setAttribute("aria-label", `Theme: ${THEMES[theme]}`);
  part("theme").title = `Theme: ${THEMES[theme]}`;
}

part("theme").addEventListener("click", () => {
  const names = Object.keys(THEMES);
  setTheme(names[(names.indexOf(store.settings().theme ?? "auto") + 1) % names.length]);
});

setTheme(store.settings().theme in THEMES ? store.settings().theme : "auto");
startSettings(toast);
show();
fitInput();
if (!matchMedia("(hover: none)").matches) input.focus();
loadModels();
