// The styles of dashboards, which only their pages load.

import { sheet } from "../styles/sheets.js";

export const styles = () => sheet("dashboards");
