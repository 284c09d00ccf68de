// How messages look.

import { copy, element, icon, iconButton } from "./dom.js";
import { render } from "./markdown.js";
import { shown } from "./store.js";

/// The element of a message. `actions` says what its buttons do, each given the message's index.
export function messageView(message, index, actions) {
  const view = element("article", { className: `message ${message.role}` });
  view.setAttribute("aria-label", message.role === "user" ? "You" : "Answer");
  if (message.role === "user") showQuestion(view, message, index, actions);
  else showAnswer(view, message, index, actions);
  return view;
}

function showQuestion(view, message, index, actions) {
  view.append(
    element("div", { className: "body", dir: "auto" }, [message.content]),
    element("div", { className: "tools" }, [
      copyButton(() => message.content),
      iconButton("edit", "Edit", () => actions.edit(index)),
    ]),
  );
}

function showAnswer(view, message, index, actions) {
  const summary = element("summary");
  const thinking = element("div", { className: "thinking prose" });
  const thoughts = element("details", { className: "thoughts", hidden: true }, [summary, thinking]);
  const body = element("div", { className: "body prose", dir: "auto" });
  const problem = element("div", { className: "problem", hidden: true });
  problem.setAttribute("role", "alert");
  const stats = element("span", { className: "stats" });
  const tools = element("div", { className: "tools" }, [
    copyButton(() => shown(message).content),
    iconButton("again", "Regenerate", () => actions.regenerate(index)),
  ]);
  if (message.variants.length > 1) tools.append(pager(message, index, actions));
  tools.append(stats);
  view.append(thoughts, body, problem, tools);
  view.parts = { summary, thinking, thoughts, body, problem, tools, stats };
  paintAnswer(view, message, index, actions, false);
}

function pager(message, index, actions) {
  const turn = (by) => () => actions.choose(index, message.chosen + by);
  const [back, forth] = [iconButton("back", "Earlier answer", turn(-1)), iconButton("forth", "Later answer", turn(1))];
  back.disabled = message.chosen === 0;
  forth.disabled = message.chosen === message.variants.length - 1;
  return element("span", { className: "pager" }, [back, `${message.chosen + 1} / ${message.variants.length}`, forth]);
}

/// Shows what an answer says by now.
export function paintAnswer(view, message, index, actions, isBusy) {
  const { summary, thinking, thoughts, body, problem, tools, stats } = view.parts;
  const { content, reasoning, thought, error } = shown(message);
  view.classList.toggle("busy", isBusy);
  body.setAttribute("aria-busy", isBusy);
  thoughts.hidden = !reasoning;
  if (reasoning) {
    const isThinking = isBusy && !content;
    summary.textContent = isThinking ? "Thinking …" : thought ? `Thought for ${thought.toFixed(1)} s` : "Thoughts";
    render(thinking, reasoning);
  }
  render(body, content);
  tools.hidden = isBusy && !content;
  for (const button of tools.querySelectorAll("button")) button.hidden = isBusy;
  stats.textContent = statistics(shown(message));
  problem.hidden = !error;
  if (error) {
    const again = element("button", { type: "button" }, [error.needsKey ? "Give a key" : "Try again"]);
    again.addEventListener("click", () => (error.needsKey ? actions.giveKey(index) : actions.regenerate(index)));
    problem.replaceChildren(element("strong", {}, [error.message]), element("p", {}, [error.advice ?? ""]), again);
  }
}

function statistics({ model, tokens, seconds, first, ending }) {
  if (!tokens) return "";
  const parts = [`${tokens} tokens`];
  if (seconds > 0 && tokens > 1) parts.push(`${((tokens - 1) / seconds).toFixed(1)} tokens/s`);
  if (first) parts.push(`first after ${first.toFixed(first < 10 ? 2 : 0)} s`);
  if (ending) parts.push(ending);
  parts.push(model);
  return parts.join(" · ");
}

/// A button that copies what `text` gives, and shows that it has.
function copyButton(text) {
  const button = iconButton("copy", "Copy", async () => {
    await copy(text());
    button.replaceChildren(icon("done"));
    setTimeout(() => button.replaceChildren(icon("copy")), 1500);
  });
  return button;
}

/// Puts an editor in place of a question; `done` gets the new text.
export function editMessage(view, text, done, cancel) {
  const area = element("textarea", { value: text, rows: Math.min(12, text.split("\n").length + 1) });
  area.setAttribute("aria-label", "Edit the message");
  const cancelButton = element("button", { type: "button" }, ["Cancel"]);
  const save = element("button", { type: "submit", className: "primary" }, ["Send"]);
  const form = element("form", { className: "editor" }, [area, element("menu", {}, [cancelButton, save])]);
  const submit = () => area.value.trim() && done(area.value.trim());
  form.addEventListener("submit", (event) => { event.preventDefault(); submit(); });
  cancelButton.addEventListener("click", cancel);
  form.addEventListener("keydown", (event) => {
    if (event.key === "Escape") { event.stopPropagation(); cancel(); }
    if (event.key === "Enter" && !event.shiftKey && !event.isComposing && event.target === area) { event.preventDefault(); submit(); }
  });
  view.replaceChildren(form);
  area.focus();
  area.setSelectionRange(text.length, text.length);
}

const DAY = 86400000;

/// The list of chats, by how long ago they were used.
export function historyView(chats, current, actions) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  const age = ({ used }) => used >= midnight ? "Today" : used >= midnight - DAY ? "Yesterday"
    : used >= midnight - 6 * DAY ? "This week" : "Earlier";
  let last = null;
  return chats.flatMap((chat) => {
    const heading = age(chat) === last ? [] : [element("li", {}, [element("h2", {}, [age(chat)])])];
    last = age(chat);
    return [...heading, historyItem(chat, chat.id === current, actions)];
  });
}

function historyItem(chat, isCurrent, actions) {
  const open = element("button", { type: "button", className: "open", title: chat.title }, [chat.title]);
  open.addEventListener("click", () => actions.open(chat.id));
  const rename = iconButton("edit", `Rename “${chat.title}”`, () => {
    const input = element("input", { value: chat.title, maxLength: 200 });
    input.setAttribute("aria-label", "Title");
    let isOver = false;
    const end = (title) => { if (!isOver) { isOver = true; actions.rename(chat.id, title.trim() || chat.title); } };
    input.addEventListener("keydown", (event) => {
      if (event.key === "Enter") end(input.value);
      if (event.key === "Escape") { event.stopPropagation(); end(chat.title); }
    });
    input.addEventListener("blur", () => end(input.value));
    item.replaceChildren(input);
    input.select();
  });
  const remove = iconButton("bin", `Delete “${chat.title}”`, () => actions.remove(chat.id));
  for (const tool of [rename, remove]) tool.classList.add("tool");
  const item = element("li", {}, [open, rename, remove]);
  if (isCurrent) item.setAttribute("aria-current", "true");
  return item;
}
