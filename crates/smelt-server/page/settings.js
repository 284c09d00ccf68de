// The dialog of settings: system prompt and sampling.

import { element } from "./dom.js";
import * as store from "./store.js";

const dialog = document.getElementById("settings");
const fields = [...dialog.querySelectorAll("[data-setting]")];
const TEXTS = new Set(["system", "reasoning_effort"]);

/// The system prompt, and the parameters that are set.
export function chosenSettings() {
  const { system = "", ...sampling } = store.settings().chosen ?? {};
  return { system, sampling };
}

function take() {
  const chosen = {};
  for (const field of fields) {
    const text = field.value.trim();
    if (!text || !field.validity.valid) continue;
    chosen[field.dataset.setting] = TEXTS.has(field.dataset.setting) ? text : Number(text);
  }
  store.change({ chosen });
}

function fill() {
  const chosen = store.settings().chosen ?? {};
  for (const field of fields) field.value = chosen[field.dataset.setting] ?? "";
}

function open() {
  fill();
  dialog.showModal();
}

function exportChats(toast) {
  const chats = store.chats();
  if (!chats.length) return toast("There are no chats to export.");
  const url = URL.createObjectURL(new Blob([JSON.stringify(chats, null, 2)], { type: "application/json" }));
  element("a", { href: url, download: "smelt-chats.json" }).click();
  URL.revokeObjectURL(url);
}

/// Makes the dialog work.
export function startSettings(toast) {
  document.getElementById("open-settings").addEventListener("click", open);
  document.addEventListener("keydown", (event) => {
    if ((event.ctrlKey || event.metaKey) && event.key === "," && !document.querySelector("dialog[open]")) {
      event.preventDefault();
      open();
    }
  });
  // Whatever is set holds at once, and Escape keeps it too.
  dialog.addEventListener("change", take);
  document.getElementById("reset").addEventListener("click", () => {
    store.change({ chosen: {} });
    fill();
  });
  document.getElementById("export").addEventListener("click", () => exportChats(toast));
}
