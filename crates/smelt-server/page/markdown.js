// Markdown as DOM nodes. Text of a model only ever becomes text nodes and checked links: there is no string of HTML.

import { highlight } from "./highlight.js";
import { element } from "./dom.js";

// No two neighbours of a pattern match the same white space: a line of nothing else must not take quadratic time.
const FENCE = /^( {0,3})(`{3,}|~{3,})([^`]*)$/;
const HEADING = /^ {0,3}(#{1,6})(?:[ \t]+([^]*))?$/;
const RULE = /^ {0,3}([-*_])(?:\s*\1){2,}\s*$/;
const ITEM = /^(\s*)([-*+]|\d{1,9}[.)])(?:\s+([^]*)|)$/;
const QUOTE = /^ {0,3}> ?([^]*)$/;
const TABLE_RULE = /^ {0,3}\|?\s*:?-+:?\s*(?:\|\s*:?-+:?\s*)*(?:\|\s*)?$/;
// Deeper lists and quotes are shown as text: a hostile answer must not exhaust the stack.
const MOST_LEVELS = 16;
// So far a mark looks for its other half: a text of nothing but opening marks must not take quadratic time.
const MOST_SPAN = 2000;

/// Shows `text` in `container`. Blocks that have not changed since the last call keep their nodes, so that a growing
/// answer costs little, and what a reader has selected in it stays selected.
export function render(container, text) {
  const blocks = split(text.replace(/\r\n?/g, "\n").split("\n"));
  const shown = container.blocks ?? [];
  let same = 0;
  while (same < blocks.length && same < shown.length && blocks[same] === shown[same]) same++;
  while (container.childNodes.length > same) container.lastChild.remove();
  for (const source of blocks.slice(same)) container.append(block(source.split("\n"), 0));
  container.blocks = blocks;
}

/// The sources of the top-level blocks.
function split(lines) {
  const blocks = [];
  for (let at = 0; at < lines.length;) {
    if (!lines[at].trim()) { at++; continue; }
    const end = blockEnd(lines, at);
    blocks.push(lines.slice(at, end).join("\n"));
    at = end;
  }
  return blocks;
}

/// The line behind the block that begins at `at`.
function blockEnd(lines, at) {
  const fence = FENCE.exec(lines[at]);
  if (fence) {
    const close = new RegExp(`^ {0,3}${fence[2][0]}{${fence[2].length},}\\s*$`);
    let end = at + 1;
    while (end < lines.length && !close.test(lines[end])) end++;
    return Math.min(end + 1, lines.length);
  }
  if (HEADING.test(lines[at]) || RULE.test(lines[at])) return at + 1;
  if (isTable(lines, at)) {
    let end = at + 2;
    while (end < lines.length && lines[end].includes("|")) end++;
    return end;
  }
  const item = ITEM.exec(lines[at]);
  if (item) return listEnd(lines, at, item[1].length, /\d/.test(item[2]));
  const isQuote = QUOTE.test(lines[at]);
  let end = at + 1;
  while (end < lines.length && lines[end].trim() && (isQuote || !begins(lines, end))) end++;
  return end;
}

/// Whether a line interrupts a paragraph.
function begins(lines, at) {
  const line = lines[at];
  return FENCE.test(line) || HEADING.test(line) || RULE.test(line) || QUOTE.test(line) || isTable(lines, at)
    || /^ {0,3}(?:[-*+]|1[.)])\s+\S/.test(line);
}

function isTable(lines, at) {
  return lines[at].includes("|") && at + 1 < lines.length && TABLE_RULE.test(lines[at + 1])
    && cells(lines[at]).length === cells(lines[at + 1]).length;
}

function listEnd(lines, at, indent, isOrdered) {
  let end = at + 1;
  for (; end < lines.length; end++) {
    const line = lines[end];
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent + 1 && (/\d/.test(item[2]) !== isOrdered || RULE.test(line))) break;
    const isInside = item || /^\s/.test(line) || !line.trim();
    // A line that goes on lazily belongs to the item, unless an empty one parts them.
    if (!isInside && (!lines[end - 1].trim() || begins(lines, end))) break;
  }
  while (!lines[end - 1].trim()) end--;
  return end;
}

function block(lines, level) {
  const fence = FENCE.exec(lines[0]);
  if (fence) return code(lines, fence);
  const heading = HEADING.exec(lines[0]);
  if (heading) return element(`h${heading[1].length}`, {}, inline((heading[2] ?? "").trim().replace(/(^|\s)#+$/, ""), 0));
  if (RULE.test(lines[0])) return element("hr");
  if (isTable(lines, 0)) return table(lines);
  if (level < MOST_LEVELS && ITEM.test(lines[0])) return list(lines, level);
  if (level < MOST_LEVELS && QUOTE.test(lines[0])) {
    const inner = lines.map((line) => QUOTE.exec(line)?.[1] ?? line);
    return element("blockquote", {}, children(inner, level + 1));
  }
  return element("p", {}, inline(lines.map((line) => line.trim().replace(/\\$/, "")).join("\n"), 0));
}

function children(lines, level) {
  return split(lines).map((source) => block(source.split("\n"), level));
}

function code(lines, [, indent, marks, info]) {
  const last = lines.at(-1).trim();
  const isClosed = lines.length > 1 && last.length >= marks.length && [...last].every((mark) => mark === marks[0]);
  const own = new RegExp(`^ {0,${indent.length}}`);
  const text = lines.slice(1, isClosed ? -1 : undefined).map((line) => line.replace(own, "")).join("\n");
  const language = info.trim().split(/[\s{,:]/)[0].slice(0, 24);
  const copy = element("button", { type: "button", className: "copy-code" }, ["Copy"]);
  copy.dataset.copy = "code";
  return element("div", { className: "code" }, [
    element("div", { className: "code-head" }, [element("span", {}, [language || "text"]), copy]),
    element("pre", { tabIndex: 0 }, [element("code", {}, highlight(text, language.toLowerCase()))]),
  ]);
}

function cells(line) {
  const parts = [""];
  // A bar behind a backslash, or within code, parts nothing.
  for (const [piece] of line.trim().replace(/^\|/, "").matchAll(/\\.|`[^`]*`|[^\\`|]+|[^]/g)) {
    if (piece === "|") parts.push("");
    else parts.push(parts.pop() + (piece === "\\|" ? "|" : piece));
  }
  if (parts.length > 1 && !parts.at(-1).trim()) parts.pop();
  return parts.map((cell) => cell.trim());
}

function table(lines) {
  const aligns = cells(lines[1]).map((cell) => cell.endsWith(":") ? (cell.startsWith(":") ? "center" : "right") : "left");
  const row = (line, name) => element("tr", {}, aligns.map((align, column) => {
    const cell = element(name, {}, inline(cells(line)[column] ?? "", 0));
    cell.dataset.align = align;
    return cell;
  }));
  return element("div", { className: "table", tabIndex: 0 }, [element("table", {}, [
    element("thead", {}, [row(lines[0], "th")]),
    element("tbody", {}, lines.slice(2).map((line) => row(line, "td"))),
  ])]);
}

function list(lines, level) {
  const [, indent, mark] = ITEM.exec(lines[0]);
  const isOrdered = /\d/.test(mark);
  const items = [];
  for (const line of lines) {
    const item = ITEM.exec(line);
    if (item && item[1].length <= indent.length + 1) items.push([item[3] ?? ""]);
    else items.at(-1).push(line);
  }
  const made = element(isOrdered ? "ol" : "ul", {}, items.map((item) => listItem(item, level)));
  if (isOrdered && parseInt(mark, 10) !== 1) made.start = parseInt(mark, 10);
  return made;
}

function listItem([first, ...rest], level) {
  const filled = rest.filter((line) => line.trim());
  const indent = Math.min(...filled.map((line) => line.search(/\S/)), 8);
  const task = /^\[([ xX])\]\s+([^]*)$/.exec(first);
  const inner = children([task ? task[2] : first, ...rest.map((line) => line.slice(Math.min(indent, line.search(/\S|$/))))], level + 1);
  // A tight list's items are no paragraphs.
  const isTight = rest.every((line) => line.trim());
  const nodes = inner.flatMap((node) => isTight && node.nodeName === "P" ? [...node.childNodes] : [node]);
  if (!task) return element("li", {}, nodes);
  const box = element("input", { type: "checkbox", disabled: true, checked: task[1] !== " " });
  box.setAttribute("aria-label", task[1] === " " ? "open" : "done");
  return element("li", { className: "task" }, [box, " ", ...nodes]);
}

// Each pattern with what it makes; the first that matches at a place wins.
const SPANS = [
  [/`+/y, codeSpan],
  [/\\([\\`*_{}[\]()#+\-.!|~<>])/y, (match) => [match[1], match[0].length]],
  [/!?\[((?:[^[\]\\]|\\.|\[[^[\]]*\]){0,500})\]\(\s{0,9}<?([^\s()<>]*(?:\([^\s()]*\)[^\s()<>]*)*)>?(?:\s{1,9}"[^"]*")?\s{0,9}\)/y, link],
  [/<?(https?:\/\/[^\s<>"'`]{1,2000})>?/y, bareLink],
  [/(\*\*|__)(?=\S)/y, (match, text, at, level) => between(match, text, at, level, "strong")],
  [/~~(?=\S)/y, (match, text, at, level) => between(match, text, at, level, "del")],
  [/[*_](?=\S)/y, (match, text, at, level) => between(match, text, at, level, "em")],
  [/\n/y, () => [element("br"), 1]],
];

/// The nodes of a text within a block.
export function inline(text, level) {
  const nodes = [];
  let plain = "";
  const flush = () => { if (plain) nodes.push(plain); plain = ""; };
  for (let at = 0; at < text.length;) {
    let made = null;
    if (/[`\\![<h*_~\n]/.test(text[at]) && level < MOST_LEVELS) {
      for (const [pattern, make] of SPANS) {
        pattern.lastIndex = at;
        const match = pattern.exec(text);
        made = match && make(match, text, at, level);
        if (made) break;
      }
    }
    if (!made) { plain += text[at++]; continue; }
    if (typeof made[0] === "string") plain += made[0];
    else { flush(); nodes.push(made[0]); }
    at += made[1];
  }
  flush();
  return nodes;
}

function codeSpan(match, text, at) {
  const marks = match[0];
  let end = at + marks.length;
  for (;;) {
    end = text.indexOf(marks, end);
    if (end < 0) return [marks, marks.length];
    if (text[end + marks.length] !== "`") break;
    while (text[end] === "`") end++;
  }
  const inner = text.slice(at + marks.length, end).replaceAll("\n", " ");
  return [element("code", {}, [/^ .*\S.* $/.test(inner) ? inner.slice(1, -1) : inner]), end + marks.length - at];
}

function between(match, text, at, level, name) {
  const mark = match[0];
  // An underscore within a word is part of its name.
  const isWord = (place) => /[\p{L}\p{N}_]/u.test(text[place] ?? "");
  if (mark[0] === "_" && isWord(at - 1)) return null;
  for (let end = at + mark.length; ; end += 1) {
    end = text.indexOf(mark, end);
    if (end < 0 || end - at > MOST_SPAN) return null;
    const isDouble = mark.length === 1 && (text[end + 1] === mark || text[end - 1] === mark);
    if (isDouble || /\s/.test(text[end - 1]) || end === at + mark.length) continue;
    if (mark[0] === "_" && isWord(end + mark.length)) continue;
    const inner = inline(text.slice(at + mark.length, end), level + 1);
    return [element(name, {}, inner), end + mark.length - at];
  }
}

function link(match, _text, _at, level) {
  const address = safe(match[2]);
  // An image would be fetched from wherever the model says; its address can be followed by choice.
  const isImage = match[0].startsWith("!");
  const nodes = isImage ? [match[1] || "image"] : inline(match[1], level + 1);
  return [address ? anchor(address, nodes) : element("span", {}, nodes), match[0].length];
}

function bareLink(match) {
  const isBracketed = match[0].startsWith("<");
  const url = isBracketed ? match[1] : match[1].replace(/[.,;:!?)\]*_]+$/, "");
  const address = safe(url);
  return address && [anchor(address, [url]), isBracketed ? match[0].length : url.length];
}

function anchor(address, nodes) {
  return element("a", { href: address, target: "_blank", rel: "noopener noreferrer" }, nodes);
}

/// An address that a click may follow, or null: no scripts, and nothing of this server.
function safe(url) {
  try {
    const { protocol, href } = new URL(url);
    return ["http:", "https:", "mailto:"].includes(protocol) ? href : null;
  } catch {
    return null;
  }
}
