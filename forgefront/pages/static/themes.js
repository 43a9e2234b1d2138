// The switch between light, dark and the system's scheme.

import { replace, s } from "./dom.js";

const NEXT = { auto: "light", light: "dark", dark: "auto" };
const WORDS = { auto: "Color theme: system", light: "Color theme: light", dark: "Color theme: dark" };
const PATHS = {
  auto: "M8 1a7 7 0 1 0 0 14A7 7 0 0 0 8 1Zm0 1.700v10.600a5.300 5.300 0 0 1 0-10.600Z",
  light: "M8 4.600a3.400 3.400 0 1 0 0 6.800 3.400 3.400 0 0 0 0-6.800ZM7.200.8h1.600v2.400H7.200Zm0 12h1.600v2.400H7.200ZM.8 7.200h2.400v1.600H.8Zm12 0h2.400v1.600h-2.400ZM2.300 3.500l1.200-1.200 1.700 1.700L4 5.200Zm8.500 8.500 1.200-1.200 1.700 1.700-1.200 1.200ZM2.300 12.500 4 10.800 5.200 12l-1.700 1.700Zm8.500-8.500 1.700-1.700 1.200 1.200L12 5.200Z",
  dark: "M6.300 1.300A7 7 0 1 0 14.700 9.700 5.600 5.600 0 0 1 6.300 1.300Z",
};

export function button(element) {
  const show = () => {
    const chosen = document.documentElement.dataset.theme ?? "auto";
    element.setAttribute("aria-label", WORDS[chosen]);
    element.title = WORDS[chosen];
    replace(element, s("svg.glyph", { viewBox: "0 0 16 16", width: 16, height: 16, "aria-hidden": "true" }, s("path", { d: PATHS[chosen] })));
  };
  element.addEventListener("click", () => {
    const chosen = NEXT[document.documentElement.dataset.theme ?? "auto"];
    if (chosen === "auto") delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = chosen;
    try {
      localStorage.setItem("forgefront.theme", chosen);
    } catch {
      // Storage is unavailable: the choice is lost with the page.
    }
    show();
  });
  show();
}
