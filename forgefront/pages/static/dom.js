// Elements are created with DOM calls, never parsed from HTML, so that strings are always shown as text.

const SVG = "http://www.w3.org/2000/svg";

/**
 * `h("a.name.other", { href, onclick, "aria-label": … }, "text", other, [more], null)` creates an element. `on…` are listeners. Attributes
 * and children that are null or false are omitted; strings become text nodes.
 */
export function h(kind, attributes, ...children) {
  const [tag, ...classes] = kind.split(".");
  return filled(document.createElement(tag || "div"), classes, attributes, children);
}

/** The same for SVG. */
export function s(kind, attributes, ...children) {
  const [tag, ...classes] = kind.split(".");
  return filled(document.createElementNS(SVG, tag), classes, attributes, children);
}

export function replace(element, ...children) {
  element.replaceChildren(...flat(children));
  return element;
}

function filled(element, classes, attributes, children) {
  if (classes.length) element.setAttribute("class", classes.join(" "));
  for (const [name, value] of Object.entries(attributes ?? {})) {
    if (value === null || value === undefined || value === false) continue;
    if (name.startsWith("on")) element.addEventListener(name.slice(2), value);
    else if (name === "value") element.value = value;
    else if (name !== "href" || harmless(value)) element.setAttribute(name, value === true ? "" : value);
  }
  element.append(...flat(children));
  return element;
}

const flat = (children) => children.flat(Infinity).filter((each) => each !== null && each !== undefined && each !== false);

const harmless = (href) => /^(https?:|ssh:|mailto:|[/?#.])/i.test(href);
