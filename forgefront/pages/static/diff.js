// The size of a change.

import { h } from "./dom.js";

/** "3 files, +10 −2" */
export const counted = ({ files, additions, deletions }) =>
  h("span.counted", null, `${files} ${files === 1 ? "file" : "files"}`, h("b.added", null, `+${additions}`), h("b.removed", null, `−${deletions}`));
