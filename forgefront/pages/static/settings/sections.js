// The sections of a project's settings, and who sees them.

/** The address, the heading, and whether somebody with these rights (`viewerCan`) sees it. */
export const SECTIONS = [
  ["members", "Members", () => true],
  ["general", "General", (can) => can.update],
  ["hooks", "Hooks", (can) => can.adminHooks],
  ["deploy_keys", "Deploy keys", (can) => can.adminDeployKeys],
  ["variables", "Variables", (can) => can.adminBuilds],
  ["runners", "Runners", (can) => can.adminRunners],
  ["triggers", "Triggers", (can) => can.adminBuilds],
];

/** Whether the viewer may change more than look at the members. */
export const hasSettings = ({ viewerCan }) => viewerCan.adminMembers || SECTIONS.slice(1).some(([, , there]) => there(viewerCan));
