// Filters the list of names by the field; "/" focuses the field.
const field = document.getElementById("filter");
const groups = [...document.querySelectorAll("nav details")].map((group) => ({ group, open: group.open, items: [...group.querySelectorAll("li")] }));

field.hidden = false;
field.addEventListener("input", () => {
  const wanted = field.value.trim().toLowerCase();
  for (const { group, open, items } of groups) {
    for (const item of items) item.hidden = !item.textContent.toLowerCase().includes(wanted);
    group.hidden = items.every((item) => item.hidden);
    group.open = wanted ? true : open;
  }
});
field.addEventListener("keydown", (event) => {
  if (event.key === "Enter") document.querySelector("nav li:not([hidden]) a")?.click();
  if (event.key === "Escape") {
    field.value = "";
    field.dispatchEvent(new Event("input"));
  }
});
addEventListener("keydown", (event) => {
  if (event.key !== "/" || event.ctrlKey || event.metaKey || event.target === field) return;
  event.preventDefault();
  field.focus();
});
