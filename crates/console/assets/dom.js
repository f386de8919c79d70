// Elements with texts. Every text of the cluster passes through `plain`, and is set as text, never as markup. The
// server escapes the texts in its drawings.

const SVG = "http://www.w3.org/2000/svg";

/** Control characters, and marks that are invisible or change the place of other texts. A terminal escapes the same set. */
const HIDDEN =
  /[\u0000-\u001f\u007f-\u009f\u00ad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb\u{e0000}-\u{e007f}]/gu;

/**
 * Shows hidden characters as their numbers.
 * @param {unknown} text
 * @returns {string}
 */
export function plain(text) {
  const shown = (/** @type {string} */ mark) => `\\u{${mark.codePointAt(0)?.toString(16)}}`;
  return String(text ?? "").replace(HIDDEN, shown);
}

/**
 * @typedef {string | number | Node | null | undefined | false} Child
 * @typedef {Record<string, string | number | boolean | undefined>} Attributes
 */

/**
 * Fills an element.
 * @template {Element} T
 * @param {T} element
 * @param {Attributes} attributes
 * @param {Child[]} children
 * @returns {T}
 */
function fill(element, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value !== undefined && value !== false) element.setAttribute(name, value === true ? "" : String(value));
  }
  for (const child of children) {
    if (child === null || child === undefined || child === false) continue;
    element.append(child instanceof Node ? child : plain(child));
  }
  return element;
}

/**
 * Creates an HTML element.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {HTMLElement}
 */
export function html(tag, attributes = {}, ...children) {
  return fill(document.createElement(tag), attributes, children);
}

/**
 * Creates an SVG element.
 * @param {string} tag
 * @param {Attributes} [attributes]
 * @param {...Child} children
 * @returns {SVGElement}
 */
export function svg(tag, attributes = {}, ...children) {
  return fill(/** @type {SVGElement} */ (document.createElementNS(SVG, tag)), attributes, children);
}

/**
 * Returns the element with an id of the page itself.
 * @param {string} id
 * @returns {HTMLElement}
 */
export function byId(id) {
  const found = document.getElementById(id);
  if (!found) throw new Error(`the page has no element ${id}`);
  return found;
}
