// Code with a little colour: comments, strings, numbers and words, by what most languages share.

import { element } from "./dom.js";

const WORDS = new Set(("abstract and as async await auto bool boolean break case catch char class const continue crate def "
  + "default del delete do double dyn elif else end enum export extends extern false final finally float fn for foreach from "
  + "func function global go goto if impl implements import in instanceof int interface is lambda let local long loop match "
  + "mod module mut namespace new nil none None not null nullptr or package pass private protected pub public raise ref "
  + "return self Self short signed sizeof static std string struct super switch template then this throw trait true True "
  + "False try type typedef typeof union unsafe unsigned use using var virtual void volatile when where while with yield "
  + "select insert update from where join on group by order limit values create table into set SELECT INSERT UPDATE FROM "
  + "WHERE JOIN ON GROUP BY ORDER LIMIT VALUES CREATE TABLE INTO SET AND OR NOT NULL AS").split(" "));
const HASH = new Set(["python", "py", "sh", "bash", "shell", "zsh", "ruby", "rb", "yaml", "yml", "toml", "perl", "r", "make",
  "makefile", "dockerfile", "elixir", "julia", "nix", "conf", "ini", "powershell"]);
const DASH = new Set(["sql", "lua", "haskell", "hs", "elm", "ada"]);
const PLAIN = new Set(["", "text", "txt", "plain", "plaintext", "markdown", "md", "output", "console", "diff"]);
// Beyond this, colour costs more than it gives.
const MOST = 20000;

/// The nodes of a piece of code.
export function highlight(text, language) {
  if (PLAIN.has(language) || text.length > MOST) return [text];
  const comment = HASH.has(language) ? "#[^\\n]*" : DASH.has(language) ? "--[^\\n]*" : "//[^\\n]*|/\\*[^]*?(?:\\*/|$)|<!--[^]*?(?:-->|$)";
  const string = `"""[^]*?(?:"""|$)|"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'|\`(?:\\\\.|[^\`\\\\])*\`?`;
  const pattern = new RegExp(`(${comment})|(${string})|\\b(0[xXbBoO][\\da-fA-F_]+|\\d[\\d_]*(?:\\.\\d+)?(?:[eE][+-]?\\d+)?)\\b|([A-Za-z_]\\w*)`, "g");
  const nodes = [];
  let at = 0;
  for (const match of text.matchAll(pattern)) {
    const kind = match[1] ? "c" : match[2] ? "s" : match[3] ? "n" : WORDS.has(match[4]) ? "k" : null;
    if (!kind) continue;
    if (match.index > at) nodes.push(text.slice(at, match.index));
    nodes.push(element("span", { className: `tok-${kind}` }, [match[0]]));
    at = match.index + match[0].length;
  }
  nodes.push(text.slice(at));
  return nodes;
}
