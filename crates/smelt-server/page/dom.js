// Making elements. Children are nodes or text; nothing here takes HTML.

const SVG = "http://www.w3.org/2000/svg";

/// An element with properties and children.
export function element(name, properties = {}, children = []) {
  const made = Object.assign(document.createElement(name), properties);
  // One by one: a call takes only so many arguments.
  for (const child of children) made.append(child);
  return made;
}

// Drawn in a square of 24.
const ICONS = {
  copy: ["M9 9h10v11H9z", "M15 9V4H5v11h4"],
  done: ["m5 13 4 4L19 7"],
  edit: ["M4 20h4L19 9l-4-4L4 16z"],
  again: ["M19 8a8 8 0 1 0 1 6", "M20 4v5h-5"],
  bin: ["M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13"],
  back: ["m14 7-5 5 5 5"],
  forth: ["m10 7 5 5-5 5"],
  auto: ["M12 4a8 8 0 0 0 0 16z", "M12 4a8 8 0 0 1 0 16"],
  light: ["M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8z", "M12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6 19 19M5 19l1.4-1.4M17.6 6.4 19 5"],
  dark: ["M19.5 14.5A8 8 0 0 1 9.5 4.5a8 8 0 1 0 10 10z"],
};

/// One of the icons.
export function icon(name) {
  const made = document.createElementNS(SVG, "svg");
  made.setAttribute("viewBox", "0 0 24 24");
  made.setAttribute("aria-hidden", "true");
  for (const path of ICONS[name]) {
    const line = document.createElementNS(SVG, "path");
    line.setAttribute("d", path);
    made.append(line);
  }
  return made;
}

/// A button that shows an icon and says what it does.
export function iconButton(name, label, act) {
  const made = element("button", { type: "button", className: "icon", title: label }, [icon(name)]);
  made.setAttribute("aria-label", label);
  made.addEventListener("click", act);
  return made;
}

/// Puts text on the clipboard. Pages of plain HTTP from another machine have no `navigator.clipboard`.
export async function copy(text) {
  try {
    await navigator.clipboard.writeText(text);
  } catch {
    const area = element("textarea", { value: text, className: "visually-hidden" });
    document.body.append(area);
    area.select();
    document.execCommand("copy");
    area.remove();
  }
}
