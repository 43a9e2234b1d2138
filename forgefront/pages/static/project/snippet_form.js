// The form of a snippet, for a new one and for changes.

import { field, form } from "../forms.js";
import { VISIBILITIES } from "./visibilities.js";

/** `snippet` is null for a new one. `act(values)` gets the title, the file name, the visibility and the contents; `keep` as in forms.js. */
export const snippetForm = (name, snippet, { word, act, keep }) =>
  form(name, [
    field("title", "Title", { required: true, value: snippet?.title ?? "" }),
    field("fileName", "File name", { required: true, value: snippet?.fileName ?? "" }),
    field("visibility", "Visibility", {
      kind: "select", options: VISIBILITIES, value: snippet?.visibility ?? "PRIVATE",
      hint: "Among those who see the project. Private ones are for its members.",
    }),
    field("content", "Contents", { kind: "textarea", value: snippet?.content ?? "" }),
  ], { word, keep, act: ({ title, fileName, visibility, content }) => act({ title: title.trim(), fileName: fileName.trim(), visibility, content }) });
