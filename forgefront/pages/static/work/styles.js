// The style sheet of lists and forms of issues and merge requests.

import { sheet } from "../styles/sheets.js";

export const styles = () => sheet("lists");
