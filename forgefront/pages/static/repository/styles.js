// The styles of files, which only their pages load.

import { sheet } from "../styles/sheets.js";

export const styles = () => sheet("files");
