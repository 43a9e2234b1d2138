// Before anything is drawn, so that a chosen scheme does not flash: `auto` (the system's), `light` or `dark`.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("forgefront.theme");
  } catch {
    // A browser that keeps nothing follows the system.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
