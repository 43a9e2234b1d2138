// Runs before the first paint, so that a chosen scheme does not flash: `auto` (the system's), `light` or `dark`.
(() => {
  let chosen = null;
  try {
    chosen = localStorage.getItem("forgefront.theme");
  } catch {
    // Without storage, the pages follow the system.
  }
  if (chosen === "light" || chosen === "dark") document.documentElement.dataset.theme = chosen;
})();
