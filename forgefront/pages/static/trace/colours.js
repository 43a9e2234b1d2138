// Colours of terminals: the sixteen named ones, the 256 of xterm and 24-bit ones, on the dark background of the output. Text is made
// lighter or darker until its contrast is at least 4.5 to 1 (WCAG 2.2, section 1.4.3).

const TEXT = ["8b95a5", "ff8f8f", "7ed99a", "ebc772", "92b8ff", "dca6ff", "7fd7e0", "e6e9ee", "a7b0be", "ffb0b0", "a5eabb", "f5dc9a", "b5cfff", "e8c5ff", "a9e8ee", "ffffff"];
const BACKGROUND = ["000000", "8c1d1d", "1d6b33", "7a5a00", "1f4fb0", "7a2fa0", "0f6674", "c8cdd5", "4a5362", "ff8f8f", "7ed99a", "ebc772", "92b8ff", "dca6ff", "7fd7e0", "ffffff"];
const CUBE = [0, 95, 135, 175, 215, 255];
const MIN_CONTRAST = 4.5;
const STEPS = 8;
export const PAPER = "#12161c";
const INK = "#d5dae2";

/** "#rrggbb" of a colour: a number of the 256, or that string itself. `under`: as a background. */
function hex(colour, under) {
  if (typeof colour === "string") return colour;
  if (colour < 16) return `#${(under ? BACKGROUND : TEXT)[colour]}`;
  if (colour >= 232) return fromRgb(Array(3).fill(8 + (colour - 232) * 10));
  const number = colour - 16;
  return fromRgb([Math.floor(number / 36), Math.floor(number / 6) % 6, number % 6].map((each) => CUBE[each]));
}

export const fromRgb = (parts) => `#${parts.map((each) => Math.min(255, Math.max(0, Math.round(each) || 0)).toString(16).padStart(2, "0")).join("")}`;

const rgb = (text) => [1, 3, 5].map((from) => parseInt(text.slice(from, from + 2), 16));

function luminance(parts) {
  const [red, green, blue] = parts.map((each) => (each / 255 <= 0.04045 ? each / 255 / 12.92 : ((each / 255 + 0.055) / 1.055) ** 2.4));
  return 0.2126 * red + 0.7152 * green + 0.0722 * blue;
}

/** The contrast of two "#rrggbb", from 1 to 21. */
export function contrast(one, other) {
  const [dark, light] = [luminance(rgb(one)), luminance(rgb(other))].sort((first, second) => first - second);
  return (light + 0.05) / (dark + 0.05);
}

const readable = new Map();

/** The colours of text as `{text, background}`, "#rrggbb" or null for those of the page. */
export function inks({ text = null, background = null, dim = false, inverse = false }) {
  if (inverse) [text, background] = [background ?? PAPER, text ?? INK];
  if (dim && text === null) text = 8;
  if (text === null && background === null) return { text: null, background: null };
  const key = `${text} ${background} ${inverse}`;
  if (!readable.has(key)) {
    // Traces with all colours there are must not fill the memory.
    if (readable.size > 4096) readable.clear();
    const under = background === null ? null : hex(background, !inverse);
    readable.set(key, { text: legible(text === null ? INK : hex(text, inverse), under ?? PAPER), background: under });
  }
  return readable.get(key);
}

/** The colour nearest to `text` that can be read on `under`: it is mixed with white or with black, whichever is read better there. */
function legible(text, under) {
  if (contrast(text, under) >= MIN_CONTRAST) return text;
  const end = contrast("#ffffff", under) >= contrast("#000000", under) ? 255 : 0;
  const parts = rgb(text);
  for (let step = 1; step < STEPS; step++) {
    const mixed = fromRgb(parts.map((each) => each + ((end - each) * step) / STEPS));
    if (contrast(mixed, under) >= MIN_CONTRAST) return mixed;
  }
  return end ? "#ffffff" : "#000000";
}
